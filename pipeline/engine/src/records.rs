//! What stands on disk beside the data: plan, manifests, success. Each has a format number, and a reader that meets
//! a newer one says so.

use std::collections::BTreeMap;

use pipeline_core::table_io::Written;
use pipeline_core::task::{KeptFile, Slice, TaskResult};
use pipeline_core::{Digest, Fingerprint, Source, StepKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Format of the records.
pub const FORMAT: u32 = 1;

/// A committed file, named relative to the version's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path below the version's folder.
    pub file: String,
    /// Rows.
    pub rows: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Raw bytes of its values.
    pub raw_bytes: u64,
    /// Digest of the file.
    pub digest: Digest,
    /// Rows of each partition, for an exchange.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<u64>,
}

impl FileRecord {
    /// The record of a file at its final place.
    pub fn new(file: String, written: &Written, partitions: Vec<u64>) -> Self {
        Self {
            file,
            rows: written.rows,
            bytes: written.bytes,
            raw_bytes: written.raw_bytes,
            digest: written.digest,
            partitions,
        }
    }

    /// The record of a file beside the tables.
    pub fn kept(file: &KeptFile) -> Self {
        Self {
            file: file.name.clone(),
            rows: 0,
            bytes: file.bytes,
            raw_bytes: file.bytes,
            digest: file.digest,
            partitions: Vec::new(),
        }
    }
}

/// The commit of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format of this record.
    pub format: u32,
    /// Task.
    pub task: String,
    /// What the task read: digest over its slices, its source and its partition.
    pub input_key: Digest,
    /// Committed files by output.
    pub outputs: BTreeMap<String, FileRecord>,
    /// Committed files beside the tables, such as weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_files: Vec<FileRecord>,
    /// Committed file of rejected rows.
    pub rejects: Option<FileRecord>,
    /// Sums of the task.
    pub counts: Counts,
    /// Findings of the task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, Value>,
    /// Who committed it.
    pub attempt: String,
    /// Seconds it took.
    pub seconds: f64,
}

impl Manifest {
    /// Digest of what was committed, which two attempts at one deterministic task share.
    pub fn content(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for (name, file) in &self.outputs {
            hasher.update(name.as_bytes()).update(file.digest.bytes());
        }
        if let Some(file) = &self.rejects {
            hasher.update(b"\0rejects").update(file.digest.bytes());
        }
        for file in &self.kept_files {
            hasher.update(b"\0kept").update(file.file.as_bytes()).update(file.digest.bytes());
        }
        Digest::finish(&hasher)
    }

    /// All its files.
    pub fn files(&self) -> impl Iterator<Item = &FileRecord> {
        self.outputs.values().chain(&self.rejects).chain(&self.kept_files)
    }
}

/// Row accounting: read = kept + rejected + transient.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows read.
    pub read: u64,
    /// Rows read that live on.
    pub kept: u64,
    /// Rows of the main output.
    pub written: u64,
    /// Rejected rows by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Rows left out for passing reasons; `--retry-errors` reopens them.
    #[serde(default)]
    pub transient: u64,
    /// Sums that the kind reports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

impl Counts {
    /// Rejected rows of all reasons.
    pub fn rejected_total(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Adds another task's sums.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.kept += other.kept;
        self.written += other.written;
        self.transient += other.transient;
        for (reason, rows) in &other.rejected {
            *self.rejected.entry(reason.clone()).or_default() += rows;
        }
        for (name, amount) in &other.counters {
            *self.counters.entry(name.clone()).or_default() += amount;
        }
    }

    /// The counts of a task, checked: what was read must be kept, rejected or transient.
    ///
    /// # Errors
    /// The numbers that do not add up, in words.
    pub fn of(result: &TaskResult, main: &str, one_to_one: bool) -> Result<Self, String> {
        let written = result.outputs.get(main).map_or(0, |file| file.rows);
        let rejected: u64 = result.rejected.values().sum();
        let rejected_rows = result.rejects.as_ref().map_or(0, |file| file.rows);
        let kept = if one_to_one { written } else { result.kept.unwrap_or(0) };
        if kept + rejected + result.transient != result.read || rejected != rejected_rows {
            return Err(format!(
                "rows do not balance: {} read, {kept} kept, {rejected} rejected ({rejected_rows} in the file), {} transient",
                result.read, result.transient
            ));
        }
        Ok(Self {
            read: result.read,
            kept,
            written,
            rejected: result.rejected.clone(),
            transient: result.transient,
            counters: result.counters.clone(),
        })
    }
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlan {
    /// Its id: `00003`, or `signatures-00003` for a step before the last.
    pub id: String,
    /// Digest over what it reads.
    pub input_key: Digest,
    /// Slices of the first port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// Piece of a user's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Partition to reduce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
}

/// The tasks of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Name of the step.
    pub name: String,
    /// How it is cut.
    pub kind: StepName,
    /// Its tasks.
    pub tasks: Vec<TaskPlan>,
}

/// [`StepKind`] on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepName {
    /// One task a slice.
    Map,
    /// One task a slice, rows sent to partitions.
    Exchange,
    /// One task a partition.
    Reduce,
    /// One task.
    Gather,
}

impl From<StepKind> for StepName {
    fn from(kind: StepKind) -> Self {
        match kind {
            StepKind::Map => Self::Map,
            StepKind::Exchange => Self::Exchange,
            StepKind::Reduce => Self::Reduce,
            StepKind::Gather => Self::Gather,
        }
    }
}

/// `plan.json`: how a version is cut into tasks. Written once; workers of all processes follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Format of this record.
    pub format: u32,
    /// Stage it was first made for.
    pub stage: String,
    /// Its kind.
    pub kind: String,
    /// Version of the kind's code.
    pub version: u32,
    /// Fingerprint of the recipe.
    pub fingerprint: Fingerprint,
    /// Dag file, relative to the version's folder.
    pub dag: String,
    /// Partitions of its exchanges.
    pub partitions: u32,
    /// Steps in order.
    pub steps: Vec<StepPlan>,
}

/// What one output of a version is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRecord {
    /// Digest over the digests of its files, in plan order: what stages that read it depend on.
    pub digest: Digest,
    /// Rows.
    pub rows: u64,
    /// Files in plan order.
    pub files: Vec<FileRecord>,
}

/// `_SUCCESS.json`: written once, when every task of a version is committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Success {
    /// Format of this record.
    pub format: u32,
    /// Stage it was first made for.
    pub stage: String,
    /// Its kind.
    pub kind: String,
    /// Fingerprint of the recipe.
    pub fingerprint: Fingerprint,
    /// blake3 over (task, data digest, rejects digest) in plan order.
    pub digest: Digest,
    /// Outputs by name.
    pub outputs: BTreeMap<String, OutputRecord>,
    /// Files beside the tables, such as weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_files: Vec<FileRecord>,
    /// Files of rejected rows, in plan order.
    pub rejects: Vec<FileRecord>,
    /// Sums over all tasks.
    pub counts: Counts,
    /// Findings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, Value>,
    /// Seconds of work, summed over tasks.
    pub seconds: f64,
}

impl Success {
    /// The main output.
    pub fn main(&self) -> Option<&OutputRecord> {
        self.outputs.get(pipeline_core::port::MAIN)
    }

    /// All files a reader may open.
    pub fn files(&self) -> impl Iterator<Item = &FileRecord> {
        self.outputs.values().flat_map(|output| &output.files).chain(&self.rejects).chain(&self.kept_files)
    }
}
