//! Finds anomalous repetition and template degeneration in one text (VibeThinker-3B, quality control of
//! SFT data, layer a).
//!
//! One n-gram ratio is not enough: over words it is blind to unspaced scripts, it marks tables and careful
//! case analysis, and it misses a loop that covers only the tail of a long trace. So several rules look, each
//! with its own threshold, and the finding names the rule, the span and the figure:
//! `empty_response`, `unfinished_think`, `tail_loop`, `ngram_repetition`, `duplicate_lines`, `prompt_repeat`.

use std::collections::HashSet;
use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::TextError;
use crate::ngram::ngram_hashes;
use crate::region::{Line, lines};
use crate::view::{Symbols, View};

/// Names of all rules, in the order in which they are asked.
pub const RULES: [&str; 6] =
    ["empty_response", "unfinished_think", "tail_loop", "ngram_repetition", "duplicate_lines", "prompt_repeat"];

/// Marks that open and close the reasoning of a trace.
const THINK_MARKS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<|begin_of_thought|>", "<|end_of_thought|>")];

/// Thresholds of the rules. Tokens are words, numbers and symbols, one character each in unspaced scripts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RepetitionRules {
    /// Tokens of an n-gram.
    pub ngram: NonZeroUsize,
    /// Largest allowed share of n-grams that occurred before: 1 - distinct / all, over prose (code fences,
    /// arrays and tables are left out). 0 to 1.
    pub max_repeated_share: f64,
    /// N-grams a text must have before their share means anything.
    pub min_ngrams: usize,
    /// A periodic end of the text is a loop when it covers more tokens than this ...
    pub tail_min_tokens: usize,
    /// ... and more than this share of all tokens. 0 to 1.
    pub tail_min_share: f64,
    /// In short texts a periodic end is a loop too when it covers at least this share of all tokens. 0 to 1.
    pub tail_short_share: f64,
    /// Fewest tokens of such a loop in a short text.
    pub tail_short_tokens: usize,
    /// Fewest whole periods of a loop.
    pub tail_min_repeats: usize,
    /// Largest allowed share of lines that occurred before. 0 to 1.
    pub max_duplicate_line_share: f64,
    /// Lines a text must have before that share means anything.
    pub min_lines: usize,
    /// Bytes of a line below which it is not counted (braces, `Yes.`).
    pub min_line_bytes: usize,
    /// Largest allowed share of the response's tokens that repeat n-grams of its prompt. 0 to 1.
    pub max_prompt_share: f64,
    /// Tokens a response must have before that share means anything.
    pub min_prompt_repeat_tokens: usize,
    /// Whether a reasoning block that is opened and never closed is a finding.
    pub reject_unfinished_think: bool,
}

impl Default for RepetitionRules {
    fn default() -> Self {
        Self {
            ngram: NonZeroUsize::new(20).unwrap_or(NonZeroUsize::MIN),
            max_repeated_share: 0.15,
            min_ngrams: 60,
            tail_min_tokens: 200,
            tail_min_share: 0.05,
            tail_short_share: 0.25,
            tail_short_tokens: 60,
            tail_min_repeats: 3,
            max_duplicate_line_share: 0.3,
            min_lines: 10,
            min_line_bytes: 12,
            max_prompt_share: 0.9,
            min_prompt_repeat_tokens: 30,
            reject_unfinished_think: true,
        }
    }
}

impl RepetitionRules {
    /// Checks every range.
    ///
    /// # Errors
    /// [`TextError::Parameter`] for a share outside 0 to 1 and for fewer than two repeats.
    pub fn validate(&self) -> Result<(), TextError> {
        let shares = [
            ("max_repeated_share", self.max_repeated_share),
            ("tail_min_share", self.tail_min_share),
            ("tail_short_share", self.tail_short_share),
            ("max_duplicate_line_share", self.max_duplicate_line_share),
            ("max_prompt_share", self.max_prompt_share),
        ];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(TextError::Parameter { name, reason: format!("{share} is not between 0 and 1") });
            }
        }
        if self.tail_min_repeats < 2 {
            let reason = "a loop has at least 2 repeats".to_owned();
            return Err(TextError::Parameter { name: "tail_min_repeats", reason });
        }
        Ok(())
    }
}

/// What a rule found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Finding {
    /// Name of the rule, one of [`RULES`].
    pub rule: &'static str,
    /// Byte span (start, end) of the evidence in the text, on character boundaries.
    pub span: (usize, usize),
    /// The figure that passed the rule's threshold: a share from 0 to 1, for `tail_loop` the share of all
    /// tokens that the loop covers.
    pub figure: f64,
}

/// The first rule that `text` breaks. `prompt` is what the text answers, where there is one.
///
/// Linear in the length of the text but for one sort of its n-gram hashes.
///
/// ```
/// use stage_text::repetition::{find, RepetitionRules};
/// let text = "So the answer is again the same number. ".repeat(40);
/// let finding = find(&text, None, &RepetitionRules::default()).map(|finding| finding.rule);
/// assert_eq!(finding, Some("tail_loop"));
/// ```
pub fn find(text: &str, prompt: Option<&str>, rules: &RepetitionRules) -> Option<Finding> {
    if let Some(finding) = empty_response(text) {
        return Some(finding);
    }
    if rules.reject_unfinished_think
        && let Some(finding) = unfinished_think(text)
    {
        return Some(finding);
    }
    let view = View::with_symbols(text, Symbols::Kept);
    let lines = lines(text);
    tail_loop(&view, rules)
        .or_else(|| ngram_repetition(&view, &lines, rules))
        .or_else(|| duplicate_lines(&lines, rules))
        .or_else(|| prompt.and_then(|prompt| prompt_repeat(&view, &lines, prompt, rules)))
}

fn empty_response(text: &str) -> Option<Finding> {
    let answer = THINK_MARKS
        .iter()
        .filter_map(|(_, close)| text.rfind(close).map(|at| at + close.len()))
        .max()
        .map_or(text, |start| &text[start..]);
    let is_empty = !answer.chars().any(|character| !character.is_whitespace() && !character.is_control());
    is_empty.then_some(Finding { rule: "empty_response", span: (0, text.len()), figure: 1.0 })
}

/// A reasoning block opened at the start of a line and never closed.
fn unfinished_think(text: &str) -> Option<Finding> {
    THINK_MARKS.iter().find_map(|(open, close)| {
        let at = text.rfind(open)?;
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let is_mark = text[line_start..at].trim().is_empty();
        if !is_mark || text[at..].contains(close) {
            return None;
        }
        let figure = (text.len() - at) as f64 / text.len() as f64;
        Some(Finding { rule: "unfinished_think", span: (at, text.len()), figure })
    })
}

/// The longest suffix that repeats one period, by the Z function of the reversed tokens.
fn tail_loop(view: &View, rules: &RepetitionRules) -> Option<Finding> {
    let mut reversed: Vec<u64> = view.tokens().iter().rev().copied().collect();
    let all = reversed.len();
    // the last token of a truncated text may be half a word, which would hide the loop before it
    for cut in 0..2_usize.min(all) {
        if cut == 1 {
            reversed.remove(0);
        }
        let covered = periodic_prefix(&reversed, rules.tail_min_repeats);
        let share = covered as f64 / all as f64;
        let is_long = covered > rules.tail_min_tokens && share > rules.tail_min_share;
        let is_most = covered >= rules.tail_short_tokens && share >= rules.tail_short_share;
        if covered > 0 && (is_long || is_most) {
            let last = all - 1 - cut;
            let span = view.span(last + 1 - covered, last);
            return Some(Finding { rule: "tail_loop", span, figure: share });
        }
    }
    None
}

/// Length of the longest prefix that is at least `min_repeats` periods long.
fn periodic_prefix(tokens: &[u64], min_repeats: usize) -> usize {
    let z = z_function(tokens);
    (1..tokens.len())
        .filter(|period| (period + z[*period]) / period >= min_repeats)
        .map(|period| period + z[period])
        .max()
        .unwrap_or(0)
}

/// `z[i]` is the length of the longest common prefix of `tokens` and `tokens[i..]`; `z[0]` is 0 here.
fn z_function(tokens: &[u64]) -> Vec<usize> {
    let mut z = vec![0; tokens.len()];
    let (mut left, mut right) = (0, 0);
    for at in 1..tokens.len() {
        let mut length = if at < right { z[at - left].min(right - at) } else { 0 };
        while at + length < tokens.len() && tokens[length] == tokens[at + length] {
            length += 1;
        }
        if at + length > right {
            (left, right) = (at, at + length);
        }
        z[at] = length;
    }
    z
}

fn ngram_repetition(view: &View, lines: &[Line<'_>], rules: &RepetitionRules) -> Option<Finding> {
    let n = rules.ngram.get();
    let mut grams: Vec<(u64, usize)> = Vec::new();
    for (first, end) in prose_runs(view, lines) {
        let hashes = ngram_hashes(&view.tokens()[first..end], rules.ngram);
        grams.extend(hashes.zip(first..));
    }
    if grams.is_empty() || grams.len() < rules.min_ngrams {
        return None;
    }
    grams.sort_unstable();
    let repeated: Vec<usize> = grams.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).collect();
    let share = repeated.len() as f64 / grams.len() as f64;
    if share <= rules.max_repeated_share {
        return None;
    }
    let first = repeated.iter().min().copied()?;
    let last = repeated.iter().max().copied()?;
    Some(Finding { rule: "ngram_repetition", span: view.span(first, last + n - 1), figure: share })
}

/// Runs of tokens (first, end) that lie in lines which are not exempt.
fn prose_runs(view: &View, lines: &[Line<'_>]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut token = 0;
    for line in lines {
        let first = token;
        while view.spans().get(token).is_some_and(|span| (span.0 as usize) < line.next) {
            token += 1;
        }
        if line.is_exempt || first == token {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.1 == first => run.1 = token,
            _ => runs.push((first, token)),
        }
    }
    runs
}

fn duplicate_lines(lines: &[Line<'_>], rules: &RepetitionRules) -> Option<Finding> {
    let mut seen = HashSet::new();
    let (mut counted, mut duplicates) = (0_usize, 0_usize);
    let mut span: Option<(usize, usize)> = None;
    for line in lines {
        if line.is_exempt || line.text.len() < rules.min_line_bytes {
            continue;
        }
        counted += 1;
        if !seen.insert(xxh3_64(line.text.as_bytes())) {
            duplicates += 1;
            span = Some((span.map_or(line.start, |span| span.0), line.next));
        }
    }
    let share = duplicates as f64 / counted.max(1) as f64;
    let is_found = counted >= rules.min_lines && share > rules.max_duplicate_line_share;
    span.filter(|_| is_found).map(|span| Finding { rule: "duplicate_lines", span, figure: share })
}

/// Share of the response's prose that is covered by n-grams of the prompt. Half the n-gram length is used,
/// since a prompt is often shorter than two n-grams.
fn prompt_repeat(view: &View, lines: &[Line<'_>], prompt: &str, rules: &RepetitionRules) -> Option<Finding> {
    let n = NonZeroUsize::new(rules.ngram.get().div_ceil(2))?;
    let asked = View::with_symbols(prompt, Symbols::Kept);
    let known: HashSet<u64> = asked.ngram_hashes(n).collect();
    let (mut all, mut covered) = (0_usize, 0_usize);
    let mut span: Option<(usize, usize)> = None;
    for (first, end) in prose_runs(view, lines) {
        all += end - first;
        let mut until = first;
        for (at, hash) in (first..).zip(ngram_hashes(&view.tokens()[first..end], n)) {
            if known.contains(&hash) {
                covered += at + n.get() - until.max(at);
                until = at + n.get();
                let found = view.span(at, until - 1);
                span = Some((span.map_or(found.0, |span| span.0), found.1));
            }
        }
    }
    let share = covered as f64 / all.max(1) as f64;
    let is_found = all >= rules.min_prompt_repeat_tokens && share > rules.max_prompt_share;
    span.filter(|_| is_found).map(|span| Finding { rule: "prompt_repeat", span, figure: share })
}

#[cfg(test)]
mod tests;
