//! A second opinion on each verdict: another verifier's, the judge's, or one that was recorded with the data.
//!
//! Verdicts that one trains on are themselves measured: how often do two judges agree, and which rows do they part on?

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, BooleanArray, RecordBatch, StringViewArray, UInt64Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Field};
use pipeline_core::{Output, ParamError, StageError, TableType, Task, rows};
use schemas::{queries, traces};
use serde_json::Value;
use stage_verify::{Judgement, Verdict};

use super::row::{Checker, Outcome};

/// Column of the second verdict.
pub const SECOND: &str = "second_verdict";
/// Column of its reason.
pub const SECOND_REASON: &str = "second_reason";
/// Column that says whether the two agree.
pub const AGREES: &str = "agrees";
/// Output of the rows on which they part.
pub const DISAGREEMENTS: &str = "disagreements";

/// Where a second opinion comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Second {
    /// Another verifier.
    Checker(Checker),
    /// The judge model, asked about every answer.
    Judge,
    /// A column of the rows.
    Column(String),
    /// A field of `extra`.
    Extra(String),
}

impl Second {
    /// Reads the parameter `second`.
    pub fn read(text: &str) -> Self {
        match (text, text.strip_prefix("extra.")) {
            ("judge", _) => Self::Judge,
            (_, Some(field)) => Self::Extra(field.to_owned()),
            _ => Checker::named(text).map_or_else(|| Self::Column(text.to_owned()), Self::Checker),
        }
    }

    /// Checks that the rows have what is named.
    ///
    /// # Errors
    /// When they have not.
    pub fn ensure(&self, rows: &TableType) -> Result<(), ParamError> {
        let (column, field) = match self {
            Self::Column(name) => (name.as_str(), rows.schema.field_with_name(name).ok()),
            Self::Extra(_) => (queries::EXTRA, rows.schema.field_with_name(queries::EXTRA).ok()),
            _ => return Ok(()),
        };
        let Some(field) = field.filter(|_| rows.filled.contains(column)) else {
            let message = format!("`second` names `{column}`, which no stage before fills");
            return Err(ParamError::new("second", message)
                .hint("a verifier (math, stem, code, instruct), `judge`, a column, or `extra.NAME` for a column of your files"));
        };
        match field.data_type() {
            DataType::Boolean | DataType::Int64 | DataType::Float64 | DataType::Utf8View => Ok(()),
            other => Err(ParamError::new("second", format!("column `{column}` is {other}, no verdict"))),
        }
    }

    /// The recorded opinions of a batch; `None` for opinions that are made here.
    ///
    /// # Errors
    /// When the column is missing.
    pub fn recorded(&self, batch: &RecordBatch) -> Result<Option<Vec<Option<Verdict>>>, StageError> {
        match self {
            Self::Column(name) => {
                let column = rows::column(batch, name)?;
                let texts = cast(column, &DataType::Utf8View)?;
                let texts = texts.as_string_view();
                Ok(Some((0..texts.len()).map(|row| rows::text_at(texts, row).and_then(verdict_of)).collect()))
            }
            Self::Extra(field) => {
                let texts = rows::texts(batch, queries::EXTRA)?;
                let value = |row| {
                    let extra: Value = serde_json::from_str(rows::text_at(texts, row)?).ok()?;
                    let found =
                        extra.get(field).or_else(|| field.split('.').try_fold(&extra, |part, key| part.get(key)));
                    match found? {
                        Value::String(text) => verdict_of(text),
                        other => verdict_of(&other.to_string()),
                    }
                };
                Ok(Some((0..texts.len()).map(value).collect()))
            }
            Self::Checker(_) | Self::Judge => Ok(None),
        }
    }
}

/// The verdict that a recorded value means: a word, true or false, 1 or 0.
fn verdict_of(text: &str) -> Option<Verdict> {
    match text.trim().to_ascii_lowercase().as_str() {
        "correct" | "true" | "1" | "1.0" | "pass" | "passed" => Some(Verdict::Correct),
        "incorrect" | "false" | "0" | "0.0" | "wrong" | "fail" | "failed" => Some(Verdict::Incorrect),
        "undecided" => Some(Verdict::Undecided),
        "no_answer" => Some(Verdict::NoAnswer),
        "label_unparsable" => Some(Verdict::LabelUnparsable),
        _ => None,
    }
}

/// Whether two verdicts agree: both accept the answer, or both do not. `None` where one of them says nothing.
pub fn agree(first: Option<Verdict>, second: Option<Verdict>) -> Option<bool> {
    let says = |verdict: Option<Verdict>| match verdict? {
        Verdict::Correct => Some(true),
        Verdict::Incorrect | Verdict::NoAnswer => Some(false),
        Verdict::Undecided | Verdict::LabelUnparsable => None,
    };
    Some(says(first)? == says(second)?)
}

/// Adds the columns of a second opinion and the output of disagreements.
///
/// # Errors
/// When the rows have columns of these names with other types.
pub fn outputs(rows: TableType) -> Result<Vec<Output>, ParamError> {
    let rows = rows
        .with_column(&Field::new(SECOND, DataType::Utf8View, true))?
        .with_column(&Field::new(SECOND_REASON, DataType::Utf8View, true))?
        .with_column(&Field::new(AGREES, DataType::Boolean, true))?;
    Ok(vec![Output::same(rows.clone()), Output::named(DISAGREEMENTS, rows)])
}

/// The columns of the second opinions.
pub fn columns(first: &[Outcome], second: &[Option<Opinion>]) -> [(&'static str, ArrayRef); 3] {
    let verdicts: StringViewArray =
        second.iter().map(|second| second.as_ref().map(|second| second.verdict.as_str())).collect();
    let reasons: StringViewArray = second.iter().map(|second| second.as_ref()?.reason.as_deref()).collect();
    let agrees: BooleanArray = first
        .iter()
        .zip(second)
        .map(|(first, second)| agree(verdict(first), second.as_ref().map(|second| second.verdict)))
        .collect();
    [(SECOND, Arc::new(verdicts)), (SECOND_REASON, Arc::new(reasons)), (AGREES, Arc::new(agrees))]
}

/// A second opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    /// What it says.
    pub verdict: Verdict,
    /// Why, where it says so.
    pub reason: Option<String>,
}

impl From<Judgement> for Opinion {
    fn from(judgement: Judgement) -> Self {
        Self { verdict: judgement.verdict, reason: Some(judgement.reason.into_owned()) }
    }
}

/// The verdict of an outcome, if it has one.
pub fn verdict(outcome: &Outcome) -> Option<Verdict> {
    match outcome {
        Outcome::Found(found) => Some(found.judgement.verdict),
        Outcome::None | Outcome::Failed(_) => None,
    }
}

/// Counts who said what, and writes the rows on which the two part; returns how many rows could be compared.
///
/// # Errors
/// When the disk refuses.
pub fn report(task: &mut Task<'_>, batch: &RecordBatch) -> Result<u64, StageError> {
    let (first, second) = (rows::texts(batch, traces::VERDICT)?, rows::texts(batch, SECOND)?);
    let agrees = rows::booleans(batch, AGREES)?;
    let mut parting = Vec::new();
    for (number, row) in (0_u64..).zip(0..batch.num_rows()) {
        let word = |texts| rows::text_at(texts, row).unwrap_or("none");
        task.count(&format!("first_{}_second_{}", word(first), word(second)), 1);
        match agrees.is_valid(row).then(|| agrees.value(row)) {
            Some(true) => task.count("agreements", 1),
            Some(false) => {
                task.count("disagreements", 1);
                parting.push(number);
            }
            None => task.count("not_comparable", 1),
        }
    }
    task.write_to(DISAGREEMENTS, &take_record_batch(batch, &UInt64Array::from(parting))?)?;
    Ok((batch.num_rows() - agrees.null_count()) as u64)
}
