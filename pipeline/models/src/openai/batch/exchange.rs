//! One request to the provider: sent, read, and understood; and the wait before the next try.

use std::time::{Duration, Instant, SystemTime};

use reqwest::header::RETRY_AFTER;
use reqwest::{RequestBuilder, Response};
use tokio::time::{sleep, timeout};

use super::Told;
use super::provider::Provider;
use crate::error::ModelError;
use crate::model::Note;
use crate::openai::classify::{Meaning, classify};
use crate::openai::connect::chain;

/// No reply but a file is longer.
const MOST_REPLY: usize = 64 << 20;
/// No line of a file is longer.
const MOST_LINE: usize = 256 << 20;

/// Why a request gave nothing.
pub(super) enum Failure {
    /// The provider does not know what was asked for.
    Missing(String),
    Error(ModelError),
}

/// What came of one sending.
pub(super) enum Trouble {
    /// The provider asks to wait.
    Wait(Option<Duration>),
    /// A passing failure; whether anything was done is not known.
    Again(String),
    /// Not there, with the status.
    Missing(u16, String),
    Final(ModelError),
}

/// How long one thing has been tried.
pub(super) struct Tries {
    failures: u32,
    waits: u32,
    since: Instant,
}

impl Tries {
    pub(super) fn new() -> Self {
        Self { failures: 0, waits: 0, since: Instant::now() }
    }
}

impl Provider {
    /// Waits before the next try, or says why there is none.
    pub(super) async fn rest(&self, trouble: Trouble, tries: &mut Tries) -> Result<(), Failure> {
        let timing = &self.server.timing;
        let backoff = |count: u32| {
            timing.backoff.saturating_mul(1 << count.clamp(1, 17).saturating_sub(1)).min(timing.most_backoff)
        };
        let wait = match trouble {
            Trouble::Final(error) => return Err(Failure::Error(error)),
            Trouble::Missing(_, message) => return Err(Failure::Missing(message)),
            Trouble::Wait(asked) => {
                tries.waits += 1;
                let wait = asked.unwrap_or_else(|| backoff(tries.waits));
                if tries.since.elapsed() + wait > timing.patience {
                    return Err(Failure::Error(ModelError::RateLimited {
                        model: self.server.name.clone(),
                        host: self.server.host.clone(),
                        wait_seconds: wait.as_secs(),
                    }));
                }
                self.note(Note::RateLimited { wait_seconds: wait.as_secs() });
                wait
            }
            Trouble::Again(message) => {
                tries.failures += 1;
                if tries.failures >= timing.attempts.max(1) {
                    return Err(Failure::Error(self.server.unreachable(tries.failures, &message)));
                }
                self.note(Note::Retrying { message });
                backoff(tries.failures)
            }
        };
        sleep(wait).await;
        Ok(())
    }

    /// Sends and reads the reply.
    pub(super) async fn once(&self, request: RequestBuilder, silence: Duration) -> Result<String, Trouble> {
        let response = self.send(request, silence).await?;
        self.text(response).await
    }

    /// Sends, and reads the reply of a refusal.
    pub(super) async fn send(&self, request: RequestBuilder, silence: Duration) -> Result<Response, Trouble> {
        let sent = timeout(silence, request.send()).await;
        let response = sent
            .map_err(|_| Trouble::Again(format!("no reply within {} s", silence.as_secs_f32())))?
            .map_err(|error| self.lost(error))?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = self.text(response).await?;
        Err(self.trouble(status, retry_after.as_deref(), &body))
    }

    fn trouble(&self, status: u16, retry_after: Option<&str>, body: &str) -> Trouble {
        let (model, host) = (self.server.name.clone(), self.server.host.clone());
        match classify(status, retry_after, body, SystemTime::now()) {
            Meaning::Wait(wait) => Trouble::Wait(wait),
            Meaning::Again { message, .. } => Trouble::Again(self.server.redact(&message)),
            Meaning::Answer(_) => Trouble::Again("an answer came where none was asked for".to_owned()),
            Meaning::KeyRefused(message) => {
                Trouble::Final(ModelError::KeyRefused { model, host, status, message: self.server.redact(&message) })
            }
            Meaning::Refused(message) if matches!(status, 404 | 405 | 410) => {
                Trouble::Missing(status, format!("status {status}: {}", self.server.redact(&message)))
            }
            Meaning::Refused(message) | Meaning::BadRequest(message) | Meaning::RowError { message, .. } => {
                Trouble::Final(ModelError::Refused { model, host, status, message: self.server.redact(&message) })
            }
        }
    }

    async fn text(&self, mut response: Response) -> Result<String, Trouble> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            bytes.extend_from_slice(chunk.as_ref());
            if bytes.len() > MOST_REPLY {
                return Err(Trouble::Again("the reply does not end".to_owned()));
            }
        }
        String::from_utf8(bytes).map_err(|_| Trouble::Again("the reply is not UTF-8".to_owned()))
    }

    async fn chunk(&self, response: &mut Response) -> Result<Option<impl AsRef<[u8]> + use<>>, Trouble> {
        let idle = self.server.timing.idle;
        timeout(idle, response.chunk())
            .await
            .map_err(|_| Trouble::Again(format!("the reply stopped for {} s", idle.as_secs_f32())))?
            .map_err(|error| self.lost(error))
    }

    /// Hands the lines of a reply to `take`, which says whether it was one.
    pub(super) async fn read_lines(
        &self,
        mut response: Response,
        take: &mut (impl FnMut(&[u8]) -> Result<bool, ModelError> + Send),
    ) -> Result<(), Trouble> {
        let mut pending: Vec<u8> = Vec::new();
        // a mark of the byte order is no part of the first line
        let mut take = |line: &[u8]| take(line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line));
        while let Some(chunk) = self.chunk(&mut response).await? {
            let mut rest = chunk.as_ref();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                pending.extend_from_slice(&rest[..end]);
                rest = &rest[end + 1..];
                // A whole line that is none is counted by who takes it, and costs its request only.
                let _is_line = take(&pending).map_err(Trouble::Final)?;
                pending.clear();
            }
            pending.extend_from_slice(rest);
            if pending.len() > MOST_LINE {
                return Err(Trouble::Again("a line of the file does not end".to_owned()));
            }
        }
        // Without a line end the file may have been cut where nobody noticed.
        if take(&pending).map_err(Trouble::Final)? { Ok(()) } else { Err(Trouble::Again("the file is cut".to_owned())) }
    }

    fn lost(&self, error: reqwest::Error) -> Trouble {
        Trouble::Again(self.server.redact(&chain(&error.without_url())))
    }

    fn note(&self, note: Note) {
        // Nobody listens any more only when the pass has returned.
        let _ = self.told.send(Told::Note(note));
    }
}

/// Reads a reply as JSON.
pub(super) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Trouble> {
    serde_json::from_str(text).map_err(|error| Trouble::Again(format!("unreadable reply: {error}")))
}
