//! The trait behind every kind, and its entry in the registry.

use std::fmt;
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::digest::Digest;
use crate::env::{Env, External};
use crate::error::{ParamError, StageError};
use crate::example::Example;
use crate::port::{Output, Port, Ports};
use crate::task::Task;

/// A part of a stage's work. All tasks of a step are committed before the next step begins.
#[derive(Debug, Clone)]
pub struct Step {
    /// Name, unique in the stage.
    pub name: &'static str,
    /// How it is cut into tasks.
    pub kind: StepKind,
    /// Schema of what it hands to later steps; `None` for the last step, which writes outputs and rejects.
    pub schema: Option<SchemaRef>,
}

/// How a step is cut into tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// One task for each slice of the first port. What it hands on can be read whole by any later step.
    Map,
    /// Like `Map`, but rows are sent to partitions ([`Task::send`]) of which a later `Reduce` reads one each. The
    /// number of partitions follows from the number of input rows alone.
    Exchange,
    /// One task for each partition of the exchange before it.
    Reduce,
    /// One task that may read everything handed on before.
    Gather,
}

impl Step {
    /// The last step of a kind that works row by row.
    pub fn map(name: &'static str) -> Self {
        Self { name, kind: StepKind::Map, schema: None }
    }

    /// The last step when it looks at everything at once.
    pub fn gather(name: &'static str) -> Self {
        Self { name, kind: StepKind::Gather, schema: None }
    }

    /// An earlier step, which hands rows of `schema` on.
    pub fn handing_on(name: &'static str, kind: StepKind, schema: SchemaRef) -> Self {
        Self { name, kind, schema: Some(schema) }
    }
}

/// A piece of a user's file that one task reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Source {
    /// The file as `dag.toml` names it.
    pub name: String,
    /// Where it lies, relative to the folder of `dag.toml` where possible.
    pub path: PathBuf,
    /// Digest of the piece and of what places it (its first line or row).
    pub digest: Digest,
    /// The piece.
    pub range: SourceRange,
}

/// Which part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum SourceRange {
    /// All of it.
    Whole,
    /// Bytes `start..end`, cut at line ends; the first line has number `line` (from 1).
    Lines {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// Number of the first line, from 1.
        line: u64,
    },
    /// Rows of a columnar file.
    Rows {
        /// First row, from 0.
        start: u64,
        /// Number of rows.
        count: u64,
    },
}

/// A kind of stage: a struct of its parameters with behaviour.
///
/// Doc comments of the struct and its fields are what `pipeline kinds` shows.
pub trait Stage: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// `kind` in `dag.toml`, and the file's name.
    const KIND: &'static str;
    /// Raised when the same inputs would give other rows; always with a line in the changelog.
    const VERSION: u32;
    /// What it reads; the first port is the one that `Map` steps work through. Empty for kinds that read users' files.
    const PORTS: &'static [Port];
    /// Whether the seed of `dag.toml` matters.
    const DRAWS: bool = false;
    /// Parameters that name models; their identity stands in the recipe instead of the name.
    const MODEL_PARAMS: &'static [&'static str] = &[];
    /// Whether its models must score given texts, which servers cannot; checked before anything runs.
    const SCORES: bool = false;
    /// Whether it reads the weights of its models, which servers and recordings do not have.
    const WEIGHTS: bool = false;

    /// Parameters and rows that show what it does; documentation and conformance tests use it.
    fn example() -> Example;

    /// Checks parameters against each other. Looks at no file and no network.
    ///
    /// # Errors
    /// When a parameter cannot be accepted.
    fn validate(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// What it writes for these inputs, declared before the first row. The first output is the main one.
    ///
    /// # Errors
    /// When a parameter names a column that the inputs lack, or of another type.
    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError>;

    /// Its steps, in order.
    fn steps(&self, inputs: &Ports) -> Vec<Step> {
        let _ = inputs;
        vec![Step::map("rows")]
    }

    /// Files, scripts and tools that decide its output for these inputs, beside parameters and the inputs' content.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
    fn externals(&self, env: &Env, inputs: &Ports) -> Result<Vec<External>, StageError> {
        let _ = (env, inputs);
        Ok(Vec::new())
    }

    /// Whether the same task gives the same bytes when it is run again; false where a remote model answers or a clock
    /// decides.
    fn is_deterministic(&self, inputs: &Ports) -> bool {
        let _ = inputs;
        true
    }

    /// For kinds without ports: the pieces of files that `Map` tasks read. Asked only when the stage must run.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
    fn sources(&self, env: &Env) -> Result<Vec<Source>, StageError> {
        let _ = env;
        Ok(Vec::new())
    }

    /// For kinds without ports: the rows that their files hold, for `pipeline plan`. Asked only when the stage must run.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
    fn source_rows(&self, env: &Env) -> Result<Option<u64>, StageError> {
        let _ = env;
        Ok(None)
    }

    /// Model calls that `rows` rows of the first port need, for `pipeline plan`.
    fn estimate(&self, rows: u64) -> Option<Estimate> {
        let _ = rows;
        None
    }

    /// Runs one task of a step.
    ///
    /// # Errors
    /// When the task cannot be done; nothing of it is kept then.
    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError>;
}

/// Model calls that a stage would make if nothing were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Answers, if each request is asked once.
    pub calls: u64,
    /// Answers, if every request has to be asked as often as it may be.
    pub most_calls: u64,
    /// Most tokens that these can have together.
    pub max_tokens: u64,
    /// Most rows that the stage may write to an output that does not keep the number of rows; `None`: as many as it reads.
    pub rows: Option<u64>,
}

impl Estimate {
    /// Requests that are asked once each, and have up to `max_tokens` tokens each.
    pub fn once(calls: u64, max_tokens: u32) -> Self {
        Self { calls, most_calls: calls, max_tokens: calls.saturating_mul(u64::from(max_tokens)), rows: None }
    }
}

/// [`Stage`] without its constants, so that the engine can hold any kind.
pub trait AnyStage: Send + Sync {
    /// Parameters with defaults filled in.
    fn params(&self) -> Value;
    /// See [`Stage::validate`].
    ///
    /// # Errors
    /// As there.
    fn validate(&self) -> Result<(), ParamError>;
    /// See [`Stage::outputs`].
    ///
    /// # Errors
    /// As there.
    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError>;
    /// See [`Stage::steps`].
    fn steps(&self, inputs: &Ports) -> Vec<Step>;
    /// See [`Stage::externals`].
    ///
    /// # Errors
    /// As there.
    fn externals(&self, env: &Env, inputs: &Ports) -> Result<Vec<External>, StageError>;
    /// See [`Stage::is_deterministic`].
    fn is_deterministic(&self, inputs: &Ports) -> bool;
    /// See [`Stage::sources`].
    ///
    /// # Errors
    /// As there.
    fn sources(&self, env: &Env) -> Result<Vec<Source>, StageError>;
    /// See [`Stage::source_rows`].
    ///
    /// # Errors
    /// As there.
    fn source_rows(&self, env: &Env) -> Result<Option<u64>, StageError>;
    /// See [`Stage::estimate`].
    fn estimate(&self, rows: u64) -> Option<Estimate>;
    /// See [`Stage::run`].
    ///
    /// # Errors
    /// As there.
    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError>;
}

impl<S: Stage> AnyStage for S {
    fn params(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    fn validate(&self) -> Result<(), ParamError> {
        Stage::validate(self)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        Stage::outputs(self, inputs)
    }

    fn steps(&self, inputs: &Ports) -> Vec<Step> {
        Stage::steps(self, inputs)
    }

    fn externals(&self, env: &Env, inputs: &Ports) -> Result<Vec<External>, StageError> {
        Stage::externals(self, env, inputs)
    }

    fn is_deterministic(&self, inputs: &Ports) -> bool {
        Stage::is_deterministic(self, inputs)
    }

    fn sources(&self, env: &Env) -> Result<Vec<Source>, StageError> {
        Stage::sources(self, env)
    }

    fn source_rows(&self, env: &Env) -> Result<Option<u64>, StageError> {
        Stage::source_rows(self, env)
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        Stage::estimate(self, rows)
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        Stage::run(self, step, task)
    }
}

/// A line of the registry.
#[derive(Clone, Copy)]
pub struct StageEntry {
    /// `kind` in `dag.toml`.
    pub kind: &'static str,
    /// Version of the kind's code.
    pub version: u32,
    /// What it reads.
    pub ports: &'static [Port],
    /// Whether the seed matters.
    pub draws: bool,
    /// Parameters that name models.
    pub model_params: &'static [&'static str],
    /// Whether those models must score given texts.
    pub scores: bool,
    /// Whether it reads the weights of those models.
    pub weights: bool,
    /// JSON schema of the parameters.
    pub schema: fn() -> Schema,
    /// Reads the parameters.
    pub parse: fn(&Value) -> Result<Box<dyn AnyStage>, ParamError>,
    /// Example for documentation and conformance tests.
    pub example: fn() -> Example,
}

impl fmt::Debug for StageEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} v{}", self.kind, self.version)
    }
}

impl StageEntry {
    /// An entry for a kind.
    pub const fn stage<S: Stage>() -> Self {
        Self {
            kind: S::KIND,
            version: S::VERSION,
            ports: S::PORTS,
            draws: S::DRAWS,
            model_params: S::MODEL_PARAMS,
            scores: S::SCORES,
            weights: S::WEIGHTS,
            schema: || schema_for!(S),
            parse: |value| {
                let stage: S = serde_path_to_error::deserialize(value).map_err(|error| {
                    let path = error.path().to_string();
                    let path = if path == "." { String::new() } else { path };
                    ParamError::new(path, error.into_inner().to_string())
                })?;
                Stage::validate(&stage)?;
                Ok(Box::new(stage))
            },
            example: S::example,
        }
    }

    /// An entry for a kind that keeps or rejects each row by itself.
    pub const fn filter<F: crate::RowFilter>() -> Self {
        Self::stage::<crate::row_kinds::Filter<F>>()
    }

    /// An entry for a kind that fills columns of each row by itself.
    pub const fn annotate<A: crate::Annotate>() -> Self {
        Self::stage::<crate::row_kinds::Annotated<A>>()
    }
}
