//! Printing. A reader that goes away (`pipeline show ... | head`) is no error.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

/// A line of the result.
pub fn line(text: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A line about the work.
pub fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// An error; rendered places begin with the word themselves.
pub fn error(message: &str) {
    if message.starts_with("error") { note(message) } else { note(format!("error: {message}")) }
}

/// A result for programs.
pub fn json(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(value) {
        line(text);
    }
}

/// A table without lines; the first `texts` columns and the last are texts, the others numbers.
pub fn table(headings: &[&str], rows: Vec<Vec<String>>, texts: usize) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headings);
    let last = headings.len().saturating_sub(1);
    for row in rows {
        let cells = row.into_iter().enumerate().map(|(index, text)| {
            let alignment = if index < texts || index == last { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(alignment)
        });
        table.add_row(cells);
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Whether a person watches.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}
