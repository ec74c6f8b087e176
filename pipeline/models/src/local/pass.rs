//! One call of `ensure` as the weights see it: a desk with requests, from which outcomes go to the call store.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Local;
use super::work::{Told, Work};
use crate::budget::Reservation;
use crate::claims::Claim;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::store::{Reply, StoredCall, now_ms};
use crate::weights::{Desk, Refusal};

/// What became of one request.
#[derive(Debug)]
pub(super) enum Event {
    Answered {
        prompt_tokens: u64,
        completion_tokens: u64,
        money: f64,
    },
    RowError,
    /// It could not be stored; the pass has failed.
    Unkept,
}

/// One call of `ensure`.
pub(super) struct Pass<'a, Q> {
    local: &'a Local,
    stage: String,
    events: Sender<Event>,
    state: Mutex<State<'a, Q>>,
    changed: Condvar,
}

struct State<'a, Q> {
    /// On the desk, in order.
    free: VecDeque<CallKey>,
    /// On the desk or in work.
    open: HashMap<CallKey, Open<'a, Q>>,
    is_closed: bool,
    is_cancelled: bool,
    error: Option<ModelError>,
}

struct Open<'a, Q> {
    request: Q,
    since: Option<Instant>,
    place: Reservation<'a>,
    // Given back last, when the outcome is in the store.
    _claim: Claim<'a>,
}

impl<'a, Q: Work> Pass<'a, Q> {
    pub(super) fn new(local: &'a Local, stage: &str, events: Sender<Event>) -> Self {
        let state =
            State { free: VecDeque::new(), open: HashMap::new(), is_closed: false, is_cancelled: false, error: None };
        Self { local, stage: stage.to_owned(), events, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lay_out(&self, key: CallKey, request: Q, claim: Claim<'a>, place: Reservation<'a>) {
        let mut state = self.lock();
        state.free.push_back(key);
        state.open.insert(key, Open { request, since: None, place, _claim: claim });
        self.changed.notify_one();
    }

    /// No more requests come.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Ends the pass; what is in work still arrives and is kept. The first reason is the one reported.
    pub(super) fn fail(&self, error: ModelError) {
        let mut state = self.lock();
        state.error.get_or_insert(error);
        state.is_closed = true;
        state.free.clear();
        self.changed.notify_all();
    }

    /// Ends the pass and gives up what is in work.
    pub(super) fn cancel(&self) {
        self.lock().is_cancelled = true;
        self.fail(ModelError::Cancelled);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().error.is_some()
    }

    pub(super) fn error(&self) -> Option<ModelError> {
        self.lock().error.take()
    }

    /// Stores an outcome and says what it was.
    fn keep(&self, key: &CallKey, open: &Open<'a, Q>, outcome: Result<Told, Refusal>) -> Event {
        let (reply, event) = match outcome {
            Err(Refusal { code, message }) => (Reply::RowError { code, message }, Event::RowError),
            Ok(Told { reply, prompt_tokens, completion_tokens }) => {
                let money =
                    self.local.price.as_ref().map_or(0.0, |price| price.cost(prompt_tokens, 0, completion_tokens));
                open.place.spend(prompt_tokens + completion_tokens, money);
                (reply, Event::Answered { prompt_tokens, completion_tokens, money })
            }
        };
        let latency = open.since.map(|since| since.elapsed().as_millis()).unwrap_or_default();
        let call = StoredCall {
            model: self.local.known.id.clone(),
            request: open.request.asked(),
            reply,
            stage: self.stage.clone(),
            host: String::new(),
            time_ms: now_ms(),
            latency_ms: u64::try_from(latency).unwrap_or(u64::MAX),
        };
        match self.local.known.calls.append(key, &call) {
            Ok(()) => event,
            Err(error) => {
                self.fail(error);
                Event::Unkept
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'a, Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Work> Desk<Q, Q::Told> for Pass<'_, Q> {
    fn next(&self) -> Option<(CallKey, Q)> {
        let mut state = self.lock();
        loop {
            if let Some(key) = state.free.pop_front() {
                let Some(open) = state.open.get_mut(&key) else { continue };
                open.since = Some(Instant::now());
                return Some((key, open.request.clone()));
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, key: CallKey, outcome: Result<Q::Told, Refusal>) {
        let Some(open) = self.lock().open.remove(&key) else { return };
        let told = outcome.and_then(|told| Q::told(told, &self.local.known.id));
        let event = self.keep(&key, &open, told);
        drop(open);
        // Nobody listens any more only when the pass has returned.
        let _ = self.events.send(event);
    }

    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.free.clear();
        self.changed.notify_all();
    }

    fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }
}
