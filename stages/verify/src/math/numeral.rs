//! Numerals: thousands separators, decimal points, exponents.

use super::lexer::{Commas, Lexer, Token};

impl Lexer<'_> {
    pub(super) fn number(&mut self) {
        let bytes = self.text.as_bytes();
        let mut digits = String::new();
        self.digits(&mut digits);
        if self.commas_allowed() {
            self.thousands(&mut digits);
        }
        if self.rest().starts_with("{.}") && bytes.get(self.at + 3).is_some_and(u8::is_ascii_digit) {
            digits.push('.');
            self.at += 3;
            self.digits(&mut digits);
        } else if bytes.get(self.at) == Some(&b'.') && bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit) {
            digits.push('.');
            self.at += 1;
            self.digits(&mut digits);
        } else if bytes.get(self.at) == Some(&b'.')
            && bytes.get(self.at + 1).is_none_or(|next| *next != b'.')
            && digits.chars().any(|digit| digit.is_ascii_digit())
        {
            if self.rest().starts_with(".\\overline") {
                digits.push('.');
            }
            self.at += 1;
        }
        let exponent = bytes.get(self.at).is_some_and(|mark| matches!(mark, b'e' | b'E'));
        let signed = bytes.get(self.at + 1).is_some_and(|mark| matches!(mark, b'+' | b'-'));
        let first = self.at + 1 + usize::from(signed);
        if exponent && bytes.get(first).is_some_and(u8::is_ascii_digit) {
            digits.push('e');
            if bytes.get(self.at + 1) == Some(&b'-') {
                digits.push('-');
            }
            self.at = first;
            self.digits(&mut digits);
        }
        self.push(Token::Number(digits));
    }

    pub(super) fn digits(&mut self, into: &mut String) {
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            into.push(digit);
            self.at += 1;
        }
    }

    /// Bare subscripts and superscripts take their digits without grouping.
    pub(super) fn commas_allowed(&self) -> bool {
        !matches!(self.tokens.last(), Some(Token::Sign('_')))
    }

    pub(super) fn thousands(&mut self, digits: &mut String) {
        if digits.len() > 3 || digits.is_empty() {
            return;
        }
        loop {
            let (skip, forced, spaced) = separator(self.rest());
            if skip == 0 {
                return;
            }
            let group: &str = self.text.get(self.at + skip..).unwrap_or("");
            let bytes = group.as_bytes();
            let three = bytes.len() >= 3
                && bytes[..3].iter().all(u8::is_ascii_digit)
                && !bytes.get(3).is_some_and(u8::is_ascii_digit);
            if !three || (!forced && !spaced && self.brackets > 0) {
                return;
            }
            if spaced && (self.brackets > 0 || digits.starts_with('0') || self.after_fraction()) {
                return;
            }
            if !forced && !spaced {
                if self.commas == Commas::List && !digits.starts_with('0') && bytes[0] != b'0' {
                    return;
                }
                self.ambiguous |= bytes[0] != b'0';
            }
            digits.push_str(&group[..3]);
            self.at += skip + 3;
        }
    }

    pub(super) fn after_fraction(&self) -> bool {
        matches!(self.tokens.last(), Some(Token::Function(name)) if name == "frac" || name == "binom")
    }
}
/// Bytes of a thousands separator at the start, whether it can be nothing else, whether it is a space.
fn separator(rest: &str) -> (usize, bool, bool) {
    for mark in ["{,}", ",\\! ", ",\\!", "\\!,\\!", "{,\\!}", ",\\,"] {
        if rest.starts_with(mark) {
            return (mark.len(), true, false);
        }
    }
    if rest.starts_with(',') || rest.starts_with('，') {
        return (if rest.starts_with(',') { 1 } else { '，'.len_utf8() }, false, false);
    }
    for mark in [" ", "\\ ", "\\,", "\u{a0}", "\u{202f}", "\u{2009}"] {
        if rest.starts_with(mark) {
            return (mark.len(), false, true);
        }
    }
    (0, false, false)
}
