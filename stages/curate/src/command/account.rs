//! Row accounting of a program's output: which rows live on, which fell out and why, and whether its columns are those
//! declared.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use pipeline_core::table_io::TableFile;
use pipeline_core::{Rejection, StageError, Task, rows};
use schemas::rejects;
use serde_json::{Value, json};

use super::conform::conform;
use super::program::Paths;
use super::{Command, ROW};

/// Reason of a row that the program wrote nowhere.
const DROPPED: &str = "dropped_by_command";
/// Longest reason.
const LONGEST_REASON: usize = 64;

/// What became of a row of the input.
#[derive(Debug, Clone, PartialEq)]
enum Fate {
    Nowhere,
    Kept,
    Rejected(Box<Rejection>),
}

/// Reads what the program wrote: output rows are written, the others rejected.
///
/// # Errors
/// A file that is missing or no Parquet, columns other than those declared, rows that cannot be told apart.
pub fn collect(command: &Command, task: &mut Task<'_>, paths: &Paths, rows: i64) -> Result<(), StageError> {
    let mut fates = vec![Fate::Nowhere; usize::try_from(rows).unwrap_or(0)];
    write_output(command, task, &paths.output, &mut fates)?;
    if paths.rejects.exists() {
        read_rejects(&paths.rejects, &mut fates)?;
    }
    if command.adds_rows {
        task.kept(fates.iter().filter(|fate| **fate == Fate::Kept).count() as u64);
    }
    reject_others(command, task, &fates)
}

/// An error about a file that the program wrote.
fn fault(path: &Path, place: Option<String>, message: impl Into<String>) -> StageError {
    // the folder of a task is gone when a person reads this, so only the file's name is told
    StageError::input(path.file_name().unwrap_or_default(), place, message)
}

fn column_fault(path: &Path, column: &str, message: impl Into<String>) -> StageError {
    fault(path, Some(format!("column `{column}`")), message)
}

fn open(path: &Path) -> Result<TableFile, StageError> {
    if !path.exists() {
        let message = "the program ended without writing it; it must write Parquet to the path it gets for `{output}`";
        return Err(fault(path, None, message));
    }
    TableFile::open(path).map_err(|error| fault(path, None, format!("is no Parquet that can be read: {error}")))
}

fn write_output(command: &Command, task: &mut Task<'_>, path: &Path, fates: &mut [Fate]) -> Result<(), StageError> {
    let table = open(path)?;
    let target = task.schema()?;
    ensure_columns(path, table.schema(), &target, command)?;
    for batch in table.read(0, table.rows(), None)? {
        let batch = batch?;
        mark_kept(command, path, &positions(path, &batch)?, fates)?;
        let columns = target
            .fields()
            .iter()
            .map(|field| {
                let column = rows::column(&batch, field.name())?;
                conform(column, field).map_err(|message| column_fault(path, field.name(), message))
            })
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&target), columns, &options)?;
        ensure_declared(task, path, &batch)?;
        task.write(&batch)?;
    }
    Ok(())
}

/// Exactly the declared columns and `_row`.
fn ensure_columns(path: &Path, found: &SchemaRef, target: &SchemaRef, command: &Command) -> Result<(), StageError> {
    if found.column_with_name(ROW).is_none() {
        let message = "is missing; pass the column of the input through, so that rows can be accounted for";
        return Err(column_fault(path, ROW, message));
    }
    if let Some(field) = target.fields().iter().find(|field| found.column_with_name(field.name()).is_none()) {
        let of = if command.columns.contains_key(field.name()) { "declared in `columns`" } else { "of the table" };
        return Err(column_fault(path, field.name(), format!("is missing; it is {of} and must be written")));
    }
    let is_known = |field: &&Arc<Field>| field.name() == ROW || target.column_with_name(field.name()).is_some();
    if let Some(field) = found.fields().iter().find(|field| !is_known(field)) {
        let hint =
            if field.name().starts_with("__index_level") { " (pandas: `to_parquet(..., index=False)`)" } else { "" };
        let message = format!("is not declared; name it in `columns`, or do not write it{hint}");
        return Err(column_fault(path, field.name(), message));
    }
    Ok(())
}

/// A column that no stage fills and `columns` does not name must stay without values: stages after this one were checked
/// against what is declared.
fn ensure_declared(task: &Task<'_>, path: &Path, batch: &RecordBatch) -> Result<(), StageError> {
    let Some(declared) = task.outputs().first() else { return Ok(()) };
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if column.null_count() < column.len() && !declared.rows.filled.contains(field.name()) {
            let message = "has values and is not declared; name it in `columns`";
            return Err(column_fault(path, field.name(), message));
        }
    }
    Ok(())
}

fn positions(path: &Path, batch: &RecordBatch) -> Result<Int64Array, StageError> {
    let column = conform(rows::column(batch, ROW)?, &Field::new(ROW, DataType::Int64, true));
    let column = column.map_err(|message| column_fault(path, ROW, message))?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

fn mark_kept(command: &Command, path: &Path, positions: &Int64Array, fates: &mut [Fate]) -> Result<(), StageError> {
    for position in positions {
        let Some(position) = position else {
            if command.adds_rows {
                continue;
            }
            return Err(column_fault(
                path,
                ROW,
                "is null in a row; say `adds_rows = true` if the program makes new rows",
            ));
        };
        let fate = fate_at(path, fates, position)?;
        if *fate == Fate::Kept && !command.adds_rows {
            let message = format!("holds {position} twice; say `adds_rows = true` if the program multiplies rows");
            return Err(column_fault(path, ROW, message));
        }
        *fate = Fate::Kept;
    }
    Ok(())
}

fn fate_at<'a>(path: &Path, fates: &'a mut [Fate], position: i64) -> Result<&'a mut Fate, StageError> {
    let count = fates.len();
    let fate = usize::try_from(position).ok().and_then(|position| fates.get_mut(position));
    fate.ok_or_else(|| {
        column_fault(path, ROW, format!("holds {position}, and the input has rows 0 to {}", count.saturating_sub(1)))
    })
}

fn read_rejects(path: &Path, fates: &mut [Fate]) -> Result<(), StageError> {
    let table = open(path)?;
    for column in [ROW, rejects::REJECT_REASON] {
        if table.schema().column_with_name(column).is_none() {
            return Err(column_fault(path, column, "is missing; rejects need `_row` and `reject_reason`"));
        }
    }
    let text = Field::new("", DataType::Utf8View, true);
    for batch in table.read(0, table.rows(), None)? {
        let batch = batch?;
        let texts = |name: &str| -> Result<Option<ArrayRef>, StageError> {
            let Some(column) = batch.column_by_name(name) else { return Ok(None) };
            conform(column, &text).map(Some).map_err(|message| column_fault(path, name, message))
        };
        let (reasons, evidence) = (texts(rejects::REJECT_REASON)?, texts(rejects::REJECT_EVIDENCE)?);
        let at = |column: &Option<ArrayRef>, row| {
            let texts = column.as_ref()?.as_string_view_opt()?;
            rows::text_at(texts, row).map(str::to_owned)
        };
        for (row, position) in positions(path, &batch)?.iter().enumerate() {
            let position = position.ok_or_else(|| column_fault(path, ROW, "is null in a row"))?;
            let reason = at(&reasons, row).filter(|reason| is_reason(reason));
            let reason = reason.ok_or_else(|| {
                let given = at(&reasons, row).unwrap_or_default();
                let message =
                    format!("holds `{given}`; a reason is a snake_case word of at most {LONGEST_REASON} letters");
                column_fault(path, rejects::REJECT_REASON, message)
            })?;
            let fate = fate_at(path, fates, position)?;
            if *fate != Fate::Nowhere {
                let message = format!("holds {position}, which is also in the output or rejected twice");
                return Err(column_fault(path, ROW, message));
            }
            *fate = Fate::Rejected(Box::new(Rejection::new(reason, at(&evidence, row).as_deref().map(as_evidence))));
        }
    }
    Ok(())
}

fn is_reason(reason: &str) -> bool {
    let mut letters = reason.chars();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
        && reason.len() <= LONGEST_REASON
}

/// A JSON object as it is, any other text under `message`.
fn as_evidence(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => value,
        _ => json!({ "message": text }),
    }
}

/// Rejects the rows that are not in the output, as they were read.
fn reject_others(command: &Command, task: &mut Task<'_>, fates: &[Fate]) -> Result<(), StageError> {
    if fates.iter().all(|fate| *fate == Fate::Kept) {
        return Ok(());
    }
    let batches = if command.whole { task.port_batches("rows", None)? } else { task.look_ahead()? };
    let mut fates = fates.iter();
    for batch in batches {
        let batch = batch?;
        let of_batch: Vec<&Fate> = fates.by_ref().take(batch.num_rows()).collect();
        let mask: BooleanArray = of_batch.iter().map(|fate| Some(**fate != Fate::Kept)).collect();
        let rejections: Vec<Rejection> = of_batch
            .into_iter()
            .filter_map(|fate| match fate {
                Fate::Kept => None,
                Fate::Nowhere => Some(Rejection::new(DROPPED, None)),
                Fate::Rejected(rejection) => Some(rejection.as_ref().clone()),
            })
            .collect();
        task.reject(&rows::filter(&batch, &mask)?, &rejections)?;
    }
    Ok(())
}
