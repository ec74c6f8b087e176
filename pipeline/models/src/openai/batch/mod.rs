//! Asks through the provider's batch API: slower, often at half the price.
//!
//! Missing requests go to the provider as files of up to 100 MB, are worked on within the window that the provider
//! offers, and come back as files in any order. Nothing is paid for twice: each submission is on disk before it is sent
//! and each name that the provider gives is on disk before the next step ([`journal`]), so that a run that was killed,
//! at whatever point, first takes up what is under way. A batch that expired, was cancelled or failed in part gives what
//! it has; only the rest goes out again, a bounded number of times.
//!
//! The budget is looked at before a batch is sent, with what its requests cost at least: nothing is known of its answers
//! yet. What they did cost is booked as they are stored, so the limit can be passed by the answers of batches that were
//! under way when it was reached. Rates a minute have no meaning here; the provider spreads the work.

mod collect;
mod exchange;
mod input;
mod journal;
mod lines;
mod note;
mod provider;
mod requests;
mod submit;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::ask::Server;
use super::{LOOK, wire};
use crate::budget::Commitment;
use crate::config::BatchConfig;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::known::Known;
use crate::model::{Ensured, Note, Progress};
use crate::request::Request;
use crate::store::Kind;
use journal::Submission;
use provider::{Counts, Provider};
use requests::Requests;

pub use note::BatchNote;

/// How often a request goes out in one run, the first time included.
const MOST_ROUNDS: u32 = 3;
const FOLDER: &str = "batches";

/// Batch mode of one model.
pub(super) struct Batches {
    config: BatchConfig,
    server: Arc<Server>,
    /// `calls/<model>/batches`.
    folder: PathBuf,
    /// The provider's address without query, as it stands in journals.
    address: String,
}

/// What a task tells the thread that waits for it.
enum Told {
    Note(Note),
    Answered { key: CallKey, prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64, money: f64 },
    RowError { key: CallKey },
    Known { key: CallKey, kind: Kind },
}

/// One call of `ensure`.
struct Work<'a> {
    batches: &'a Batches,
    known: &'a Known,
    runtime: &'a Runtime,
    provider: Provider,
    inbox: Receiver<Told>,
    progress: &'a dyn Progress,
    cancel: &'a AtomicBool,
    counts: Ensured,
    /// Requests of this pass that wait for an answer, and how often each was given.
    wanted: BTreeMap<CallKey, u32>,
    /// Submissions that this pass follows.
    own: Vec<Followed>,
    /// Submissions that another pass or process follows.
    others: Vec<(PathBuf, Requests)>,
    /// Why no more is submitted; what is under way is still fetched.
    ending: Option<ModelError>,
    /// Whether the provider has spoken in this pass.
    was_reached: bool,
}

/// A submission that this pass follows.
struct Followed {
    submission: Submission,
    commitment: Option<Commitment>,
    /// What was last told of it.
    told: Option<(String, Counts)>,
    lost_since: Option<Instant>,
}

impl Batches {
    pub(super) fn new(config: &BatchConfig, server: &Arc<Server>) -> Result<Self, ModelError> {
        if config.window.trim().is_empty() {
            return Err(ModelError::config(&server.name, "`batch.window` must be a time such as `24h`"));
        }
        let url = &server.url;
        Ok(Self {
            config: config.clone(),
            server: Arc::clone(server),
            folder: server.calls.folder().join(server.id.slug()).join(FOLDER),
            address: format!("{}{}", url.origin().ascii_serialization(), url.path()),
        })
    }

    /// Gets every answer that is missing into the call store, as `Model::ensure` has it.
    pub(super) fn ensure(
        &self,
        known: &Known,
        runtime: &Runtime,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        known.calls.refresh()?;
        let (sender, inbox) = channel();
        let mut work = Work {
            batches: self,
            known,
            runtime,
            provider: Provider::new(Arc::clone(&self.server), sender),
            inbox,
            progress,
            cancel,
            counts: Ensured::default(),
            wanted: BTreeMap::new(),
            own: Vec::new(),
            others: Vec::new(),
            ending: None,
            was_reached: false,
        };
        let outcome = work.submit_missing(requests).and_then(|()| work.collect());
        work.take_told();
        progress.update(&work.counts);
        if outcome.is_err() && !work.own.is_empty() {
            work.note(BatchNote::LeftRunning { batches: work.own.len() as u64 });
        }
        outcome?;
        match work.ending.take() {
            Some(error) => Err(error),
            None => Ok(work.counts),
        }
    }

    /// The body of one request: one sample, never streamed.
    fn body(&self, request: &Request) -> Result<Vec<u8>, String> {
        wire::body(&self.server.id.model, request, self.server.abilities.whole(request))
    }

    fn error(&self, error: io::Error) -> ModelError {
        ModelError::store(&self.folder, error)
    }
}

impl Followed {
    fn new(submission: Submission, commitment: Option<Commitment>) -> Self {
        Self { submission, commitment, told: None, lost_since: None }
    }

    /// The provider's name of the batch.
    fn batch(&self) -> String {
        self.submission.batch.clone().unwrap_or_default()
    }
}

impl Work<'_> {
    /// Runs what asks the provider, while the caller's wish to stop is looked at.
    fn run<T: Send + 'static>(&mut self, work: impl Future<Output = T> + Send + 'static) -> Result<T, ModelError> {
        let (sender, result) = channel();
        let task = self.runtime.spawn(async move {
            // Nobody listens any more only when the pass was cancelled.
            let _ = sender.send(work.await);
        });
        loop {
            if let Err(error) = self.look_for_cancel() {
                task.abort();
                return Err(error);
            }
            let received = result.recv_timeout(LOOK);
            self.take_told();
            match received {
                Ok(value) => return Ok(value),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.batches.server.unreachable(1, "the request's task ended unexpectedly"));
                }
            }
        }
    }

    fn look_for_cancel(&self) -> Result<(), ModelError> {
        if self.cancel.load(Ordering::Relaxed) { Err(ModelError::Cancelled) } else { Ok(()) }
    }

    fn pause(&self, time: Duration) -> Result<(), ModelError> {
        let begun = Instant::now();
        loop {
            self.look_for_cancel()?;
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Waits for the lock under which submissions are made and looked for.
    fn lock_folder(&self) -> Result<File, ModelError> {
        loop {
            if let Some(lock) = journal::lock_folder(&self.batches.folder).map_err(|error| self.batches.error(error))? {
                return Ok(lock);
            }
            self.pause(LOOK)?;
        }
    }

    fn note(&self, note: BatchNote) {
        self.progress.note(&Note::Batch(note));
    }

    fn oddity(&self, message: &str) {
        self.note(BatchNote::Oddity { message: self.batches.server.redact(message) });
    }

    fn take_told(&mut self) {
        let mut is_news = false;
        while let Ok(told) = self.inbox.try_recv() {
            match told {
                Told::Note(note) => self.progress.note(&note),
                Told::Answered { key, prompt_tokens, cached_tokens, completion_tokens, money } => {
                    self.counts.cached_tokens += cached_tokens;
                    self.counts.prompt_tokens += prompt_tokens;
                    self.counts.completion_tokens += completion_tokens;
                    self.counts.money += money;
                    self.settled(key, true, Kind::Answer);
                }
                Told::RowError { key } => self.settled(key, true, Kind::RowError),
                Told::Known { key, kind } => self.settled(key, false, kind),
            }
            is_news = true;
        }
        if is_news {
            self.progress.update(&self.counts);
        }
    }

    /// Counts a request of this pass whose answer is stored; `was_asked` if this pass stored it.
    fn settled(&mut self, key: CallKey, was_asked: bool, kind: Kind) {
        if let Some(times) = self.wanted.remove(&key) {
            let asked = u64::from(was_asked);
            self.counts.asked += asked;
            self.counts.from_store += u64::from(times) - asked;
            self.counts.row_errors += if kind == Kind::RowError { u64::from(times) } else { 0 };
        }
    }

    /// Gives a request of this pass up for a passing reason.
    fn given_up(&mut self, key: CallKey, message: &str) {
        if let Some(times) = self.wanted.remove(&key) {
            self.counts.asked += u64::from(times);
            self.counts.transient.extend((0..times).map(|_| (key, message.to_owned())));
        }
    }
}
