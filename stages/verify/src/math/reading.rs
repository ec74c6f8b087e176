//! An answer made ready for parsing: marks taken off, spelling evened out, words recognised.

use super::{
    lexer::{LexError, Reading},
    parser::{ParseError, Parsed, parse},
    phrases,
};
use crate::extract::{Extraction, extract};
use std::borrow::Cow;

/// Longest answer that is read, in bytes.
pub const LONGEST: usize = 1 << 15;

/// One side of a comparison.
#[derive(Debug)]
pub struct Side {
    /// The bare text.
    pub text: String,
    /// How it parses in the usual reading.
    pub parsed: Result<Parsed, ParseError>,
}

impl Side {
    /// Takes the marks off `text` and parses it.
    pub fn read(text: &str) -> Self {
        let text = bare(text).into_owned();
        if text.len() > LONGEST {
            return Self { text, parsed: Err(ParseError::Lex(LexError::TooLong)) };
        }
        let parsed = match phrases::meant(&text) {
            Some(node) => Ok(Parsed::plain(node)),
            None => parse(&text, Reading::USUAL),
        };
        Self { text, parsed }
    }
}

/// The answer without what marks it: boxes, bold, "the answer is".
fn bare(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text.trim());
    if (text.contains("\\boxed") || text.contains("\\fbox") || text.contains("nswer") || text.contains("答案"))
        && let Ok(inner) = extract(&text, Extraction::Strict)
    {
        text = Cow::Owned(inner.text.trim().to_string());
    }
    if !text.is_ascii() && text.chars().any(is_variant_form) {
        text = Cow::Owned(text.chars().map(plain_form).collect::<String>().trim().to_string());
    }
    if text.starts_with("**") || text.ends_with("**") {
        text = Cow::Owned(text.replace("**", ""));
    }
    let is_mark = |letter: char| letter.is_whitespace() || matches!(letter, '`' | '"' | '“' | '”');
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_matches(is_mark)),
        Cow::Owned(text) => Cow::Owned(text.trim_matches(is_mark).to_string()),
    }
}

/// Full-width forms of ASCII, as Chinese text has them, and the slanted letters of Unicode mathematics.
fn is_variant_form(letter: char) -> bool {
    matches!(letter, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d6a3}' | '\u{1d7ce}'..='\u{1d7ff}')
}

fn plain_form(letter: char) -> char {
    let code = u32::from(letter);
    let plain = match letter {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(code - 0xfee0),
        '\u{1d400}'..='\u{1d6a3}' => {
            let place = (code - 0x1d400) % 52;
            char::from_u32(if place < 26 { 65 + place } else { 71 + place })
        }
        '\u{1d7ce}'..='\u{1d7ff}' => char::from_u32(48 + (code - 0x1d7ce) % 10),
        _ => None,
    };
    plain.unwrap_or(letter)
}

/// Two or more letters and nothing else but layout, in lower case.
pub fn words(text: &str) -> Option<String> {
    let mut kept = String::new();
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let skipped = match letter {
            '\\' => ["\\textbf", "\\textit", "\\text", "\\mathrm", "\\mathbf", "\\mbox"]
                .iter()
                .find(|command| rest.starts_with(**command))
                .map(|command| command.len()),
            'b' | 'i' | 'r' => {
                ["bf{", "it{", "rm{"].iter().find(|command| rest.starts_with(**command)).map(|command| command.len())
            }
            _ => None,
        };
        if let Some(length) = skipped {
            at += length;
            continue;
        }
        at += letter.len_utf8();
        if letter.is_whitespace() || "{}$.\\~*!\"".contains(letter) {
            continue;
        }
        if !letter.is_alphabetic() {
            return None;
        }
        kept.extend(letter.to_lowercase());
    }
    (kept.chars().nth(1).is_some()).then_some(kept)
}

/// The text without layout, to compare what cannot be parsed.
pub fn squeezed(text: &str) -> String {
    let mut plain =
        text.replace("\\left", "").replace("\\right", "").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac");
    plain.retain(|letter| !letter.is_whitespace() && letter != '$');
    plain
}
