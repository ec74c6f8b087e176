//! Finds the final answer of a trace: what stands after the reasoning, in the last box or on the last
//! line that says it is the answer.
//!
//! Linear in the text and without character windows: an answer of any length keeps its opening brace.
//! A trace that was cut inside its reasoning or inside a box has no answer. Report section 2.2.1.

use crate::math::closing_brace;
use std::ops::Range;

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extraction {
    /// Only a marked final answer counts.
    #[default]
    Strict,
    /// Else the last formula or number, flagged weak.
    Lenient,
}

/// A final answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extracted {
    /// The answer as written, boxes that stand side by side joined by commas.
    pub text: String,
    /// Where it stands in the trace, in bytes.
    pub span: Range<usize>,
    /// `box`, `anchor`, `formula` or `number`.
    pub method: &'static str,
    /// Found without a mark.
    pub weak: bool,
    /// All boxes of the final statement, where words stand between them.
    pub statement: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The reasoning never ends, or the last box is not closed.
    Truncated,
    /// Nothing is marked as the answer.
    Unmarked,
}

impl Missing {
    /// The reason that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Unmarked => "unmarked",
        }
    }
}

/// Byte offset where the reasoning ends.
///
/// # Errors
/// [`Missing::Truncated`] for reasoning that is opened and never closed.
pub fn answer_start(trace: &str) -> Result<usize, Missing> {
    const MARKS: [(&str, &str); 2] = [("<think>", "</think>"), ("◁think▷", "◁/think▷")];
    for (open, close) in MARKS {
        let opened = trace.rfind(open);
        if let Some(end) = trace.rfind(close) {
            return if opened.is_some_and(|opened| opened > end) {
                Err(Missing::Truncated)
            } else {
                Ok(end + close.len())
            };
        }
        if trace.trim_start().starts_with(open) {
            return Err(Missing::Truncated);
        }
    }
    Ok(0)
}

/// The final answer of `trace`.
///
/// # Errors
/// [`Missing`]: cut off, or nothing marked.
pub fn extract(trace: &str, extraction: Extraction) -> Result<Extracted, Missing> {
    let start = answer_start(trace)?;
    let section = &trace[start..];
    let mut found = within(section, extraction)?;
    found.span = found.span.start + start..found.span.end + start;
    Ok(found)
}

fn within(section: &str, extraction: Extraction) -> Result<Extracted, Missing> {
    let boxes = boxes(section)?;
    let box_end = boxes.last().map_or(0, |last| last.whole.end);
    if let Some(found) = anchored(section, box_end, extraction) {
        return Ok(found);
    }
    if let Some(found) = boxed(section, &boxes) {
        return Ok(found);
    }
    match extraction {
        Extraction::Strict => Err(Missing::Unmarked),
        Extraction::Lenient => last_formula(section).ok_or(Missing::Unmarked),
    }
}

/// A box and its content, as byte ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boxed {
    /// From the backslash to the closing brace.
    pub whole: Range<usize>,
    /// Between the braces.
    pub content: Range<usize>,
}

/// All closed boxes in order; inner boxes are part of their outer one.
///
/// # Errors
/// [`Missing::Truncated`] when the last box is not closed.
pub fn boxes(text: &str) -> Result<Vec<Boxed>, Missing> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find('\\') {
        let start = at + next;
        at = start + 1;
        let Some(name) = ["boxed", "fbox"]
            .into_iter()
            .find(|name| text[at..].starts_with(name))
        else {
            continue;
        };
        let after = &text[at + name.len()..];
        let brace = text.len() - after.trim_start().len();
        if !text[brace..].starts_with('{') {
            // `\boxed 5`: one token
            let word = text[brace..]
                .split(|letter: char| !letter.is_ascii_alphanumeric())
                .next()
                .unwrap_or("");
            if !word.is_empty() && brace > at + name.len() {
                found.push(Boxed {
                    whole: start..brace + word.len(),
                    content: brace..brace + word.len(),
                });
            }
            at += name.len();
            continue;
        }
        let Some(end) = closing_brace(text, brace) else {
            return Err(Missing::Truncated);
        };
        found.push(Boxed {
            whole: start..end + 1,
            content: brace + 1..end,
        });
        at = end + 1;
    }
    Ok(found)
}

fn boxed(section: &str, boxes: &[Boxed]) -> Option<Extracted> {
    let last = boxes.len().checked_sub(1)?;
    let mut first = last;
    while first > 0 && joins(&section[boxes[first - 1].whole.end..boxes[first].whole.start]) {
        first -= 1;
    }
    let mut wide = first;
    while wide > 0 && same_statement(&section[boxes[wide - 1].whole.end..boxes[wide].whole.start]) {
        wide -= 1;
    }
    let content = |index: usize| section[boxes[index].content.clone()].trim();
    // the same box said again is one answer
    let first = if (first..last).all(|index| content(index) == content(last)) {
        last
    } else {
        first
    };
    let joined = |from: usize| (from..=last).map(content).collect::<Vec<_>>().join(", ");
    Some(Extracted {
        text: if first == last {
            content(last).to_string()
        } else {
            joined(first)
        },
        span: boxes[first].whole.start..boxes[last].whole.end,
        method: "box",
        weak: false,
        statement: (wide < first && (wide..last).any(|index| content(index) != content(last)))
            .then(|| joined(wide)),
    })
}

/// Whether only separators stand between two boxes.
fn joins(gap: &str) -> bool {
    if gap.len() > 80 || gap.contains("\n\n") {
        return false;
    }
    let mut rest = gap.to_string();
    for word in [
        "\\text", "\\quad", "\\qquad", "\\mbox", "\\textrm", "\\mathrm", "\\left", "\\right",
        "and", "or", "和", "或", "及", "与",
    ] {
        rest = rest.replace(word, "");
    }
    rest.chars()
        .all(|letter| letter.is_whitespace() || "$,;、，；{}()[]\\~&".contains(letter))
}

/// Whether two boxes belong to one sentence, with words between them.
fn same_statement(gap: &str) -> bool {
    let has = |word: &str| {
        gap.split(|letter: char| !letter.is_alphanumeric())
            .any(|found| found == word)
    };
    let plain = gap.len() <= 120
        && !gap.contains("nswer")
        && !gap.contains("\n\n")
        && !gap.contains(['。', '?', '!'])
        && !gap.contains(". ");
    plain
        && (has("and")
            || has("or")
            || gap.contains(',')
            || gap.contains('和')
            || gap.contains('，'))
}

const ANCHORS: [&str; 9] = [
    "answer",
    "答案",
    "réponse",
    "respuesta",
    "antwort",
    "####",
    "结果是",
    "结果为",
    "故选",
];

/// The last line that says it is the answer, if it stands after the last box.
fn anchored(section: &str, after: usize, extraction: Extraction) -> Option<Extracted> {
    let tail = &section[after..];
    let lower = tail.to_ascii_lowercase();
    let mut spots: Vec<usize> = ANCHORS
        .iter()
        .flat_map(|anchor| {
            lower
                .match_indices(anchor)
                .map(|(at, found)| at + found.len())
        })
        .collect();
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
        && let Some(inner) = last_formula(&found.text)
            .filter(|_| !found.text.contains(" is ") && !found.text.contains(['是', '为']))
        && found.text.split_whitespace().count() > 3
    {
        return Some(Extracted {
            weak: true,
            span: found.span.clone(),
            ..inner
        });
    }
    Some(found)
}

/// `A: 18` as the last line.
fn answer_line(text: &str) -> Option<usize> {
    let trimmed = text.trim_end();
    let start = trimmed.rfind('\n').map_or(0, |at| at + 1);
    let line = &trimmed[start..];
    let mark = ["A:", "a:", "A：", "答：", "答:"]
        .into_iter()
        .find(|mark| line.trim_start().starts_with(mark))?;
    Some(start + (line.len() - line.trim_start().len()) + mark.len())
}

/// What an anchor that ends at `spot` announces.
fn content_after(text: &str, spot: usize) -> Option<Range<usize>> {
    let mut at = spot;
    let skip = |at: usize, set: &str| {
        at + text[at..].len()
            - text[at..]
                .trim_start_matches(|letter: char| set.contains(letter))
                .len()
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
    let marked =
        text[..spot].ends_with('#') || text[..spot].ends_with([':', '：', '是', '为', '选']);
    if let Some(verb) = verbs
        .iter()
        .filter(|verb| text[at..].starts_with(**verb))
        .max_by_key(|verb| verb.len())
    {
        at += verb.len();
    } else if !marked {
        let line = text[at..].split(['\n', '.', '。']).next().unwrap_or("");
        let verb = [" is ", " is: ", " are ", "是", "为", "：", ": ", ":\n"]
            .iter()
            .filter_map(|verb| line.find(verb).map(|found| found + verb.len()))
            .min();
        match verb {
            Some(offset) if offset <= 80 => at += offset,
            _ if line.trim_matches(['*', ' ', '#', '_']).is_empty()
                && text[at + line.len()..].starts_with('\n') => {}
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
fn answer_length(rest: &str) -> usize {
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
            '.' if !inside
                && next.is_none_or(|next| next.is_ascii_whitespace())
                && !rest[..at].ends_with(".m")
                && !rest[..at].ends_with(" p")
                && !rest[..at].ends_with(" a") =>
            {
                return at;
            }
            '<' if rest[at..].starts_with("<|") => return at,
            ',' | ' '
                if !inside
                    && [
                        " because",
                        ", because",
                        " since ",
                        ", where",
                        ", which",
                        ", so ",
                        ", it ",
                        ", not ",
                    ]
                    .iter()
                    .any(|word| rest[at..].starts_with(word)) =>
            {
                return at;
            }
            '，' if !inside
                && ["因为", "所以", "其中"]
                    .iter()
                    .any(|word| rest[at + letter.len_utf8()..].starts_with(word)) =>
            {
                return at;
            }
            _ => {}
        }
    }
    rest.len()
}

fn separator_length(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let Some(letter) = rest.chars().next() else {
            return at;
        };
        if letter == ' ' || letter == ',' || letter == ';' || letter == '、' || letter == '，' {
            at += letter.len_utf8();
        } else if let Some(word) = ["and ", "or ", "和", "或"]
            .into_iter()
            .find(|word| rest.starts_with(word))
        {
            at += word.len();
        } else {
            return at;
        }
    }
}

/// Whether only a comma, "and" or "or" stands between two formulas.
fn separates(gap: &str) -> bool {
    let end = separator_length(gap);
    end == gap.len() && !gap.trim().is_empty()
}

/// Length of a formula between delimiters that starts here.
fn span_length(text: &str) -> Option<usize> {
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
            && (content.ends_with(' ')
                || inner[end + 1..].starts_with(|letter: char| letter.is_ascii_digit()));
        let prose = content
            .split_whitespace()
            .filter(|word| {
                word.len() > 2 && word.chars().all(|letter| letter.is_ascii_alphabetic())
            })
            .count()
            > 1
            && !content.contains('\\');
        return if content.starts_with(' ') && currency || currency || prose {
            None
        } else {
            Some(end + 2)
        };
    }
    None
}

fn starts_like_answer(text: &str) -> bool {
    let text = text.trim_start();
    let first = text.chars().next().unwrap_or(' ');
    let signed = matches!(
        first,
        '-' | '−' | '+' | '±' | '(' | '[' | '{' | '$' | '\\' | '√' | '.' | '|' | '£' | '€' | '¥'
    ) || first.is_ascii_digit();
    let letter = first.is_alphabetic() && {
        let mut letters = text.chars().skip(1);
        let next = letters.next().unwrap_or(' ');
        let then = letters.find(|letter| *letter != ' ').unwrap_or(' ');
        !next.is_alphabetic()
            && (matches!(next, '=' | '^' | '(' | '.' | ')' | ':' | '+' | '-')
                || (next == ' ' && !then.is_alphabetic()))
    };
    let named = ["pi", "sqrt", "infinity", "π"]
        .iter()
        .any(|name| text.starts_with(name));
    signed || letter || named
}

/// The last formula between delimiters or the last number, whichever stands later.
fn last_formula(text: &str) -> Option<Extracted> {
    let mut at = 0;
    let mut best: Option<(Range<usize>, &'static str)> = None;
    let bytes = text.as_bytes();
    let mut previous = ' ';
    let mut tried = 0;
    while let Some(letter) = text[at..].chars().next() {
        let opens = letter == '$' || text[at..].starts_with("\\[") || text[at..].starts_with("\\(");
        if opens && tried < 2000 {
            tried += usize::from(letter == '$');
            if let Some(length) = span_length(&text[at..]) {
                if text[at..at + length].chars().any(char::is_alphanumeric) {
                    let from = best
                        .as_ref()
                        .filter(|(span, method)| {
                            *method == "formula" && separates(&text[span.end..at])
                        })
                        .map_or(at, |(span, _)| span.start);
                    best = Some((from..at + length, "formula"));
                }
                at += length;
                previous = ' ';
                continue;
            }
        }
        if letter.is_ascii_digit()
            && !previous.is_ascii_alphabetic()
            && previous != '_'
            && previous != '^'
        {
            let start = if previous == '.'
                && at >= 1
                && !bytes
                    .get(at.wrapping_sub(2))
                    .is_some_and(u8::is_ascii_digit)
            {
                at - 1
            } else {
                at
            };
            let signed = start >= 1
                && bytes[start - 1] == b'-'
                && !bytes
                    .get(start.wrapping_sub(2))
                    .is_some_and(|before| before.is_ascii_alphanumeric() || *before == b')');
            let length = number_length(&text[at..]);
            best = Some((start - usize::from(signed)..at + length, "number"));
            at += length;
            previous = '0';
            continue;
        }
        if let Some(fraction) = fraction_length(&text[at..]) {
            best = Some((at..at + fraction, "formula"));
            at += fraction;
            continue;
        }
        previous = letter;
        at += letter.len_utf8();
    }
    let (span, method) = best?;
    let mut found = text[span.clone()].to_string();
    let after = text[span.end..].trim_start();
    if method == "number"
        && (after.starts_with('%') || after.starts_with("percent") || after.starts_with("\\%"))
    {
        found.push('%');
    }
    Some(Extracted {
        text: found,
        span,
        method,
        weak: true,
        statement: None,
    })
}

fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    loop {
        while digit(at) {
            at += 1;
        }
        let three = digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4);
        let loose = text[at..].starts_with(",\\!")
            && text[at + 3..].starts_with(|letter: char| letter.is_ascii_digit());
        if text[at..].starts_with("{,}") {
            at += 3;
        } else if loose {
            at += 3;
        } else if text[at..].starts_with(',') && three
            || (text[at..].starts_with(' ') && three && at <= 3 && !digit(at + 4))
            || (matches!(bytes.get(at), Some(b'.' | b'/')) && digit(at + 1))
        {
            at += 1;
        } else if text[at..].starts_with(',')
            && at > 0
            && digit(at + 1)
            && digit(at + 2)
            && !digit(at + 3)
        {
            // a decimal comma is left to the reader
            return at;
        } else {
            return at;
        }
    }
}

fn fraction_length(text: &str) -> Option<usize> {
    let name = ["\\frac", "\\dfrac", "\\tfrac"]
        .into_iter()
        .find(|name| text.starts_with(&format!("{name}{{")))?;
    let first = closing_brace(text, name.len())?;
    if !text[first + 1..].starts_with('{') {
        return None;
    }
    closing_brace(text, first + 1).map(|end| end + 1)
}
