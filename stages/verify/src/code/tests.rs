//! The tests of a program, read from the JSON that lies beside a query.
//!
//! Three forms of our own (`stdin`, `function`, `assert`), and the forms that open data sets use
//! (`forms.rs`). A mistake in the tests is an error that names its place: a misread test would turn
//! into wrong verdicts, and no test at all must never look like "all passed".

use super::compare::{Compare, TOLERANCE};
use super::forms;
use super::json::Json;
use super::limits::TestLimits;
use super::toolchain::language;
use thiserror::Error;

/// Bytes that a generated text may have.
const GENERATED: usize = 64 << 20;

/// The tests of one program.
///
/// ```
/// use stage_verify::code::Tests;
/// let tests = Tests::parse(r#"{"type": "stdin", "cases": [{"input": "2 3", "output": "5"}]}"#)?;
/// assert_eq!((tests.len(), tests.tier()), (1, "stdin"));
/// assert!(Tests::parse(r#"{"type": "stdin", "cases": []}"#).is_err());
/// # Ok::<(), stage_verify::code::TestsError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Tests {
    pub(super) form: Form,
    pub(super) language: Option<String>,
    pub(super) limits: TestLimits,
}

/// How a program is tested.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    /// Input on stdin, output on stdout; a process for each case.
    Stdin { cases: Vec<StdinCase>, compare: Compare },
    /// A call with plain data in and out; a process for each case.
    Function { entry: String, cases: Vec<FunctionCase>, tolerance: f64 },
    /// Statements that run in the program's process.
    Assert { setup: String, asserts: Vec<String>, entry: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StdinCase {
    pub(super) input: Text,
    pub(super) output: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionCase {
    /// A list.
    pub(super) arguments: Json,
    /// Any of these is right.
    pub(super) expected: Vec<Json>,
}

/// A text, or how to make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    Plain(String),
    Repeated { prefix: String, repeat: String, times: usize, suffix: String },
}

impl Text {
    /// The text itself.
    pub(super) fn made(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Plain(text) => text.into(),
            Self::Repeated { prefix, repeat, times, suffix } => {
                format!("{prefix}{}{suffix}", repeat.repeat(*times)).into()
            }
        }
    }
}

/// What is wrong with tests.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TestsError {
    /// The text is not JSON.
    #[error("the tests are not JSON: {what} at byte {at}")]
    NotJson {
        /// Byte offset.
        at: usize,
        /// What was found there.
        what: &'static str,
    },
    /// There is not one test.
    #[error("`{place}` holds no test: a program without tests has no verdict; give at least one, or leave the row out")]
    Empty {
        /// Where tests were expected.
        place: String,
    },
    /// A part has the wrong shape.
    #[error("`{place}` of the tests: {what}")]
    Wrong {
        /// Path of the part, for instance `cases[3].args`.
        place: String,
        /// What is wrong, and the way out.
        what: String,
    },
}

impl TestsError {
    pub(super) fn wrong(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Wrong { place: place.into(), what: what.into() }
    }

    pub(super) fn unknown(place: &str, key: &str, keys: &[&str]) -> Self {
        Self::wrong(place, format!("unknown key `{key}`; the keys are {}", keys.join(", ")))
    }
}

impl Tests {
    /// Reads the JSON text of tests.
    ///
    /// # Errors
    /// [`TestsError`]: not JSON, no test at all, or a part of a wrong shape, with its place.
    pub fn parse(json: &str) -> Result<Self, TestsError> {
        let value = Json::parse(json).map_err(|wrong| TestsError::NotJson { at: wrong.at, what: wrong.what })?;
        let tests = match &value {
            Json::Map(entries) if entries.iter().any(|(key, _)| key == "type") => own(entries)?,
            other => forms::read(other)?,
        };
        let (count, place) = match &tests.form {
            Form::Stdin { cases, .. } => (cases.len(), "cases"),
            Form::Function { cases, .. } => (cases.len(), "cases"),
            Form::Assert { asserts, .. } => (asserts.len(), "asserts"),
        };
        if count == 0 { Err(TestsError::Empty { place: place.to_string() }) } else { Ok(tests) }
    }

    /// How many tests; at least one. The text of a `check` function counts as one.
    #[expect(clippy::len_without_is_empty, reason = "tests are never empty")]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Stdin { cases, .. } => cases.len(),
            Form::Function { cases, .. } => cases.len(),
            Form::Assert { asserts, .. } => asserts.len(),
        }
    }

    /// The form as it is stored beside a verdict: `stdin`, `function` or `assert_in_process`.
    pub fn tier(&self) -> &'static str {
        match self.form {
            Form::Stdin { .. } => "stdin",
            Form::Function { .. } => "function",
            Form::Assert { .. } => "assert_in_process",
        }
    }

    /// The language that a program must have: the stated one, or Python where the form needs it.
    pub fn language(&self) -> Option<&str> {
        match (&self.language, &self.form) {
            (Some(language), _) => Some(language),
            (None, Form::Stdin { .. }) => None,
            (None, _) => Some("python"),
        }
    }

    /// The name that a program must define, without its class.
    pub(super) fn defines(&self) -> Option<&str> {
        match &self.form {
            Form::Stdin { .. } => None,
            Form::Function { entry, .. } => entry.rsplit('.').next(),
            Form::Assert { entry, .. } => entry.as_deref(),
        }
    }

    /// What a run may use.
    pub fn limits(&self) -> &TestLimits {
        &self.limits
    }
}

type Entries = [(String, Json)];

pub(super) fn get<'a>(entries: &'a Entries, key: &str) -> Option<&'a Json> {
    entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

fn only(place: &str, entries: &Entries, keys: &[&str]) -> Result<(), TestsError> {
    match entries.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
        Some((key, _)) => Err(TestsError::unknown(place, key, keys)),
        None => Ok(()),
    }
}

pub(super) fn expected(place: &str, what: &str, found: Option<&Json>) -> TestsError {
    match found {
        None => TestsError::wrong(place, format!("{what} was expected, and nothing is there")),
        Some(found) => TestsError::wrong(place, format!("{what} was expected, here is {}", found.kind())),
    }
}

pub(super) fn text<'a>(entries: &'a Entries, key: &str) -> Result<&'a str, TestsError> {
    match get(entries, key) {
        Some(Json::Text(text)) => Ok(text),
        other => Err(expected(key, "text", other)),
    }
}

fn list<'a>(entries: &'a Entries, key: &str) -> Result<&'a [Json], TestsError> {
    match get(entries, key) {
        Some(Json::List(items)) => Ok(items),
        other => Err(expected(key, "a list", other)),
    }
}

/// Limits and language, which every object form may state.
pub(super) fn frame(form: Form, entries: &Entries) -> Result<Tests, TestsError> {
    let limits = get(entries, "limits").map(TestLimits::read).transpose()?.unwrap_or_default();
    let language = match get(entries, "language") {
        None | Some(Json::Null) => None,
        Some(Json::Text(word)) if !word.trim().is_empty() => Some(language(word)),
        other => return Err(expected("language", "the name of a language", other)),
    };
    match (&form, &language) {
        (Form::Function { .. } | Form::Assert { .. }, Some(other)) if other != "python" => {
            let what = format!("this form calls Python, not `{other}`; give `stdin` tests for other languages");
            Err(TestsError::wrong("language", what))
        }
        _ => Ok(Tests { form, language, limits }),
    }
}

fn own(entries: &Entries) -> Result<Tests, TestsError> {
    let form = match text(entries, "type")? {
        "stdin" => {
            only("tests", entries, &["type", "language", "limits", "cases", "compare"])?;
            let compare = match get(entries, "compare") {
                None => Compare::Decimals(TOLERANCE),
                Some(Json::Text(mode)) => Compare::parse(mode).ok_or_else(|| {
                    TestsError::wrong(
                        "compare",
                        format!("`{mode}` is none of exact, tokens, float:1e-6, decimals:1e-6"),
                    )
                })?,
                other => return Err(expected("compare", "text such as `tokens`", other)),
            };
            Form::Stdin { cases: each("cases", list(entries, "cases")?, stdin_case)?, compare }
        }
        "function" => {
            only("tests", entries, &["type", "language", "limits", "entry", "cases", "float_tol"])?;
            let entry = name("entry", text(entries, "entry")?)?;
            let tolerance = match get(entries, "float_tol") {
                None => Some(TOLERANCE),
                Some(Json::Number(text)) => text.parse().ok().filter(|tol: &f64| tol.is_finite() && *tol >= 0.0),
                Some(_) => None,
            };
            let tolerance = tolerance
                .ok_or_else(|| TestsError::wrong("float_tol", "a number that is not negative was expected"))?;
            Form::Function { entry, cases: each("cases", list(entries, "cases")?, function_case)?, tolerance }
        }
        "assert" => {
            only("tests", entries, &["type", "language", "limits", "setup", "asserts"])?;
            let setup = match get(entries, "setup") {
                None | Some(Json::Null) => String::new(),
                Some(Json::Text(setup)) => setup.clone(),
                other => return Err(expected("setup", "text", other)),
            };
            Form::Assert { setup, asserts: statements("asserts", list(entries, "asserts")?)?, entry: None }
        }
        other => {
            return Err(TestsError::wrong("type", format!("`{other}` is none of stdin, function, assert")));
        }
    };
    frame(form, entries)
}

/// A function, or a method of a class, as `Solution.f`.
pub(super) fn name(place: &str, text: &str) -> Result<String, TestsError> {
    let is_word = |word: &str| {
        word.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
            && word.chars().next().is_some_and(|letter| !letter.is_numeric())
    };
    if text.split('.').count() <= 2 && text.split('.').all(is_word) {
        Ok(text.to_string())
    } else {
        Err(TestsError::wrong(
            place,
            "the name of a function, or of a class and its method as `Solution.f`, was expected",
        ))
    }
}

fn each<T>(
    place: &str,
    items: &[Json],
    read: impl Fn(&str, &Entries) -> Result<T, TestsError>,
) -> Result<Vec<T>, TestsError> {
    let read = |(index, item): (usize, &Json)| {
        let place = format!("{place}[{index}]");
        match item {
            Json::Map(entries) => read(&place, entries),
            other => Err(expected(&place, "an object", Some(other))),
        }
    };
    items.iter().enumerate().map(read).collect()
}

pub(super) fn statements(place: &str, items: &[Json]) -> Result<Vec<String>, TestsError> {
    let read = |(index, item): (usize, &Json)| match item {
        Json::Text(text) if tests_something(text) => Ok(text.clone()),
        Json::Text(_) => Err(TestsError::wrong(
            format!("{place}[{index}]"),
            "the statement tests nothing, so every program would pass it; leave it out",
        )),
        other => Err(expected(&format!("{place}[{index}]"), "the text of a statement", Some(other))),
    };
    items.iter().enumerate().map(read).collect()
}

/// Whether a statement is more than comments and `pass`.
fn tests_something(text: &str) -> bool {
    let idle = |line: &str| line.is_empty() || line.starts_with('#') || line == "pass";
    !text.lines().all(|line| idle(line.trim()))
}

fn stdin_case(place: &str, entries: &Entries) -> Result<StdinCase, TestsError> {
    only(place, entries, &["input", "input_gen", "output", "output_gen"])?;
    let input = match source(place, entries, "input", "input_gen")? {
        // no input: never the word that a language prints for nothing
        None => Text::Plain(String::new()),
        Some(text) => text,
    };
    let output = source(place, entries, "output", "output_gen")?.ok_or_else(|| {
        TestsError::wrong(format!("{place}.output"), "text was expected (\"\" for a program that must print nothing)")
    })?;
    Ok(StdinCase { input, output })
}

fn source(place: &str, entries: &Entries, plain: &str, made: &str) -> Result<Option<Text>, TestsError> {
    match (get(entries, plain), get(entries, made)) {
        (None | Some(Json::Null), None | Some(Json::Null)) => Ok(None),
        (Some(Json::Text(text)), None | Some(Json::Null)) => Ok(Some(Text::Plain(text.clone()))),
        (None | Some(Json::Null), Some(recipe)) => generated(&format!("{place}.{made}"), recipe).map(Some),
        (Some(Json::Text(_)), Some(_)) => {
            Err(TestsError::wrong(place, format!("give `{plain}` or `{made}`, not both")))
        }
        (other, _) => Err(expected(&format!("{place}.{plain}"), "text", other)),
    }
}

/// `{prefix, repeat, times, suffix}`.
fn generated(place: &str, recipe: &Json) -> Result<Text, TestsError> {
    let Json::Map(entries) = recipe else {
        return Err(expected(place, "an object with prefix, repeat, times, suffix", Some(recipe)));
    };
    only(place, entries, &["prefix", "repeat", "times", "suffix"])?;
    let part = |key: &str| match get(entries, key) {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::Text(text)) => Ok(text.clone()),
        other => Err(expected(&format!("{place}.{key}"), "text", other)),
    };
    let (prefix, repeat, suffix) = (part("prefix")?, part("repeat")?, part("suffix")?);
    let times = match get(entries, "times") {
        None => Some(0),
        Some(Json::Number(text)) => text.parse::<usize>().ok(),
        Some(_) => None,
    };
    let times = times.ok_or_else(|| TestsError::wrong(format!("{place}.times"), "a whole number was expected"))?;
    let size = repeat.len().checked_mul(times).and_then(|size| size.checked_add(prefix.len() + suffix.len()));
    if size.is_none_or(|size| size > GENERATED) {
        return Err(TestsError::wrong(place, format!("the text would be longer than {GENERATED} bytes")));
    }
    Ok(Text::Repeated { prefix, repeat, times, suffix })
}

fn function_case(place: &str, entries: &Entries) -> Result<FunctionCase, TestsError> {
    only(place, entries, &["args", "expected"])?;
    let arguments = match get(entries, "args") {
        Some(arguments @ Json::List(_)) => arguments.clone(),
        other => return Err(expected(&format!("{place}.args"), "a list of arguments", other)),
    };
    let expected = get(entries, "expected").ok_or_else(|| expected(&format!("{place}.expected"), "a value", None))?;
    Ok(FunctionCase { arguments, expected: vec![expected.clone()] })
}
