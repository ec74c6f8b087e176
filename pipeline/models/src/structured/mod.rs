//! Answers that shall follow a JSON schema: found in what a model wrote, mended where that is safe, and checked.
//!
//! A server may enforce the schema, ignore it or refuse it, so every answer is checked here whatever the server promised.
//! Models drift in ways that lose nothing: a fence or prose around the JSON, a number as text, `4.0` for `4`, LaTeX with
//! single backslashes. Those are taken. All else is [`Unusable`], with the place and in words that a model may be told: a
//! number out of range is never moved into it, `true` is never a number, `4/5` is not 4.
//!
//! The schema language is the part of JSON Schema 2020-12 that structured output of servers knows; what lies outside is
//! refused when the schema is read, since a rule that is silently ignored is none. A walker of our own, rather than a
//! validator from elsewhere, because mending and checking have to go hand in hand along `anyOf` and `$ref`.

mod backslashes;
mod check;
mod find;
mod shape;

use serde_json::Value;

pub use shape::SchemaError;
use shape::{Kind, Shape, Shapes};

/// Why an answer cannot be used, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Nothing was written.
    #[error("the answer is empty")]
    Empty,
    /// No JSON value stands complete in the text.
    #[error("the answer holds no complete JSON value")]
    NoJson,
    /// There is one, and it does not follow the schema.
    #[error("at `{path}`: {message}")]
    Misfit {
        /// Where in the answer, as a JSON path: `$.criteria.complete`.
        path: String,
        /// What does not fit.
        message: String,
    },
}

/// What a property of an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Text.
    Text,
    /// Whole numbers of 64 bits.
    Integer,
    /// Numbers.
    Number,
    /// True or false.
    Boolean,
    /// Lists, objects, or values of several types.
    Json,
}

/// A JSON schema, ready to check answers.
#[derive(Debug, Clone)]
pub struct Structured {
    text: String,
    shapes: Shapes,
}

impl Structured {
    /// Reads a schema. Supported are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`,
    /// the bounds of numbers, texts, lists and their lengths, `uniqueItems`, `pattern`, `anyOf`, `oneOf`, `allOf`, and
    /// `$ref` into the same schema; `title`, `description`, `default`, `examples` and `format` say nothing that is checked.
    ///
    /// # Errors
    /// When it is no schema, or asks for what is not supported; the message names the place.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { text: schema.to_string(), shapes: Shapes::new(schema)? })
    }

    /// The schema as compact JSON text, keys in the order in which they were given: models write them in that order.
    pub fn schema(&self) -> &str {
        &self.text
    }

    /// The properties of an answer in the order of the schema, with what each holds; empty unless the schema describes
    /// an object.
    pub fn properties(&self) -> Vec<(&str, Holds)> {
        let root = self.shapes.resolved(self.shapes.root());
        root.properties.iter().map(|(name, shape)| (name.as_str(), self.holds(shape))).collect()
    }

    fn holds(&self, shape: &Shape) -> Holds {
        let shape = self.shapes.resolved(shape);
        let kinds: Vec<Kind> = shape.kinds.iter().copied().filter(|kind| *kind != Kind::Null).collect();
        match kinds.as_slice() {
            [Kind::String] => Holds::Text,
            [Kind::Integer] => Holds::Integer,
            [Kind::Number] | [Kind::Integer, Kind::Number] | [Kind::Number, Kind::Integer] => Holds::Number,
            [Kind::Boolean] => Holds::Boolean,
            [] if !shape.choices.is_empty() && shape.choices.iter().all(Value::is_string) => Holds::Text,
            _ => Holds::Json,
        }
    }

    /// Takes the JSON value out of an answer and checks it. Looked at are the whole text, what stands in fences, and every
    /// complete object or list in it; of those that follow the schema the last counts, since a model that corrects itself
    /// does so at the end.
    ///
    /// # Errors
    /// When there is none; if several values do not fit, what is said is about the longest.
    pub fn read(&self, answer: &str) -> Result<Value, Unusable> {
        let answer = answer.trim_start_matches('\u{feff}').trim();
        if answer.is_empty() {
            return Err(Unusable::Empty);
        }
        let mended = backslashes::mend(answer);
        let mut complaint: Option<(usize, Unusable)> = None;
        for found in find::values(&mended).into_iter().rev() {
            match self.check(found.value) {
                Ok(value) => return Ok(value),
                Err(error) => {
                    if complaint.as_ref().is_none_or(|(length, _)| found.length > *length) {
                        complaint = Some((found.length, error));
                    }
                }
            }
        }
        Err(complaint.map_or(Unusable::NoJson, |(_, error)| error))
    }

    /// Checks a value, and gives it back with what could safely be mended.
    ///
    /// # Errors
    /// [`Unusable::Misfit`] when it does not follow the schema.
    pub fn check(&self, value: Value) -> Result<Value, Unusable> {
        check::check(&self.shapes, value)
    }
}

#[cfg(test)]
mod tests;
