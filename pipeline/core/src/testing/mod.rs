//! A harness for tests of kinds: runs all steps of a kind over small tables without an engine, cut as finely as a test
//! wants, and gives the rows back as JSON.
//!
//! The engine's plan is followed: `Map` and `Exchange` have one task for each slice, `Reduce` one for each partition,
//! `Gather` one. Faults of a kind that no caller could handle (rows that do not balance, columns other than those
//! declared) are panics, since a test is what reads them.
//!
//! ```no_run
//! # use pipeline_core::{StageEntry, testing::{Cut, Trial}};
//! # use serde_json::json;
//! # fn example(entry: &StageEntry) -> Result<(), pipeline_core::StageError> {
//! let trial = Trial::new(entry, json!({ "min_rollouts": 4 }))
//!     .rows("rows", &schemas::traces::TABLE, vec![json!({ "query_id": "q", "trace_id": "t", "verdict": "correct" })]);
//! let outcome = trial.run(&Cut::slices(2))?;
//! assert_eq!(outcome.rejected.get("too_few_rollouts"), Some(&1));
//! # Ok(())
//! # }
//! ```
#![expect(clippy::panic, reason = "a harness for tests reports what it finds by panicking")]

mod conformance;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use arrow::array::{Array, RecordBatch};
use schemas::Table;
use serde_json::Value;

pub use conformance::{conformance, conformance_with};

use crate::digest::Digest;
use crate::env::Services;
use crate::example::Example;
use crate::json_rows;
use crate::port::TableType;
use crate::stage::StageEntry;

/// How the work is cut. What a kind writes must not depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Rows in each file of an input.
    pub file_rows: usize,
    /// Most rows in the slice of one task.
    pub slice_rows: u64,
    /// Raw bytes in a task's slice of a text file, for kinds that read users' files.
    pub slice_bytes: u64,
    /// Partitions of an exchange.
    pub partitions: u32,
    /// Whether tasks run last to first. Their results are still joined in plan order.
    pub backwards: bool,
}

impl Cut {
    /// One file, one slice, one partition.
    pub const WHOLE: Self =
        Self { file_rows: usize::MAX, slice_rows: 1 << 40, slice_bytes: 1 << 40, partitions: 1, backwards: false };

    /// Slices of at most `rows` rows, everything else in one piece.
    pub const fn slices(rows: u64) -> Self {
        Self { slice_rows: rows, ..Self::WHOLE }
    }

    /// The same cut with another number of partitions.
    #[must_use]
    pub const fn partitions(self, partitions: u32) -> Self {
        Self { partitions, ..self }
    }

    /// The same cut with inputs of several files.
    #[must_use]
    pub const fn files(self, rows: usize) -> Self {
        Self { file_rows: rows, ..self }
    }

    /// The same cut with tasks run last to first.
    #[must_use]
    pub const fn backwards(self) -> Self {
        Self { backwards: true, ..self }
    }
}

/// What one stage would give to a port.
#[derive(Debug, Clone)]
pub struct Given {
    /// Port.
    pub port: String,
    /// Its type.
    pub rows: TableType,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}

/// A kind with parameters and rows, ready to be run.
#[derive(Debug, Clone)]
pub struct Trial<'a> {
    /// The kind.
    pub entry: &'a StageEntry,
    /// Its parameters.
    pub params: Value,
    /// Its inputs, in the order of `inputs` in `dag.toml`.
    pub inputs: Vec<Given>,
    /// Users' files: name relative to the project's folder, and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Project folder; a temporary one where this is `None`.
    pub base: Option<PathBuf>,
    /// Registered objects.
    pub services: Services,
    /// Seed of `dag.toml`.
    pub seed: u64,
    /// Share of rows that may fail for passing reasons.
    pub max_errors: f64,
}

impl<'a> Trial<'a> {
    /// A trial without inputs.
    pub fn new(entry: &'a StageEntry, params: Value) -> Self {
        Self {
            entry,
            params,
            inputs: Vec::new(),
            files: Vec::new(),
            base: None,
            services: Services::default(),
            seed: 17,
            max_errors: 0.0,
        }
    }

    /// A trial of an example.
    pub fn of_example(entry: &'a StageEntry, example: &Example) -> Self {
        let mut trial = Self::new(entry, example.params.clone());
        for (port, table, rows) in &example.inputs {
            trial = trial.rows(port, table, rows.clone());
        }
        for (name, content) in &example.files {
            trial = trial.file(name, content.as_bytes());
        }
        trial
    }

    /// Adds a stage's rows, given as JSON, to a port. Columns that hold a value anywhere count as filled.
    ///
    /// # Panics
    /// When a row does not fit the table.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "tests write the rows in place")]
    pub fn rows(self, port: &str, table: &'static Table, rows: Vec<Value>) -> Self {
        let batch = json_rows::from_json(&table.schema(), &rows)
            .unwrap_or_else(|error| panic!("rows of port `{port}`: {error}"));
        self.batches(port, TableType::of(table, []), vec![batch])
    }

    /// Adds a stage's rows, given as batches, to a port. Columns that hold a value anywhere count as filled.
    #[must_use]
    pub fn batches(mut self, port: &str, rows: TableType, batches: Vec<RecordBatch>) -> Self {
        let filled = filled_columns(&batches);
        let rows = rows.fill(filled.iter().map(String::as_str));
        self.inputs.push(Given { port: port.to_owned(), rows, batches });
        self
    }

    /// Adds a user's file to the project's folder.
    #[must_use]
    pub fn file(mut self, name: &str, content: &[u8]) -> Self {
        self.files.push((name.to_owned(), content.to_vec()));
        self
    }

    /// Uses a folder that is there as the project's folder.
    #[must_use]
    pub fn base(mut self, folder: impl Into<PathBuf>) -> Self {
        self.base = Some(folder.into());
        self
    }

    /// Registers objects, such as models.
    #[must_use]
    pub fn services(mut self, services: Services) -> Self {
        self.services = services;
        self
    }
}

/// Columns that hold a value in some row.
fn filled_columns(batches: &[RecordBatch]) -> BTreeSet<String> {
    let mut filled = BTreeSet::new();
    for batch in batches {
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            if column.null_count() < column.len() {
                filled.insert(field.name().clone());
            }
        }
    }
    filled
}

/// What came out.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Rows of each output, nulls included, in plan order; the main one is named `main`.
    pub outputs: BTreeMap<String, Vec<Value>>,
    /// Rejected rows with `reject_reason` and `reject_evidence`, in plan order.
    pub rejects: Vec<Value>,
    /// Rows read.
    pub read: u64,
    /// Rows read that live on.
    pub kept: u64,
    /// Rejected rows by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Rows left out for passing reasons.
    pub transient: u64,
    /// Sums that the kind reports.
    pub counters: BTreeMap<String, u64>,
    /// Findings that the kind reports.
    pub notes: BTreeMap<String, Value>,
    /// Digests of all files of the last step, in plan order.
    pub digests: Vec<Digest>,
}

impl Outcome {
    /// Rows of the main output.
    pub fn rows(&self) -> &[Value] {
        self.output(crate::port::MAIN)
    }

    /// Rows of an output.
    pub fn output(&self, name: &str) -> &[Value] {
        self.outputs.get(name).map_or(&[], Vec::as_slice)
    }

    /// The values of one column of the main output.
    pub fn column(&self, name: &str) -> Vec<Value> {
        self.rows().iter().map(|row| row.get(name).cloned().unwrap_or_default()).collect()
    }

    /// Reasons of the rejected rows, in order.
    pub fn reasons(&self) -> Vec<&str> {
        self.rejects.iter().filter_map(|row| row.get("reject_reason").and_then(Value::as_str)).collect()
    }
}
