//! Client of any server that speaks the `OpenAI` chat completions protocol.
//!
//! The thread that calls `ensure` reads requests, looks each up, and hands what is missing to a bounded
//! number of tasks; answers go from the tasks straight to the call store. HTTP/1.1 on purpose: servers
//! cap the streams of one HTTP/2 connection far below what long generations need, so each request in
//! flight has a connection of its own and the pool follows `max_in_flight`.

mod ask;
mod batch;
mod breaker;
mod classify;
mod connect;
mod keep;
mod pace;
mod pass;
mod wire;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::claims::Claims;
use crate::config::{ModelConfig, OpenOptions};
use crate::error::ModelError;
use crate::key::CallKey;
use crate::known::{Known, Source};
use crate::model::{Ensured, Model, Note, Progress, Recorded};
use crate::recordings::Recordings;
use crate::request::{ModelId, Request};
use crate::store::{CallStore, Kind};
use ask::Server;
use batch::Batches;
use breaker::Breaker;
use pace::{CoolDown, Pace};
use pass::{Pass, Stop};

pub use batch::BatchNote;

/// Requests at the same time where the configuration names no number.
const MOST_IN_FLIGHT: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);
/// How often the caller's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Requests prepared beyond those in flight, so that a finished one is followed at once.
const MOST_PREPARED: usize = 256;
const THREADS: usize = 2;

pub(crate) struct OpenAi {
    known: Known,
    server: Arc<Server>,
    batches: Option<Batches>,
    window: usize,
    // Taken in `drop` only: a runtime must not be waited for where the caller may be asynchronous.
    runtime: Option<Runtime>,
}

/// What a task tells the thread that waits for it.
enum Event {
    Done(Outcome),
    Note(Note),
}

/// What became of one request.
#[derive(Debug)]
enum Outcome {
    Answered { prompt_tokens: u64, completion_tokens: u64, money: f64 },
    RowError,
    Known(Kind),
    Transient(CallKey, String),
    Stopped,
}

/// Tells the outcome of a task, also when the task ends in a panic.
struct Report {
    events: Sender<Event>,
    outcome: Option<Outcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            // Nobody listens any more only when the pass has returned.
            let _ = self.events.send(Event::Done(outcome));
        }
    }
}

impl OpenAi {
    pub(crate) fn new(
        config: &ModelConfig,
        name: &str,
        id: ModelId,
        calls: Arc<CallStore>,
        recordings: Recordings,
        options: &OpenOptions<'_>,
    ) -> Result<Self, ModelError> {
        let most = config.max_in_flight.unwrap_or(MOST_IN_FLIGHT);
        let in_flight = most.get() as usize;
        let address = config.address(name)?;
        let secret = connect::secret(config, name, options.environment)?;
        connect::allow_connections(most.get());
        if let Some(price) = &config.price {
            options.budget.agree_on_currency(name, price)?;
        }
        let now = Instant::now();
        let rate = |rate: Option<NonZeroU32>| rate.map(NonZeroU32::get);
        let server = Server {
            client: connect::client(&address, secret.as_ref(), in_flight, name, &options.timing)?,
            host: address.origin().ascii_serialization(),
            url: connect::completions(address),
            name: name.to_owned(),
            id: id.clone(),
            secret,
            permits: Semaphore::new(in_flight),
            pace: Pace::new(rate(config.requests_per_minute), rate(config.tokens_per_minute), now),
            cool: CoolDown::default(),
            breaker: Breaker::new(options.timing.breaker, options.timing.grace),
            claims: Claims::default(),
            budget: Arc::clone(&options.budget),
            price: config.price.clone(),
            timing: options.timing.clone(),
            calls: Arc::clone(&calls),
            cancelled: std::sync::Mutex::new(None),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("model")
            .enable_all()
            .build()
            .map_err(|error| ModelError::config(name, format!("no threads for the network: {error}")))?;
        let server = Arc::new(server);
        let batches = config.batch.as_ref().map(|batch| Batches::new(batch, &server)).transpose()?;
        Ok(Self {
            known: Known { id, calls, recordings },
            server,
            batches,
            window: in_flight + in_flight.min(MOST_PREPARED),
            runtime: Some(runtime),
        })
    }

    fn spawn(&self, pass: &Arc<Pass>, key: CallKey, request: Request) {
        let Some(runtime) = &self.runtime else { return };
        let (server, pass) = (Arc::clone(&self.server), Arc::clone(pass));
        runtime.spawn(async move {
            let failed = Outcome::Transient(key, "the request's task ended unexpectedly".to_owned());
            let mut report = Report { events: pass.events.clone(), outcome: Some(failed) };
            report.outcome = Some(server.ask(&pass, key, &request).await);
        });
    }

    /// Reads requests until the window is full; `false` when there are no more.
    fn fill(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        pass: &Arc<Pass>,
        following: &mut Following<'_>,
        cancel: &AtomicBool,
    ) -> bool {
        while following.in_flight < self.window && !pass.is_stopped() && !cancel.load(Ordering::Relaxed) {
            match self.known.next_missing(requests, &mut following.counts, following.progress, cancel) {
                Ok(Some((key, request))) => {
                    self.spawn(pass, key, request);
                    following.in_flight += 1;
                }
                Ok(None) => return false,
                // The caller's loop sees the same flag and ends the pass its way.
                Err(ModelError::Cancelled) => return true,
                Err(error) => pass.fail(error, Stop::Drain),
            }
            following.take_ready();
        }
        true
    }
}

impl Model for OpenAi {
    fn id(&self) -> &ModelId {
        &self.known.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        if let (Some(batches), Some(runtime)) = (&self.batches, &self.runtime) {
            return batches.ensure(&self.known, runtime, requests, progress, cancel);
        }
        self.known.calls.refresh()?;
        let (events, inbox) = channel();
        let pass = Arc::new(Pass::new(progress.stage(), events));
        let mut following = Following { counts: Ensured::default(), in_flight: 0, inbox, progress };
        let mut has_more = true;
        loop {
            if cancel.load(Ordering::Relaxed) {
                self.server.note_cancelled();
                pass.fail(ModelError::Cancelled, Stop::Abort);
            }
            if has_more {
                has_more = self.fill(requests, &pass, &mut following, cancel);
            }
            progress.update(&following.counts);
            if following.in_flight == 0 && (!has_more || pass.is_stopped()) {
                break;
            }
            following.wait();
        }
        progress.update(&following.counts);
        match pass.error() {
            Some(error) => Err(error),
            None => Ok(following.counts),
        }
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        self.known.answer(request)
    }
}

impl Drop for OpenAi {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Takes in what the tasks of one pass tell.
struct Following<'a> {
    counts: Ensured,
    in_flight: usize,
    inbox: Receiver<Event>,
    progress: &'a dyn Progress,
}

impl Following<'_> {
    fn take_ready(&mut self) {
        while let Ok(event) = self.inbox.try_recv() {
            self.take(event);
        }
    }

    fn wait(&mut self) {
        if let Ok(event) = self.inbox.recv_timeout(LOOK) {
            self.take(event);
            self.take_ready();
        }
    }

    fn take(&mut self, event: Event) {
        let outcome = match event {
            Event::Note(note) => return self.progress.note(&note),
            Event::Done(outcome) => outcome,
        };
        self.in_flight -= 1;
        match outcome {
            Outcome::Stopped => {}
            Outcome::Known(kind) => Source::Store(kind).count(&mut self.counts),
            Outcome::RowError => {
                self.counts.asked += 1;
                self.counts.row_errors += 1;
            }
            Outcome::Transient(key, message) => {
                self.counts.asked += 1;
                self.counts.transient.push((key, message));
            }
            Outcome::Answered { prompt_tokens, completion_tokens, money } => {
                self.counts.asked += 1;
                self.counts.prompt_tokens += prompt_tokens;
                self.counts.completion_tokens += completion_tokens;
                self.counts.money += money;
            }
        }
    }
}
