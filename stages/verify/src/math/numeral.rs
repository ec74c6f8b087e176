//! Numerals: thousands separators, decimal points, exponents.

use super::lexer::{Commas, Lexer, Token};

impl Lexer<'_> {
    pub(super) fn number(&mut self) {
        if let Some(length) = based_length(self.rest()) {
            let token = Token::Number(self.rest()[..length].into());
            self.at += length;
            self.push(token);
            return;
        }
        // `3 hours 20 minutes` are two values
        if let [.., Token::Number(_), Token::Word(word)] = &self.tokens[..]
            && super::tables::UNITS.contains(&word.to_ascii_lowercase().as_str())
        {
            self.push(Token::Sign('∧'));
        }
        if self.brackets == 0
            && let Some((length, digits)) = continental(self.rest())
        {
            self.at += length;
            self.push(Token::Number(digits));
            return;
        }
        let bytes = self.text.as_bytes();
        let mut digits = String::new();
        self.digits(&mut digits);
        if self.commas_allowed() {
            self.thousands(&mut digits);
        }
        if self.decimal_comma(&mut digits) {
            self.push(Token::Number(digits));
            return;
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
            if [".\\overline", ".\\bar", ".\\dot"].iter().any(|start| self.rest().starts_with(start)) {
                digits.push('.');
            }
            self.at += 1;
        }
        if digits.contains('.') && self.repeating(&mut digits) {
            return;
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
                if self.reading.commas != Commas::Thousands && !digits.starts_with('0') && bytes[0] != b'0' {
                    return;
                }
                self.doubts.commas |= bytes[0] != b'0';
            }
            digits.push_str(&group[..3]);
            self.at += skip + 3;
        }
    }

    /// `2,74` where the comma is read as a decimal point.
    fn decimal_comma(&mut self, digits: &mut String) -> bool {
        let bytes = self.rest().as_bytes();
        if self.brackets > 0 || bytes.first() != Some(&b',') || !bytes.get(1).is_some_and(u8::is_ascii_digit) {
            return false;
        }
        self.doubts.decimal = true;
        if self.reading.commas != Commas::Decimal {
            return false;
        }
        digits.push('.');
        self.at += 1;
        self.digits(digits);
        true
    }

    /// `0.\overline{3}`, `0.1\dot{6}` and `0.333…`: pushes the digits before the period, and the period.
    fn repeating(&mut self, digits: &mut String) -> bool {
        let rest = self.rest();
        let period = if let Some(inner) = rest.strip_prefix("\\dot{") {
            let Some((first, after)) = inner.split_once('}') else { return false };
            let mut period = first.to_string();
            let more = after.bytes().take_while(u8::is_ascii_digit).count();
            let mut length = rest.len() - after.len();
            if let Some((last, _)) = after[more..].strip_prefix("\\dot{").and_then(|inner| inner.split_once('}')) {
                period.push_str(&after[..more]);
                period.push_str(last);
                length += more + "\\dot{}".len() + last.len();
            }
            self.at += length;
            period
        } else {
            let Some(dots) = ["...", "…", "\\ldots", "\\dots", "\\cdots"].iter().find(|dots| rest.starts_with(**dots))
            else {
                return false;
            };
            let places = digits.split_once('.').map_or(0, |(_, places)| places.len());
            if !(3..=200).contains(&places) {
                return false;
            }
            self.at += dots.len();
            let tail = &digits[digits.len() - places..];
            let Some(length) = (1..=places / 2).find(|length| repeats(tail, *length)) else {
                self.push(Token::Number(digits.clone()));
                return true;
            };
            digits.split_off(digits.len() - length)
        };
        self.push(Token::Number(std::mem::take(digits)));
        for token in [Token::Function("overline".into()), Token::Sign('{'), Token::Number(period), Token::Sign('}')] {
            self.push(token);
        }
        true
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

/// Whether `digits` end in a block of `length` that stands there at least twice, three digits in all.
fn repeats(digits: &str, length: usize) -> bool {
    let bytes = digits.as_bytes();
    let (end, start) = (bytes.len(), bytes.len().saturating_sub(2 * length));
    let block = &bytes[end - length..];
    let three = length > 1 || end >= 3 && bytes[end - 3..].iter().all(|digit| *digit == block[0]);
    three && bytes[start..end - length] == *block && bytes[start..].iter().any(|digit| *digit != b'0')
}

/// `1.234.567,89` and `1.000,99`: full stops between thousands. Bytes and digits with a decimal point.
fn continental(text: &str) -> Option<(usize, String)> {
    let bytes = text.as_bytes();
    let run = |at: usize| bytes[at.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let first = run(0);
    if first == 0 || first > 3 || bytes[0] == b'0' {
        return None;
    }
    let (mut at, mut groups) = (first, 0);
    let mark = *bytes.get(first)?;
    if mark != b'.' && mark != b'\'' && mark != b' ' {
        return None;
    }
    while bytes.get(at) == Some(&mark) && run(at + 1) == 3 {
        at += 4;
        groups += 1;
    }
    let decimals = if bytes.get(at) == Some(&b',') { run(at + 1) } else { 0 };
    let cents = decimals > 0 && decimals != 3;
    if groups == 0 || mark == b'.' && groups < 2 && !cents || mark == b' ' && !cents {
        return None;
    }
    let mut digits: String = text[..at].chars().filter(char::is_ascii_digit).collect();
    if cents {
        digits.push('.');
        digits.push_str(&text[at + 1..at + 1 + decimals]);
        at += 1 + decimals;
    }
    let goes_on =
        bytes.get(at).is_some_and(u8::is_ascii_digit) || matches!(bytes.get(at), Some(b'.' | b',')) && run(at + 1) > 0;
    (!goes_on).then_some((at, digits))
}

/// Length of `2a3` in front of an index above ten, as in `2a3_{16}`.
pub(super) fn based_length(text: &str) -> Option<usize> {
    let length = text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let index = text[length..].strip_prefix('_')?;
    let index = index.strip_prefix('{').unwrap_or(index);
    let base: u32 = index[..index.bytes().take_while(u8::is_ascii_digit).count()].parse().ok()?;
    let letters = text[..length].bytes().any(|byte| byte.is_ascii_alphabetic());
    (letters
        && length > 1
        && length <= 64
        && (11..=36).contains(&base)
        && text[..length].chars().all(|digit| digit.is_digit(base)))
    .then_some(length)
}
