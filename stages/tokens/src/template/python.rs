//! What chat templates take for granted: Python's methods on texts, its JSON, and the functions that `transformers` adds.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;

use crate::error::TokensError;

/// How deep values may be nested in JSON.
const DEEPEST: usize = 64;

/// An environment as `transformers` sets it up.
pub(super) fn environment() -> Result<Environment<'static>, TokensError> {
    let mut environment = Environment::new();
    let mut syntax = environment.syntax().to_builder();
    let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build().map_err(|error| problem(&error))?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        let raised = Error::new(ErrorKind::InvalidOperation, message.clone());
        Err(raised.with_source(Raised(message)))
    });
    environment.add_function("strftime_now", |format: String| date(&format));
    environment.add_filter("tojson", tojson);
    Ok(environment)
}

/// The text given to `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// An error of the template as one of this crate.
pub(super) fn problem(error: &Error) -> TokensError {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return TokensError::Refused(message.clone());
        }
        source = inner.source();
    }
    let message = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    TokensError::Template { line: error.line(), message }
}

/// `{% generation %}` marks what is trained on; it changes no text, and Jinja itself does not know it.
pub(super) fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        text.push_str(before);
        let Some(close) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inside = &tag[2..close];
        let word = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let statement = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match statement {
            Some(statement) => text.push_str(&format!("{{%{}%}}", inside.replacen(word, statement, 1))),
            None => text.push_str(&tag[..close + 2]),
        }
        rest = &tag[close + 2..];
    }
    text.push_str(rest);
    text
}

/// A map that keeps the order of its keys.
#[derive(Debug)]
pub(super) struct OrderedMap(Vec<(String, Value)>);

impl OrderedMap {
    pub(super) fn new(entries: Vec<(String, Value)>) -> Self {
        Self(entries)
    }
}

impl Object for OrderedMap {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(name.as_str())).collect())
    }
}

/// JSON as a template's value; every text, keys too, goes through `text`.
pub(super) fn value(json: &Json, text: &dyn Fn(&str) -> Value) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64()),
        },
        Json::String(string) => text(string),
        Json::Array(values) => values.iter().map(|json| value(json, text)).collect(),
        Json::Object(map) => {
            let key = |name: &str| text(name).as_str().map_or_else(|| name.to_owned(), str::to_owned);
            Value::from_object(OrderedMap(map.iter().map(|(name, json)| (key(name), value(json, text))).collect()))
        }
    }
}

/// Servers send the arguments of a call as JSON in a text; templates want the values.
pub(super) fn with_arguments(mut calls: Json) -> Json {
    for call in calls.as_array_mut().into_iter().flatten() {
        let holder = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
        let Some(arguments) = holder.and_then(|holder| holder.get_mut("arguments")) else { continue };
        if let Some(Ok(parsed @ Json::Object(_))) = arguments.as_str().map(serde_json::from_str) {
            *arguments = parsed;
        }
    }
    calls
}

/// `json.dumps(value, ensure_ascii=False)` with its spaces; minijinja's own filter escapes for HTML.
#[expect(clippy::needless_pass_by_value, reason = "the form of a filter with keywords")]
fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let sort: Option<bool> = kwargs.get("sort_keys")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    if kwargs.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "`tojson` with `ensure_ascii=true` is not possible here"));
    }
    kwargs.assert_all_used()?;
    let (between, after_key) = match separators.as_deref() {
        Some([between, after_key]) => (between.clone(), after_key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "`separators` are two texts")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = JsonWriter { out: String::new(), indent, sort: sort == Some(true), between, after_key };
    writer.write(value, 0)?;
    Ok(Value::from(writer.out))
}

struct JsonWriter {
    out: String,
    indent: Option<usize>,
    sort: bool,
    between: String,
    after_key: String,
}

impl JsonWriter {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::new(ErrorKind::BadSerialization, format!("JSON nested more than {DEEPEST} deep")));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.text(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let values: Vec<Value> = value.try_iter()?.collect();
                self.out.push('[');
                for (index, value) in values.iter().enumerate() {
                    self.item(index, depth + 1);
                    self.write(value, depth + 1)?;
                }
                self.close(values.is_empty(), depth, ']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort {
                    keys.sort();
                }
                self.out.push('{');
                for (index, key) in keys.iter().enumerate() {
                    self.item(index, depth + 1);
                    self.text(&key.to_string())?;
                    self.out.push_str(&self.after_key.clone());
                    self.write(&value.get_item(key)?, depth + 1)?;
                }
                self.close(keys.is_empty(), depth, '}');
            }
            other => return Err(Error::new(ErrorKind::BadSerialization, format!("{other} is not JSON"))),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
        self.out.push_str(&serde_json::to_string(text).map_err(failed)?);
        Ok(())
    }

    fn item(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(&self.between.clone());
        }
        self.line(depth);
    }

    fn close(&mut self, is_empty: bool, depth: usize, bracket: char) {
        if !is_empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.push_str(&" ".repeat(indent * depth));
        }
    }
}

/// Friday, 26 July 2024, 00:00, by a format of `strftime`.
fn date(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let code = characters.next();
        text.push_str(match code {
            Some('d') => "26",
            Some('b' | 'h') => "Jul",
            Some('B') => "July",
            Some('Y') => "2024",
            Some('y') => "24",
            Some('m') => "07",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('H' | 'M' | 'S') => "00",
            Some('j') => "208",
            Some('F') => "2024-07-26",
            Some('%') => "%",
            _ => {
                let message = format!("`strftime_now` does not know `%{}`", code.unwrap_or(' '));
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(text)
}
