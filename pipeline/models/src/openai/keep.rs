//! What is done about a reply: stored, counted, waited for, or the end of the pass.

use std::time::{Duration, Instant};

use super::Outcome;
use super::ask::{HttpReply, Server, Step};
use super::classify::Meaning;
use super::pace::Taken;
use super::pass::{Pass, Stop, Stopped};
use crate::answer::Answer;
use crate::budget::Reservation;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::model::Note;
use crate::request::{Asked, Request};
use crate::store::{Reply, StoredCall, now_ms};

impl Server {
    /// Does what a reply calls for.
    pub(super) fn act(
        &self,
        pass: &Pass,
        key: CallKey,
        request: &Request,
        reply: HttpReply,
        meaning: Meaning,
        (place, taken): (&Reservation<'_>, Taken),
    ) -> Result<Step, Stopped> {
        let status = reply.status;
        let stop = |error: ModelError| {
            pass.fail(error, Stop::Drain);
            Err(Stopped)
        };
        match meaning {
            Meaning::Answer(answer) => {
                Ok(Step::Done(self.keep_answer(pass, key, request, reply, &answer, (place, taken))))
            }
            Meaning::Wait(asked) => self.wait(pass, asked),
            Meaning::Again(message) => Ok(Step::Failed(self.redact(&message))),
            Meaning::RowError { code, message } => {
                Ok(Step::Done(self.keep_row_error(pass, key, request, code, &message)))
            }
            Meaning::KeyRefused(message) => stop(ModelError::KeyRefused {
                model: self.name.clone(),
                host: self.host.clone(),
                status,
                message: self.redact(&message),
            }),
            Meaning::Refused(message) => stop(self.refused(status, &message)),
            Meaning::BadRequest(message) => match self.breaker.refused() {
                Ok(true) => Ok(Step::Done(self.keep_row_error(pass, key, request, "bad_request", &message))),
                Ok(false) => {
                    Ok(Step::Done(Outcome::Transient(key, format!("status {status}: {}", self.redact(&message)))))
                }
                Err(_) => stop(self.refused(status, &message)),
            },
        }
    }

    /// Begins or lengthens the shared wait, unless patience is at its end.
    fn wait(&self, pass: &Pass, asked: Option<Duration>) -> Result<Step, Stopped> {
        match self.cool.refused(Instant::now(), asked, self.timing.patience) {
            Ok(started) => {
                if let Some(wait) = started {
                    pass.note(Note::RateLimited { wait_seconds: wait.as_secs() });
                }
                Ok(Step::Wait)
            }
            Err(impatient) => {
                let error = ModelError::RateLimited {
                    model: self.name.clone(),
                    host: self.host.clone(),
                    wait_seconds: impatient.wait.as_secs(),
                };
                pass.fail(error, Stop::Drain);
                Err(Stopped)
            }
        }
    }

    fn keep_answer(
        &self,
        pass: &Pass,
        key: CallKey,
        request: &Request,
        reply: HttpReply,
        answer: &Answer,
        (place, taken): (&Reservation<'_>, Taken),
    ) -> Outcome {
        let prompt_tokens = answer.prompt_tokens.unwrap_or_else(|| estimated_prompt(request));
        let completion_tokens = answer.completion_tokens.unwrap_or_else(|| estimated_completion(answer));
        let cached_tokens = answer.cached_tokens.unwrap_or(0);
        let money =
            self.price.as_ref().map_or(0.0, |price| price.cost(prompt_tokens, cached_tokens, completion_tokens));
        place.spend(prompt_tokens + completion_tokens, money);
        self.pace.correct(taken, prompt_tokens + completion_tokens);
        self.cool.answered();
        self.breaker.answered(Instant::now());
        match &answer.model {
            Some(answered) if *answered != self.id.model => pass.note_name(answered),
            _ => {}
        }
        match self.append(pass, &key, request, Reply::Answer(reply.body), reply.latency) {
            Ok(()) => Outcome::Answered { prompt_tokens, completion_tokens, money },
            Err(error) => {
                pass.fail(error, Stop::Drain);
                Outcome::Stopped
            }
        }
    }

    /// Stores that a request can never be answered.
    pub(super) fn keep_row_error(
        &self,
        pass: &Pass,
        key: CallKey,
        request: &Request,
        code: &str,
        message: &str,
    ) -> Outcome {
        let reply = Reply::RowError { code: code.to_owned(), message: self.redact(message) };
        match self.append(pass, &key, request, reply, Duration::ZERO) {
            Ok(()) => Outcome::RowError,
            Err(error) => {
                pass.fail(error, Stop::Drain);
                Outcome::Stopped
            }
        }
    }

    fn append(
        &self,
        pass: &Pass,
        key: &CallKey,
        request: &Request,
        reply: Reply,
        latency: Duration,
    ) -> Result<(), ModelError> {
        let call = StoredCall {
            model: self.id.clone(),
            request: Asked::Answer(request.clone()),
            reply,
            stage: pass.stage.clone(),
            host: self.host.clone(),
            time_ms: now_ms(),
            latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        };
        self.calls.append(key, &call)
    }

    pub(super) fn unreachable(&self, failures: u32, message: &str) -> ModelError {
        ModelError::Unreachable {
            model: self.name.clone(),
            host: self.host.clone(),
            failures,
            message: message.to_owned(),
        }
    }

    fn refused(&self, status: u16, message: &str) -> ModelError {
        ModelError::Refused { model: self.name.clone(), host: self.host.clone(), status, message: self.redact(message) }
    }

    /// Text of a server or the network without the key.
    pub(super) fn redact(&self, text: &str) -> String {
        self.secret.as_ref().map_or_else(|| text.to_owned(), |secret| secret.redact(text))
    }
}

/// Tokens of a request, roughly: three bytes a token fit Chinese, and overrate English.
pub(super) fn estimated_prompt(request: &Request) -> u64 {
    request.messages.iter().map(|message| message.content.len() as u64 / 3 + 4).sum()
}

pub(super) fn estimated_completion(answer: &Answer) -> u64 {
    let reasoning = answer.reasoning.as_ref().map_or(0, String::len);
    (answer.text.len().max(reasoning + answer.answer_text.len()) as u64).div_ceil(3)
}
