//! Answers in the protocol's form: whole, or as the events of a stream.

mod logprobs;
mod stream;
mod whole;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stage_candle::decode::{Drawn, End};

use crate::engine::Engine;
use crate::error::ApiError;
use crate::request::random;

pub(crate) use logprobs::Offsets;
pub(crate) use stream::stream;
pub(crate) use whole::whole;

/// Which of the two endpoints answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Text,
}

/// What every part of an answer says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) form: Form,
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
}

impl Header {
    pub(crate) fn new(form: Form, model: String, fingerprint: &str) -> Self {
        let prefix = match form {
            Form::Chat => "chatcmpl",
            Form::Text => "cmpl",
        };
        let id = format!("{prefix}-{:016x}{:016x}", random(), random());
        Self { form, id, created: now(), model, fingerprint: fingerprint.to_owned() }
    }

    fn object(&self, is_chunk: bool) -> &'static str {
        match (self.form, is_chunk) {
            (Form::Chat, true) => "chat.completion.chunk",
            (Form::Chat, false) => "chat.completion",
            (Form::Text, _) => "text_completion",
        }
    }

    /// An answer with these choices.
    fn with(&self, is_chunk: bool, choices: Vec<Value>) -> Value {
        let mut answer = json!({
            "id": self.id, "object": self.object(is_chunk), "created": self.created, "model": self.model,
            "system_fingerprint": self.fingerprint,
        });
        answer["choices"] = Value::Array(choices);
        answer
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

/// What of a choice is given beside its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) logprobs: bool,
    pub(crate) include_usage: bool,
}

/// Tokens read and written, all choices together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) completion: usize,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt, "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        })
    }
}

/// The protocol's word for an end; an error where there is no answer.
fn finish_reason(end: End) -> Result<&'static str, ApiError> {
    match end {
        End::Complete => Ok("stop"),
        End::Cut => Ok("length"),
        End::GivenUp => Err(ApiError::ending()),
        End::Refused { code, message } => Err(ApiError::refused(&code, message)),
        End::Failed { message } => Err(ApiError::internal(message)),
    }
}

/// Log-probabilities of some tokens in the form of the endpoint; null where they were not asked for.
fn logprobs(form: Form, engine: &dyn Engine, tokens: &[Drawn], wish: Wish, offsets: &mut Offsets) -> Value {
    match form {
        _ if !wish.logprobs => Value::Null,
        Form::Chat => logprobs::chat(engine, tokens),
        Form::Text => logprobs::text(engine, tokens, offsets),
    }
}
