//! Lengths of texts in tokens of a student's tokenizer.
//!
//! A text is counted once: where edges must be found first, a step hands on the lengths of all rows, in order, and the
//! last step takes them from there (8 bytes a row in memory) while the texts stream through.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{ParamError, StageError, Task, rows};
use rayon::prelude::*;
use schemas::{queries, traces};
use stage_tokens::Tokenizer;

/// Texts that a thread takes at a time.
const TEXTS: usize = 16;

/// The column that lengths are written to.
pub fn field() -> Field {
    Field::new(traces::TOKENS, DataType::Int64, true)
}

/// What a counting step hands on: one row for each row of the port, in order.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![field()]))
}

/// The text that is measured: the response of traces, the prompt of queries.
pub fn text_column(schema: &Schema) -> &'static str {
    if schema.column_with_name(traces::RESPONSE).is_some() { traces::RESPONSE } else { queries::PROMPT }
}

/// Opens a tokenizer.
///
/// # Errors
/// When there is none at this path, naming the parameter.
pub fn open(env: &pipeline_core::Env, given: &str) -> Result<Tokenizer, StageError> {
    Tokenizer::open(&env.path(given)).map_err(|error| {
        let problem = ParamError::new("tokenizer", error.to_string());
        problem
            .hint("a `tokenizer.json`, a folder with one, or a `.gguf` file, relative to the folder of `dag.toml`")
            .into()
    })
}

/// The tokenizer of a stage, opened once for all tasks of this process.
///
/// # Errors
/// As for [`open`].
pub fn shared_tokenizer(task: &Task<'_>, given: &str) -> Result<Arc<Tokenizer>, StageError> {
    task.shared("tokenizer", |task| open(task.env(), given))
}

/// The length of each text in tokens; null stays null.
pub fn of(texts: &StringViewArray, tokenizer: &Tokenizer) -> Int64Array {
    let lengths: Vec<Option<i64>> = (0..texts.len())
        .into_par_iter()
        .with_min_len(TEXTS)
        .map(|row| rows::text_at(texts, row).and_then(|text| i64::try_from(tokenizer.count(text)).ok()))
        .collect();
    Int64Array::from(lengths)
}

/// Hands on the lengths of the rows of a task.
///
/// # Errors
/// When a file is damaged or the disk refuses.
pub fn hand_on(task: &mut Task<'_>, tokenizer: &str) -> Result<(), StageError> {
    let tokenizer = shared_tokenizer(task, tokenizer)?;
    let input = task.port("rows").first().map(|input| Arc::clone(&input.schema));
    let column =
        text_column(input.as_ref().ok_or_else(|| StageError::Internal("port `rows` has no input".to_owned()))?);
    for batch in task.batches_of(&[column])? {
        let lengths: ArrayRef = Arc::new(of(rows::texts(&batch?, column)?, &tokenizer));
        task.write(&RecordBatch::try_new(schema(), vec![lengths])?)?;
    }
    Ok(())
}

/// The lengths that a step handed on, read once for all tasks of this process.
///
/// # Errors
/// When a file is damaged.
pub fn shared(task: &Task<'_>, step: &str) -> Result<Arc<Int64Array>, StageError> {
    task.shared(step, |task| {
        let mut lengths = Vec::new();
        for batch in task.earlier(step)? {
            lengths.extend(rows::integers(&batch?, traces::TOKENS)?.iter());
        }
        Ok(Int64Array::from(lengths))
    })
}

#[cfg(test)]
pub(crate) mod tests;
