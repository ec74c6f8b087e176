//! Kinds that ask for a table.

use super::{table::Reader, text::quoted};
use crate::instruct::{
    Check,
    characters::{is_space, is_word, strip},
    views::Views,
};

const CITY: [&str; 5] = ["ID", "Country", "City", "Year", "Count"];
const PRODUCT: [&str; 5] = ["ProductID", "Category", "Brand", "Price", "Stock"];
const STUDENT: [&str; 5] = ["StudentID", "Subject", "Grade", "Semester", "Score"];

/// The rows of a table with a number of rows, its head included.
fn rows(text: &str, separator: char, asked: usize) -> Result<Vec<Vec<String>>, Check> {
    let Some(rows) = Reader::rows(text, separator) else {
        return Err(Check::new(false, "a line break inside a line, so no table"));
    };
    if rows.len() == asked {
        Ok(rows)
    } else {
        let found = rows.len();
        Err(Check::new(false, format!("{found} lines, {asked} asked with the head; a blank line is one too")))
    }
}

/// The first row that has not five fields.
fn uneven(rows: &[Vec<String>]) -> Option<Check> {
    let index = rows.iter().position(|row| row.len() != 5)?;
    Some(Check::new(false, format!("line {} has {} fields, 5 asked", index + 1, rows[index].len())))
}

/// Whether the first line names the columns, each bare or in quotes. Some characters may stand before a
/// name, though not before the first.
fn has_head(text: &str, names: [&str; 5], separator: char, may_precede: fn(char) -> bool) -> bool {
    let head = strip(text.split('\n').next().unwrap_or_default());
    let is_name = |field: &str, name: &str| {
        field == name || field.strip_prefix('"').and_then(|field| field.strip_suffix('"')) == Some(name)
    };
    let mut fields = head.split(separator).enumerate();
    let all_named = names.iter().all(|name| {
        fields.next().is_some_and(|(index, field)| {
            is_name(if index == 0 { field } else { field.trim_start_matches(may_precede) }, name)
        })
    });
    all_named && fields.next().is_none()
}

/// Quotes tripled, so that they stay in the fields that they enclose.
fn with_quotes_kept(text: &str) -> String {
    text.replace('"', "\"\"\"")
}

pub(super) fn city(response: &Views<'_>) -> Check {
    match rows(response.text(), ',', 8) {
        Err(check) => check,
        Ok(rows) if rows.first().is_some_and(|head| *head != CITY) => {
            Check::new(false, format!("the head is not {}", CITY.join(",")))
        }
        Ok(rows) => uneven(&rows).unwrap_or_else(|| Check::new(true, "a head and seven rows of five fields")),
    }
}

pub(super) fn special_character(response: &Views<'_>) -> Check {
    if !has_head(response.text(), PRODUCT, ',', |character| matches!(character, ' ' | '\t')) {
        return Check::new(false, format!("the head is not {}", PRODUCT.join(",")));
    }
    let rows = match rows(&with_quotes_kept(response.text()), ',', 15) {
        Ok(rows) => rows,
        Err(check) => return check,
    };
    for (index, row) in rows.iter().enumerate().skip(1) {
        if row.len() != 5 {
            return Check::new(false, format!("line {} has {} fields, 5 asked", index + 1, row.len()));
        }
        if let Some(field) = row.iter().find(|field| is_special(field)) {
            return Check::new(true, format!("line {} has the special field {}", index + 1, quoted(field)));
        }
    }
    Check::new(false, "no field with a special character in double quotes")
}

/// Quotes around something with a character that is no word character and no white space, on one line.
fn is_special(field: &str) -> bool {
    let line = field.split('\n').next().unwrap_or_default();
    let inner = line.strip_prefix('"').and_then(|rest| rest.rfind('"').map(|end| &rest[..end]));
    inner.is_some_and(|inner| inner.chars().any(|character| !is_word(character) && !is_space(character)))
}

pub(super) fn quotes(response: &Views<'_>) -> Check {
    if !has_head(response.text(), STUDENT, '\t', |character| character == ' ') {
        return Check::new(false, format!("the head is not {}, separated by tabs", STUDENT.join(" ")));
    }
    let rows = match rows(&with_quotes_kept(response.text()), '\t', 4) {
        Ok(rows) => rows,
        Err(check) => return check,
    };
    if let Some(check) = uneven(&rows) {
        return check;
    }
    let is_quoted = |field: &&String| strip(field).starts_with('"') && strip(field).ends_with('"');
    match rows.iter().flatten().find(|field| !is_quoted(field)) {
        Some(field) => Check::new(false, format!("{} is not in double quotes", quoted(field))),
        None => Check::new(true, "a head and three rows of five fields, all in double quotes"),
    }
}
