//! What becomes of each row of a table, decided in one place and applied to the whole rows by the last step.
//!
//! A deciding step hands on one narrow row for each row of the port, in order: nothing where it stays, else a reason
//! and two figures (a rank and a limit, or two edges). In memory a decision takes 17 bytes.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::row_kinds::{Judgement, write_judged};
use pipeline_core::{StageError, Task, rows};
use serde_json::Value;

const REASON: &str = "reason";
const FIRST: &str = "first";
const SECOND: &str = "second";
/// Rows handed on at a time.
const ROWS: usize = 65_536;

/// The decisions of a table, by ordinal.
#[derive(Debug, Default)]
pub struct Decisions {
    reasons: &'static [&'static str],
    codes: Vec<u8>,
    figures: Vec<[f64; 2]>,
}

/// Why one row falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fall {
    /// Reason.
    pub reason: &'static str,
    /// Rank of the row, or the lower edge.
    pub first: f64,
    /// Limit or number of rows that competed, or the upper edge.
    pub second: f64,
}

/// Columns that a deciding step hands on.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(REASON, DataType::Utf8View, true),
        Field::new(FIRST, DataType::Float64, true),
        Field::new(SECOND, DataType::Float64, true),
    ]))
}

impl Decisions {
    /// Decisions for `rows` rows that all stay so far.
    pub fn new(reasons: &'static [&'static str], rows: usize) -> Self {
        Self { reasons, codes: vec![0; rows], figures: vec![[0.0; 2]; rows] }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Whether a row stays.
    pub fn stays(&self, row: usize) -> bool {
        self.codes.get(row) == Some(&0)
    }

    /// The rows that stay.
    pub fn staying(&self) -> Vec<u32> {
        (0_u32..).zip(&self.codes).filter(|(_, code)| **code == 0).map(|(row, _)| row).collect()
    }

    /// Lets a row fall; the first reason that it got stands.
    pub fn fall(&mut self, row: usize, reason: &'static str, first: f64, second: f64) {
        let code = self.reasons.iter().position(|known| *known == reason);
        let code = code.and_then(|code| u8::try_from(code + 1).ok()).unwrap_or(u8::MAX);
        if self.stays(row) {
            self.codes[row] = code;
            self.figures[row] = [first, second];
        }
    }

    /// What was decided about a row; `None` where it stays.
    pub fn at(&self, row: usize) -> Option<Fall> {
        let reason = self.reasons.get(usize::from(*self.codes.get(row)?).checked_sub(1)?)?;
        let [first, second] = self.figures[row];
        Some(Fall { reason, first, second })
    }

    /// Hands the decisions on.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn hand_on(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        for start in (0..self.len()).step_by(ROWS) {
            let rows = start..self.len().min(start + ROWS);
            let falls: Vec<Option<Fall>> = rows.map(|row| self.at(row)).collect();
            let reason: StringViewArray = falls.iter().map(|fall| fall.map(|fall| fall.reason)).collect();
            let first: Float64Array = falls.iter().map(|fall| fall.map(|fall| fall.first)).collect();
            let second: Float64Array = falls.iter().map(|fall| fall.map(|fall| fall.second)).collect();
            let columns: Vec<ArrayRef> = vec![Arc::new(reason), Arc::new(first), Arc::new(second)];
            task.write(&RecordBatch::try_new(schema(), columns)?)?;
        }
        Ok(())
    }

    /// The decisions that a step handed on, read once for all tasks of this process.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn shared(task: &Task<'_>, step: &str, reasons: &'static [&'static str]) -> Result<Arc<Self>, StageError> {
        task.shared(step, |task| {
            let mut decisions = Self::new(reasons, 0);
            for batch in task.earlier(step)? {
                let batch = batch?;
                let (first, second) = (rows::floats(&batch, FIRST)?, rows::floats(&batch, SECOND)?);
                let given = rows::texts(&batch, REASON)?;
                let start = decisions.len();
                decisions.codes.resize(start + batch.num_rows(), 0);
                decisions.figures.resize(start + batch.num_rows(), [0.0; 2]);
                for row in 0..batch.num_rows() {
                    let Some(text) = rows::text_at(given, row) else { continue };
                    let reason = reasons.iter().find(|reason| **reason == text);
                    let reason = reason.ok_or_else(|| StageError::Internal(format!("unknown reason `{text}`")))?;
                    decisions.fall(start + row, reason, first.value(row), second.value(row));
                }
            }
            Ok(decisions)
        })
    }

    /// Writes the rows of a batch that stay and rejects the others; `ordinal` is the place of its first row, and
    /// `evidence` says what led to a fall.
    ///
    /// # Errors
    /// When there are fewer decisions than rows, or writing fails.
    pub fn apply(
        &self,
        task: &mut Task<'_>,
        batch: &RecordBatch,
        ordinal: u64,
        evidence: impl Fn(usize, Fall) -> Result<Option<Value>, StageError>,
    ) -> Result<(), StageError> {
        let start = usize::try_from(ordinal).unwrap_or(usize::MAX);
        let end = start.saturating_add(batch.num_rows());
        if end > self.len() {
            return Err(StageError::Internal(format!("{} decisions for row {end}", self.len())));
        }
        let mut judgements = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            judgements.push(match self.at(start + row) {
                None => Judgement::Keep,
                Some(fall) => Judgement::Reject { reason: fall.reason.into(), evidence: evidence(row, fall)? },
            });
        }
        write_judged(task, batch, judgements)
    }
}

/// A count that was carried as a float, as JSON.
pub fn count(figure: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of rows are far below 2^53")]
    let count = figure.max(0.0) as u64;
    count.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stands() {
        let mut decisions = Decisions::new(&["where", "over_quota"], 2);
        decisions.fall(1, "where", 0.0, 0.0);
        decisions.fall(1, "over_quota", 3.0, 2.0);
        assert_eq!(decisions.at(0), None);
        assert_eq!(decisions.at(1).map(|fall| fall.reason), Some("where"));
        assert_eq!(decisions.staying(), [0]);
    }
}
