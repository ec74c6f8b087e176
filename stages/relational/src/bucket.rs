//! `bucket`: puts rows into strata by a number: length in tokens, length in characters, pass rate.
//!
//! The report stratifies by reasoning length and by difficulty (VibeThinker-3B, section on data for SFT) and ranks
//! inside such strata (section on offline self-distillation). Every row needs the same cut, so quantile edges come
//! from an exact histogram of the whole table: map tasks count values, one task adds the counts up and finds the
//! edges, map tasks name the buckets. With fixed edges each row stands for itself.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{
    Env, Example, External, Output, ParamError, Port, Ports, Rejection, Stage, StageError, Step, StepKind, TableType,
    Task, rows,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::edges::{self, Scale};
use crate::keys;
use crate::lengths;

/// Puts rows into buckets by a number and names the bucket in a column.
///
/// A bucket holds the values from its lower edge on and below its upper edge. Edges are given, or cut the whole table
/// into parts of equal size. Edges and the number of rows in each bucket are reported. Rows without a value fall out
/// as `no_value`. With a `tokenizer`, the length of each text in tokens is counted first and put into column `tokens`:
/// the response of traces, the prompt of queries.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// The number column: `tokens` (length under the student's tokenizer), `completion_tokens`, `pass_rate`, or any
    /// other. A text column, such as `prompt`, with `measure = "characters"`. `tokens` with a `tokenizer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    column: Option<String>,
    /// The student's tokenizer, by which `tokens` are counted: a `tokenizer.json`, a folder with one, or a `.gguf` file,
    /// relative to the folder of `dag.toml`. The rows are made anew when what decides its ids has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    /// What is measured of a text column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measure: Option<Measure>,
    /// The column that gets the bucket's name: `length_bucket`, `difficulty_bucket`, or a new one. The default is
    /// `difficulty_bucket` for `pass_rate` and `length_bucket` for tokens and characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    into: Option<String>,
    /// Edges, ascending: `[1000, 5000]` makes `0-999`, `1000-4999` and `5000+`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edges: Option<Vec<f64>>,
    /// Number of buckets of equal size, 2 to 1000; edges are values of the table. Equal values stay together, so
    /// buckets may differ in size where many rows tie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quantiles: Option<u32>,
    /// Names of the buckets, lowest first: one more than there are edges. Ranges such as `1000-4999` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    /// What becomes of a row without a value: `reject` (the default), or `keep` without a bucket.
    #[serde(default)]
    missing: Missing,
}

/// What is measured of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Unicode characters.
    Characters,
}

/// What becomes of rows without a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// They fall out.
    #[default]
    Reject,
    /// They stay without a bucket.
    Keep,
}

const ROWS: &str = "rows";
const COUNT: &str = "count";
const CUT: &str = "cut";
const VALUE: &str = "value";
const NO_VALUE: &str = "no_value";

fn histogram_schema() -> SchemaRef {
    let value = Field::new(VALUE, DataType::Float64, false);
    Arc::new(Schema::new(vec![value, Field::new(COUNT, DataType::Int64, false)]))
}

fn edges_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(VALUE, DataType::Float64, false)]))
}

impl Bucket {
    /// The column that decides; empty only where [`Stage::validate`] refuses.
    fn column(&self) -> &str {
        self.column.as_deref().unwrap_or(if self.tokenizer.is_some() { traces::TOKENS } else { "" })
    }

    fn bucket_column(&self) -> Result<&str, ParamError> {
        if let Some(into) = &self.into {
            return Ok(into);
        }
        match self.column() {
            queries::PASS_RATE => Ok(queries::DIFFICULTY_BUCKET),
            traces::TOKENS | traces::COMPLETION_TOKENS => Ok(queries::LENGTH_BUCKET),
            _ if self.measure.is_some() => Ok(queries::LENGTH_BUCKET),
            other => Err(ParamError::new("into", format!("`into` is needed: where shall the bucket of `{other}` go"))
                .hint("`length_bucket`, `difficulty_bucket`, or a new column")),
        }
    }

    fn scale(&self) -> Scale {
        const COUNTS: [&str; 5] =
            [traces::TOKENS, traces::COMPLETION_TOKENS, traces::PROMPT_TOKENS, traces::MAX_TOKENS, queries::ROLLOUTS];
        let column = self.column();
        if self.measure.is_some() || COUNTS.contains(&column) {
            Scale::Counts
        } else if [queries::PASS_RATE, queries::VOTE_SHARE].contains(&column) {
            Scale::Shares
        } else {
            Scale::Numbers
        }
    }

    fn values(&self, batch: &RecordBatch) -> Result<Float64Array, StageError> {
        if self.measure.is_none() {
            return keys::numbers(batch, self.column());
        }
        let texts = rows::texts(batch, self.column())?;
        let lengths: Vec<Option<f64>> = (0..texts.len())
            .into_par_iter()
            .with_min_len(64)
            .map(|row| rows::text_at(texts, row).map(|text| text.chars().count() as f64))
            .collect();
        Ok(Float64Array::from(lengths))
    }

    fn count(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let mut counts = Vec::new();
        for batch in task.batches_of(&[self.column()])? {
            counts.extend(self.values(&batch?)?.iter().flatten().map(|value| (value, 1)));
            if counts.len() > 1 << 20 {
                counts = edges::histogram(counts);
            }
        }
        let counts = edges::histogram(counts);
        let values = Float64Array::from_iter_values(counts.iter().map(|(value, _)| *value));
        let counts =
            Int64Array::from_iter_values(counts.iter().map(|(_, count)| i64::try_from(*count).unwrap_or(i64::MAX)));
        let columns: Vec<ArrayRef> = vec![Arc::new(values), Arc::new(counts)];
        task.write(&RecordBatch::try_new(histogram_schema(), columns)?)
    }

    fn cut(&self, task: &mut Task<'_>, buckets: u32) -> Result<(), StageError> {
        let mut counts = Vec::new();
        for batch in task.earlier(COUNT)? {
            let batch = batch?;
            if self.tokenizer.is_some() {
                let lengths = keys::numbers(&batch, traces::TOKENS)?;
                counts.extend(lengths.iter().flatten().map(|length| (length, 1)));
                counts = edges::histogram(counts);
                continue;
            }
            let (values, numbers) = (rows::floats(&batch, VALUE)?, rows::integers(&batch, COUNT)?);
            let pairs = values.values().iter().zip(numbers.values());
            counts.extend(pairs.map(|(value, count)| (*value, u64::try_from(*count).unwrap_or(0))));
        }
        let edges = edges::quantile_edges(&edges::histogram(counts), buckets);
        let edges: ArrayRef = Arc::new(Float64Array::from(edges));
        task.write(&RecordBatch::try_new(edges_schema(), vec![edges])?)
    }

    fn found_edges(&self, task: &Task<'_>) -> Result<Vec<f64>, StageError> {
        if let Some(edges) = &self.edges {
            return Ok(edges.clone());
        }
        let edges = task.shared(CUT, |task| {
            let mut edges = Vec::new();
            for batch in task.earlier(CUT)? {
                edges.extend_from_slice(rows::floats(&batch?, VALUE)?.values());
            }
            Ok(edges)
        })?;
        Ok(edges.to_vec())
    }

    /// The lengths in tokens of a batch whose first row is row `ordinal` of the port.
    fn lengths(&self, task: &Task<'_>, batch: &RecordBatch, ordinal: u64) -> Result<Option<Int64Array>, StageError> {
        let Some(tokenizer) = &self.tokenizer else { return Ok(None) };
        if self.edges.is_some() {
            let tokenizer = lengths::shared_tokenizer(task, tokenizer)?;
            let texts = rows::texts(batch, lengths::text_column(&batch.schema()))?;
            return Ok(Some(lengths::of(texts, &tokenizer)));
        }
        let (all, start) = (lengths::shared(task, COUNT)?, usize::try_from(ordinal).unwrap_or(usize::MAX));
        if start.saturating_add(batch.num_rows()) > all.len() {
            return Err(StageError::Internal(format!("{} lengths for row {ordinal} and later ones", all.len())));
        }
        Ok(Some(all.slice(start, batch.num_rows())))
    }

    fn annotate(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let edges = self.found_edges(task)?;
        let names = self.names.clone().unwrap_or_else(|| edges::names(&edges, self.scale()));
        let (schema, into) = (task.schema()?, self.bucket_column()?);
        let mut sizes = vec![0_u64; names.len()];
        let mut batches = task.batches()?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let mut filled: Vec<(&str, ArrayRef)> = Vec::new();
            let values = match self.lengths(task, &batch, batches.ordinal())? {
                Some(lengths) => {
                    let values = lengths.iter().map(|length| length.map(|length| length as f64)).collect();
                    filled.push((traces::TOKENS, Arc::new(lengths)));
                    values
                }
                None => self.values(&batch)?,
            };
            let mut column = StringViewBuilder::with_capacity(batch.num_rows());
            for value in &values {
                let bucket = value.map(|value| edges::bucket_of(&edges, value));
                column.append_option(bucket.and_then(|bucket| names.get(bucket)));
                if let Some(size) = bucket.and_then(|bucket| sizes.get_mut(bucket)) {
                    *size += 1;
                }
            }
            filled.push((into, Arc::new(column.finish())));
            self.write(task, &batch, &rows::with_columns(&batch, &schema, &filled)?, &values)?;
        }
        task.note("edges", json!(edges));
        task.note("names", json!(names));
        for (name, size) in names.iter().zip(sizes) {
            task.count(&format!("bucket {name}"), size);
        }
        Ok(())
    }

    /// Writes the rows that have a value, and what becomes of the others.
    fn write(
        &self,
        task: &mut Task<'_>,
        batch: &RecordBatch,
        filled: &RecordBatch,
        values: &Float64Array,
    ) -> Result<(), StageError> {
        if self.missing == Missing::Keep || values.null_count() == 0 {
            return task.write(filled);
        }
        let present: BooleanArray = values.iter().map(|value| Some(value.is_some())).collect();
        task.write(&rows::filter(filled, &present)?)?;
        let fallen = rows::filter(batch, &arrow::compute::not(&present)?)?;
        let column = if self.tokenizer.is_some() { lengths::text_column(&batch.schema()) } else { self.column() };
        let rejection = Rejection::new(NO_VALUE, Some(json!({ "column": column })));
        task.reject(&fallen, &vec![rejection; fallen.num_rows()])
    }

    fn check_text(rows: &TableType) -> Result<(), ParamError> {
        let text = lengths::text_column(&rows.schema);
        match keys::ensure_simple("tokenizer", text, rows)? {
            DataType::Utf8View => Ok(()),
            other => Err(ParamError::new("tokenizer", format!("column `{text}` is {other}; a text is needed"))),
        }
    }

    fn check_column(&self, rows: &TableType) -> Result<(), ParamError> {
        let column = self.column();
        match keys::ensure_simple("column", column, rows)? {
            DataType::Int64 | DataType::Float64 if self.measure.is_none() => Ok(()),
            DataType::Int64 | DataType::Float64 => {
                Err(ParamError::new("measure", format!("`measure` is for texts; column `{column}` is a number")))
            }
            DataType::Utf8View if self.measure.is_some() => Ok(()),
            DataType::Utf8View => {
                let message = format!("column `{column}` is a text; what shall be measured");
                Err(ParamError::new("column", message).hint("add `measure = \"characters\"`"))
            }
            other => Err(ParamError::new("column", format!("column `{column}` is {other}; a number is needed"))),
        }
    }
}

impl Stage for Bucket {
    const KIND: &'static str = "bucket";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[])];

    fn example() -> Example {
        let row = |id: &str, rate: Option<f64>| json!({"query_id": id, "prompt": "2+2=?", "pass_rate": rate});
        Example::rows(
            json!({"column": "pass_rate", "edges": [0.25, 0.75], "names": ["hard", "medium", "easy"]}),
            ROWS,
            &queries::TABLE,
            vec![row("a", Some(0.0)), row("b", Some(0.25)), row("c", Some(1.0)), row("d", None)],
        )
        .gives(3, &[NO_VALUE])
    }

    fn validate(&self) -> Result<(), ParamError> {
        match (&self.column, &self.tokenizer) {
            (None, None) => return Err(ParamError::new("column", "`column` or `tokenizer` is needed")),
            (Some(column), Some(_)) if column != traces::TOKENS => {
                let message = format!("a `tokenizer` counts `tokens`; `{column}` is another column");
                return Err(ParamError::new("column", message).hint("leave `column` or `tokenizer` out"));
            }
            (_, Some(_)) if self.measure.is_some() => {
                return Err(ParamError::new("measure", "`measure` and `tokenizer` exclude each other"));
            }
            _ => {}
        }
        let buckets = match (&self.edges, self.quantiles) {
            (Some(edges), None) => {
                let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
                if edges.is_empty() || !ascending || edges.iter().any(|edge| !edge.is_finite()) {
                    return Err(ParamError::new("edges", "edges are finite numbers, each above the one before"));
                }
                edges.len() + 1
            }
            (None, Some(buckets)) if (2..=1000).contains(&buckets) => buckets as usize,
            (None, Some(buckets)) => {
                return Err(ParamError::new("quantiles", format!("2 to 1000 buckets are possible, found {buckets}")));
            }
            (Some(_), Some(_)) => {
                return Err(ParamError::new("quantiles", "`edges` and `quantiles` exclude each other"));
            }
            (None, None) => return Err(ParamError::new("", "`edges` or `quantiles` is needed")),
        };
        if let Some(names) = &self.names
            && names.len() != buckets
        {
            let message = format!("{} names for {buckets} buckets", names.len());
            return Err(ParamError::new("names", message));
        }
        self.bucket_column().map(|_| ())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let mut rows = inputs.expect(ROWS)?.clone();
        if self.tokenizer.is_some() {
            Self::check_text(&rows)?;
            rows = rows.with_column(&lengths::field())?;
        } else {
            self.check_column(&rows)?;
        }
        let into = self.bucket_column()?;
        let own = [queries::LENGTH_BUCKET, queries::DIFFICULTY_BUCKET].contains(&into);
        if !own && rows.table.is_some_and(|table| table.column(into).is_some()) {
            let message = format!("`{into}` has another meaning in {}", rows.name());
            return Err(ParamError::new("into", message).hint("`length_bucket`, `difficulty_bucket`, or a new column"));
        }
        let field = Field::new(into, DataType::Utf8View, true);
        let rows = rows.with_column(&field).map_err(|error| ParamError { path: "into".to_owned(), ..error })?;
        Ok(vec![Output::same(rows)])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        if self.edges.is_some() {
            return vec![Step::map(ROWS)];
        }
        let counted = if self.tokenizer.is_some() { lengths::schema() } else { histogram_schema() };
        vec![
            Step::handing_on(COUNT, StepKind::Map, counted),
            Step::handing_on(CUT, StepKind::Gather, edges_schema()),
            Step::map(ROWS),
        ]
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        let Some(tokenizer) = &self.tokenizer else { return Ok(Vec::new()) };
        let digest = lengths::open(env, tokenizer)?.digest().to_owned();
        Ok(vec![External { name: "tokenizer".to_owned(), digest, sliced: false }])
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        match (step.name, &self.tokenizer) {
            (COUNT, Some(tokenizer)) => lengths::hand_on(task, tokenizer),
            (COUNT, None) => self.count(task),
            (CUT, _) => self.cut(task, self.quantiles.unwrap_or(1)),
            _ => self.annotate(task),
        }
    }
}

#[cfg(test)]
mod tests;
