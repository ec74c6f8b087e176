//! What the kinds that call a model share: two passes over the rows of a task.
//!
//! The first asks for everything that is missing; what comes goes straight to the call store. The second reads it back in
//! the order of the rows. So memory does not grow with the length of the answers, a slow answer holds nothing up, and a
//! killed run asks nothing twice.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::RecordBatch;
use pipeline_core::error::ModelFailure;
use pipeline_core::{Event, ParamError, StageError, Task};
use pipeline_models::{Ensured, ErrorClass, Model, ModelError, ModelSet, Note, Progress};

/// The model of this name.
///
/// # Errors
/// When no models are registered, or this one cannot be opened.
pub fn model(task: &Task<'_>, name: &str) -> Result<Arc<dyn Model>, StageError> {
    let models = task.env().services.get::<ModelSet>();
    let models = models.ok_or_else(|| StageError::Internal("no models are registered".to_owned()))?;
    models.get(name).map_err(|error| model_error(&error))
}

/// First pass: what is missing of the requests of every batch is asked for by `ask`, and what failed for passing
/// reasons is told as a warning.
///
/// # Errors
/// When a batch cannot be read, or the model gives up.
pub fn ensure<Q>(
    task: &Task<'_>,
    mut requests_of: impl FnMut(&RecordBatch) -> Result<Vec<Q>, StageError>,
    ask: impl FnOnce(&mut dyn Iterator<Item = Q>, &dyn Progress, &AtomicBool) -> Result<Ensured, ModelError>,
) -> Result<(), StageError> {
    let mut failure = None;
    let mut batches = task.look_ahead()?;
    let mut waiting = Vec::new().into_iter();
    let mut requests = std::iter::from_fn(|| {
        loop {
            if let Some(request) = waiting.next() {
                return Some(request);
            }
            let of_batch = batches.next()?.and_then(|batch| requests_of(&batch));
            match of_batch {
                Ok(of_batch) => waiting = of_batch.into_iter(),
                Err(error) => {
                    failure = Some(error);
                    return None;
                }
            }
        }
    });
    let follower = Follower::new(task);
    let outcome = ask(&mut requests, &follower, task.cancel());
    match (failure, outcome) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(model_error(&error)),
        (None, Ok(counts)) => {
            follower.update(&counts);
            if let Some((_, message)) = counts.transient.first() {
                let message =
                    format!("{} calls failed for passing reasons, the first: {message}", counts.transient.len());
                task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
            }
            Ok(())
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
    task: &'a Task<'a>,
    told: std::cell::Cell<(u64, u64, u64)>,
}

impl<'a> Follower<'a> {
    fn new(task: &'a Task<'a>) -> Self {
        Self { task, told: std::cell::Cell::new((0, 0, 0)) }
    }
}

impl Progress for Follower<'_> {
    fn stage(&self) -> &str {
        self.task.stage()
    }

    fn update(&self, counts: &Ensured) {
        let (asked, stored, tokens) = self.told.get();
        let now =
            (counts.asked, counts.from_store + counts.from_recordings, counts.prompt_tokens + counts.completion_tokens);
        self.told.set(now);
        self.task.events().emit(&Event::Calls {
            stage: self.task.stage().to_owned(),
            asked: now.0.saturating_sub(asked),
            stored: now.1.saturating_sub(stored),
            tokens: now.2.saturating_sub(tokens),
        });
    }

    fn note(&self, note: &Note) {
        if note.is_worth_telling() {
            let warning = Event::Warning { stage: Some(self.task.stage().to_owned()), message: note.to_string() };
            self.task.events().emit(&warning);
        }
    }
}
