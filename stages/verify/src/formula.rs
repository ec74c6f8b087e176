//! Formulas between delimiters, and numbers in running text.

use crate::{anchor::separates, extract::Extracted, math::closing_brace};
use std::ops::Range;

/// Length of a formula between delimiters that starts here.
pub(crate) fn span_length(text: &str) -> Option<usize> {
    for (open, close) in [("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)")] {
        if let Some(inner) = text.strip_prefix(open) {
            return inner.find(close).map(|end| open.len() + end + close.len());
        }
    }
    let inner = text.strip_prefix('$')?;
    let mut from = 0;
    while let Some(found) = inner[from..].find('$') {
        let end = from + found;
        if end == 0 {
            return None;
        }
        let content = &inner[..end];
        if content.contains("\n\n") || content.len() > 2000 {
            return None;
        }
        if content.ends_with('\\') {
            from = end + 1;
            continue;
        }
        let currency = content.starts_with(|letter: char| letter.is_ascii_digit())
            && (content.ends_with(' ') || inner[end + 1..].starts_with(|letter: char| letter.is_ascii_digit()));
        let prose = content
            .split_whitespace()
            .filter(|word| word.len() > 2 && word.chars().all(|letter| letter.is_ascii_alphabetic()))
            .count()
            > 1
            && !content.contains('\\');
        return if currency || prose { None } else { Some(end + 2) };
    }
    None
}

/// Openers without a closer that are looked into, so that the search stays linear.
const MAX_FAILURES: usize = 200;

/// The last formula between delimiters or the last number, whichever stands later.
pub(crate) fn last_formula(text: &str) -> Option<Extracted> {
    let mut at = 0;
    let mut best: Option<(Range<usize>, &'static str)> = None;
    let bytes = text.as_bytes();
    let mut previous = ' ';
    let mut failures = 0;
    while let Some(letter) = text[at..].chars().next() {
        let opens = letter == '$' || text[at..].starts_with("\\[") || text[at..].starts_with("\\(");
        if opens && failures < MAX_FAILURES {
            if let Some(length) = span_length(&text[at..]) {
                if text[at..at + length].chars().any(char::is_alphanumeric) {
                    let from = best
                        .as_ref()
                        .filter(|(span, method)| *method == "formula" && separates(&text[span.end..at]))
                        .map_or(at, |(span, _)| span.start);
                    best = Some((from..at + length, "formula"));
                }
                at += length;
                previous = ' ';
                continue;
            }
            failures += 1;
        }
        if letter.is_ascii_digit() && !previous.is_ascii_alphabetic() && previous != '_' && previous != '^' {
            let length = number_length(&text[at..]);
            best = Some((number_start(bytes, at, previous)..at + length, "number"));
            at += length;
            previous = '0';
            continue;
        }
        if letter == '\\' && failures < MAX_FAILURES {
            if let Some(fraction) = fraction_length(&text[at..]) {
                best = Some((at..at + fraction, "formula"));
                at += fraction;
                continue;
            }
            failures += usize::from(text[at..].starts_with("\\frac{"));
        }
        previous = letter;
        at += letter.len_utf8();
    }
    let (span, method) = best?;
    let mut found = text[span.clone()].to_string();
    let after = text[span.end..].trim_start();
    if method == "number" && (after.starts_with('%') || after.starts_with("percent") || after.starts_with("\\%")) {
        found.push('%');
    }
    Some(Extracted { text: found, span, method, weak: true, statement: None })
}

/// Where a number begins whose first digit stands at `at`: at its point or its sign.
fn number_start(bytes: &[u8], at: usize, previous: char) -> usize {
    let before = |index: usize| index.checked_sub(1).and_then(|index| bytes.get(index));
    let pointed = previous == '.' && !before(at - 1).is_some_and(u8::is_ascii_digit);
    let start = at - usize::from(pointed);
    let signed = before(start) == Some(&b'-')
        && !before(start - 1).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b')');
    start - usize::from(signed)
}

pub(crate) fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    loop {
        while digit(at) {
            at += 1;
        }
        let three = digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4);
        let loose =
            text[at..].starts_with(",\\!") && text[at + 3..].starts_with(|letter: char| letter.is_ascii_digit());
        if text[at..].starts_with("{,}") || loose {
            at += 3;
        } else if text[at..].starts_with(',') && three
            || (text[at..].starts_with(' ') && three && at <= 3 && !digit(at + 4))
            || (matches!(bytes.get(at), Some(b'.' | b'/')) && digit(at + 1))
        {
            at += 1;
        } else if at > 0 && bytes.get(at) == Some(&b',') && digit(at + 1) {
            // a decimal comma: one or two digits, and no list
            let end = at + 2 + usize::from(digit(at + 2));
            let goes_on = digit(end) || matches!(bytes.get(end), Some(b',' | b'.')) && digit(end + 1);
            return if goes_on { at } else { end };
        } else {
            return at;
        }
    }
}

pub(crate) fn fraction_length(text: &str) -> Option<usize> {
    let name = ["\\frac", "\\dfrac", "\\tfrac"].into_iter().find(|name| text.starts_with(&format!("{name}{{")))?;
    let first = closing_brace(text, name.len())?;
    if !text[first + 1..].starts_with('{') {
        return None;
    }
    closing_brace(text, first + 1).map(|end| end + 1)
}
