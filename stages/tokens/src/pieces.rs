//! Cuts text into pieces that are merged each for itself: the pre-tokenizers of GPT-2, `SmolLM2`, Qwen2 and Llama 3.
//!
//! Each is written out by hand instead of run by a regex engine: that is several times faster, and has no limit on the
//! length of a run (engines with look-ahead give up after a million white-space characters). Letters, numbers and white
//! space are those of the regex crates' own tables, so that the pieces are those of `tokenizers`; numbers that stand
//! alone in `SmolLM2` are those of `char::is_numeric`, as there.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

use crate::error::TokensError;

/// The pattern inside `ByteLevel` pre-tokenizers.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of Qwen2, Qwen2.5 and Qwen3.
pub(crate) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Llama 3.
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// [`GPT2`].
    Gpt2,
    /// Every number alone, what is between by [`GPT2`].
    DigitsGpt2,
    /// [`QWEN2`].
    Qwen2,
    /// [`LLAMA3`].
    Llama3,
}

impl Split {
    /// Its name in digests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::DigitsGpt2 => "digits-gpt2",
            Self::Qwen2 => "qwen2",
            Self::Llama3 => "llama3",
        }
    }
}

const OTHER: u8 = 0;
const LETTER: u8 = 1;
const NUMBER: u8 = 2;
const SPACE: u8 = 3;
/// Flag: stands alone in [`Split::DigitsGpt2`].
const ALONE: u8 = 4;
const KIND: u8 = 3;

/// The class of every code point.
pub(crate) type Classes = &'static [u8];

static CLASSES: LazyLock<Option<Box<[u8]>>> = LazyLock::new(|| {
    let mut classes = vec![OTHER; 0x11_0000].into_boxed_slice();
    for (pattern, class) in [(r"\p{L}", LETTER), (r"\p{N}", NUMBER), (r"\s", SPACE)] {
        let parsed = regex_syntax::parse(pattern).ok()?;
        let HirKind::Class(Class::Unicode(ranges)) = parsed.kind() else { return None };
        for range in ranges.ranges() {
            classes.get_mut(range.start() as usize..=range.end() as usize)?.fill(class);
        }
    }
    for character in '\0'..=char::MAX {
        if character.is_numeric() {
            *classes.get_mut(character as usize)? |= ALONE;
        }
    }
    Some(classes)
});

/// The table of classes; made once.
pub(crate) fn classes() -> Result<Classes, TokensError> {
    let missing = || TokensError::Tokenizer("the tables of letters and numbers cannot be made".to_owned());
    CLASSES.as_deref().ok_or_else(missing)
}

/// Calls `each` with every piece of the text, in order; together they are the text.
pub(crate) fn each_piece<'t>(text: &'t str, split: Split, classes: Classes, mut each: impl FnMut(&'t [u8])) {
    let scan = Scan { text, classes, digits_alone: split == Split::DigitsGpt2 };
    let mut at = 0;
    while at < text.len() {
        let end = match split {
            Split::Gpt2 | Split::DigitsGpt2 => scan.gpt2(at),
            Split::Qwen2 => scan.newer(at, 1),
            Split::Llama3 => scan.newer(at, 3),
        };
        each(&text.as_bytes()[at..end]);
        at = end;
    }
}

#[derive(Clone, Copy)]
struct Scan<'t> {
    text: &'t str,
    classes: Classes,
    digits_alone: bool,
}

impl Scan<'_> {
    /// Character and class at a byte offset; `None` at the end.
    #[inline]
    fn at(self, at: usize) -> Option<(char, u8)> {
        let byte = *self.text.as_bytes().get(at)?;
        let character = if byte.is_ascii() { char::from(byte) } else { self.text.get(at..)?.chars().next()? };
        Some((character, self.classes.get(character as usize).copied().unwrap_or(OTHER)))
    }

    /// The end of the run of a class that begins at or before `at`.
    #[inline]
    fn run(self, mut at: usize, kind: u8) -> usize {
        while let Some((character, class)) = self.at(at) {
            if class & KIND != kind || (self.digits_alone && class & ALONE != 0) {
                break;
            }
            at += character.len_utf8();
        }
        at
    }

    fn line_ends(self, mut at: usize) -> usize {
        while let Some(b'\r' | b'\n') = self.text.as_bytes().get(at) {
            at += 1;
        }
        at
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d`, its end.
    fn contraction(self, at: usize, any_case: bool) -> Option<usize> {
        let rest = self.text.as_bytes().get(at + 1..)?;
        let letter = |index: usize| {
            let byte = rest.get(index).copied();
            if any_case { byte.map(|byte| byte.to_ascii_lowercase()) } else { byte }
        };
        match (letter(0)?, letter(1)) {
            (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
            (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(at + 3),
            // the long s folds to s
            (0xc5, Some(0xbf)) if any_case => Some(at + 3),
            _ => None,
        }
    }

    /// `\s+(?!\S)|\s+` from a white-space character on: the last one of a run goes with what follows.
    fn white_space(self, at: usize) -> usize {
        let end = self.run(at, SPACE);
        let is_last = match self.at(end) {
            None => true,
            Some((_, class)) => self.digits_alone && class & ALONE != 0,
        };
        let run = &self.text[at..end];
        let last = run.chars().next_back().map_or(0, char::len_utf8);
        if is_last || last == run.len() { end } else { end - last }
    }

    /// The end of the piece that begins at `at`, by [`GPT2`].
    fn gpt2(self, at: usize) -> usize {
        let Some((character, class)) = self.at(at) else { return at };
        let next = at + character.len_utf8();
        if self.digits_alone && class & ALONE != 0 {
            return next;
        }
        if character == '\''
            && let Some(end) = self.contraction(at, false)
        {
            return end;
        }
        if class & KIND != SPACE {
            return self.run(next, class & KIND);
        }
        if character == ' '
            && let Some((_, after)) = self.at(next)
            && after & KIND != SPACE
            && !(self.digits_alone && after & ALONE != 0)
        {
            return self.run(next, after & KIND);
        }
        self.white_space(at)
    }

    /// The end of the piece that begins at `at`, by [`QWEN2`] (one digit) or [`LLAMA3`] (up to three).
    fn newer(self, at: usize, digits: usize) -> usize {
        let Some((character, class)) = self.at(at) else { return at };
        let next = at + character.len_utf8();
        let kind = class & KIND;
        if character == '\''
            && let Some(end) = self.contraction(at, true)
        {
            return end;
        }
        if kind == LETTER {
            return self.run(next, LETTER);
        }
        let after = self.at(next).map(|(_, class)| class & KIND);
        if kind != NUMBER && !matches!(character, '\r' | '\n') && after == Some(LETTER) {
            return self.run(next, LETTER);
        }
        if kind == NUMBER {
            let mut end = next;
            for _ in 1..digits {
                match self.at(end) {
                    Some((number, class)) if class & KIND == NUMBER => end += number.len_utf8(),
                    _ => break,
                }
            }
            return end;
        }
        if kind == OTHER || (character == ' ' && after == Some(OTHER)) {
            return self.line_ends(self.run(next, OTHER));
        }
        let run = &self.text[at..self.run(at, SPACE)];
        if let Some(last) = run.rfind(['\r', '\n']) {
            return at + last + 1;
        }
        self.white_space(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, split: Split) -> Vec<&str> {
        let mut pieces = Vec::new();
        each_piece(text, split, classes().unwrap(), |piece| pieces.push(std::str::from_utf8(piece).unwrap()));
        pieces
    }

    #[test]
    fn numbers_stand_alone_and_spaces_before_them_too() {
        assert_eq!(cut("a  12 b's", Split::DigitsGpt2), ["a", "  ", "1", "2", " b", "'s"]);
        assert_eq!(cut("a  12 b's", Split::Gpt2), ["a", " ", " 12", " b", "'s"]);
        assert_eq!(cut("a  12 b's", Split::Qwen2), ["a", " ", " ", "1", "2", " b", "'s"]);
        assert_eq!(cut("12345", Split::Llama3), ["123", "45"]);
    }

    #[test]
    fn line_ends_close_a_piece_of_the_newer_patterns() {
        assert_eq!(cut("x);\n\n  y \n z", Split::Qwen2), ["x", ");\n\n", " ", " y", " \n", " z"]);
        assert_eq!(cut("I'LL 'ſ", Split::Qwen2), ["I", "'LL", " '", "ſ"]);
        assert_eq!(cut("'ſx", Split::Qwen2), ["'ſ", "x"]);
    }

    #[test]
    fn a_run_of_two_million_spaces_is_cut_like_a_short_one() {
        let text = format!("{}x", " ".repeat(2_000_000));
        let pieces = cut(&text, Split::DigitsGpt2);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1], " x");
    }
}
