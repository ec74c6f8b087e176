//! One row as verifiers see it, and the verifiers that judge it in turn.

use std::borrow::Cow;

use arrow::array::{RecordBatch, StringViewArray};
use pipeline_core::{StageError, rows};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use stage_verify::instruct::{self, Constraint, InstructError, Scoring};
use stage_verify::stem::Stem;
use stage_verify::{Judgement, Label, Verdict, answer_part};

use crate::judging::{self, Judged};

/// A verifier that a user may ask for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checker {
    /// Answers as mathematics.
    Math,
    /// Letters or texts of options; without options a number with its unit, else mathematics.
    Stem,
    /// The program of the trace, run against the tests of its query in a sandbox.
    Code,
    /// The response against the constraints of its query.
    Instruct,
}

impl Checker {
    /// The verifier of a domain, where there is one.
    pub fn of_domain(domain: &str) -> Option<Self> {
        match domain {
            "math" => Some(Self::Math),
            "stem" => Some(Self::Stem),
            "code" => Some(Self::Code),
            "instruct" => Some(Self::Instruct),
            _ => None,
        }
    }

    /// The verifier of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::of_domain(name)
    }
}

/// One verifier, or several that are tried in turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a verifier (`math`, `stem`, `code`, `instruct`) or a list of them")]
pub enum Order {
    /// One.
    One(Checker),
    /// Several: the first that decides (correct or incorrect) counts.
    Several(Vec<Checker>),
}

impl Order {
    /// The verifiers in turn.
    pub fn all(&self) -> &[Checker] {
        match self {
            Self::One(checker) => std::slice::from_ref(checker),
            Self::Several(checkers) => checkers,
        }
    }
}

/// The columns of a batch that verifiers read, bound once.
#[derive(Debug)]
pub struct Columns<'a> {
    judged: Judged<'a>,
    ids: &'a StringViewArray,
    prompts: &'a StringViewArray,
    tests: &'a StringViewArray,
    constraints: rows::Constraints<'a>,
}

impl<'a> Columns<'a> {
    /// Binds the columns.
    ///
    /// # Errors
    /// When one is missing or of another type.
    pub fn new(batch: &'a RecordBatch) -> Result<Self, StageError> {
        Ok(Self {
            judged: Judged::new(batch)?,
            ids: rows::texts(batch, queries::QUERY_ID)?,
            prompts: rows::texts(batch, queries::PROMPT)?,
            tests: rows::texts(batch, queries::TESTS)?,
            constraints: rows::Constraints::new(batch, queries::CONSTRAINTS)?,
        })
    }

    /// A row.
    pub fn row(&self, row: usize) -> Row<'a> {
        Row {
            query_id: rows::text_at(self.ids, row).unwrap_or_default(),
            domain: self.judged.domain(row),
            prompt: rows::text_at(self.prompts, row),
            label: self.judged.label(row),
            options: self.judged.options(row),
            text: self.judged.text(row).unwrap_or_default(),
            is_cut: self.judged.is_cut(row),
            tests: rows::text_at(self.tests, row).filter(|tests| !tests.trim().is_empty()),
            constraints: self.constraints.at(row),
        }
    }
}

/// One row.
#[derive(Debug)]
pub struct Row<'a> {
    /// The query that the trace answers.
    pub query_id: &'a str,
    /// Domain, which decides the verifier.
    pub domain: Option<&'a str>,
    /// Last user message.
    pub prompt: Option<&'a str>,
    /// Label that is not blank.
    pub label: Option<&'a str>,
    /// Options, none for an open question.
    pub options: Vec<&'a str>,
    /// The text that is judged: the answer part where there is one, else the raw response.
    pub text: &'a str,
    /// Whether the response hit the token cap.
    pub is_cut: bool,
    /// Tests that the row brings itself, as JSON text.
    pub tests: Option<&'a str>,
    /// Constraints: id, and parameters as JSON text.
    pub constraints: Vec<(&'a str, Option<&'a str>)>,
}

/// What a verifier finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The verdict.
    pub judgement: Judgement,
    /// Verifier and version as stored beside it; `None` where no verifier judged.
    pub verifier: Option<Cow<'static, str>>,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No verdict applies.
    None,
    /// A verdict.
    Found(Found),
    /// The machinery failed for a passing reason; this is no verdict.
    Failed(String),
}

/// Judges answers as mathematics or as options.
pub fn answer(checker: Checker, row: &Row<'_>, how: Stem) -> Found {
    let judged_as = if checker == Checker::Math && row.options.is_empty() { "math" } else { "stem" };
    let judgement = if let Some(text) = row.label {
        judging::judge(judged_as, &Label { text, options: &row.options }, row.text, row.is_cut, how)
    } else {
        let answer = judging::answer_of(judged_as, &row.options, row.text, how.extraction).filter(|_| !row.is_cut);
        Judgement { answer, ..Judgement::new(Verdict::LabelUnparsable, "no_label", "") }
    };
    Found { judgement, verifier: Some(Cow::Borrowed(judging::verifier_of(judged_as))) }
}

/// Judges a response by its constraints.
///
/// # Errors
/// When a constraint is of no known kind: then nothing may be judged, since what is not checked would pass.
pub fn instructions(row: &Row<'_>, scoring: Scoring) -> Result<Found, StageError> {
    let judgement = match constraints(row)? {
        Err(fault) => fault,
        Ok(_) if row.is_cut => Judgement::new(Verdict::NoAnswer, "truncated", ""),
        Ok(constraints) => match answer_part(row.text) {
            Ok(answer) => instruct::verify(&constraints, answer, scoring),
            Err(missing) => Judgement::new(Verdict::NoAnswer, missing.as_str(), ""),
        },
    };
    Ok(Found { judgement, verifier: Some(Cow::Borrowed(judging::verifier_of("instruct"))) })
}

/// The constraints of a row, or the verdict on a row whose parameters cannot be read.
fn constraints(row: &Row<'_>) -> Result<Result<Vec<Constraint>, Judgement>, StageError> {
    let fault = |reason: String| Ok(Err(Judgement::new(Verdict::LabelUnparsable, reason, "")));
    if row.constraints.is_empty() {
        return fault("no_constraints".to_owned());
    }
    let mut constraints = Vec::with_capacity(row.constraints.len());
    for (id, kwargs) in &row.constraints {
        let kwargs = match serde_json::from_str(kwargs.unwrap_or("{}")) {
            Ok(kwargs) => kwargs,
            Err(error) => return fault(format!("constraint_unreadable: {id}: {error}")),
        };
        match Constraint::parse(id, &kwargs) {
            Ok(constraint) => constraints.push(constraint),
            Err(error @ InstructError::UnknownKind { .. }) => {
                return Err(StageError::column(queries::CONSTRAINTS, format!("query `{}`: {error}", row.query_id)));
            }
            Err(error) => return fault(format!("constraint_unreadable: {error}")),
        }
    }
    Ok(Ok(constraints))
}
