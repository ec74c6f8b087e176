//! Last step: lets rows through or rejects them, as decided, and writes the clusters out for reading.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{Judgement, StageError, TableType, Task, rows};
use schemas::{queries, traces};
use serde_json::{Value, json};

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
    let found = Found::new(&decisions)?;
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
            judgements.push(found.judgement(at)?);
        }
        write_clusters(parts, task, &batch, &found, &clustered)?;
        write_judged(task, &batch, judgements)?;
    }
    Ok(())
}

/// All decisions, in the order of the units.
fn read(task: &Task<'_>) -> Result<RecordBatch, StageError> {
    let batches = task.earlier(DECISIONS)?.collect::<Result<Vec<_>, _>>()?;
    Ok(arrow::compute::concat_batches(&decide::schema(), &batches)?)
}

/// The columns of all decisions.
struct Found<'a> {
    reasons: &'a StringViewArray,
    labels: &'a StringViewArray,
    clusters: &'a StringViewArray,
    sizes: &'a Int64Array,
    similarities: &'a Float64Array,
}

impl<'a> Found<'a> {
    fn new(decisions: &'a RecordBatch) -> Result<Self, StageError> {
        Ok(Self {
            reasons: rows::texts(decisions, "reason")?,
            labels: rows::texts(decisions, "labels")?,
            clusters: rows::texts(decisions, "cluster")?,
            sizes: rows::integers(decisions, "size")?,
            similarities: rows::floats(decisions, "similarity")?,
        })
    }

    fn judgement(&self, at: usize) -> Result<Judgement, StageError> {
        let Some(reason) = rows::text_at(self.reasons, at) else {
            return Ok(Judgement::Keep);
        };
        let evidence = if let Some(labels) = rows::text_at(self.labels, at) {
            let labels = serde_json::from_str::<Value>(labels);
            json!({ "labels": labels.map_err(|error| StageError::Internal(format!("labels of a decision: {error}")))? })
        } else {
            json!({ "of": self.clusters.value(at), "similarity": self.similarities.value(at) })
        };
        Ok(Judgement::reject_with(reason.to_owned(), evidence))
    }
}

/// Writes pairs of a row and the place of its decision, those that are in a cluster.
fn write_clusters(
    parts: &Parts,
    task: &mut Task<'_>,
    batch: &RecordBatch,
    found: &Found<'_>,
    decided: &[(usize, usize)],
) -> Result<(), StageError> {
    let is_clustered = |(_, at): &(usize, usize)| found.clusters.is_valid(*at);
    let decided: Vec<(usize, usize)> = decided.iter().copied().filter(is_clustered).collect();
    if decided.is_empty() {
        return Ok(());
    }
    let (ids, texts) = (rows::texts(batch, queries::QUERY_ID)?, parts.texts(batch)?);
    let traces = if parts.level == Level::Query { None } else { Some(rows::texts(batch, traces::TRACE_ID)?) };
    let trace = |row: usize| traces.and_then(|traces| rows::text_at(traces, row));
    let text = |row: usize| {
        let text = texts.at(row).unwrap_or_default();
        excerpt(&text, (0, text.len()))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(decided.iter().map(|(_, at)| Some(found.clusters.value(*at))).collect::<StringViewArray>()),
        Arc::new(decided.iter().map(|(_, at)| Some(found.sizes.value(*at))).collect::<Int64Array>()),
        Arc::new(decided.iter().map(|(row, _)| Some(ids.value(*row))).collect::<StringViewArray>()),
        Arc::new(decided.iter().map(|(row, _)| trace(*row)).collect::<StringViewArray>()),
        Arc::new(decided.iter().map(|(_, at)| Some(found.reasons.is_null(*at))).collect::<BooleanArray>()),
        Arc::new(decided.iter().map(|(_, at)| Some(found.similarities.value(*at))).collect::<Float64Array>()),
        Arc::new(decided.iter().map(|(row, _)| Some(text(*row))).collect::<StringViewArray>()),
    ];
    task.write_to(CLUSTERS, &RecordBatch::try_new(clusters().schema, columns)?)
}
