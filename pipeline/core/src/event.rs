//! What happens in a run, as one stream: the terminal, the plain log, the JSON log and the run's record all read it.

use std::collections::BTreeMap;

use serde::Serialize;

/// Something that happened. Serialised with a field `event` that names it.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A run begins.
    RunStarted {
        /// `name` of `dag.toml`.
        pipeline: String,
        /// Number of stages that the run looks at.
        stages: usize,
    },
    /// A stage's earlier output serves.
    Reused {
        /// Stage.
        stage: String,
        /// Its kind.
        kind: String,
        /// Why it may be reused.
        reason: String,
        /// Rows of its main output.
        rows: u64,
    },
    /// A stage begins to run.
    Started {
        /// Stage.
        stage: String,
        /// Its kind.
        kind: String,
        /// Why it must run.
        reason: String,
        /// Tasks of all its steps.
        tasks: usize,
        /// Tasks whose earlier output serves.
        reused_tasks: usize,
        /// Rows it will read, where that is known.
        rows: Option<u64>,
    },
    /// Rows that a task has read since its last word.
    Progress {
        /// Stage.
        stage: String,
        /// Rows read.
        rows: u64,
    },
    /// Model calls since the last word.
    Calls {
        /// Stage.
        stage: String,
        /// Answers that came from the server.
        asked: u64,
        /// Answers that were already there.
        stored: u64,
        /// Tokens of requests and answers.
        tokens: u64,
    },
    /// A task was committed.
    TaskCommitted {
        /// Stage.
        stage: String,
        /// Task.
        task: String,
        /// Whether another process had committed it first.
        lost_race: bool,
    },
    /// A stage is complete.
    Finished {
        /// Stage.
        stage: String,
        /// Its kind.
        kind: String,
        /// Rows read.
        read: u64,
        /// Rows read that live on in the output.
        kept: u64,
        /// Rows of the main output.
        written: u64,
        /// Rows that fell out, by reason.
        rejected: BTreeMap<String, u64>,
        /// Rows that failed for passing reasons and were left out.
        transient: u64,
        /// Seconds it took.
        seconds: f64,
    },
    /// A stage could not be made.
    Failed {
        /// Stage.
        stage: String,
        /// Why.
        message: String,
    },
    /// Something a person should know.
    Warning {
        /// Stage it concerns.
        stage: Option<String>,
        /// What.
        message: String,
    },
    /// The run ends.
    RunFinished {
        /// Whether every stage is there.
        complete: bool,
        /// Seconds it took.
        seconds: f64,
    },
}

/// Takes events from any thread.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn emit(&self, event: &Event);
}

/// Drops every event.
#[derive(Debug, Clone, Copy)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _event: &Event) {}
}
