//! Parameters of a constraint: declared by its kind, checked before the kind sees them.

use super::{InstructError, KindInfo, error};
use serde_json::{Map, Value};

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A whole number from `least` to `most`. A float without fraction is read as one, since tables that
    /// hold absent numbers turn whole ones into floats.
    Count {
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// A text that is not blank.
    Text,
    /// A text that may be blank.
    AnyText,
    /// A list of at least one text, none of them blank.
    Texts,
    /// `at least` or `less than`.
    Relation,
    /// A single character.
    Character,
}

impl Shape {
    /// Any number of things, none included.
    pub const NUMBER: Self = Self::Count { least: 0, most: u32::MAX as u64 };
    /// At least one.
    pub const POSITIVE: Self = Self::Count { least: 1, most: u32::MAX as u64 };

    /// What is expected, as it stands in messages.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Count { .. } => "a whole number",
            Self::Text | Self::AnyText => "a text",
            Self::Texts => "a list of texts",
            Self::Relation => "`at least` or `less than`",
            Self::Character => "a single character",
        }
    }
}

/// One parameter of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in `kwargs`.
    pub name: &'static str,
    /// What it may be.
    pub shape: Shape,
    /// Whether the kind cannot do without it.
    pub required: bool,
}

impl Parameter {
    /// A parameter that must be there.
    pub const fn required(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: true }
    }

    /// A parameter that may be absent.
    pub const fn optional(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: false }
    }
}

/// How a number found compares with a number asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// That many or more.
    AtLeast,
    /// Fewer.
    LessThan,
}

impl Relation {
    /// Whether `found` stands in the relation to `asked`.
    pub fn holds(self, found: usize, asked: usize) -> bool {
        match self {
            Self::AtLeast => found >= asked,
            Self::LessThan => found < asked,
        }
    }

    /// The words of the data sets.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtLeast => "at least",
            Self::LessThan => "less than",
        }
    }

    fn read(text: &str) -> Option<Self> {
        [Self::AtLeast, Self::LessThan].into_iter().find(|relation| relation.as_str() == text)
    }
}

/// The checked parameters of one constraint. Names and shapes agree with the kind's declaration.
pub(crate) struct Parameters<'a> {
    kind: &'static KindInfo,
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Parameters<'a> {
    /// Holds `kwargs` against what the kind declares.
    pub(super) fn read(kind: &'static KindInfo, kwargs: &'a Value) -> Result<Self, InstructError> {
        let fields = match kwargs {
            Value::Object(fields) => Some(fields),
            Value::Null => None,
            other => return Err(InstructError::NotAnObject { kind: kind.id, found: type_name(other) }),
        };
        let read = Self { kind, fields };
        for (name, value) in fields.into_iter().flatten() {
            if !value.is_null() && !kind.parameters.iter().any(|parameter| parameter.name == name) {
                let hint = error::hint(name, kind.parameters.iter().map(|parameter| parameter.name));
                return Err(InstructError::UnknownParameter { kind: kind.id, parameter: name.clone(), hint });
            }
        }
        for parameter in kind.parameters {
            match read.value(parameter.name) {
                Some(value) => read.check(parameter, value)?,
                None if parameter.required => return Err(read.missing(parameter)),
                None => {}
            }
        }
        Ok(read)
    }

    /// The field, unless it is absent or null.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    /// A number of things.
    pub fn count(&self, name: &'static str) -> Result<usize, InstructError> {
        let number = self.value(name).and_then(whole).and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.absent(name))
    }

    /// A text, as written.
    pub fn text(&self, name: &'static str) -> Result<&'a str, InstructError> {
        self.value(name).and_then(Value::as_str).ok_or_else(|| self.absent(name))
    }

    /// A list of texts, as written.
    pub fn texts(&self, name: &'static str) -> Result<Vec<&'a str>, InstructError> {
        let list = self.value(name).and_then(Value::as_array).ok_or_else(|| self.absent(name))?;
        Ok(list.iter().filter_map(Value::as_str).collect())
    }

    /// A relation.
    pub fn relation(&self, name: &'static str) -> Result<Relation, InstructError> {
        self.value(name).and_then(Value::as_str).and_then(Relation::read).ok_or_else(|| self.absent(name))
    }

    /// The error for a value that the kind cannot ask; `expected` is a clause.
    pub fn out_of_range(&self, name: &'static str, expected: impl Into<String>) -> InstructError {
        let found = self.value(name).map_or_else(|| "absent".to_owned(), shortened);
        InstructError::OutOfRange { kind: self.kind.id, parameter: name, expected: expected.into(), found }
    }

    fn check(&self, parameter: &Parameter, value: &Value) -> Result<(), InstructError> {
        let is_shaped = match parameter.shape {
            Shape::Count { .. } => value.is_number(),
            Shape::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            _ => value.is_string(),
        };
        if !is_shaped {
            return Err(InstructError::IllTyped {
                kind: self.kind.id,
                parameter: parameter.name,
                expected: parameter.shape.expected(),
                found: format!("{} ({})", type_name(value), shortened(value)),
            });
        }
        let is_blank = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
        let text = value.as_str().unwrap_or_default();
        let complaint = match parameter.shape {
            Shape::Count { least, most } => {
                let fits = whole(value).is_some_and(|number| (least..=most).contains(&number));
                (!fits).then(|| format!("it must be a whole number from {least} to {most}"))
            }
            Shape::Text => is_blank(value).then(|| "it must not be blank".to_owned()),
            Shape::Texts => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let fits = !list.is_empty() && !list.iter().any(is_blank);
                (!fits).then(|| "it must hold at least one text, none of them blank".to_owned())
            }
            Shape::Relation => {
                Relation::read(text).is_none().then(|| "it must be `at least` or `less than`".to_owned())
            }
            Shape::Character => {
                let fits = text.trim().chars().count() == 1;
                (!fits).then(|| "it must be a single character that is not blank".to_owned())
            }
            Shape::AnyText => None,
        };
        complaint.map_or(Ok(()), |complaint| Err(self.out_of_range(parameter.name, complaint)))
    }

    fn missing(&self, parameter: &Parameter) -> InstructError {
        InstructError::MissingParameter {
            kind: self.kind.id,
            parameter: parameter.name,
            expected: parameter.shape.expected(),
        }
    }

    /// What a kind that asks for an optional or undeclared parameter gets.
    fn absent(&self, name: &'static str) -> InstructError {
        InstructError::MissingParameter { kind: self.kind.id, parameter: name, expected: "as its kind declares it" }
    }
}

/// A number without fraction that is not negative.
fn whole(value: &Value) -> Option<u64> {
    /// Floats are exact up to here.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=EXACT).contains(number))?;
        format!("{number:.0}").parse().ok()
    })
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 { text } else { text.chars().take(57).chain("...".chars()).collect() }
}
