//! One row of the user's: read from its text and, where `each` says so, turned into several.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::Import;
use super::cell::Cell;
use super::making::Making;
use super::mapping::{Expansion, ITEM, ITEM_NAME, Mapping};
use super::path::{Found, Path, RowText, is_null, items};

/// A line that is no row.
pub const BROKEN_LINE: &str = "broken_line";
/// A value of another type than its column's.
pub const BAD_VALUE: &str = "bad_value";
/// No text to answer.
pub const NO_PROMPT: &str = "no_prompt";
/// A trace without a text.
pub const NO_RESPONSE: &str = "no_response";
/// A label without its mark (`####`, a box).
pub const NO_LABEL: &str = "no_label";
/// Nothing in the lists or columns of `each`.
pub const NO_ITEMS: &str = "no_items";

/// Why a row falls out.
#[derive(Debug, Clone, PartialEq)]
pub struct Fall {
    /// A `snake_case` word.
    pub reason: &'static str,
    /// The table's column it is about.
    pub column: Option<String>,
    /// What is wrong, in words.
    pub message: String,
}

impl Fall {
    /// A fall about the whole row.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, column: None, message: message.into() }
    }

    /// A fall about one column.
    pub fn at(column: &str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, column: Some(column.to_owned()), message: message.into() }
    }

    /// A value of the wrong type.
    pub fn bad(column: &str, path: &Path, needed: &str, found: &RawValue) -> Self {
        let message = format!("`{path}` is {} where {needed} is needed", brief(found.get()));
        Self::at(column, BAD_VALUE, message)
    }
}

/// A value in at most 80 characters.
pub fn brief(text: &str) -> String {
    match text.char_indices().nth(77) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What became of a row.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// Rows of the table, or why there are none.
    pub rows: Result<Vec<Vec<Cell<'a>>>, Fall>,
    /// Bit by bit, which of [`Mapping::paths`] are there.
    pub seen: u128,
}

/// What every row of a file shares.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Parameters.
    pub import: &'a Import,
    /// The same, compiled.
    pub mapping: &'a Mapping,
    /// Value of `source` unless a parameter or path gives one.
    pub source: &'a str,
    /// Whether an empty text means that there is no value.
    pub empty_is_null: bool,
}

impl<'a> Context<'a> {
    /// Turns the text of a row into rows of the table.
    pub fn convert(self, text: &'a [u8]) -> Outcome<'a> {
        let mut seen = 0;
        let rows = read_row(text).and_then(|row| {
            seen |= self.present(&row);
            let expanded = self.expand(row)?;
            let mut rows = Vec::with_capacity(expanded.len());
            for (row, sample) in &expanded {
                seen |= self.present(row);
                rows.push(Making::new(self, row).make(*sample)?);
            }
            Ok(rows)
        });
        Outcome { rows, seen }
    }

    fn present(self, row: &RowText<'a>) -> u128 {
        let paths = self.mapping.paths.iter().enumerate().take(128);
        paths
            .filter(|(_, (_, path))| !matches!(path.follow(row), Found::Missing))
            .fold(0, |seen, (at, _)| seen | 1 << at)
    }

    fn expand(self, row: RowText<'a>) -> Result<Vec<(RowText<'a>, Option<i64>)>, Fall> {
        match &self.mapping.expansion {
            None => Ok(vec![(row, None)]),
            Some(Expansion::Lists(names)) => expand_lists(&row, names),
            Some(Expansion::Columns(names)) => expand_columns(&row, names),
        }
    }
}

fn expand_lists<'a>(row: &RowText<'a>, names: &'a [String]) -> Result<Vec<(RowText<'a>, Option<i64>)>, Fall> {
    let mut lists = Vec::with_capacity(names.len());
    for name in names {
        let Some(value) = row.get(name).filter(|value| !is_null(value)) else {
            continue;
        };
        let list = items(value);
        lists.push((name, list.ok_or_else(|| Fall::at("each.lists", BAD_VALUE, format!("`{name}` is no list")))?));
    }
    let count = lists.first().map_or(0, |(_, list)| list.len());
    if let Some((name, list)) = lists.iter().find(|(_, list)| list.len() != count) {
        let first = lists.first().map_or("", |(name, _)| name);
        let message = format!("`{name}` has {} items and `{first}` {count}", list.len());
        return Err(Fall::at("each.lists", BAD_VALUE, message));
    }
    if count == 0 {
        return Err(Fall::new(NO_ITEMS, "the lists of `each` are empty"));
    }
    let rows = (0..count).zip(0_i64..).map(|(position, sample)| {
        let mut one = row.clone();
        for (name, list) in &lists {
            if let Some(item) = list.get(position) {
                one.set(Cow::Borrowed(name.as_str()), item);
            }
        }
        (one, Some(sample))
    });
    Ok(rows.collect())
}

fn expand_columns<'a>(
    row: &RowText<'a>,
    names: &'a [(String, Box<RawValue>)],
) -> Result<Vec<(RowText<'a>, Option<i64>)>, Fall> {
    if let Some(name) = [ITEM, ITEM_NAME].into_iter().find(|name| row.get(name).is_some()) {
        let message = format!("the row has a column `{name}` itself, which `each.columns` would hide");
        return Err(Fall::at("each.columns", BAD_VALUE, message));
    }
    let mut shared = row.clone();
    shared.fields.retain(|(key, _)| !names.iter().any(|(name, _)| name == key));
    let mut rows = Vec::with_capacity(names.len());
    for (name, json) in names {
        if let Some(value) = row.get(name).filter(|value| !is_null(value)) {
            let mut one = shared.clone();
            one.set(Cow::Borrowed(ITEM_NAME), json);
            one.set(Cow::Borrowed(ITEM), value);
            rows.push((one, Some(0)));
        }
    }
    if rows.is_empty() {
        return Err(Fall::new(NO_ITEMS, "the columns of `each` are null"));
    }
    Ok(rows)
}

/// Reads a row's text: UTF-8, one JSON object, nothing in it that a JSON reader would stumble over later.
fn read_row(text: &[u8]) -> Result<RowText<'_>, Fall> {
    let broken = |message: String| Fall::new(BROKEN_LINE, message);
    let text = std::str::from_utf8(text)
        .map_err(|error| broken(format!("it is not UTF-8 from byte {} on", error.valid_up_to() + 1)))?;
    let row: RowText<'_> = serde_json::from_str(text).map_err(|error| {
        let column = error.column();
        let message = error.to_string();
        let message = message.split_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        broken(format!("it is no JSON object: {message} (column {column})"))
    })?;
    super::soundness::check(text).map_err(|message| broken(message.to_owned()))?;
    Ok(row)
}
