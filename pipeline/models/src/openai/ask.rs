//! One request from the wish for an answer to a stored answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Url};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::breaker::Breaker;
use super::classify::classify;
use super::keep::estimated_prompt;
use super::pace::{CoolDown, Pace, Taken, jitter};
use super::pass::{Pass, Stop, Stopped};
use super::{LOOK, Outcome, connect, wire};
use crate::budget::{Budget, Price};
use crate::claims::Claims;
use crate::config::Timing;
use crate::key::CallKey;
use crate::model::Note;
use crate::request::{ModelId, Request};
use crate::secret::Secret;
use crate::store::CallStore;

/// No reply is longer; a guard against a server that never ends.
const MOST_BYTES: usize = 256 << 20;

/// What all passes to one model share.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) host: String,
    pub(super) name: String,
    pub(super) id: ModelId,
    pub(super) secret: Option<Secret>,
    pub(super) permits: Semaphore,
    pub(super) pace: Pace,
    pub(super) cool: CoolDown,
    pub(super) breaker: Breaker,
    pub(super) claims: Claims,
    pub(super) budget: Arc<Budget>,
    pub(super) price: Option<Price>,
    pub(super) timing: Timing,
    pub(super) calls: Arc<CallStore>,
    /// When some pass was last cancelled.
    pub(super) cancelled: Mutex<Option<Instant>>,
}

/// A reply that was read to its end.
pub(super) struct HttpReply {
    pub(super) status: u16,
    retry_after: Option<String>,
    pub(super) body: String,
    pub(super) latency: Duration,
}

impl Server {
    /// Gets one answer into the store.
    pub(super) async fn ask(&self, pass: &Pass, key: CallKey, request: &Request) -> Outcome {
        let Ok(_claim) = pass.unless(Stop::Drain, self.claims.take(key)).await else {
            return Outcome::Stopped;
        };
        match self.calls.verified(&key) {
            Ok(Some(kind)) => return Outcome::Known(kind),
            Ok(None) => {}
            Err(error) => {
                pass.fail(error, Stop::Drain);
                return Outcome::Stopped;
            }
        }
        let body = match wire::body(&self.id.model, request) {
            Ok(body) => body,
            Err(message) => {
                return self.keep_row_error(pass, key, request, "bad_request", &message);
            }
        };
        let mut failures = 0;
        let mut attempt = 0;
        loop {
            let sent = self.attempt(pass, key, request, &body, attempt).await;
            attempt += 1;
            let failure = match sent {
                Err(Stopped) => return Outcome::Stopped,
                Ok(Step::Done(outcome)) => return outcome,
                Ok(Step::Wait) => continue,
                Ok(Step::Failed(failure)) => failure,
            };
            failures += 1;
            if failures >= self.timing.attempts.max(1) {
                if let Some(rows) = self.breaker.gave_up(Instant::now()) {
                    pass.fail(self.unreachable(rows, &failure), Stop::Drain);
                }
                return Outcome::Transient(key, failure);
            }
            pass.note(Note::Retrying { message: failure });
            let wait = self.timing.backoff.saturating_mul(1 << (failures - 1).min(16)).min(self.timing.most_backoff);
            let wait = wait.mul_f64(0.5 + 0.5 * jitter(&key.0, attempt));
            if pass.unless(Stop::Drain, tokio::time::sleep(wait)).await.is_err() {
                return Outcome::Stopped;
            }
        }
    }

    /// Remembers that a pass was cancelled.
    pub(super) fn note_cancelled(&self) {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn was_cancelled_lately(&self) -> bool {
        let cancelled = *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        cancelled.is_some_and(|time| time.elapsed() < LOOK * 10)
    }

    /// Sends once, when it is this request's turn.
    async fn attempt(
        &self,
        pass: &Pass,
        key: CallKey,
        request: &Request,
        body: &[u8],
        attempt: u32,
    ) -> Result<Step, Stopped> {
        let Ok(permit) = pass.unless(Stop::Drain, self.permits.acquire()).await? else {
            return Err(Stopped);
        };
        if self.was_cancelled_lately() {
            // the permit may come from a cancelled pass: ours gets time to notice that it is cancelled as well, so
            // that nothing is sent just to be thrown away
            pass.unless(Stop::Drain, tokio::time::sleep(LOOK * 4)).await?;
        }
        let taken = self.turn(pass, key, request, attempt).await?;
        let place = match pass.unless(Stop::Drain, self.budget.reserve()).await? {
            Ok(place) => place,
            Err(error) => {
                pass.fail(error, Stop::Drain);
                return Err(Stopped);
            }
        };
        let exchanged = pass.unless(Stop::Abort, self.exchange(body, request.sampling.max_tokens)).await?;
        drop(permit);
        let reply = match exchanged {
            Ok(reply) => reply,
            Err(message) => {
                let message = self.redact(&message);
                if let Some(failures) = self.breaker.lost(Instant::now()) {
                    pass.fail(self.unreachable(failures, &message), Stop::Abort);
                    return Err(Stopped);
                }
                return Ok(Step::Failed(message));
            }
        };
        self.breaker.spoke();
        let meaning = classify(reply.status, reply.retry_after.as_deref(), &reply.body, SystemTime::now());
        self.act(pass, key, request, reply, meaning, (&place, taken))
    }

    /// Waits for the shared cool-down and the rates.
    async fn turn(&self, pass: &Pass, key: CallKey, request: &Request, attempt: u32) -> Result<Taken, Stopped> {
        let share = jitter(&key.0, attempt);
        let most = estimated_prompt(request) + u64::from(request.sampling.max_tokens);
        loop {
            let wait = self.cool.wait(Instant::now(), share);
            if !wait.is_zero() {
                pass.unless(Stop::Drain, tokio::time::sleep(wait)).await?;
                continue;
            }
            let (wait, taken) = self.pace.take(Instant::now(), most);
            if wait.is_zero() {
                return Ok(taken);
            }
            pass.unless(Stop::Drain, tokio::time::sleep(wait)).await?;
            if self.cool.wait(Instant::now(), share).is_zero() {
                return Ok(taken);
            }
            // A refusal came meanwhile: this place goes unused and another is taken after the wait.
        }
    }

    /// Sends and reads to the end. Silence is limited, the whole is not.
    async fn exchange(&self, body: &[u8], max_tokens: u32) -> Result<HttpReply, String> {
        let started = Instant::now();
        let silence = self.timing.idle + self.timing.per_token.saturating_mul(max_tokens);
        let send =
            self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body.to_vec()).send();
        let mut response = timeout(silence, send)
            .await
            .map_err(|_| format!("no reply within {} s", silence.as_secs_f32()))?
            .map_err(|error| connect::chain(&error.without_url()))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut bytes = Vec::new();
        loop {
            let chunk = timeout(self.timing.idle, response.chunk())
                .await
                .map_err(|_| format!("the reply stopped for {} s", self.timing.idle.as_secs_f32()))?
                .map_err(|error| connect::chain(&error.without_url()))?;
            let Some(chunk) = chunk else { break };
            if bytes.len() + chunk.len() > MOST_BYTES {
                return Err("the reply does not end".to_owned());
            }
            bytes.extend_from_slice(&chunk);
        }
        let body = String::from_utf8(bytes).map_err(|_| "the reply is not UTF-8".to_owned())?;
        Ok(HttpReply { status, retry_after, body, latency: started.elapsed() })
    }
}

/// What one sending led to.
pub(super) enum Step {
    Done(Outcome),
    /// The server asked to wait: no failure.
    Wait,
    Failed(String),
}
