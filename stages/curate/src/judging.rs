//! What `verify` and `vote` read of a trace: the text that is judged, the verifier it goes to, and its final answer.
//!
//! Only the answer part of a trace counts; what was merely thought is no answer. A trace that hit the token cap has
//! none either, whatever stands in it: such a trace is never correct and never votes (report section 2.2.1).

use std::sync::LazyLock;

use arrow::array::{ListArray, RecordBatch, StringViewArray};
use pipeline_core::{External, ParamError, StageError, TableType, rows};
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use stage_verify::stem::Stem;
use stage_verify::{Extraction, Judgement, Label, Verdict, Verifier as _};

/// How hard to look for a final answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Looking {
    /// Only a marked final answer counts: a box, "the answer is", an option's letter.
    #[default]
    Strict,
    /// Without a mark, the last formula, number or letter counts.
    Lenient,
}

impl From<Looking> for Extraction {
    fn from(looking: Looking) -> Self {
        match looking {
            Looking::Strict => Self::Strict,
            Looking::Lenient => Self::Lenient,
        }
    }
}

/// Verifiers that a user may ask for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifierName {
    /// Answers as mathematics.
    Math,
    /// Letters or texts of options; without options, mathematics.
    Stem,
}

impl VerifierName {
    /// The domain whose verifier it is.
    pub fn domain(self) -> &'static str {
        match self {
            Self::Math => "math",
            Self::Stem => "stem",
        }
    }
}

/// Columns that judging reads.
pub const COLUMNS: [&str; 6] =
    [queries::DOMAIN, queries::LABEL, queries::OPTIONS, traces::ANSWER_TEXT, traces::RESPONSE, traces::FINISH_REASON];

/// The columns of a batch that judging reads, bound once.
#[derive(Debug)]
pub struct Judged<'a> {
    domains: &'a StringViewArray,
    labels: &'a StringViewArray,
    options: &'a ListArray,
    answers: &'a StringViewArray,
    responses: &'a StringViewArray,
    finish_reasons: &'a StringViewArray,
}

impl<'a> Judged<'a> {
    /// Binds the columns.
    ///
    /// # Errors
    /// When one is missing or of another type.
    pub fn new(batch: &'a RecordBatch) -> Result<Self, StageError> {
        Ok(Self {
            domains: rows::texts(batch, queries::DOMAIN)?,
            labels: rows::texts(batch, queries::LABEL)?,
            options: rows::lists(batch, queries::OPTIONS)?,
            answers: rows::texts(batch, traces::ANSWER_TEXT)?,
            responses: rows::texts(batch, traces::RESPONSE)?,
            finish_reasons: rows::texts(batch, traces::FINISH_REASON)?,
        })
    }

    /// The row's domain.
    pub fn domain(&self, row: usize) -> Option<&'a str> {
        rows::text_at(self.domains, row)
    }

    /// The label, where there is one that is not blank.
    pub fn label(&self, row: usize) -> Option<&'a str> {
        rows::text_at(self.labels, row).filter(|label| !label.trim().is_empty())
    }

    /// The options, empty for an open question.
    pub fn options(&self, row: usize) -> Vec<&'a str> {
        rows::list_texts(self.options, row).unwrap_or_default()
    }

    /// The text that is judged: the answer part where there is one, else the raw response.
    pub fn text(&self, row: usize) -> Option<&'a str> {
        rows::text_at(self.answers, row).or_else(|| rows::text_at(self.responses, row))
    }

    /// Whether the response hit the token cap.
    pub fn is_cut(&self, row: usize) -> bool {
        rows::text_at(self.finish_reasons, row).is_some_and(traces::says_cut)
    }

    /// The domain whose verifier judges the row, if any does. A mathematical question with options is a choice.
    pub fn judged_as(&self, row: usize, asked: Option<VerifierName>) -> Option<&'static str> {
        let domain = asked.map(VerifierName::domain).or_else(|| match self.domain(row) {
            Some("math") => Some("math"),
            Some("stem") => Some("stem"),
            _ => None,
        })?;
        let has_options = !self.options(row).is_empty();
        Some(if has_options { "stem" } else { domain })
    }
}

/// The final answer of a text, or why there is none. `judged_as` is `math` or `stem`. For a question with options the
/// answer is the option's letter.
pub fn answer_of(judged_as: &str, options: &[&str], text: &str, extraction: Extraction) -> Option<String> {
    if judged_as != "stem" {
        let found = stage_verify::extract(text, extraction).ok()?;
        return Some(found.text.trim().to_owned()).filter(|answer| !answer.is_empty());
    }
    let set = stage_verify::stem::letters(options.len());
    let as_if = |letter: &str| stage_verify::verify("stem", letter, options, text, extraction);
    let first = as_if("A");
    match (first.tier, first.verdict) {
        ("option", Verdict::Correct | Verdict::Incorrect) => first
            .answer
            .filter(|answer| answer.len() == 1 && set.contains(answer.as_str()) && !is_conflict(&first.reason)),
        // the text of an option: the letter that it is right for
        ("option_text", Verdict::Correct | Verdict::Incorrect) => {
            set.chars().map(String::from).find(|letter| as_if(letter).verdict == Verdict::Correct)
        }
        // an open question: the answer as it stands
        ("option_text", Verdict::NoAnswer) if options.is_empty() => {
            first.answer.filter(|answer| !answer.trim().is_empty())
        }
        _ => None,
    }
}

/// A choice of several letters, or of a letter with another option's text, is no vote.
fn is_conflict(reason: &str) -> bool {
    reason.starts_with("several_letters") || reason.starts_with("conflict")
}

/// The verdict of a text that has a label; a cut one is never correct.
pub fn judge(judged_as: &str, label: &Label<'_>, text: &str, is_cut: bool, how: Stem) -> Judgement {
    let judgement = match judged_as {
        "stem" => how.verify(label, text),
        _ => stage_verify::math::verify(label.text, text, how.extraction),
    };
    if is_cut && judgement.verdict != Verdict::LabelUnparsable {
        return Judgement::new(Verdict::NoAnswer, "truncated", "");
    }
    judgement
}

/// The verifier that judges a domain, as stored beside a verdict: `math@2`.
pub fn verifier_of(judged_as: &str) -> &'static str {
    static NAMES: LazyLock<[(&str, String); 4]> = LazyLock::new(|| {
        ["math", "stem", "code", "instruct"].map(|domain| {
            let (name, version) = stage_verify::verifier(domain);
            (domain, format!("{name}@{version}"))
        })
    });
    NAMES.iter().find(|(domain, _)| *domain == judged_as).map_or("none", |(_, name)| name)
}

/// The versions of verifiers, so that a changed verifier makes verdicts anew.
pub fn externals(domains: &[&str]) -> Vec<External> {
    let external = |domain: &&str| {
        let (name, version) = stage_verify::verifier(domain);
        External { name: format!("verifier {name}"), digest: version.to_string(), sliced: false }
    };
    domains.iter().map(external).collect()
}

/// Refuses rows without a text to judge, before anything runs.
///
/// # Errors
/// When no stage before fills one.
pub fn ensure_text(rows: &TableType) -> Result<(), ParamError> {
    if [traces::ANSWER_TEXT, traces::RESPONSE].iter().any(|name| rows.filled.contains(*name)) {
        return Ok(());
    }
    let message = "no stage before fills `answer_text` or `response`, so there is nothing to judge";
    Err(ParamError::new("inputs", message))
}

/// Refuses rows whose verifier nothing decides, before anything runs.
///
/// # Errors
/// When no stage before fills `domain`.
pub fn ensure_domain(rows: &TableType) -> Result<(), ParamError> {
    if rows.filled.contains(queries::DOMAIN) {
        return Ok(());
    }
    let error = ParamError::new("inputs", "no stage before fills `domain`, which decides the verifier");
    Err(error.hint("give `domain` to the kind `import`, or `verifier = \"math\"` here"))
}
