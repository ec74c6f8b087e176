//! What `vote` and `difficulty` share: the traces of one query are brought together wherever they stand, something is
//! found for each query, and a last pass over the traces writes a row for each query or for each trace.
//!
//! Only ids and numbers are exchanged; the wide rows are read once more and stay in their order.

use std::collections::HashMap;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use pipeline_core::{Digest, Output, ParamError, Ports, Rejection, StageError, TableType, Task, rows};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};

/// What the rows of the output are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputRows {
    /// One row for each query, with the columns of its first trace.
    #[default]
    Queries,
    /// Every trace.
    Traces,
}

/// A query's key in memory: 128 bits of a digest of its id.
pub fn key(query_id: &str) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Digest::of(query_id.as_bytes()).bytes()[..16]);
    u128::from_le_bytes(bytes)
}

/// The output for traces, with `fills` filled.
///
/// # Errors
/// When the port has no input.
pub fn outputs(inputs: &Ports, rows: OutputRows, fills: &[&str]) -> Result<Vec<Output>, ParamError> {
    let given = inputs.expect("rows")?;
    Ok(vec![match rows {
        OutputRows::Traces => Output::same(given.clone().fill(fills.iter().copied())),
        OutputRows::Queries => {
            let filled = given.filled.iter().map(String::as_str).filter(|name| queries::TABLE.column(name).is_some());
            Output::counted(TableType::of(&queries::TABLE, filled).fill(fills.iter().copied()))
        }
    }])
}

/// What was found for a query.
pub trait Finding: Send + Sync + 'static {
    /// Position of its first trace among all traces.
    fn first(&self) -> u64;
}

/// Findings by [`key`].
#[derive(Debug)]
pub struct Findings<T>(pub HashMap<u128, T>);

impl<T: Finding> Findings<T> {
    /// The last step: walks through the traces and writes or rejects each. `judge` says why a query falls out;
    /// `fill` gives columns for the rows that are written.
    ///
    /// # Errors
    /// When a query was not found before, or the disk refuses.
    pub fn write(
        &self,
        task: &mut Task<'_>,
        output: OutputRows,
        judge: impl Fn(&T) -> Option<Rejection>,
        fill: impl Fn(&RecordBatch, &[&T]) -> Result<Vec<(&'static str, ArrayRef)>, StageError>,
    ) -> Result<(), StageError> {
        let schema = task.schema()?;
        let mut batches = task.batches()?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let ids = rows::texts(&batch, queries::QUERY_ID)?;
            let (mut written, mut fallen) =
                (Vec::with_capacity(batch.num_rows()), Vec::with_capacity(batch.num_rows()));
            let (mut findings, mut rejections) = (Vec::new(), Vec::new());
            for (ordinal, row) in (batches.ordinal()..).zip(0..batch.num_rows()) {
                let finding = self.0.get(&key(ids.value(row)));
                let finding =
                    finding.ok_or_else(|| StageError::Internal(format!("query of trace {ordinal} was not seen")))?;
                let rejection = judge(finding);
                let is_written = rejection.is_none() && (output == OutputRows::Traces || finding.first() == ordinal);
                if is_written {
                    findings.push(finding);
                }
                fallen.push(rejection.is_some());
                written.push(is_written);
                rejections.extend(rejection);
            }
            let kept = batch.num_rows() - rejections.len();
            let rows_out = rows::filter(&batch, &BooleanArray::from(written))?;
            let filled = fill(&rows_out, &findings)?;
            task.write(&rows::with_columns(&rows_out, &schema, &filled)?)?;
            task.reject(&rows::filter(&batch, &BooleanArray::from(fallen))?, &rejections)?;
            task.kept(kept as u64);
        }
        Ok(())
    }
}

/// Counts of shares in ten equal bins, for a stage's notes. Both ends are counted in their bins and by themselves.
#[derive(Debug, Default, Clone, Serialize)]
pub struct ShareHistogram {
    queries: u64,
    zero: u64,
    one: u64,
    bins: [u64; 10],
}

impl ShareHistogram {
    /// Counts the share `part / whole`; `whole` is not 0.
    pub fn add(&mut self, part: u64, whole: u64) {
        let bin = usize::try_from(part * 10 / whole.max(1)).unwrap_or(9).min(9);
        self.queries += 1;
        self.zero += u64::from(part == 0);
        self.one += u64::from(part == whole);
        self.bins[bin] += 1;
    }
}
