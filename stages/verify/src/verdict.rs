//! The verdict on one trace, with the reason and the tier that decided.
//!
//! A verdict is never a bare flag: an answer that was not found, a label that cannot be read and a
//! comparison that could not be decided are different things from a wrong answer, and only
//! `correct` is ever accepted. Report section 2.2.1.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a verifier says of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The answer equals the label.
    Correct,
    /// The answer differs from the label.
    Incorrect,
    /// Neither was shown.
    Undecided,
    /// The trace states no final answer.
    NoAnswer,
    /// The label is at fault.
    LabelUnparsable,
}

impl Verdict {
    /// The word that is stored.
    ///
    /// ```
    /// assert_eq!(stage_verify::Verdict::NoAnswer.as_str(), "no_answer");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Incorrect => "incorrect",
            Self::Undecided => "undecided",
            Self::NoAnswer => "no_answer",
            Self::LabelUnparsable => "label_unparsable",
        }
    }
}

/// A verdict and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// A short `snake_case` word, and `: detail` where that helps.
    pub reason: Cow<'static, str>,
    /// The answer that was found, as written.
    pub answer: Option<String>,
    /// The tier or rule that decided; empty when none did.
    pub tier: &'static str,
    /// Whether the answer was guessed from unmarked text.
    pub weak: bool,
}

impl Judgement {
    /// A judgement without answer.
    pub fn new(verdict: Verdict, reason: impl Into<Cow<'static, str>>, tier: &'static str) -> Self {
        Self { verdict, reason: reason.into(), answer: None, tier, weak: false }
    }

    /// With the answer that was found.
    #[must_use]
    pub fn with_answer(mut self, answer: impl Into<String>, weak: bool) -> Self {
        self.answer = Some(answer.into());
        self.weak = weak;
        self
    }

    /// Whether the verdict is `correct`.
    pub fn is_correct(&self) -> bool {
        self.verdict == Verdict::Correct
    }
}

/// What a trace is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    /// The gold or voted answer: a formula, a letter, or the text of an option.
    pub text: &'a str,
    /// The options in order, empty for an open question.
    pub options: &'a [&'a str],
}

/// A judge of traces.
pub trait Verifier: Send + Sync {
    /// Name that is stored beside the verdict.
    const NAME: &'static str;
    /// Raised when the same inputs would give another verdict.
    const VERSION: u32;
    /// Judges one trace. Never panics, whatever the bytes.
    fn verify(&self, label: &Label<'_>, trace: &str) -> Judgement;
}
