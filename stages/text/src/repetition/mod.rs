//! Finds anomalous repetition and template degeneration in one text (VibeThinker-3B, quality control of
//! SFT data, layer a).
//!
//! One n-gram ratio is not enough: over words it is blind to unspaced scripts, it marks tables and careful
//! case analysis, and it misses a loop that covers only the tail of a long trace. So several rules look, each
//! with its own threshold, and the finding names the rule, the span and the figure:
//! `empty_response`, `unfinished_think`, `refusal`, `tail_loop`, `ngram_repetition`, `duplicate_lines`,
//! `prompt_repeat`. All of them take time in proportion to the text.

mod seen;
mod shares;
mod tail;
mod template;

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::TextError;
use crate::region::{Line, lines};
use crate::view::{Symbols, ViewBuilder};
use seen::Seen;

/// Names of all rules, in the order in which they are asked.
pub const RULES: [&str; 7] = [
    "empty_response",
    "unfinished_think",
    "refusal",
    "tail_loop",
    "ngram_repetition",
    "duplicate_lines",
    "prompt_repeat",
];

/// Thresholds of the rules. Tokens are words, numbers and symbols, one character each in unspaced scripts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RepetitionRules {
    /// Tokens of an n-gram.
    pub ngram: NonZeroUsize,
    /// Largest allowed share of n-grams that occurred before: 1 - distinct / all, over prose (code fences,
    /// arrays, tables and n-grams with fewer words than formulas and numbers are left out). 0 to 1.
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
    /// Whether a short answer that only refuses is a finding.
    pub reject_refusals: bool,
}

impl Default for RepetitionRules {
    fn default() -> Self {
        Self {
            ngram: NonZeroUsize::new(20).unwrap_or(NonZeroUsize::MIN),
            max_repeated_share: 0.105,
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
            reject_refusals: true,
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
    /// The figure that passed the rule's threshold: a share from 0 to 1; for `tail_loop` the share of all
    /// tokens that the loop covers (of all bytes, where it is inside one word), for `refusal` that of the answer's bytes which its phrase is.
    pub figure: f64,
}

/// The first rule that `text` breaks. `prompt` is what the text answers, where there is one. [`Finder`] is faster
/// for many texts.
///
/// ```
/// use stage_text::repetition::{find, RepetitionRules};
/// let text = "So the answer is again the same number. ".repeat(40);
/// let finding = find(&text, None, &RepetitionRules::default()).map(|finding| finding.rule);
/// assert_eq!(finding, Some("tail_loop"));
/// ```
pub fn find(text: &str, prompt: Option<&str>, rules: &RepetitionRules) -> Option<Finding> {
    Finder::new(rules).find(text, prompt)
}

/// Looks at one text after another in the same working memory.
#[derive(Debug)]
pub struct Finder<'r> {
    rules: &'r RepetitionRules,
    views: ViewBuilder,
    prompts: ViewBuilder,
    lines: Vec<Line>,
    runs: Vec<(usize, usize)>,
    prefixes: Vec<u32>,
    seen: Seen,
}

impl<'r> Finder<'r> {
    /// A finder by these rules.
    pub fn new(rules: &'r RepetitionRules) -> Self {
        Self {
            rules,
            views: ViewBuilder::new(Symbols::Kept),
            prompts: ViewBuilder::new(Symbols::Kept),
            lines: Vec::new(),
            runs: Vec::new(),
            prefixes: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// The first rule that `text` breaks.
    pub fn find(&mut self, text: &str, prompt: Option<&str>) -> Option<Finding> {
        if let Some(finding) = template::find(text, self.rules) {
            return Some(finding);
        }
        let view = self.views.build(text);
        if let Some(finding) = tail::tail_loop(view, self.rules, &mut self.prefixes) {
            return Some(finding);
        }
        if let Some(finding) = tail::word_loop(text, view, self.rules) {
            return Some(finding);
        }
        lines(text, &mut self.lines);
        shares::prose_runs(view, &self.lines, &mut self.runs);
        if let Some(finding) = shares::ngram_repetition(view, &self.runs, self.rules, &mut self.seen) {
            return Some(finding);
        }
        if let Some(finding) = shares::duplicate_lines(text, &self.lines, self.rules, &mut self.seen) {
            return Some(finding);
        }
        let asked = self.prompts.build(prompt?);
        shares::prompt_repeat(view, &self.runs, asked, self.rules, &mut self.seen)
    }
}

#[cfg(test)]
mod tests;
