//! Reads the lines of a batch's results into the call store, as if each had been answered live.
//!
//! Lines come in any order, some twice, some in the file of errors; the request is found by `custom_id`, which is the
//! call's key. The body of an answer is stored byte for byte.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Told;
use super::journal::Submission;
use super::provider::Provider;
use super::requests::Requests;
use crate::answer::Answer;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::model::Note;
use crate::openai::abilities::{Abilities, Ability};
use crate::openai::ask::Server;
use crate::openai::classify::{Meaning, classify};
use crate::openai::keep::{estimated_completion, estimated_prompt};
use crate::openai::wire::{Schema, Shape};
use crate::request::{Asked, Request};
use crate::store::{Kind, Reply, StoredCall, now_ms};

/// Requests refused as malformed, without any answer in the batch, that count like a wrong configuration.
const MOST_REFUSED: usize = 5;

#[derive(Deserialize)]
struct Line<'a> {
    custom_id: String,
    #[serde(borrow, default)]
    response: Option<Response<'a>>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default)]
    status_code: Option<u16>,
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
}

/// Takes in the results of one batch.
pub(super) struct Ingest {
    server: Arc<Server>,
    requests: Arc<Requests>,
    stage: String,
    created_ms: u64,
    told: Sender<Told>,
    answered: u64,
    refused: BTreeMap<CallKey, String>,
    was_named: bool,
    pub(super) tally: Tally,
}

/// What a batch's results hold besides what was stored.
#[derive(Default)]
pub(super) struct Tally {
    /// Requests that failed for a passing reason.
    pub(super) failed: BTreeMap<CallKey, String>,
    /// Lines of requests that are not in the batch.
    pub(super) unknown: u64,
    /// Lines that are no result.
    pub(super) unreadable: u64,
    /// Why nothing more should be asked.
    pub(super) stop: Option<ModelError>,
}

impl Ingest {
    pub(super) fn new(provider: &Provider, submission: &Submission) -> Self {
        Self {
            server: Arc::clone(&provider.server),
            requests: Arc::clone(&submission.requests),
            stage: submission.header.stage.clone(),
            created_ms: submission.created_ms,
            told: provider.told.clone(),
            answered: 0,
            refused: BTreeMap::new(),
            was_named: false,
            tally: Tally::default(),
        }
    }

    /// Takes in one line; `Ok(false)` if it is none.
    pub(super) fn take(&mut self, text: &[u8]) -> Result<bool, ModelError> {
        if text.trim_ascii().is_empty() {
            return Ok(true);
        }
        let Ok(line) = serde_json::from_slice::<Line<'_>>(text) else {
            self.tally.unreadable += 1;
            return Ok(false);
        };
        let key = line.custom_id.parse::<CallKey>().ok().filter(|key| self.requests.contains(key));
        let Some(key) = key else {
            self.tally.unknown += 1;
            return Ok(true);
        };
        if let Some(kind) = self.server.calls.verified(&key)? {
            self.answered += u64::from(kind == Kind::Answer);
            self.tell(Told::Known { key, kind });
            return Ok(true);
        }
        let Some(request) = self.request(&key)? else {
            return Ok(true);
        };
        let (body, meaning) = meaning(&line);
        match meaning {
            Meaning::Answer(answer) => self.keep_answer(key, request, body, &answer)?,
            Meaning::RowError { code, message } => self.keep_row_error(key, request, code, &message)?,
            Meaning::BadRequest(message) if self.is_about_schema(&request, &body) => {
                let message = self.server.redact(&message);
                if let Some(note) = self.server.abilities.do_without(Ability::Schema, message.clone()) {
                    self.tell(Told::Note(note));
                }
                self.tally.failed.insert(key, message);
            }
            Meaning::BadRequest(message) => {
                self.refused.insert(key, message);
            }
            Meaning::Wait(_) => {
                self.tally.failed.insert(key, "the provider had no room for it".to_owned());
            }
            Meaning::Again { message, .. } => {
                self.tally.failed.insert(key, self.server.redact(&message));
            }
            Meaning::KeyRefused(message) | Meaning::Refused(message) => {
                let message = self.server.redact(&message);
                let status = line.response.and_then(|response| response.status_code).unwrap_or_default();
                self.tally.stop.get_or_insert(self.refusal(status, &message));
                self.tally.failed.insert(key, message);
            }
        }
        Ok(true)
    }

    /// Decides about requests that were refused as malformed: the rows are at fault only where others were answered.
    pub(super) fn finish(mut self) -> Result<Tally, ModelError> {
        let refused = std::mem::take(&mut self.refused);
        let is_rows_fault = self.answered > 0;
        let count = refused.len();
        for (key, message) in refused {
            if self.server.calls.contains(&key) {
                continue;
            }
            if !is_rows_fault {
                let message = self.server.redact(&message);
                if count >= MOST_REFUSED {
                    self.tally.stop.get_or_insert(self.refusal(400, &message));
                }
                self.tally.failed.insert(key, message);
            } else if let Some(request) = self.request(&key)? {
                self.keep_row_error(key, request, "bad_request", &message)?;
            }
        }
        Ok(self.tally)
    }

    /// Whether a refusal is about the JSON schema that went along, which can go into the prompt instead.
    fn is_about_schema(&self, request: &Request, body: &str) -> bool {
        let sent = Shape { samples: 1, is_streamed: false, is_counted: false, schema: Schema::Server };
        request.schema.is_some()
            && !self.server.abilities.is_schema_required()
            && Abilities::concerned(sent, body) == Some(Ability::Schema)
    }

    fn request(&self, key: &CallKey) -> Result<Option<Request>, ModelError> {
        self.requests.get(key).map_err(|error| ModelError::store(self.server.calls.folder(), error))
    }

    fn keep_answer(&mut self, key: CallKey, request: Request, body: String, answer: &Answer) -> Result<(), ModelError> {
        self.answered += 1;
        let prompt_tokens = answer.prompt_tokens.unwrap_or_else(|| estimated_prompt(&request));
        let completion_tokens = answer.completion_tokens.unwrap_or_else(|| estimated_completion(answer));
        let cached = answer.cached_tokens.unwrap_or(0);
        let money =
            self.server.price.as_ref().map_or(0.0, |price| price.cost(prompt_tokens, cached, completion_tokens));
        self.append(key, request, Reply::Answer(body))?;
        self.server.budget.spend(prompt_tokens + completion_tokens, money);
        if let Some(answered) = answer.model.as_ref().filter(|name| **name != self.server.id.model && !self.was_named) {
            self.was_named = true;
            self.tell(Told::Note(Note::OtherModel { answered: answered.clone() }));
        }
        self.tell(Told::Answered { key, prompt_tokens, cached_tokens: cached, completion_tokens, money });
        Ok(())
    }

    fn keep_row_error(&self, key: CallKey, request: Request, code: &str, message: &str) -> Result<(), ModelError> {
        let message = self.server.redact(message);
        self.append(key, request, Reply::RowError { code: code.to_owned(), message })?;
        self.tell(Told::RowError { key });
        Ok(())
    }

    fn append(&self, key: CallKey, request: Request, reply: Reply) -> Result<(), ModelError> {
        let time_ms = now_ms();
        let call = StoredCall {
            model: self.server.id.clone(),
            request: Asked::Answer(request),
            reply,
            stage: self.stage.clone(),
            host: self.server.host.clone(),
            time_ms,
            latency_ms: time_ms.saturating_sub(self.created_ms),
        };
        self.server.calls.append(&key, &call)
    }

    fn refusal(&self, status: u16, message: &str) -> ModelError {
        let (model, host, message) = (self.server.name.clone(), self.server.host.clone(), message.to_owned());
        match status {
            401..=403 | 429 => ModelError::KeyRefused { model, host, status, message },
            _ => ModelError::Refused { model, host, status, message },
        }
    }

    fn tell(&self, told: Told) {
        // Nobody listens any more only when the pass has returned.
        let _ = self.told.send(told);
    }
}

/// The body of a line, and what it means.
fn meaning(line: &Line<'_>) -> (String, Meaning) {
    let now = SystemTime::now();
    if let Some((response, body)) = line.response.as_ref().and_then(|response| Some((response, response.body?))) {
        // Some providers give the body as a text that holds JSON.
        let text = serde_json::from_str::<String>(body.get()).unwrap_or_else(|_| body.get().to_owned());
        let meaning = classify(response.status_code.unwrap_or(200), None, &text, now);
        return (text, meaning);
    }
    let Some(error) = &line.error else {
        return (String::new(), Meaning::again("the result holds neither answer nor error"));
    };
    // Without a status only what is known to be the row's own fault is final; an expired request, above all, is not.
    let text = serde_json::json!({ "error": error }).to_string();
    let meaning = match classify(400, None, &text, now) {
        Meaning::BadRequest(message) | Meaning::Refused(message) | Meaning::KeyRefused(message) => {
            Meaning::again(message)
        }
        other => other,
    };
    (text, meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Meaning {
        meaning(&serde_json::from_str(text).unwrap()).1
    }

    #[test]
    fn a_body_keeps_its_bytes() {
        let body = r#"{ "choices":[{"message":{"content":"\u4e03 é"}}],  "x":1.50}"#;
        for shown in [body.to_owned(), serde_json::to_string(body).unwrap()] {
            let text = format!(r#"{{"custom_id":"a","error":null,"response":{{"status_code":200,"body":{shown}}}}}"#);
            let (found, meaning) = meaning(&serde_json::from_str(&text).unwrap());
            assert_eq!(found, body);
            assert!(matches!(meaning, Meaning::Answer(_)));
        }
    }

    #[test]
    fn an_expired_request_is_asked_again_and_one_too_long_is_not() {
        let expired = r#"{"custom_id":"a","response":null,"error":{"code":"batch_expired","message":"late"}}"#;
        assert_eq!(read(expired), Meaning::again("late"));
        let long = expired.replace("batch_expired", "context_length_exceeded");
        assert!(matches!(read(&long), Meaning::RowError { code: "context_exceeded", .. }));
        assert!(matches!(read(r#"{"custom_id":"a"}"#), Meaning::Again { .. }));
        let refused = r#"{"custom_id":"a","response":{"status_code":400,"body":{"error":{"message":"no"}}}}"#;
        assert_eq!(read(refused), Meaning::BadRequest("no".to_owned()));
    }
}
