//! An error as people read it: message, place, the line with carets, notes, hint.
//!
//! Carets are set by what a terminal shows, not by bytes: a Chinese character takes two cells, a combining mark none,
//! a tab is shown as four spaces. Characters that would steer the terminal are shown as U+FFFD.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

use super::error::DagError;
use super::source::{Place, Sources};

/// Cells a tab takes in a shown line.
const TAB: usize = 4;
/// Cells of a line that are shown at most; a prompt written on one line may be much longer.
const MAX_CELLS: usize = 120;
/// Cells kept before the carets when a long line is cut.
const LEAD: usize = 40;
/// Characters of a name from the file that a message repeats.
const MAX_NAME: usize = 80;

/// The whole error without a last line end.
pub(super) fn error(error: &DagError, sources: &Sources) -> String {
    let mut out = format!("error: {}", error.message);
    if let Some(place) = &error.place {
        snippet(&mut out, place, sources);
    }
    for note in &error.notes {
        let _ = write!(out, "\nnote: {}", note.message);
        if let Some(place) = &note.place {
            snippet(&mut out, place, sources);
        }
    }
    if let Some(hint) = &error.hint {
        let _ = write!(out, "\nhint: {hint}");
    }
    out
}

/// A name or text from the file, fit to stand in a one-line message: shortened, control characters escaped.
pub fn shown(name: &str) -> String {
    let mut out = String::new();
    for (count, character) in name.chars().enumerate() {
        if count == MAX_NAME {
            out.push('…');
            break;
        }
        if is_steering(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

fn snippet(out: &mut String, place: &Place, sources: &Sources) {
    let number = place.line.to_string();
    let gutter = " ".repeat(number.len());
    let (line, line_start) = sources.line(place.file, place.line);
    let hidden = without_keys(line);
    let line = hidden.as_str();
    let (text, pad, carets) = marked_line(line, place.span.start.saturating_sub(line_start), place.span.len());
    let name = shown(sources.name(place.file));
    let _ = write!(out, "\n{gutter}--> {name}:{}:{}\n{gutter} |", place.line, place.column);
    let shown_line = format!("\n{number} | {text}");
    out.push_str(shown_line.trim_end_matches(' '));
    let _ = write!(out, "\n{gutter} | {}{}", " ".repeat(pad), "^".repeat(carets));
}

/// The line with the texts of `api_key...` blotted out, byte for byte: someone may have written the key itself there.
fn without_keys(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("api_key") {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let end = from.find(['"', '\'']).and_then(|open| {
            let is_value = from[..open].trim_end().ends_with('=');
            let quote = &from[open..=open];
            let close = open + 1 + from[open + 1..].find(quote).unwrap_or(from.len() - open - 1);
            is_value.then_some((open + 1, close))
        });
        let (open, close) = end.unwrap_or(("api_key".len(), "api_key".len()));
        shown.push_str(&from[..open]);
        shown.extend(std::iter::repeat_n('*', close - open));
        rest = &from[close..];
    }
    shown.push_str(rest);
    shown
}

/// The line as shown, cells before the carets, and number of carets (at least one).
fn marked_line(line: &str, start: usize, length: usize) -> (String, usize, usize) {
    let end = start.saturating_add(length);
    let pad: usize = cells(line, 0, start);
    let total = pad + cells(line, start, line.len());
    // a long line is shown from `skip` cells on
    let skip = if total > MAX_CELLS { pad.saturating_sub(LEAD) } else { 0 };
    let (mut text, mut cell, mut before, mut carets) = (String::new(), 0, 0, 0);
    if skip > 0 {
        text.push('…');
        before = 1;
    }
    for (index, character) in line.char_indices() {
        let (piece, width) = piece(character);
        cell += width;
        if cell <= skip {
            continue;
        }
        if cell > skip + MAX_CELLS {
            text.push('…');
            break;
        }
        text.push_str(piece.as_str());
        if index < start {
            before += width;
        } else if index < end {
            carets += width;
        }
    }
    (text, before, carets.max(1))
}

/// Cells of the characters whose byte offset lies in `from..to`.
fn cells(line: &str, from: usize, to: usize) -> usize {
    line.char_indices().filter(|(index, _)| (from..to).contains(index)).map(|(_, character)| piece(character).1).sum()
}

enum Piece {
    Tab,
    Character([u8; 4], usize),
}

impl Piece {
    fn as_str(&self) -> &str {
        match self {
            Self::Tab => "    ",
            Self::Character(bytes, length) => std::str::from_utf8(&bytes[..*length]).unwrap_or_default(),
        }
    }
}

fn piece(character: char) -> (Piece, usize) {
    if character == '\t' {
        return (Piece::Tab, TAB);
    }
    let character = if is_steering(character) { '\u{fffd}' } else { character };
    let mut bytes = [0; 4];
    let length = character.encode_utf8(&mut bytes).len();
    (Piece::Character(bytes, length), character.width().unwrap_or(1))
}

/// Control characters and those that turn the writing direction.
fn is_steering(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
