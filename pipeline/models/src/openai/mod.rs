//! Client of any server that speaks the `OpenAI` chat completions protocol.
//!
//! The thread that calls `ensure` reads requests, looks each up, and hands what is missing to a bounded
//! number of tasks; answers go from the tasks straight to the call store. HTTP/1.1 on purpose: servers
//! cap the streams of one HTTP/2 connection far below what long generations need, so each request in
//! flight has a connection of its own and the pool follows `max_in_flight`.
//!
//! How many requests are in flight is found by trying (`window`), when they go out is ruled by waits and rates (`pace`),
//! and what a server cannot do is found out once and done without (`abilities`).

mod abilities;
mod ask;
mod batch;
mod breaker;
mod choices;
mod classify;
mod connect;
mod cool;
mod exchange;
mod failing;
mod keep;
mod learned;
mod limits;
mod pace;
mod pass;
mod pieces;
mod quota;
mod stream;
mod window;
mod wire;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::claims::Claims;
use crate::config::{ModelConfig, OpenOptions};
use crate::error::ModelError;
use crate::key::CallKey;
use crate::known::{Known, Source};
use crate::model::{Ensured, Model, Note, Progress, Recorded};
use crate::recordings::Recordings;
use crate::request::{ModelId, Request, Sampling};
use crate::store::{CallStore, Kind};
use abilities::Abilities;
use ask::{Job, Server};
use batch::Batches;
use breaker::Breaker;
use failing::Failing;
use pace::Pace;
use pass::{Pass, Stop};
use window::Window;

pub use batch::BatchNote;

/// Requests at the same time where the configuration names no number.
const MOST_IN_FLIGHT: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);
/// How often the caller's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Requests prepared beyond those in flight, so that a finished one is followed at once.
const MOST_PREPARED: usize = 256;
/// With so many requests in flight or prepared, answers are taken in together.
const LARGE: usize = 128;
const GATHER: Duration = Duration::from_millis(2);
/// How often the counts are told.
const UPDATE: Duration = Duration::from_millis(20);
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
    Answered { prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64, money: f64 },
    RowError,
    Known(Kind),
    Transient(CallKey, String),
    Stopped,
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
        let samples = config.samples_per_request.map_or(1, NonZeroU32::get) as usize;
        let address = config.address(name)?;
        let secret = connect::secret(config, name, options.environment)?;
        connect::allow_connections(most.get());
        if let Some(price) = &config.price {
            options.budget.agree_on_currency(name, price)?;
        }
        let rate = |rate: Option<NonZeroU32>| rate.map(NonZeroU32::get);
        let server = Server {
            client: connect::client(&address, secret.as_ref(), in_flight, name, &options.timing)?,
            host: address.origin().ascii_serialization(),
            url: connect::completions(address),
            name: name.to_owned(),
            id: id.clone(),
            secret,
            window: Window::new(in_flight),
            pace: Pace::new(
                rate(config.requests_per_minute),
                rate(config.tokens_per_minute),
                options.timing.patience,
                Instant::now(),
            ),
            abilities: Abilities::new(config),
            failing: Failing::new(&calls.folder().join(id.slug())),
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
            window: (in_flight + in_flight.min(MOST_PREPARED)) * samples,
            runtime: Some(runtime),
        })
    }

    fn spawn(&self, pass: &Arc<Pass>, group: Vec<(CallKey, Request)>) {
        let Some(runtime) = &self.runtime else { return };
        let (server, pass) = (Arc::clone(&self.server), Arc::clone(pass));
        let job = Job::new(pass.events.clone(), group);
        runtime.spawn(async move { server.ask(&pass, job).await });
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
                    following.in_flight += 1;
                    self.gather(pass, following, key, request);
                }
                Ok(None) => {
                    self.send_gathered(pass, following);
                    return false;
                }
                // The caller's loop sees the same flag and ends the pass its way.
                Err(ModelError::Cancelled) => break,
                Err(error) => pass.fail(error, Stop::Drain),
            }
            following.take_ready();
        }
        // While others are under way, what was gathered waits for more of its kind.
        let is_all = following.in_flight == following.gathered.len();
        if is_all || pass.is_stopped() || cancel.load(Ordering::Relaxed) {
            self.send_gathered(pass, following);
        }
        true
    }

    /// Puts a request to those before it that it may go out with, or begins anew with it.
    fn gather(&self, pass: &Arc<Pass>, following: &mut Following<'_>, key: CallKey, request: Request) {
        let most = self.server.abilities.samples() as usize;
        let fits = following.gathered.last().is_some_and(|(_, last)| is_same_but_for_sample(last, &request));
        if !fits || following.gathered.len() >= most {
            self.send_gathered(pass, following);
        }
        following.gathered.push((key, request));
        if following.gathered.len() >= most {
            self.send_gathered(pass, following);
        }
    }

    fn send_gathered(&self, pass: &Arc<Pass>, following: &mut Following<'_>) {
        if !following.gathered.is_empty() {
            self.spawn(pass, std::mem::take(&mut following.gathered));
        }
    }
}

/// Whether two requests may go out as one.
fn is_same_but_for_sample(first: &Request, second: &Request) -> bool {
    let without_seed = |request: &Request| Sampling { seed: None, ..request.sampling.clone() };
    first.messages == second.messages
        && first.salt == second.salt
        && first.schema == second.schema
        && first.attempt == second.attempt
        && without_seed(first) == without_seed(second)
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
        let mut following = Following::new(inbox, progress);
        let mut has_more = true;
        loop {
            if cancel.load(Ordering::Relaxed) {
                self.server.note_cancelled();
                pass.fail(ModelError::Cancelled, Stop::Abort);
            }
            if has_more {
                has_more = self.fill(requests, &pass, &mut following, cancel);
            }
            following.update();
            if following.in_flight == 0 && (!has_more || pass.is_stopped()) {
                break;
            }
            following.wait(self.window);
            self.server.window.look(Instant::now());
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

    fn answers(&self, requests: &[Request]) -> Result<Vec<Recorded>, ModelError> {
        self.known.answers(requests)
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
    /// Requests that go out as one, and wait for more of them.
    gathered: Vec<(CallKey, Request)>,
    inbox: Receiver<Event>,
    progress: &'a dyn Progress,
    updated: Option<Instant>,
}

impl<'a> Following<'a> {
    fn new(inbox: Receiver<Event>, progress: &'a dyn Progress) -> Self {
        Self { counts: Ensured::default(), in_flight: 0, gathered: Vec::new(), inbox, progress, updated: None }
    }

    /// Tells the counts, but not with each of thousands of answers.
    fn update(&mut self) {
        if self.updated.is_none_or(|updated| updated.elapsed() >= UPDATE) {
            self.updated = Some(Instant::now());
            self.progress.update(&self.counts);
        }
    }

    fn take_ready(&mut self) {
        while let Ok(event) = self.inbox.try_recv() {
            self.take(event);
        }
    }

    fn wait(&mut self, window: usize) {
        if let Ok(event) = self.inbox.recv_timeout(LOOK) {
            self.take(event);
            if window >= LARGE {
                // More requests are prepared than are in flight, so the next ones can be read for many answers at once:
                // waking for each would cost more than the rest of its work.
                std::thread::sleep(GATHER);
            }
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
            Outcome::Answered { prompt_tokens, cached_tokens, completion_tokens, money } => {
                self.counts.asked += 1;
                self.counts.prompt_tokens += prompt_tokens;
                self.counts.cached_tokens += cached_tokens;
                self.counts.completion_tokens += completion_tokens;
                self.counts.money += money;
            }
        }
    }
}
