//! Which columns of the input play which part, and the text that is compared.

use std::borrow::Cow;

use arrow::array::{Array, ListArray, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Schema};
use pipeline_core::{ParamError, StageError, TableType, Task, rows};
use schemas::{queries, traces};

use super::Dedup;
use super::keys::half_hash_of;
use crate::text_column;

/// What is kept or dropped as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A row of queries.
    Query,
    /// A query with all its traces.
    QueryOfTraces,
    /// A trace.
    Trace,
}

impl Level {
    /// Whether the text belongs to the query, so that its label tells problems apart.
    pub fn has_label(self) -> bool {
        self != Self::Trace
    }
}

/// Parts that columns play.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Text that is compared.
    pub column: String,
    /// Whether multiple-choice options belong to the text.
    has_options: bool,
    /// Whether there are labels.
    pub has_labels: bool,
    /// What is kept or dropped as one.
    pub level: Level,
    /// Rows are compared only with those of the same value here.
    pub within: Option<String>,
    /// The largest value here stays.
    pub best: Option<String>,
}

impl Parts {
    /// Parts in the input of a task.
    ///
    /// # Errors
    /// When the port has no input.
    pub fn of(dedup: &Dedup, task: &Task<'_>) -> Result<Self, StageError> {
        let input = task.port("rows").first();
        let input = input.ok_or_else(|| StageError::Internal("port `rows` has no input".to_owned()))?;
        Ok(Self::in_schema(dedup, &input.schema))
    }

    fn in_schema(dedup: &Dedup, schema: &Schema) -> Self {
        let has = |name: &str| schema.column_with_name(name).is_some();
        let is_traces = has(traces::TRACE_ID);
        let level = match (is_traces, queries::TABLE.column(&dedup.column)) {
            (false, _) => Level::Query,
            (true, Some(_)) => Level::QueryOfTraces,
            (true, None) => Level::Trace,
        };
        let natural = (level == Level::Trace && !dedup.across).then(|| queries::QUERY_ID.to_owned());
        Self {
            column: dedup.column.clone(),
            has_options: dedup.column == queries::PROMPT && has(queries::OPTIONS),
            has_labels: has(queries::LABEL),
            level,
            within: dedup.within.clone().or(natural),
            best: dedup.best.clone(),
        }
    }

    /// Columns that make the text.
    pub fn text_columns(&self) -> Vec<&str> {
        let mut columns = vec![self.column.as_str()];
        columns.extend(self.has_options.then_some(queries::OPTIONS));
        columns
    }

    /// All columns that keys and shingles are made of, each once.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = self.text_columns();
        columns.push(queries::QUERY_ID);
        columns.extend(self.has_labels.then_some(queries::LABEL));
        columns.extend(self.within.as_deref());
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The unit of each row of a batch that begins at `ordinal`: what is kept or dropped as one. It is a digest of the
    /// query id where a query stays or goes with all its traces, and the row's ordinal otherwise.
    ///
    /// # Errors
    /// When the column of ids is missing.
    pub fn units(&self, batch: &RecordBatch, ordinal: u64) -> Result<Vec<u64>, StageError> {
        if self.level != Level::QueryOfTraces {
            return Ok((ordinal..).take(batch.num_rows()).collect());
        }
        let ids = rows::texts(batch, queries::QUERY_ID)?;
        Ok((0..ids.len()).map(|row| half_hash_of(ids.value(row))).collect())
    }

    /// The texts of a batch.
    ///
    /// # Errors
    /// When a column is missing or of another type.
    pub fn texts<'a>(&self, batch: &'a RecordBatch) -> Result<Texts<'a>, StageError> {
        let options = if self.has_options { Some(rows::lists(batch, queries::OPTIONS)?) } else { None };
        Ok(Texts { texts: rows::texts(batch, &self.column)?, options })
    }
}

/// Texts of a batch, options included.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    texts: &'a StringViewArray,
    options: Option<&'a ListArray>,
}

impl<'a> Texts<'a> {
    /// The text of a row, with one line for each option; `None` where there is nothing but white space.
    pub fn at(&self, row: usize) -> Option<Cow<'a, str>> {
        let text = rows::text_at(self.texts, row).filter(|text| !text.trim().is_empty())?;
        let options = self.options.and_then(|options| rows::list_texts(options, row)).unwrap_or_default();
        if options.is_empty() {
            return Some(Cow::Borrowed(text));
        }
        Some(Cow::Owned(format!("{text}\n{}", options.join("\n"))))
    }
}

impl Dedup {
    /// Refuses columns that the input lacks or that hold something else.
    ///
    /// # Errors
    /// When a parameter names such a column.
    pub(super) fn ensure_columns(&self, rows: &TableType) -> Result<(), ParamError> {
        text_column::ensure(rows, &self.column)?;
        let wrong = |parameter: &str, column: &str, what: &str| {
            ParamError::new(parameter, format!("the input has no {what} column `{column}`"))
        };
        let kind = |column: &str| rows.schema.field_with_name(column).ok().map(|field| field.data_type().clone());
        if let Some(within) = &self.within
            && kind(within) != Some(DataType::Utf8View)
        {
            return Err(wrong("within", within, "text"));
        }
        if let Some(best) = &self.best
            && !matches!(kind(best), Some(DataType::Float64 | DataType::Int64))
        {
            return Err(wrong("best", best, "number"));
        }
        Ok(())
    }
}
