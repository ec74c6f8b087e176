//! Words as the sentence splitter sees them: full stops stay with their word, other marks are parted.

use super::ends_word;
use crate::instruct::characters::{is_digit, is_space, is_word};
use std::borrow::Cow;

/// What every number is an instance of.
pub(super) const NUMBER: &str = "##number##";

/// A word or mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub text: &'t str,
}

impl<'t> Word<'t> {
    /// Its type: lower case, and one for all numbers.
    pub fn kind(&self) -> Cow<'t, str> {
        if is_number(self.text) {
            Cow::Borrowed(NUMBER)
        } else if self.text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
            Cow::Borrowed(self.text)
        } else {
            Cow::Owned(self.text.to_lowercase())
        }
    }

    pub fn is_capital(&self) -> bool {
        self.text.chars().next().is_some_and(char::is_uppercase)
    }

    pub fn is_small(&self) -> bool {
        self.text.chars().next().is_some_and(char::is_lowercase)
    }

    /// Two full stops or more and nothing else.
    pub fn is_ellipsis(&self) -> bool {
        self.text.len() > 1 && self.text.bytes().all(|byte| byte == b'.')
    }

    /// A letter and a full stop.
    pub fn is_initial(&self) -> bool {
        let mut characters = self.text.chars();
        characters.next().is_some_and(|letter| is_word(letter) && !is_digit(letter)) && characters.as_str() == "."
    }
}

/// A digit, perhaps after a sign and a point, then digits and points.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let text = text.strip_prefix(['.', ',']).unwrap_or(text);
    text.starts_with(is_digit) && text.chars().all(|character| is_digit(character) || ",.-".contains(character))
}

/// The words of a line.
pub(super) fn words(line: &str) -> impl Iterator<Item = Word<'_>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(is_space);
        let first = rest.chars().next()?;
        let length = run_of_marks(rest)
            .or_else(|| can_start(first).then(|| word_length(rest)))
            .unwrap_or_else(|| first.len_utf8());
        let (text, after) = rest.split_at(length);
        rest = after;
        Some(Word { text })
    })
}

/// Whether a word can begin with it.
fn can_start(character: char) -> bool {
    !"(\"`{[:;&#*@)}]-,".contains(character)
}

/// The length of a word: up to white space, a mark that ends words, a run of marks, or a comma before one
/// of these.
fn word_length(text: &str) -> usize {
    let ends = |at: usize| {
        let rest = &text[at..];
        rest.chars().next().is_none_or(|next| is_space(next) || ends_word(next)) || run_of_marks(rest).is_some()
    };
    let places = text.char_indices().skip(1).find(|&(at, character)| ends(at) || character == ',' && ends(at + 1));
    places.map_or(text.len(), |(at, _)| at)
}

/// The length of two dashes or more, two full stops or more, or three spaced full stops or more.
fn run_of_marks(text: &str) -> Option<usize> {
    let mark = text.bytes().next().filter(|byte| matches!(byte, b'-' | b'.'))?;
    let run = text.bytes().take_while(|byte| *byte == mark).count();
    if run > 1 {
        return Some(run);
    }
    if mark == b'-' {
        return None;
    }
    let (mut dots, mut at) = (1, 1);
    loop {
        let space = text[at..].chars().next().filter(|next| is_space(*next)).map_or(0, char::len_utf8);
        if space == 0 || !text[at + space..].starts_with('.') {
            return (dots > 2).then_some(at);
        }
        dots += 1;
        at += space + 1;
    }
}
