//! Last step: lets rows through or rejects them, as decided, and writes the clusters out for reading.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{Judgement, StageError, TableType, Task, rows};
use schemas::{queries, traces};

use super::parts::{Level, Parts};
use super::{CLUSTERS, DECISIONS, decide};
use crate::text_column::excerpt;

/// Columns of the output `clusters`: a row for each row of the input that is in a cluster. `cluster` is the id of the
/// row that stays, `similarity` the Jaccard index with it, `text` the beginning of the text.
pub fn clusters() -> TableType {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("cluster", DataType::Utf8View, false),
            Field::new("size", DataType::Int64, false),
            Field::new(queries::QUERY_ID, DataType::Utf8View, false),
            Field::new(traces::TRACE_ID, DataType::Utf8View, true),
            Field::new("kept", DataType::Boolean, false),
            Field::new("similarity", DataType::Float64, false),
            Field::new("text", DataType::Utf8View, false),
        ]))
    });
    let schema = Arc::clone(&SCHEMA);
    let filled = schema.fields().iter().map(|field| field.name().clone()).collect();
    TableType { table: None, schema, filled }
}

/// Writes the rows of a slice.
///
/// # Errors
/// When a file is damaged or the disk refuses.
pub fn run(parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let decisions = task.shared("decisions", read)?;
    let decided = rows::row_numbers(&decisions, "unit")?.values();
    let (reasons, evidence) = (rows::texts(&decisions, "reason")?, rows::texts(&decisions, "evidence")?);
    let mut batches = task.batches()?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let units = parts.units(&batch, batches.ordinal())?;
        let mut judgements = Vec::with_capacity(batch.num_rows());
        let mut clustered = Vec::new();
        for (row, unit) in units.into_iter().enumerate() {
            let Ok(at) = decided.binary_search(&unit) else {
                judgements.push(Judgement::Keep);
                continue;
            };
            clustered.push((row, at));
            judgements.push(match (rows::text_at(reasons, at), rows::text_at(evidence, at)) {
                (Some(reason), Some(evidence)) => {
                    let evidence = serde_json::from_str(evidence)
                        .map_err(|error| StageError::Internal(format!("evidence of a decision: {error}")))?;
                    Judgement::reject_with(reason.to_owned(), evidence)
                }
                _ => Judgement::Keep,
            });
        }
        write_clusters(parts, task, &batch, &decisions, &clustered)?;
        write_judged(task, &batch, judgements)?;
    }
    Ok(())
}

/// All decisions, in the order of the units.
fn read(task: &Task<'_>) -> Result<RecordBatch, StageError> {
    let batches = task.earlier(DECISIONS)?.collect::<Result<Vec<_>, _>>()?;
    Ok(arrow::compute::concat_batches(&decide::schema(), &batches)?)
}

/// Writes pairs of a row and the place of its decision, those that are in a cluster.
fn write_clusters(
    parts: &Parts,
    task: &mut Task<'_>,
    batch: &RecordBatch,
    decisions: &RecordBatch,
    decided: &[(usize, usize)],
) -> Result<(), StageError> {
    let names = rows::texts(decisions, "cluster")?;
    let decided: Vec<(usize, usize)> = decided.iter().copied().filter(|(_, at)| names.is_valid(*at)).collect();
    if decided.is_empty() {
        return Ok(());
    }
    let (reasons, similarities) = (rows::texts(decisions, "reason")?, rows::floats(decisions, "similarity")?);
    let (sizes, ids, texts) =
        (rows::integers(decisions, "size")?, rows::texts(batch, queries::QUERY_ID)?, parts.texts(batch)?);
    let traces = if parts.level == Level::Query { None } else { Some(rows::texts(batch, traces::TRACE_ID)?) };
    let trace = |row: usize| traces.and_then(|traces| rows::text_at(traces, row));
    let text = |row: usize| {
        let text = texts.at(row).unwrap_or_default();
        excerpt(&text, (0, text.len()))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(decided.iter().map(|(_, at)| Some(names.value(*at))).collect::<StringViewArray>()),
        Arc::new(decided.iter().map(|(_, at)| Some(sizes.value(*at))).collect::<Int64Array>()),
        Arc::new(decided.iter().map(|(row, _)| Some(ids.value(*row))).collect::<StringViewArray>()),
        Arc::new(decided.iter().map(|(row, _)| trace(*row)).collect::<StringViewArray>()),
        Arc::new(decided.iter().map(|(_, at)| Some(reasons.is_null(*at))).collect::<BooleanArray>()),
        Arc::new(decided.iter().map(|(_, at)| Some(similarities.value(*at))).collect::<Float64Array>()),
        Arc::new(decided.iter().map(|(row, _)| Some(text(*row))).collect::<StringViewArray>()),
    ];
    task.write_to(CLUSTERS, &RecordBatch::try_new(clusters().schema, columns)?)
}
