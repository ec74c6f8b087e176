//! What a task is given and what it leaves.

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::env::Env;
use crate::event::EventSink;
use crate::port::Output;
use crate::stage::{Source, Step};
use crate::table_io::Written;

/// Rows of one committed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Its digest, checked before the first read.
    pub digest: Digest,
    /// Rows of each partition, for the output of an exchange.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<u64>,
}

/// What one stage gives to a port.
#[derive(Debug, Clone)]
pub struct PortInput {
    /// Columns.
    pub schema: SchemaRef,
    /// Files in plan order.
    pub files: Vec<InputFile>,
}

impl PortInput {
    /// Rows in all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }
}

/// Consecutive rows of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Which input of the first port, from 0.
    pub input: usize,
    /// Which file of that input, from 0.
    pub file: usize,
    /// First row in the file, from 0.
    pub first: u64,
    /// Number of rows.
    pub rows: u64,
    /// Position of the first row among all rows of the port, from 0. (id, ordinal) is a row's identity.
    pub ordinal: u64,
}

/// A row that fell out.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// A `snake_case` word, counted in the manifest.
    pub reason: Cow<'static, str>,
    /// JSON object with what led to it.
    pub evidence: Option<Value>,
}

impl Rejection {
    /// A reason with evidence.
    pub fn new(reason: impl Into<Cow<'static, str>>, evidence: Option<Value>) -> Self {
        Self { reason: reason.into(), evidence }
    }
}

/// Structures that the tasks of one stage share within a process, built once.
#[derive(Default)]
pub struct Shared(pub(super) Mutex<HashMap<String, SharedSlot>>);

pub(super) type SharedSlot = Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>;

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Shared")
    }
}

/// What the engine gives to a task.
#[derive(Clone, Copy)]
pub struct TaskSetup<'a> {
    /// Name of the stage, for messages and events.
    pub stage: &'a str,
    /// Id of the task.
    pub id: &'a str,
    /// The step it belongs to.
    pub step: &'a Step,
    /// Seed of `dag.toml`.
    pub seed: u64,
    /// Rows to work through.
    pub slices: &'a [Slice],
    /// Piece of a user's file to read.
    pub source: Option<&'a Source>,
    /// Partition to reduce.
    pub partition: Option<u32>,
    /// Number of partitions of an exchange.
    pub partitions: u32,
    /// Name of the first port.
    pub rows_port: Option<&'static str>,
    /// All inputs, by port.
    pub inputs: &'a BTreeMap<String, Vec<PortInput>>,
    /// What earlier steps handed on, by step.
    pub earlier: &'a BTreeMap<&'static str, PortInput>,
    /// Declared outputs.
    pub outputs: &'a [Output],
    /// The world.
    pub env: &'a Env,
    /// Structures shared by the stage's tasks.
    pub shared: &'a Shared,
    /// Listener.
    pub events: &'a dyn EventSink,
    /// Set when the run is interrupted.
    pub cancel: &'a AtomicBool,
    /// Folder for files that are not committed yet.
    pub folder: &'a Path,
    /// Folder that outlives an attempt, until the stage is done.
    pub state: &'a Path,
    /// Share of rows that may fail for passing reasons.
    pub max_errors: f64,
}

/// A file that a task leaves beside its tables: weights of a checkpoint, say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Path below the version's folder, its parts joined by `/`.
    pub name: String,
    /// Where it lies now.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Its digest.
    pub digest: Digest,
}

/// What a task wrote.
#[derive(Debug)]
pub struct TaskResult {
    /// Files by output name.
    pub outputs: BTreeMap<String, Written>,
    /// Files beside the tables.
    pub kept_files: Vec<KeptFile>,
    /// File of rejected rows, if any.
    pub rejects: Option<Written>,
    /// Rows of each partition, for an exchange.
    pub partitions: Vec<u64>,
    /// Rows read.
    pub read: u64,
    /// Rows read that live on, where the kind counts by itself.
    pub kept: Option<u64>,
    /// Rejected rows by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Rows left out for passing reasons.
    pub transient: u64,
    /// Sums that the kind reports.
    pub counters: BTreeMap<String, u64>,
    /// Findings that the kind reports: edges, cluster sizes.
    pub notes: BTreeMap<String, Value>,
}
