//! Third step: sends the shingles of texts that share a band to where they are compared, those that hang together to
//! one place.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, RecordBatch, UInt64Array, UInt64Builder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use pipeline_core::{StageError, Task, rows};
use rayon::prelude::*;
use schemas::column::LIST_ITEM;
use schemas::queries;
use stage_text::cluster::Candidate;
use stage_text::ngram::mix;

use super::Dedup;
use super::keys::half_hash_of;
use super::parts::{Level, Parts};
use super::plan::Plan;

/// Columns of a compared text.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let hashes = DataType::List(Arc::new(Field::new(LIST_ITEM, DataType::UInt64, true)));
        Arc::new(Schema::new(vec![
            Field::new("component", DataType::UInt64, false),
            Field::new("member", DataType::UInt64, false),
            Field::new("numbers", DataType::UInt64, false),
            Field::new("label", DataType::UInt64, true),
            Field::new("shingles", hashes, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// Sends the shingles of the members in a slice.
///
/// # Errors
/// When a column is missing or the disk refuses.
pub fn run(dedup: &Dedup, parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let plan = task.shared("plan", Plan::read)?;
    if plan.members.is_empty() {
        return Ok(());
    }
    let mut seen = HashSet::new();
    let mut batches = task.batches_of(&parts.columns())?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let texts = parts.texts(&batch)?;
        let labels =
            if parts.has_labels && parts.level.has_label() { Some(rows::texts(&batch, queries::LABEL)?) } else { None };
        let members: Vec<(usize, u32)> = parts
            .units(&batch, batches.ordinal())?
            .into_iter()
            .enumerate()
            .filter_map(|(row, unit)| Some((row, plan.position(unit)?)))
            .filter(|(_, member)| parts.level != Level::QueryOfTraces || seen.insert(*member))
            .collect();
        let read = members.into_par_iter().with_min_len(16).map_init(
            || dedup.shingler(),
            |shingler, (row, member)| {
                let text = texts.at(row)?;
                let found = shingler.shingles(&text);
                let (mut shingles, numbers) = (found.hashes.to_vec(), found.numbers);
                shingles.sort_unstable();
                shingles.dedup();
                let label = labels.and_then(|labels| rows::text_at(labels, row)).map(half_hash_of);
                Some((member, Candidate { shingles, numbers, label }))
            },
        );
        send(&plan, task, &read.collect::<Vec<_>>())?;
    }
    Ok(())
}

fn send(plan: &Plan, task: &mut Task<'_>, read: &[Option<(u32, Candidate)>]) -> Result<(), StageError> {
    let read: Vec<&(u32, Candidate)> = read.iter().flatten().collect();
    if read.is_empty() {
        return Ok(());
    }
    let count = u64::from(task.partitions());
    let components: Vec<u64> = read.iter().map(|(member, _)| u64::from(plan.component(*member))).collect();
    let partitions = components.iter().map(|component| u32::try_from(mix(*component) % count).unwrap_or(0)).collect();
    let item = Field::new(LIST_ITEM, DataType::UInt64, true);
    let mut lists = ListBuilder::new(UInt64Builder::new()).with_field(item);
    for (_, candidate) in &read {
        lists.values().append_slice(&candidate.shingles);
        lists.append(true);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(components)),
        Arc::new(read.iter().map(|(member, _)| u64::from(*member)).collect::<UInt64Array>()),
        Arc::new(read.iter().map(|(_, candidate)| candidate.numbers).collect::<UInt64Array>()),
        Arc::new(read.iter().map(|(_, candidate)| candidate.label).collect::<UInt64Array>()),
        Arc::new(lists.finish()),
    ];
    task.send(partitions, RecordBatch::try_new(schema(), columns)?)
}

/// Calls `visit` with component, member and candidate of each row of a batch whose component is wanted.
///
/// # Errors
/// When a column is missing.
pub fn for_each(
    batch: &RecordBatch,
    is_wanted: impl Fn(u32) -> bool,
    mut visit: impl FnMut(u32, u32, Candidate),
) -> Result<(), StageError> {
    let column = |name| rows::row_numbers(batch, name);
    let (components, members, numbers) = (column("component")?, column("member")?, column("numbers")?);
    let (labels, lists) = (column("label")?, rows::lists(batch, "shingles")?);
    let number = |value| {
        u32::try_from(value).map_err(|_| StageError::Internal("a member has a number beyond 32 bits".to_owned()))
    };
    for row in 0..batch.num_rows() {
        let component = number(components.value(row))?;
        if is_wanted(component) {
            let label = labels.is_valid(row).then(|| labels.value(row));
            let shingles = lists.value(row).as_primitive::<UInt64Type>().values().to_vec();
            visit(component, number(members.value(row))?, Candidate { shingles, numbers: numbers.value(row), label });
        }
    }
    Ok(())
}
