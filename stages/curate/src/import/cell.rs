//! Values of a user's row as values of a table's column.

use std::borrow::Cow;

use schemas::Type;
use serde_json::value::RawValue;

use super::path::{RowText, Text, is_null, items};

/// A chat message.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// `system`, `user`, `assistant`, `tool`.
    pub role: Cow<'a, str>,
    /// Text.
    pub content: Cow<'a, str>,
    /// Tool calls as JSON text.
    pub tool_calls: Option<Cow<'a, str>>,
}

/// A value of a table's column.
#[derive(Debug, Clone, Default)]
pub enum Cell<'a> {
    /// Null.
    #[default]
    Null,
    /// A text.
    Text(Cow<'a, str>),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Texts.
    Texts(Vec<Cow<'a, str>>),
    /// Token ids.
    Tokens(Vec<u32>),
    /// Numbers of 32 bits.
    Floats(Vec<Option<f32>>),
    /// A conversation.
    Messages(Vec<Message<'a>>),
    /// Constraints: id and keyword arguments as JSON text.
    Constraints(Vec<(Cow<'a, str>, Cow<'a, str>)>),
}

/// A converted value, and whether it holds all that the user's value held.
pub type Converted<'a> = (Cell<'a>, bool);

/// Converts a value for a column of type `kind`.
///
/// # Errors
/// What is needed instead, in words.
pub fn convert(kind: Type, value: &RawValue) -> Result<Converted<'_>, &'static str> {
    let exact = |cell| Ok((cell, true));
    match kind {
        Type::Text => exact(Cell::Text(text(value).ok_or("text")?)),
        Type::Int => exact(Cell::Int(integer(value).ok_or("an integer")?)),
        Type::Float => exact(Cell::Float(number(value).ok_or("a number")?)),
        Type::Bool => exact(Cell::Bool(serde_json::from_str(value.get()).map_err(|_| "true or false")?)),
        Type::TextList => exact(Cell::Texts(texts(value).ok_or("a list of texts")?)),
        Type::TokenList => exact(Cell::Tokens(serde_json::from_str(value.get()).map_err(|_| "a list of token ids")?)),
        Type::FloatList => exact(Cell::Floats(floats(value).ok_or("a list of numbers")?)),
        Type::Messages => {
            let (messages, is_exact) = messages(value).ok_or("a list of {role, content}")?;
            Ok((Cell::Messages(messages), is_exact))
        }
        Type::Constraints => {
            let (constraints, is_exact) = constraints(value).ok_or("a list of {id, kwargs}")?;
            Ok((Cell::Constraints(constraints), is_exact))
        }
    }
}

/// A text as it is; a number or truth value as it was written.
pub fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<Text<'_>>(value.get()).ok().map(|text| text.0),
        Some(b'{' | b'[' | b'n') | None => None,
        Some(_) => Some(Cow::Borrowed(value.get())),
    }
}

/// An integer, also a whole float (`3.0`) or a text of one, as CSV has it.
pub fn integer(value: &RawValue) -> Option<i64> {
    let text = text(value)?;
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let float: f64 = text.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        let whole = (float.fract() == 0.0 && float.abs() < 9.0e15).then_some(float as i64);
        whole
    })
}

fn number(value: &RawValue) -> Option<f64> {
    text(value)?.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// A list of texts; the values of an object in order, as in `{"A": "...", "B": "..."}`.
fn texts(value: &RawValue) -> Option<Vec<Cow<'_, str>>> {
    let list = match items(value) {
        Some(list) => list,
        None => {
            serde_json::from_str::<RowText<'_>>(value.get()).ok()?.fields.into_iter().map(|(_, text)| text).collect()
        }
    };
    list.into_iter().map(text).collect()
}

fn floats(value: &RawValue) -> Option<Vec<Option<f32>>> {
    items(value)?
        .into_iter()
        .map(|item| {
            if is_null(item) {
                return Some(None);
            }
            #[expect(clippy::cast_possible_truncation, reason = "the column holds 32-bit floats")]
            let narrow = number(item).map(|number| number as f32);
            narrow.map(Some)
        })
        .collect()
}

fn messages(value: &RawValue) -> Option<(Vec<Message<'_>>, bool)> {
    let (mut list, mut is_exact) = (Vec::new(), true);
    for item in items(value)? {
        let object: RowText<'_> = serde_json::from_str(item.get()).ok()?;
        let tool_calls = object.get("tool_calls").filter(|calls| !is_null(calls));
        let content = match object.get("content") {
            Some(content) if !is_null(content) => serde_json::from_str::<Text<'_>>(content.get()).ok()?.0,
            _ if tool_calls.is_some() => Cow::Borrowed(""),
            _ => return None,
        };
        let role = text(object.get("role")?)?;
        let known = |key: &str| matches!(key, "role" | "content" | "tool_calls");
        is_exact &= object.fields.iter().all(|(key, value)| known(key) || is_null(value));
        list.push(Message { role, content, tool_calls: tool_calls.map(|calls| Cow::Borrowed(calls.get())) });
    }
    (!list.is_empty()).then_some((list, is_exact))
}

type Constraints<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

fn constraints(value: &RawValue) -> Option<(Constraints<'_>, bool)> {
    let (mut list, mut is_exact) = (Vec::new(), true);
    for item in items(value)? {
        let object: RowText<'_> = serde_json::from_str(item.get()).ok()?;
        let kwargs = object.get("kwargs").map_or("{}", RawValue::get);
        list.push((text(object.get("id")?)?, Cow::Borrowed(kwargs)));
        is_exact &= object.fields.iter().all(|(key, _)| key == "id" || key == "kwargs");
    }
    Some((list, is_exact))
}

/// Constraints from a list of ids and a list of keyword arguments.
pub fn zipped_constraints<'a>(ids: &'a RawValue, kwargs: &'a RawValue) -> Option<Cell<'a>> {
    let (ids, kwargs) = (items(ids)?, items(kwargs)?);
    if ids.len() != kwargs.len() {
        return None;
    }
    let pairs = ids.into_iter().zip(kwargs).map(|(id, kwargs)| Some((text(id)?, Cow::Borrowed(kwargs.get()))));
    pairs.collect::<Option<Vec<_>>>().map(Cell::Constraints)
}
