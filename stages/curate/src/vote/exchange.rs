//! The narrow rows that the steps of a vote hand to each other.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringViewArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{StageError, rows};
use schemas::queries;

use super::election::Election;

/// What `answers` sends for each trace: its final answer, its label, and whether the two agree.
pub fn answers_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(queries::QUERY_ID, DataType::Utf8View, false),
        Field::new("ordinal", DataType::UInt64, false),
        Field::new("answer", DataType::Utf8View, true),
        Field::new("label", DataType::Utf8View, true),
        Field::new("agrees", DataType::Boolean, false),
    ]))
}

/// What `labels` hands on for each query.
pub fn labels_schema() -> SchemaRef {
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    Arc::new(Schema::new(vec![
        Field::new(queries::QUERY_ID, DataType::Utf8View, false),
        number("first"),
        Field::new("label", DataType::Utf8View, true),
        number("votes"),
        number("answered"),
        number("unanswered"),
        Field::new("has_conflict", DataType::Boolean, false),
        Field::new("leading", DataType::Utf8View, false),
    ]))
}

/// Writes elections as rows.
///
/// # Errors
/// When the columns do not fit the schema.
pub fn labels_batch<'a>(ids: impl Iterator<Item = &'a str>, elections: &[Election]) -> Result<RecordBatch, StageError> {
    let numbers =
        |read: fn(&Election) -> u64| Arc::new(elections.iter().map(read).collect::<UInt64Array>()) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids.map(Some).collect::<StringViewArray>()),
        numbers(|election| election.first),
        Arc::new(elections.iter().map(|election| election.label.as_deref()).collect::<StringViewArray>()),
        numbers(|election| election.votes),
        numbers(|election| election.answered),
        numbers(|election| election.unanswered),
        Arc::new(elections.iter().map(|election| Some(election.has_conflict)).collect::<BooleanArray>()),
        Arc::new(elections.iter().map(|election| Some(election.leading.as_str())).collect::<StringViewArray>()),
    ];
    Ok(RecordBatch::try_new(labels_schema(), columns)?)
}

/// Reads elections back.
///
/// # Errors
/// When a column is missing or of another type.
pub fn for_each_election(batch: &RecordBatch, mut take: impl FnMut(&str, Election)) -> Result<(), StageError> {
    let ids = rows::texts(batch, queries::QUERY_ID)?;
    let number = |name: &str| rows::row_numbers(batch, name);
    let (first, votes, answered, unanswered) =
        (number("first")?, number("votes")?, number("answered")?, number("unanswered")?);
    let (labels, leading) = (rows::texts(batch, "label")?, rows::texts(batch, "leading")?);
    let conflicts = rows::booleans(batch, "has_conflict")?;
    for row in 0..batch.num_rows() {
        let election = Election {
            first: first.value(row),
            label: rows::text_at(labels, row).map(str::to_owned),
            votes: votes.value(row),
            answered: answered.value(row),
            unanswered: unanswered.value(row),
            has_conflict: conflicts.value(row),
            leading: leading.value(row).to_owned(),
            is_tie: false,
            gold: None,
        };
        take(ids.value(row), election);
    }
    Ok(())
}

/// A copy that holds its own texts and no more.
pub fn compacted(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(|column| match column.as_string_view_opt() {
        Some(texts) => Arc::new(texts.gc()) as ArrayRef,
        None => Arc::clone(column),
    });
    RecordBatch::try_new(batch.schema(), columns.collect()).unwrap_or_else(|_| batch.clone())
}
