//! Reading a JSON object field by field: every refusal names the field with its path, and what nobody asked for is refused
//! at the end, since a parameter that is silently ignored would be a lie.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::error::{ApiError, shortened};

/// The fields of an object that have not been read yet. `null` counts as absent.
pub(crate) struct Fields<'a> {
    at: String,
    left: Vec<(&'a str, &'a Value)>,
}

impl<'a> Fields<'a> {
    /// The fields of an object that stands at this path; the body itself has an empty path.
    pub(crate) fn of(value: &'a Value, at: impl Into<String>) -> Result<Self, ApiError> {
        let at = at.into();
        match value {
            Value::Object(map) => {
                let left = map.iter().filter(|(_, value)| !value.is_null());
                Ok(Self { at, left: left.map(|(name, value)| (name.as_str(), value)).collect() })
            }
            other if at.is_empty() => {
                let kind = ApiError::bad_type("body", "an object", other);
                Err(kind)
            }
            other => Err(ApiError::bad_type(&at, "an object", other)),
        }
    }

    /// Path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    /// Takes a field.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a Value> {
        let index = self.left.iter().position(|(field, _)| *field == name)?;
        Some(self.left.swap_remove(index).1)
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.take(name).map(|value| text(value, &self.path(name))).transpose()
    }

    /// A truth value.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let flag = value.as_bool().ok_or_else(|| ApiError::bad_type(&self.path(name), "true or false", value))?;
        Ok(Some(flag))
    }

    /// A number within a range.
    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| ApiError::bad_type(&self.path(name), "a number", value))?;
        self.within(name, number, &range).map(Some)
    }

    /// A whole number within a range.
    pub(crate) fn whole(&mut self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        if !value.is_i64() && !value.is_u64() {
            return Err(ApiError::bad_type(&self.path(name), "a whole number", value));
        }
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number {
            Some(number) => self.within(name, number, &range).map(Some),
            None => Err(self.outside(name, value, &range)),
        }
    }

    fn within<T: PartialOrd + Display>(&self, name: &str, value: T, range: &RangeInclusive<T>) -> Result<T, ApiError> {
        if range.contains(&value) { Ok(value) } else { Err(self.outside(name, value, range)) }
    }

    fn outside<T: Display>(&self, name: &str, value: impl Display, range: &RangeInclusive<T>) -> ApiError {
        let path = self.path(name);
        let message = format!("`{path}` must be from {} to {}, not {value}", range.start(), range.end());
        ApiError::bad_value(&path, message)
    }

    /// Takes what has no bearing on the answer.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        self.left.retain(|(name, _)| !names.contains(name));
    }

    /// Refuses a field that cannot be honoured, unless its value asks for nothing.
    pub(crate) fn refuse(&mut self, name: &str, asks_nothing: fn(&Value) -> bool, why: &str) -> Result<(), ApiError> {
        match self.take(name) {
            Some(value) if !asks_nothing(value) => Err(ApiError::unsupported(&self.path(name), why)),
            _ => Ok(()),
        }
    }

    /// Refuses what is left.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::unknown(&self.path(&shortened(name)))),
        }
    }
}

/// A text without NUL, which some tools that read answers or recordings cut at.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    let text = value.as_str().ok_or_else(|| ApiError::bad_type(path, "a string", value))?;
    if text.contains('\0') {
        return Err(ApiError::bad_value(path, format!("`{path}` holds the character NUL; take it out")));
    }
    Ok(text)
}

/// The elements of a list.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], ApiError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| ApiError::bad_type(path, "a list", value))
}
