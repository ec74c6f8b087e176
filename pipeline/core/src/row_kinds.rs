//! The two simplest kinds: keep or reject a row by itself, and fill columns of rows by themselves.

use std::borrow::Cow;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringViewArray};
use rayon::prelude::*;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::env::{Env, External};
use crate::error::{ParamError, StageError};
use crate::example::Example;
use crate::port::{Output, Port, Ports};
use crate::rows::{self, Row};
use crate::stage::{Stage, Step};
use crate::task::{Rejection, Task};

/// What becomes of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// It stays.
    Keep,
    /// It falls out.
    Reject {
        /// A `snake_case` word, counted in the manifest.
        reason: Cow<'static, str>,
        /// JSON object with what led to it.
        evidence: Option<Value>,
    },
}

impl Judgement {
    /// Rejects with a reason and no further evidence.
    pub fn reject(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Reject { reason: reason.into(), evidence: None }
    }

    /// Rejects with a reason and evidence.
    pub fn reject_with(reason: impl Into<Cow<'static, str>>, evidence: Value) -> Self {
        Self::Reject { reason: reason.into(), evidence: Some(evidence) }
    }
}

/// A kind that keeps or rejects each row by itself.
pub trait RowFilter: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// See [`Stage::KIND`].
    const KIND: &'static str;
    /// See [`Stage::VERSION`].
    const VERSION: u32;
    /// The rows it takes, as a list of one.
    const PORTS: &'static [Port];
    /// Text columns that it reads.
    const COLUMNS: &'static [&'static str];

    /// See [`Stage::example`].
    fn example() -> Example;

    /// See [`Stage::validate`].
    ///
    /// # Errors
    /// As there.
    fn validate(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// Keeps or rejects one row. Rows are judged on many threads.
    ///
    /// # Errors
    /// When the row cannot be judged at all.
    fn judge(&self, row: Row<'_>) -> Result<Judgement, StageError>;
}

/// Makes a [`Stage`] of a [`RowFilter`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "F: DeserializeOwned"))]
pub struct Filter<F>(F);

/// The documentation of a wrapped kind is that of the kind itself.
impl<F: JsonSchema> JsonSchema for Filter<F> {
    fn schema_name() -> Cow<'static, str> {
        F::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        F::json_schema(generator)
    }
}

impl<F: RowFilter> Stage for Filter<F> {
    const KIND: &'static str = F::KIND;
    const VERSION: u32 = F::VERSION;
    const PORTS: &'static [Port] = F::PORTS;

    fn example() -> Example {
        F::example()
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.0.validate()
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        Ok(vec![Output::same(inputs.expect(first_port(F::PORTS))?.clone())])
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        for batch in task.batches()? {
            let batch = batch?;
            let columns = bind::<F>(&batch)?;
            let judgements = (0..batch.num_rows())
                .into_par_iter()
                .with_min_len(16)
                .map(|index| self.0.judge(Row::new(&columns, index)))
                .collect::<Result<Vec<_>, _>>()?;
            write_judged(task, &batch, judgements)?;
        }
        Ok(())
    }
}

fn first_port(ports: &'static [Port]) -> &'static str {
    ports.first().map_or("rows", |port| port.name)
}

fn bind<F: RowFilter>(batch: &RecordBatch) -> Result<Vec<(&'static str, &StringViewArray)>, StageError> {
    F::COLUMNS.iter().map(|name| Ok((*name, rows::texts(batch, name)?))).collect()
}

/// Writes the rows that stay and rejects the others, in order.
///
/// # Errors
/// When writing fails.
pub fn write_judged(task: &mut Task<'_>, batch: &RecordBatch, judgements: Vec<Judgement>) -> Result<(), StageError> {
    let mask: BooleanArray = judgements.iter().map(|judgement| Some(*judgement == Judgement::Keep)).collect();
    if mask.true_count() == batch.num_rows() {
        return task.write(batch);
    }
    let rejections: Vec<Rejection> = judgements
        .into_iter()
        .filter_map(|judgement| match judgement {
            Judgement::Keep => None,
            Judgement::Reject { reason, evidence } => Some(Rejection { reason, evidence }),
        })
        .collect();
    task.write(&rows::filter(batch, &mask)?)?;
    let fallen = arrow::compute::not(&mask)?;
    task.reject(&rows::filter(batch, &fallen)?, &rejections)
}

/// A kind that fills columns of rows, each row by itself.
pub trait Annotate: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// See [`Stage::KIND`].
    const KIND: &'static str;
    /// See [`Stage::VERSION`].
    const VERSION: u32;
    /// The rows it takes, as a list of one.
    const PORTS: &'static [Port];
    /// Columns of the table that it fills.
    const FILLS: &'static [&'static str];

    /// See [`Stage::example`].
    fn example() -> Example;

    /// See [`Stage::validate`].
    ///
    /// # Errors
    /// As there.
    fn validate(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// See [`Stage::externals`].
    ///
    /// # Errors
    /// As there.
    fn externals(&self, env: &Env) -> Result<Vec<External>, StageError> {
        let _ = env;
        Ok(Vec::new())
    }

    /// The columns of `FILLS`, in that order, for the rows of a batch.
    ///
    /// # Errors
    /// When the batch cannot be worked on.
    fn annotate(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, StageError>;
}

/// Makes a [`Stage`] of an [`Annotate`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "A: DeserializeOwned"))]
pub struct Annotated<A>(A);

/// The documentation of a wrapped kind is that of the kind itself.
impl<A: JsonSchema> JsonSchema for Annotated<A> {
    fn schema_name() -> Cow<'static, str> {
        A::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        A::json_schema(generator)
    }
}

impl<A: Annotate> Stage for Annotated<A> {
    const KIND: &'static str = A::KIND;
    const VERSION: u32 = A::VERSION;
    const PORTS: &'static [Port] = A::PORTS;

    fn example() -> Example {
        A::example()
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.0.validate()
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect(first_port(A::PORTS))?.clone();
        Ok(vec![Output::same(rows.fill(A::FILLS.iter().copied()))])
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        self.0.externals(env)
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        for batch in task.batches()? {
            let batch = batch?;
            let filled: Vec<_> = A::FILLS.iter().copied().zip(self.0.annotate(&batch)?).collect();
            let batch = rows::with_columns(&batch, &batch.schema(), &filled)?;
            task.write(&batch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::StageEntry;

    /// Keeps rows with a prompt.
    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Prompted {
        /// Least number of characters.
        least: usize,
    }

    impl RowFilter for Prompted {
        const KIND: &'static str = "prompted";
        const VERSION: u32 = 1;
        const PORTS: &'static [Port] = &[Port::rows(&[], &[])];
        const COLUMNS: &'static [&'static str] = &["prompt"];

        fn example() -> Example {
            Example::rows(json!({"least": 1}), "rows", &schemas::queries::TABLE, Vec::new())
        }

        fn judge(&self, row: Row<'_>) -> Result<Judgement, StageError> {
            let is_kept = row.text("prompt")?.is_some_and(|text| text.chars().count() >= self.least);
            Ok(if is_kept { Judgement::Keep } else { Judgement::reject("short") })
        }
    }

    #[test]
    fn a_filter_is_documented_as_the_kind_that_it_wraps() {
        let entry = StageEntry::filter::<Prompted>();
        let schema = serde_json::to_value((entry.schema)()).unwrap();
        assert_eq!(schema["description"], "Keeps rows with a prompt.");
        assert_eq!(schema["properties"]["least"]["description"], "Least number of characters.");
        assert!((entry.parse)(&json!({"least": 1, "most": 2})).is_err());
    }
}
