//! Lines that say what the answer is, in several languages.

use crate::{
    extract::{Extracted, Extraction},
    formula::{last_formula, span_length},
};
use std::ops::Range;

const ANCHORS: [&str; 9] = ["answer", "答案", "réponse", "respuesta", "antwort", "####", "结果是", "结果为", "故选"];

/// The last line that says it is the answer, if it stands after the last box.
pub(crate) fn anchored(section: &str, after: usize, extraction: Extraction) -> Option<Extracted> {
    let tail = &section[after..];
    let lower = tail.to_ascii_lowercase();
    let mut spots: Vec<usize> =
        ANCHORS.iter().flat_map(|anchor| lower.match_indices(anchor).map(|(at, found)| at + found.len())).collect();
    spots.sort_unstable();
    if let Some(line) = answer_line(tail) {
        spots.push(line);
    }
    let mut fallback = None;
    for spot in spots.into_iter().rev().take(6) {
        let Some(content) = content_after(tail, spot) else {
            continue;
        };
        let text = &tail[content.clone()];
        let plausible = starts_like_answer(text);
        let found = Extracted {
            text: text.trim().to_string(),
            span: content.start + after..content.end + after,
            method: "anchor",
            weak: false,
            statement: None,
        };
        if plausible {
            return Some(found);
        }
        if fallback.is_none() && after == 0 && text.split_whitespace().count() <= 12 {
            fallback = Some(found);
        }
    }
    let found = fallback?;
    if extraction == Extraction::Lenient
        && let Some(inner) =
            last_formula(&found.text).filter(|_| !found.text.contains(" is ") && !found.text.contains(['是', '为']))
        && found.text.split_whitespace().count() > 3
    {
        return Some(Extracted { weak: true, span: found.span.clone(), ..inner });
    }
    Some(found)
}

/// `A: 18` as the last line.
pub(crate) fn answer_line(text: &str) -> Option<usize> {
    let trimmed = text.trim_end();
    let start = trimmed.rfind('\n').map_or(0, |at| at + 1);
    let line = &trimmed[start..];
    let mark = ["A:", "a:", "A：", "答：", "答:"].into_iter().find(|mark| line.trim_start().starts_with(mark))?;
    Some(start + (line.len() - line.trim_start().len()) + mark.len())
}

/// What an anchor that ends at `spot` announces.
pub(crate) fn content_after(text: &str, spot: usize) -> Option<Range<usize>> {
    let mut at = spot;
    let skip = |at: usize, set: &str| {
        at + text[at..].len() - text[at..].trim_start_matches(|letter: char| set.contains(letter)).len()
    };
    at = skip(at, "s*_ \"");
    let verbs = [
        "is",
        "are",
        "est",
        "es",
        "ist",
        "was",
        "would be",
        "will be",
        "should be",
        "seems to be",
        "must be",
        "=",
        ":",
        "：",
        "是",
        "为",
        "应该是",
        "应为",
        "选",
    ];
    let marked = text[..spot].ends_with('#') || text[..spot].ends_with([':', '：', '是', '为', '选']);
    if let Some(verb) = verbs.iter().filter(|verb| text[at..].starts_with(**verb)).max_by_key(|verb| verb.len()) {
        at += verb.len();
    } else if !marked {
        let line = text[at..].split(['\n', '.', '。']).next().unwrap_or("");
        let verb = [" is ", " is: ", " are ", "是", "为", "：", ": ", ":\n"]
            .iter()
            .filter_map(|verb| line.find(verb).map(|found| found + verb.len()))
            .min();
        match verb {
            Some(offset) if offset <= 80 => at += offset,
            _ if line.trim_matches(['*', ' ', '#', '_']).is_empty() && text[at + line.len()..].starts_with('\n') => {}
            _ => return None,
        }
    }
    at = skip(at, ":：* \n\t_\"“");
    let rest = &text[at..];
    if rest.is_empty() {
        return None;
    }
    let end = at + answer_length(rest);
    (end > at).then_some(at..end)
}

/// Bytes up to the end of the answer: joined formulas, or the sentence.
pub(crate) fn answer_length(rest: &str) -> usize {
    let mut end = 0;
    while let Some(length) = span_length(&rest[end..]) {
        end += length;
        let after = &rest[end..];
        let gap = separator_length(after);
        if span_length(&after[gap..]).is_none() {
            break;
        }
        end += gap;
    }
    if end > 0 {
        return end;
    }
    let mut inside = false;
    let bytes = rest.as_bytes();
    for (at, letter) in rest.char_indices() {
        let next = bytes.get(at + letter.len_utf8());
        match letter {
            '$' => inside = !inside,
            '\n' | '。' => return at,
            '.' if !inside && next.is_none_or(u8::is_ascii_whitespace) && !is_half_day(&rest[..at]) => {
                return at;
            }
            '<' if rest[at..].starts_with("<|") => return at,
            ',' | ' '
                if !inside
                    && [" because", ", because", " since ", ", where", ", which", ", so ", ", it ", ", not "]
                        .iter()
                        .any(|word| rest[at..].starts_with(word)) =>
            {
                return at;
            }
            '，' if !inside
                && ["因为", "所以", "其中"].iter().any(|word| rest[at + letter.len_utf8()..].starts_with(word)) =>
            {
                return at;
            }
            _ => {}
        }
    }
    rest.len()
}

/// Whether a text ends in `p.m` or a bare `p`, so that a full stop belongs to the time.
pub(crate) fn is_half_day(text: &str) -> bool {
    let word = text.rsplit([' ', '~', '{']).next().unwrap_or("");
    matches!(word, "p.m" | "a.m" | "p" | "a") && text.len() > word.len()
}

pub(crate) fn separator_length(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let Some(letter) = rest.chars().next() else {
            return at;
        };
        if letter == ' ' || letter == ',' || letter == ';' || letter == '、' || letter == '，' {
            at += letter.len_utf8();
        } else if let Some(word) = ["and ", "or ", "和", "或"].into_iter().find(|word| rest.starts_with(word)) {
            at += word.len();
        } else {
            return at;
        }
    }
}

/// Whether only a comma, "and" or "or" stands between two formulas.
pub(crate) fn separates(gap: &str) -> bool {
    let end = separator_length(gap);
    end == gap.len() && !gap.trim().is_empty()
}

pub(crate) fn starts_like_answer(text: &str) -> bool {
    let text = text.trim_start();
    let first = text.chars().next().unwrap_or(' ');
    let signed =
        matches!(first, '-' | '−' | '+' | '±' | '(' | '[' | '{' | '$' | '\\' | '√' | '.' | '|' | '£' | '€' | '¥')
            || first.is_ascii_digit();
    let letter = first.is_alphabetic() && {
        let mut letters = text.chars().skip(1);
        let next = letters.next().unwrap_or(' ');
        let then = letters.find(|letter| *letter != ' ').unwrap_or(' ');
        !next.is_alphabetic()
            && (matches!(next, '=' | '^' | '(' | '.' | ')' | ':' | '+' | '-') || (next == ' ' && !then.is_alphabetic()))
    };
    let named = ["pi", "sqrt", "infinity", "π"].iter().any(|name| text.starts_with(name));
    signed || letter || named
}
