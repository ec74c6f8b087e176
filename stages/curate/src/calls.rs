//! What the kinds that call a model share: two passes over the rows of a task.
//!
//! The first asks for everything that is missing; what comes goes straight to the call store. The second reads it back in
//! the order of the rows. So memory does not grow with the length of the answers, a slow answer holds nothing up, and a
//! killed run asks nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use pipeline_core::error::ModelFailure;
use pipeline_core::task::Batches;
use pipeline_core::{Event, EventSink, ParamError, Spent, StageError, Task};
use pipeline_models::{Ensured, ErrorClass, Model, ModelError, ModelSet, Note, Progress, Recorded, Score};

use crate::exchanges::{Exchanges, Watched};

/// The model of this name. While a stage is tried out, what it answers is noted.
///
/// # Errors
/// When no models are registered, or this one cannot be opened.
pub fn model(task: &Task<'_>, name: &str) -> Result<Arc<dyn Model>, StageError> {
    let models = task.env().services.get::<ModelSet>();
    let models = models.ok_or_else(|| StageError::Internal("no models are registered".to_owned()))?;
    let model = models.get(name).map_err(|error| model_error(&error))?;
    Ok(match task.env().services.get::<Exchanges>() {
        None => model,
        Some(exchanges) => Arc::new(Watched::new(model, exchanges)),
    })
}

/// First pass: what is missing of the requests of every batch is asked for by `ask`, and what failed for passing
/// reasons is told as a warning.
///
/// # Errors
/// When a batch cannot be read, or the model gives up.
pub fn ensure<Q>(
    task: &Task<'_>,
    requests_of: impl FnMut(&RecordBatch) -> Result<Vec<Q>, StageError>,
    ask: impl FnOnce(&mut dyn Iterator<Item = Q>, &dyn Progress, &AtomicBool) -> Result<Ensured, ModelError>,
) -> Result<(), StageError> {
    FirstPass::new(task)?.run(requests_of, ask)
}

/// Rows whose requests are in memory together unless a kind says otherwise.
const ROWS_AT_ONCE: usize = 256;

/// All that a first pass needs of a task, so that passes to several models can go on at the same time.
pub struct FirstPass<'a> {
    batches: Batches<'a>,
    stage: &'a str,
    events: &'a dyn EventSink,
    cancel: &'a AtomicBool,
    rows_at_once: usize,
    most: usize,
    stop: Option<&'a AtomicBool>,
}

impl<'a> FirstPass<'a> {
    /// A pass over all rows of a task.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn new(task: &Task<'a>) -> Result<Self, StageError> {
        Ok(Self::over(task, task.look_ahead()?))
    }

    /// A pass over other rows that a task may read.
    pub fn over(task: &Task<'a>, batches: Batches<'a>) -> Self {
        Self {
            batches,
            stage: task.stage(),
            events: task.events(),
            cancel: task.cancel(),
            rows_at_once: ROWS_AT_ONCE,
            most: usize::MAX,
            stop: None,
        }
    }

    /// Makes the requests of so many rows at a time; they are in memory together.
    pub fn rows_at_once(self, rows: usize) -> Self {
        Self { rows_at_once: rows.max(1), ..self }
    }

    /// Ends after so many requests.
    pub fn at_most(self, requests: usize) -> Self {
        Self { most: requests, ..self }
    }

    /// Ends early, with what is under way, once `stop` is set.
    pub fn until(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Asks for what is missing.
    ///
    /// # Errors
    /// When a batch cannot be read, or the model gives up.
    pub fn run<Q>(
        self,
        mut requests_of: impl FnMut(&RecordBatch) -> Result<Vec<Q>, StageError>,
        ask: impl FnOnce(&mut dyn Iterator<Item = Q>, &dyn Progress, &AtomicBool) -> Result<Ensured, ModelError>,
    ) -> Result<(), StageError> {
        let Self { mut batches, stage, events, cancel, rows_at_once, most, stop } = self;
        let mut failure = None;
        let mut rest: Option<RecordBatch> = None;
        let mut waiting = Vec::new().into_iter();
        let mut requests = std::iter::from_fn(|| {
            loop {
                if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return None;
                }
                if let Some(request) = waiting.next() {
                    return Some(request);
                }
                let batch = match rest.take() {
                    Some(batch) => Ok(batch),
                    None => batches.next()?,
                };
                let of_piece = batch.and_then(|batch| {
                    let rows = rows_at_once.min(batch.num_rows());
                    if rows < batch.num_rows() {
                        rest = Some(batch.slice(rows, batch.num_rows() - rows));
                    }
                    requests_of(&batch.slice(0, rows))
                });
                match of_piece {
                    Ok(of_piece) => waiting = of_piece.into_iter(),
                    Err(error) => {
                        failure = Some(error);
                        return None;
                    }
                }
            }
        })
        .take(most);
        let follower = Follower { stage, events, told: std::cell::Cell::new(Spent::default()) };
        let outcome = ask(&mut requests, &follower, cancel);
        match (failure, outcome) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(model_error(&error)),
            (None, Ok(counts)) => {
                follower.update(&counts);
                if let Some((_, message)) = counts.transient.first() {
                    let message =
                        format!("{} calls failed for passing reasons, the first: {message}", counts.transient.len());
                    events.emit(&Event::Warning { stage: Some(stage.to_owned()), message });
                }
                Ok(())
            }
        }
    }
}

/// What the calls of a task used, as they stand in the call store: the same whether they were asked for in this run or
/// long ago. A manifest has them as counters, which `plan` estimates from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Answers, scores and refusals.
    pub calls: u64,
    /// Tokens read by the model, where the server tells.
    pub prompt_tokens: u64,
    /// Of these, tokens that the server had in its cache.
    pub cached_tokens: u64,
    /// Tokens written by the model, where the server tells.
    pub completion_tokens: u64,
}

impl Used {
    /// Adds what is known about one request.
    pub fn add(&mut self, recorded: &Recorded) {
        match recorded {
            Recorded::Answer(answer) => {
                self.calls += 1;
                self.prompt_tokens += answer.prompt_tokens.unwrap_or(0);
                self.cached_tokens += answer.cached_tokens.unwrap_or(0);
                self.completion_tokens += answer.completion_tokens.unwrap_or(0);
            }
            Recorded::RowError { .. } => self.calls += 1,
            Recorded::Missing => {}
        }
    }

    /// Adds what is known about the score of a text, whose tokens the model reads.
    pub fn add_score(&mut self, recorded: &Recorded<Score>) {
        match recorded {
            Recorded::Answer(score) => {
                self.calls += 1;
                self.prompt_tokens += u64::from(score.tokens);
            }
            Recorded::RowError { .. } => self.calls += 1,
            Recorded::Missing => {}
        }
    }

    /// Adds to the counters of a task.
    pub fn count(self, task: &mut Task<'_>) {
        let counters = [
            ("calls", self.calls),
            ("prompt_tokens", self.prompt_tokens),
            ("cached_tokens", self.cached_tokens),
            ("completion_tokens", self.completion_tokens),
        ];
        for (name, amount) in counters.into_iter().filter(|(_, amount)| *amount > 0) {
            task.count(name, amount);
        }
    }
}

/// Counts rows that lack an answer for passing reasons. `what` says in the plural what lacks what.
///
/// # Errors
/// When they are more than `max_errors` allows.
pub fn leave_out(task: &mut Task<'_>, missing: u64, read: u64, what: &str) -> Result<(), StageError> {
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^52")]
    let share = missing as f64 / read.max(1) as f64;
    if share > task.max_errors() {
        let message = format!(
            "{missing} of {read} {what}, since calls failed for passing reasons; run again, or accept a share of them with `max_errors`"
        );
        return Err(StageError::Transient { message });
    }
    task.transient(missing);
    Ok(())
}

/// What a failed pass means for the run.
pub fn model_error(error: &ModelError) -> StageError {
    let message = error.to_string();
    match error.class() {
        ErrorClass::Cancelled => StageError::Cancelled,
        ErrorClass::Unreachable | ErrorClass::KeyRefused | ErrorClass::BudgetSpent => {
            StageError::Model { failure: ModelFailure::Unavailable, message }
        }
        ErrorClass::NotRecorded => StageError::Model { failure: ModelFailure::NotRecorded, message },
        ErrorClass::Config | ErrorClass::Unsupported => StageError::Param(ParamError::new("model", message)),
        ErrorClass::Store => StageError::Alarm(message),
    }
}

/// Turns the counts of a pass into events.
struct Follower<'a> {
    stage: &'a str,
    events: &'a dyn EventSink,
    told: std::cell::Cell<Spent>,
}

impl Progress for Follower<'_> {
    fn stage(&self) -> &str {
        self.stage
    }

    fn update(&self, counts: &Ensured) {
        let now = Spent {
            asked: counts.asked,
            stored: counts.from_store + counts.from_recordings,
            prompt_tokens: counts.prompt_tokens,
            cached_tokens: counts.cached_tokens,
            completion_tokens: counts.completion_tokens,
            money: counts.money,
        };
        let spent = now.since(&self.told.replace(now));
        self.events.emit(&Event::Calls { stage: self.stage.to_owned(), spent });
    }

    fn note(&self, note: &Note) {
        if note.is_worth_telling() {
            let warning = Event::Warning { stage: Some(self.stage.to_owned()), message: note.to_string() };
            self.events.emit(&warning);
        }
    }
}
