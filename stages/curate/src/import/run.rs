//! One task of an import: a piece of a file, chunk by chunk.

use std::collections::BTreeSet;
use std::path::PathBuf;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pipeline_core::{ParamError, Rejection, Source, SourceRange, StageError, Task};
use rayon::prelude::*;
use schemas::queries as query;
use serde_json::json;

use super::Import;
use super::build::Batch;
use super::cell::Cell;
use super::files::{Format, recognise};
use super::mapping::{Mapping, nearest};
use super::path::RowText;
use super::read::{self, Chunk, Record};
use super::row::{BAD_VALUE, BROKEN_LINE, Context, Fall, Outcome};

/// Characters of a broken line that its reject keeps.
const EVIDENCE: usize = 65_536;

/// Rows that fell out because they cannot be used as they are.
#[derive(Debug, Default)]
struct Tally {
    read: u64,
    unusable: u64,
    first: Option<(String, String)>,
    seen: u128,
    is_any_row: bool,
}

/// A piece of a file and how it is mapped.
struct Piece<'a> {
    context: Context<'a>,
    source: &'a Source,
    path: PathBuf,
    /// `line` or `row`.
    unit: &'static str,
}

/// Imports one piece.
///
/// # Errors
/// When the file cannot be read, rows are unusable beyond `max_errors`, or a mapped column does not exist.
pub fn run(import: &Import, task: &mut Task<'_>) -> Result<(), StageError> {
    let mapping = Mapping::new(import)?;
    let source = task.source()?;
    let path = task.env().base.join(&source.path);
    let (_, format) = recognise(&path, import.format)?;
    let context = Context { import, mapping: &mapping, source: &source.name, empty_is_null: format == Format::Csv };
    let unit = if format == Format::Parquet { "row" } else { "line" };
    let piece = Piece { context, source, path, unit };
    let schema = task.schema()?;
    let mut reader = read::open(&piece.path, import.format, &source.range)?;
    let mut tally = Tally::default();
    while let Some(chunk) = reader.next_chunk()? {
        task.check_cancelled()?;
        piece.write(task, &schema, &chunk, &mut tally)?;
    }
    piece.check_share(task, &tally)?;
    piece.check_columns(task, &tally)
}

impl Piece<'_> {
    fn write(
        &self,
        task: &mut Task<'_>,
        schema: &SchemaRef,
        chunk: &Chunk,
        tally: &mut Tally,
    ) -> Result<(), StageError> {
        let outcomes: Vec<Outcome<'_>> =
            chunk.records.par_iter().with_min_len(8).map(|record| convert(self.context, chunk, record)).collect();
        let mapping = self.context.mapping;
        let mut batch = Batch::new(&mapping.filled);
        let (mut fallen, mut rejections) = (Batch::new(&fallen_columns(mapping)), Vec::new());
        let mut kept = 0;
        for (record, outcome) in chunk.records.iter().zip(&outcomes) {
            tally.seen |= outcome.seen;
            match &outcome.rows {
                Ok(rows) => {
                    tally.is_any_row = true;
                    kept += 1;
                    for cells in rows {
                        batch.append(cells);
                    }
                }
                Err(fall) => {
                    tally.is_any_row |= fall.reason != BROKEN_LINE;
                    self.judge(task.max_errors(), record, fall, tally)?;
                    let text = text_of(chunk, record);
                    let extra = if fall.reason == BROKEN_LINE { Cell::Null } else { Cell::Text(text.clone()) };
                    fallen.append(&[Cell::Text(self.source_name().into()), extra]);
                    rejections.push(self.rejection(record, fall, &text));
                }
            }
        }
        let read = chunk.records.len() as u64;
        tally.read += read;
        task.read(read);
        if mapping.expansion.is_some() {
            task.kept(kept);
        }
        if !rejections.is_empty() {
            let nullable = schemas::rejects::schema(schema);
            let batch: RecordBatch =
                fallen.finish(&nullable.project(&(0..schema.fields().len()).collect::<Vec<_>>())?.into())?;
            task.reject(&batch, &rejections)?;
        }
        task.write(&batch.finish(schema)?)
    }

    fn source_name(&self) -> &str {
        self.context.import.source.as_deref().unwrap_or(self.context.source)
    }

    fn place(&self, record: &Record) -> String {
        format!("{} {}", self.unit, record.line)
    }

    /// Ends the import at a row that cannot be used, unless such rows may fall out.
    fn judge(&self, max_errors: f64, record: &Record, fall: &Fall, tally: &mut Tally) -> Result<(), StageError> {
        if fall.reason != BROKEN_LINE && fall.reason != BAD_VALUE {
            return Ok(());
        }
        let column = fall.column.as_ref().map(|column| format!("column `{column}`: ")).unwrap_or_default();
        let message = format!("{column}{}", fall.message);
        if max_errors <= 0.0 {
            let message = format!("{message}; set `max_errors` (a share of rows) to let such {}s fall out", self.unit);
            return Err(StageError::input(&self.source.path, Some(self.place(record)), message));
        }
        tally.unusable += 1;
        tally.first.get_or_insert_with(|| (self.place(record), message));
        Ok(())
    }

    fn rejection(&self, record: &Record, fall: &Fall, text: &str) -> Rejection {
        let mut evidence = json!({"file": self.source.name, self.unit: record.line, "message": fall.message});
        if let Some(column) = &fall.column {
            evidence["column"] = column.as_str().into();
        }
        if fall.reason == BROKEN_LINE {
            evidence["text"] = text.chars().take(EVIDENCE).collect::<String>().into();
        }
        Rejection::new(fall.reason, Some(evidence))
    }

    fn check_share(&self, task: &Task<'_>, tally: &Tally) -> Result<(), StageError> {
        let share = tally.unusable as f64 / tally.read.max(1) as f64;
        let Some((place, message)) = tally.first.as_ref().filter(|_| share > task.max_errors()) else {
            return Ok(());
        };
        let message = format!(
            "{} of {} {}s cannot be used ({:.2} %), more than `max_errors` = {} allows; the first: {message}",
            tally.unusable,
            tally.read,
            self.unit,
            share * 100.0,
            task.max_errors(),
        );
        Err(StageError::input(&self.source.path, Some(place.clone()), message))
    }

    /// A mapped column that no row of the file has is a mistake, not a column of nulls.
    fn check_columns(&self, task: &Task<'_>, tally: &Tally) -> Result<(), StageError> {
        let paths = &self.context.mapping.paths;
        let all = paths.iter().enumerate().take(128).fold(0_u128, |all, (at, _)| all | 1 << at);
        if !tally.is_any_row || tally.seen & all == all {
            return Ok(());
        }
        let known = format!("columns of {}", self.source.name);
        let survey = task.shared(&known, |_| self.survey())?;
        let missing = paths.iter().enumerate().take(128).find(|(at, _)| (tally.seen | survey.seen) & (1 << at) == 0);
        let Some((_, (parameter, path))) = missing else {
            return Ok(());
        };
        let names: Vec<&str> = survey.names.iter().map(String::as_str).collect();
        let nearest = nearest(path.column(), names.iter().copied()).filter(|name| *name != path.column());
        let hint = nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        let file = &self.source.name;
        let message = format!("no row of `{file}` has `{path}`, its columns are {}{hint}", names.join(", "));
        Err(ParamError::new(parameter.as_str(), message).into())
    }

    /// Which paths and columns the whole file has.
    fn survey(&self) -> Result<Survey, StageError> {
        let range = match &self.source.range {
            SourceRange::Rows { .. } | SourceRange::Lines { .. } => &SourceRange::Whole,
            whole @ SourceRange::Whole => whole,
        };
        let mut reader = read::open(&self.path, self.context.import.format, range)?;
        let mut survey = Survey::default();
        while let Some(chunk) = reader.next_chunk()? {
            let found: Vec<u128> =
                chunk.records.par_iter().map(|record| convert(self.context, &chunk, record).seen).collect();
            survey.seen = found.into_iter().fold(survey.seen, |seen, found| seen | found);
            for record in chunk.records.iter().take(100) {
                if let Ok(row) = serde_json::from_slice::<RowText<'_>>(bytes_of(&chunk, record)) {
                    survey.names.extend(row.fields.iter().map(|(key, _)| key.clone().into_owned()));
                }
            }
        }
        Ok(survey)
    }
}

#[derive(Debug, Default)]
struct Survey {
    seen: u128,
    names: BTreeSet<String>,
}

fn fallen_columns(mapping: &Mapping) -> Vec<&'static schemas::Column> {
    [query::SOURCE, query::EXTRA].iter().filter_map(|name| mapping.table.column(name)).collect()
}

fn bytes_of<'a>(chunk: &'a Chunk, record: &Record) -> &'a [u8] {
    chunk.buffer.get(record.start..record.end).unwrap_or_default()
}

fn text_of<'a>(chunk: &'a Chunk, record: &Record) -> std::borrow::Cow<'a, str> {
    String::from_utf8_lossy(bytes_of(chunk, record))
}

fn convert<'a>(context: Context<'a>, chunk: &'a Chunk, record: &Record) -> Outcome<'a> {
    match &record.fault {
        Some(fault) => Outcome { rows: Err(Fall::new(BROKEN_LINE, fault.clone())), seen: 0 },
        None => context.convert(bytes_of(chunk, record)),
    }
}
