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
        /// What they were and what they cost.
        #[serde(flatten)]
        spent: Spent,
    },
    /// A step of training.
    Trained {
        /// Stage.
        stage: String,
        /// The step, from 1.
        step: u64,
        /// Steps of the stage.
        steps: u64,
        /// Mean loss of the step, nats a supervised token.
        loss: f64,
        /// Its learning rate.
        learning_rate: f64,
        /// Norm of the gradient before clipping.
        gradient_norm: f64,
        /// All tokens that go through the net in a second, since the stage began to train.
        tokens_per_second: f64,
        /// Seconds left at this speed.
        seconds_left: f64,
    },
    /// What a program of the user's printed, at most its last lines.
    Printed {
        /// Stage.
        stage: String,
        /// The lines.
        text: String,
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

/// Model calls and what they cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Answers that were asked for.
    pub asked: u64,
    /// Answers that were already there.
    pub stored: u64,
    /// Tokens that models read.
    pub prompt_tokens: u64,
    /// Of these, tokens that were in a server's prompt cache.
    pub cached_tokens: u64,
    /// Tokens that models wrote.
    pub completion_tokens: u64,
    /// Cost by the configured prices, in their currency; 0 where there is no price.
    pub money: f64,
}

impl Spent {
    /// Adds what other calls cost.
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.stored += other.stored;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.completion_tokens += other.completion_tokens;
        self.money += other.money;
    }

    /// What was spent since an `earlier` moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            asked: self.asked.saturating_sub(earlier.asked),
            stored: self.stored.saturating_sub(earlier.stored),
            prompt_tokens: self.prompt_tokens.saturating_sub(earlier.prompt_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(earlier.cached_tokens),
            completion_tokens: self.completion_tokens.saturating_sub(earlier.completion_tokens),
            money: (self.money - earlier.money).max(0.0),
        }
    }

    /// Whether there were calls at all.
    pub fn is_nothing(&self) -> bool {
        self.asked == 0 && self.stored == 0
    }
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
