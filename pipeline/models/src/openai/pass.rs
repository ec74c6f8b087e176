//! One call of `ensure` as its tasks see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::Event;
use crate::error::ModelError;
use crate::model::Note;

/// How a pass ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    /// Not at all.
    Not,
    /// Nothing more is sent; what is in flight arrives and is kept.
    Drain,
    /// What is in flight is dropped too.
    Abort,
}

/// One call of `ensure`.
pub(super) struct Pass {
    pub(super) events: Sender<Event>,
    pub(super) stage: String,
    stop: watch::Sender<Stop>,
    error: Mutex<Option<ModelError>>,
    named: AtomicBool,
}

/// The pass has ended while something was waited for.
pub(super) struct Stopped;

impl Pass {
    pub(super) fn new(stage: &str, events: Sender<Event>) -> Self {
        Self {
            events,
            stage: stage.to_owned(),
            stop: watch::channel(Stop::Not).0,
            error: Mutex::new(None),
            named: AtomicBool::new(false),
        }
    }

    /// Ends the pass; the first reason is the one reported.
    pub(super) fn fail(&self, error: ModelError, stop: Stop) {
        lock(&self.error).get_or_insert(error);
        self.stop.send_modify(|level| *level = (*level).max(stop));
    }

    /// Ends the pass, letting what is in flight arrive.
    pub(super) fn stop(&self, error: ModelError) -> Stopped {
        self.fail(error, Stop::Drain);
        Stopped
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow() != Stop::Not
    }

    pub(super) fn error(&self) -> Option<ModelError> {
        lock(&self.error).take()
    }

    pub(super) fn note(&self, note: Note) {
        // Nobody listens any more only when the pass has returned.
        let _ = self.events.send(Event::Note(note));
    }

    /// Tells once that another model than the one asked for answers.
    pub(super) fn note_name(&self, answered: &str) {
        if !self.named.swap(true, Ordering::Relaxed) {
            self.note(Note::OtherModel { answered: answered.to_owned() });
        }
    }

    /// Waits for `work` unless the pass ends in at least this way first.
    pub(super) async fn unless<T>(&self, stop: Stop, work: impl Future<Output = T>) -> Result<T, Stopped> {
        let mut level = self.stop.subscribe();
        tokio::select! {
            biased;
            _ = level.wait_for(|level| *level >= stop) => Err(Stopped),
            done = work => Ok(done),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
