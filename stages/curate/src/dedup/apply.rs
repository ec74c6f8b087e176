//! Last step: lets rows through or rejects them, as decided.

use arrow::array::RecordBatch;
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{Judgement, StageError, Task, rows};

use super::{CLUSTERS, decide};

/// Writes the rows of a slice.
///
/// # Errors
/// When a file is damaged or the disk refuses.
pub fn run(task: &mut Task<'_>) -> Result<(), StageError> {
    let decisions = task.shared("decisions", read)?;
    let fallen = rows::row_numbers(&decisions, "ordinal")?.values();
    let (reasons, evidence) = (rows::texts(&decisions, "reason")?, rows::texts(&decisions, "evidence")?);
    let mut batches = task.batches()?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let first = batches.ordinal();
        let mut next = fallen.partition_point(|ordinal| *ordinal < first);
        let mut judgements = Vec::with_capacity(batch.num_rows());
        for ordinal in (first..).take(batch.num_rows()) {
            if fallen.get(next) != Some(&ordinal) {
                judgements.push(Judgement::Keep);
                continue;
            }
            let evidence = serde_json::from_str(evidence.value(next));
            let evidence =
                evidence.map_err(|error| StageError::Internal(format!("evidence of a decision: {error}")))?;
            judgements.push(Judgement::reject_with(reasons.value(next).to_owned(), evidence));
            next += 1;
        }
        write_judged(task, &batch, judgements)?;
    }
    Ok(())
}

/// All decisions, in the order of the rows.
fn read(task: &Task<'_>) -> Result<RecordBatch, StageError> {
    let batches = task.earlier(CLUSTERS)?.collect::<Result<Vec<_>, _>>()?;
    Ok(arrow::compute::concat_batches(&decide::schema(), &batches)?)
}
