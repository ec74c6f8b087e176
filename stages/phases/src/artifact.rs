//! Checkpoints as a stage leaves them: a row of the table, and the files of a folder beside it.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use pipeline_core::{Output, StageError, TableType, Task};
use schemas::checkpoints::{self, FOLDER, TABLE};
use serde::{Deserialize, Serialize};

use crate::digest::digest;

/// What is told of a checkpoint beside its weights.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Optimizer steps behind it.
    pub step: u64,
    /// Passes over the rows.
    pub epoch: Option<f64>,
    /// Supervised tokens that were trained on.
    pub tokens: Option<u64>,
    /// Mean training loss since the checkpoint before it, nats a token.
    pub loss: Option<f64>,
    /// Mean loss on the validation rows, nats a token.
    pub validation_loss: Option<f64>,
}

/// The output of a kind that makes checkpoints.
pub fn output() -> Output {
    Output::counted(TableType::of(&TABLE, TABLE.columns().map(|column| column.name)))
}

/// Leaves checkpoints, each a name, its folder and what is told of it.
///
/// # Errors
/// When a folder cannot be read or the disk refuses.
pub fn leave<'a>(
    task: &mut Task<'_>,
    all: impl IntoIterator<Item = (&'a str, &'a Path, &'a Told)>,
) -> Result<(), StageError> {
    let (mut names, mut digests, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for (name, folder, facts) in all {
        for file in files(folder)? {
            task.keep_file(&format!("{FOLDER}/{name}/{file}"), &folder.join(&file))?;
        }
        digests.push(digest(folder, &task.env().digests)?);
        names.push(name);
        told.push(facts);
    }
    let integers = |value: fn(&Told) -> Option<u64>| -> ArrayRef {
        let values = told.iter().map(|told| value(told).and_then(|value| i64::try_from(value).ok()));
        Arc::new(values.collect::<Int64Array>())
    };
    let floats = |value: fn(&Told) -> Option<f64>| -> ArrayRef {
        Arc::new(told.iter().map(|told| value(told)).collect::<Float64Array>())
    };
    let columns = [
        (checkpoints::CHECKPOINT, Arc::new(StringViewArray::from(names.clone())) as ArrayRef),
        (checkpoints::STEP, integers(|told| Some(told.step))),
        (checkpoints::DIGEST, Arc::new(StringViewArray::from(digests))),
        ("epoch", floats(|told| told.epoch)),
        ("tokens", integers(|told| told.tokens)),
        ("loss", floats(|told| told.loss)),
        ("validation_loss", floats(|told| told.validation_loss)),
    ];
    let schema = task.schema()?;
    let columns = schema.fields().iter().map(|field| {
        let found = columns.iter().find(|(name, _)| name == field.name());
        found.map_or_else(
            || arrow::array::new_null_array(field.data_type(), names.len()),
            |(_, column)| Arc::clone(column),
        )
    });
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect())?;
    task.write(&batch)
}

/// Names of the files of a folder, sorted.
fn files(folder: &Path) -> Result<Vec<String>, StageError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(StageError::io("open", folder))? {
        let entry = entry.map_err(StageError::io("open", folder))?;
        if entry.path().is_file()
            && let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.'))
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
