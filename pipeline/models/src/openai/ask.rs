//! One request from the wish for an answer to a stored answer.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use reqwest::{Client, Url};

use super::abilities::Abilities;
use super::breaker::Breaker;
use super::classify::classify;
use super::exchange::Lost;
use super::failing::Failing;
use super::keep::estimated_prompt;
use super::pace::{Pace, Taken, jitter};
use super::pass::{Pass, Stop, Stopped};
use super::window::{Entry, Window};
use super::wire::{self, Shape};
use super::{Event, LOOK, Outcome};
use crate::budget::{Budget, Price, Reservation};
use crate::claims::{Claim, Claims};
use crate::config::Timing;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::model::Note;
use crate::request::{ModelId, Request};
use crate::secret::Secret;
use crate::store::CallStore;

/// What all passes to one model share.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) host: String,
    pub(super) name: String,
    pub(super) id: ModelId,
    pub(super) secret: Option<Secret>,
    pub(super) window: Window,
    pub(super) pace: Pace,
    pub(super) breaker: Breaker,
    pub(super) abilities: Abilities,
    pub(super) failing: Failing,
    pub(super) claims: Claims,
    pub(super) budget: Arc<Budget>,
    pub(super) price: Option<Price>,
    pub(super) timing: Timing,
    pub(super) calls: Arc<CallStore>,
    /// When some pass was last cancelled.
    pub(super) cancelled: Mutex<Option<Instant>>,
}

/// Requests that may go out as one, since they differ in sample and seed only. Tells what becomes of each, also when its
/// task ends in a panic.
pub(super) struct Job {
    events: Sender<Event>,
    open: Vec<(CallKey, Request)>,
    is_stopped: bool,
}

impl Job {
    pub(super) fn new(events: Sender<Event>, open: Vec<(CallKey, Request)>) -> Self {
        Self { events, open, is_stopped: false }
    }

    /// The first of the requests that nothing is known of yet.
    pub(super) fn first(&self) -> Option<&(CallKey, Request)> {
        self.open.first()
    }

    /// Takes the first request out, whose outcome is to be told with [`Job::tell`].
    pub(super) fn take(&mut self) -> Option<(CallKey, Request)> {
        (!self.open.is_empty()).then(|| self.open.remove(0))
    }

    pub(super) fn tell(&self, outcome: Outcome) {
        // Nobody listens any more only when the pass has returned.
        let _ = self.events.send(Event::Done(outcome));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (key, _) in std::mem::take(&mut self.open) {
            self.tell(if self.is_stopped {
                Outcome::Stopped
            } else {
                Outcome::Transient(key, "the request's task ended unexpectedly".to_owned())
            });
        }
    }
}

/// A request that was let out.
pub(super) struct Sent<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) taken: Taken,
    pub(super) place: Reservation<'a>,
    pub(super) shape: Shape,
    /// Jitter for what comes of it.
    pub(super) jitter: f64,
}

/// What one sending led to.
pub(super) enum Step {
    /// Something is known of the first request now.
    Done,
    /// The server asked to wait or for another shape: no failure.
    Again,
    Failed(Failure),
}

/// A failure that may pass.
pub(super) struct Failure {
    pub(super) message: String,
    /// What the server did, where it may do so to this request alone.
    pub(super) kind: Option<String>,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, kind: None }
    }
}

impl Server {
    /// Gets the answers to some requests into the store.
    pub(super) async fn ask(&self, pass: &Pass, mut job: Job) {
        if self.answer_all(pass, &mut job).await.is_err() {
            job.is_stopped = true;
        }
    }

    async fn answer_all(&self, pass: &Pass, job: &mut Job) -> Result<(), Stopped> {
        let _claims = pass.unless(Stop::Drain, self.claim(job)).await?;
        self.drop_known(pass, job)?;
        let (mut attempt, mut failures, mut answered) = (0, 0, self.breaker.answers());
        while let Some((key, _)) = job.first() {
            let key = *key;
            let step = self.attempt(pass, job, attempt).await?;
            attempt += 1;
            let failure = match step {
                Step::Again => continue,
                Step::Done => {
                    (failures, answered) = (0, self.breaker.answers());
                    continue;
                }
                Step::Failed(failure) => failure,
            };
            failures += 1;
            if failures >= self.timing.attempts.max(1) {
                self.give_up(pass, job, failure, self.breaker.answers() > answered)?;
                (failures, answered) = (0, self.breaker.answers());
                continue;
            }
            pass.note(Note::Retrying { message: failure.message });
            let wait = self.timing.backoff.saturating_mul(1 << (failures - 1).min(16)).min(self.timing.most_backoff);
            let wait = wait.mul_f64(0.5 + 0.5 * jitter(&key.0, attempt));
            pass.unless(Stop::Drain, tokio::time::sleep(wait)).await?;
        }
        Ok(())
    }

    /// Takes all requests of a job, in the order of their keys, so that two jobs never wait for each other.
    async fn claim(&self, job: &Job) -> Vec<Claim<'_>> {
        let mut keys: Vec<CallKey> = job.open.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut claims = Vec::with_capacity(keys.len());
        for key in keys {
            claims.push(self.claims.take(key).await);
        }
        claims
    }

    /// Leaves out what another pass has got meanwhile.
    fn drop_known(&self, pass: &Pass, job: &mut Job) -> Result<(), Stopped> {
        let mut failure = None;
        let mut open = std::mem::take(&mut job.open);
        open.retain(|(key, _)| match self.calls.verified(key) {
            Ok(Some(kind)) => {
                job.tell(Outcome::Known(kind));
                false
            }
            Ok(None) => true,
            Err(error) => {
                failure = Some(error);
                true
            }
        });
        job.open = open;
        failure.map_or(Ok(()), |error| Err(pass.stop(error)))
    }

    /// Ends the first request without an answer.
    fn give_up(&self, pass: &Pass, job: &mut Job, failure: Failure, others_answered: bool) -> Result<(), Stopped> {
        if let Some(rows) = self.breaker.gave_up(Instant::now()) {
            return Err(pass.stop(self.unreachable(rows, &failure.message)));
        }
        let Some((key, request)) = job.take() else { return Ok(()) };
        if others_answered && self.is_hopeless(key, &failure) {
            pass.note(Note::GivenUp { message: failure.message.clone() });
            return self.keep_row_error(pass, job, (key, request), "server_error_persistent", &failure.message);
        }
        job.tell(Outcome::Transient(key, failure.message));
        Ok(())
    }

    /// Remembers that a pass was cancelled.
    pub(super) fn note_cancelled(&self) {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn was_cancelled_lately(&self) -> bool {
        let cancelled = *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        cancelled.is_some_and(|time| time.elapsed() < LOOK * 10)
    }

    /// Sends once, when it is this job's turn.
    async fn attempt(&self, pass: &Pass, job: &mut Job, attempt: u32) -> Result<Step, Stopped> {
        let Some((key, request)) = job.first() else { return Ok(Step::Done) };
        let samples = job.open.len();
        let admitted = pass.unless(Stop::Drain, self.admit(request, samples)).await?;
        let (entry, taken, place) = admitted.map_err(|error| pass.stop(error))?;
        // The shape is chosen at the last moment: others may have found out what the server refuses.
        let shape = self.abilities.shape(request, samples);
        let body = match wire::body(&self.id.model, request, shape) {
            Ok(body) => body,
            Err(message) => {
                if let Some(row) = job.take() {
                    self.keep_row_error(pass, job, row, "bad_request", &message)?;
                }
                return Ok(Step::Done);
            }
        };
        let max_tokens = request.sampling.max_tokens;
        let sent = Sent { entry, taken, place, shape, jitter: jitter(&key.0, attempt) };
        let reply = match pass.unless(Stop::Abort, self.exchange(body, max_tokens)).await? {
            Ok(reply) => reply,
            Err(lost) => {
                if matches!(lost, Lost::TimedOut(_)) {
                    sent.entry.refused();
                }
                let is_out_of_reach = matches!(lost, Lost::OutOfReach(_));
                let message = self.redact(&lost.into_message());
                if is_out_of_reach && let Some((failures, is_first)) = self.breaker.out_of_reach() {
                    if is_first {
                        let patience_seconds = self.timing.outage.as_secs();
                        pass.note(Note::OutOfReach { message: message.clone(), patience_seconds });
                    }
                    return self.wait_for_server(pass, &sent, failures, &message);
                }
                if let Some(failures) = self.breaker.lost(Instant::now()) {
                    pass.fail(self.unreachable(failures, &message), Stop::Abort);
                    return Err(Stopped);
                }
                return Ok(Step::Failed(message.into()));
            }
        };
        self.breaker.spoke();
        self.pace.tell(Instant::now(), taken, &reply.limits);
        let meaning = classify(reply.status, reply.retry_after.as_deref(), &reply.body, SystemTime::now());
        self.act(pass, job, &sent, reply, meaning)
    }

    /// A server that has answered is out of reach: it may be restarting. All requests wait for it together.
    fn wait_for_server(&self, pass: &Pass, sent: &Sent<'_>, failures: u32, message: &str) -> Result<Step, Stopped> {
        if self.pace.out_of_reach(Instant::now(), sent.taken, self.timing.outage).is_err() {
            pass.fail(self.unreachable(failures, message), Stop::Abort);
            return Err(Stopped);
        }
        Ok(Step::Again)
    }

    /// Waits for a place in the window, the pace and the budget.
    async fn admit(
        &self,
        request: &Request,
        samples: usize,
    ) -> Result<(Entry<'_>, Taken, Reservation<'_>), ModelError> {
        let entry = self.window.enter().await;
        if self.was_cancelled_lately() {
            // the place may come from a cancelled pass: ours gets time to notice that it is cancelled as well, so
            // that nothing is sent just to be thrown away
            tokio::time::sleep(LOOK * 4).await;
        }
        let samples = u64::from(self.abilities.samples()).min(samples as u64);
        let most = estimated_prompt(request) + u64::from(request.sampling.max_tokens) * samples;
        let taken = self.pace.turn(most).await;
        let place = self.budget.reserve().await?;
        Ok((entry, taken, place))
    }

    /// Whether a request that failed after all its attempts, while others were answered, will never be answered.
    fn is_hopeless(&self, key: CallKey, failure: &Failure) -> bool {
        let now = crate::store::now_ms();
        failure.kind.as_ref().is_some_and(|kind| self.failing.count(key, kind, now) >= super::failing::RUNS)
    }

    /// How long a server may be silent before the first byte of a reply: it may queue the request, and writes all of an
    /// answer that is not streamed before it sends the first.
    pub(super) fn silence(&self, max_tokens: u32) -> Duration {
        self.timing.idle + self.timing.per_token.saturating_mul(max_tokens)
    }
}
