//! Finds the final answer of a trace: what stands after the reasoning, in the last box or on the last
//! line that says it is the answer.
//!
//! Linear in the text and without character windows: an answer of any length keeps its opening brace.
//! A trace that was cut inside its reasoning or inside a box has no answer. Report section 2.2.1.

use crate::{anchor::anchored, formula::last_formula, math::closing_brace};
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

/// What a trace says after its reasoning; all of it where there is none.
///
/// # Errors
/// [`Missing::Truncated`] for reasoning that is opened and never closed.
pub fn answer_part(trace: &str) -> Result<&str, Missing> {
    answer_start(trace).map(|start| &trace[start..])
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
        let Some(name) = ["boxed", "fbox"].into_iter().find(|name| text[at..].starts_with(name)) else {
            continue;
        };
        let after = &text[at + name.len()..];
        let brace = text.len() - after.trim_start().len();
        if !text[brace..].starts_with('{') {
            // `\boxed 5`: one token
            let word = text[brace..].split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or("");
            if !word.is_empty() && brace > at + name.len() {
                found.push(Boxed { whole: start..brace + word.len(), content: brace..brace + word.len() });
            }
            at += name.len();
            continue;
        }
        let Some(end) = closing_brace(text, brace) else {
            return Err(Missing::Truncated);
        };
        found.push(Boxed { whole: start..end + 1, content: brace + 1..end });
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
    let first = if (first..last).all(|index| content(index) == content(last)) { last } else { first };
    let joined = |from: usize| (from..=last).map(content).collect::<Vec<_>>().join(", ");
    Some(Extracted {
        text: if first == last { content(last).to_string() } else { joined(first) },
        span: boxes[first].whole.start..boxes[last].whole.end,
        method: "box",
        weak: false,
        statement: (wide < first && (wide..last).any(|index| content(index) != content(last))).then(|| joined(wide)),
    })
}

/// Whether only separators stand between two boxes.
fn joins(gap: &str) -> bool {
    if gap.len() > 80 || gap.contains("\n\n") {
        return false;
    }
    let mut rest = gap.to_string();
    for word in [
        "\\text", "\\quad", "\\qquad", "\\mbox", "\\textrm", "\\mathrm", "\\left", "\\right", "and", "or", "和", "或",
        "及", "与",
    ] {
        rest = rest.replace(word, "");
    }
    rest.chars().all(|letter| letter.is_whitespace() || "$,;、，；{}()[]\\~&".contains(letter))
}

/// Whether two boxes belong to one sentence, with words between them.
fn same_statement(gap: &str) -> bool {
    let has = |word: &str| gap.split(|letter: char| !letter.is_alphanumeric()).any(|found| found == word);
    let plain = gap.len() <= 120
        && !gap.contains("nswer")
        && !gap.contains("\n\n")
        && !gap.contains(['。', '?', '!'])
        && !gap.contains(". ");
    plain && (has("and") || has("or") || gap.contains(',') || gap.contains('和') || gap.contains('，'))
}
