//! What may go wrong: of the server as a whole, and of one request in the protocol's own form.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Failure of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error("listen at {address}: {source}; `--port 0` takes any free port")]
    Bind {
        /// Host and port.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The system refuses threads, signals or sockets.
    #[error("serve: {0}")]
    System(#[from] std::io::Error),
    /// The model cannot be opened.
    #[error("open the model `{model}`: {message}")]
    Open {
        /// Its path.
        model: String,
        /// Why.
        message: String,
    },
    /// The model cannot make a prompt of these messages.
    #[error("{0}")]
    Prompt(String),
}

/// A refusal as clients of the protocol read it: `{"error": {"message", "type", "param", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Cow<'static, str>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: Cow::Borrowed(code) }
    }

    fn of(param: &str, code: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, code, message) }
    }

    /// The body is no JSON, or not an object.
    pub(crate) fn bad_json(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_json", message)
    }

    /// A field of another type than it must be.
    pub(crate) fn bad_type(param: &str, wanted: &str, given: &Value) -> Self {
        Self::of(param, "invalid_type", format!("`{param}` must be {wanted}, not {}", kind_of(given)))
    }

    /// A field with a value that it cannot have.
    pub(crate) fn bad_value(param: &str, message: impl Into<String>) -> Self {
        Self::of(param, "invalid_value", message)
    }

    /// A field that must be there.
    pub(crate) fn missing(param: &str) -> Self {
        Self::of(param, "missing_required_parameter", format!("`{param}` is missing"))
    }

    /// What the protocol knows and this server cannot honour.
    pub(crate) fn unsupported(param: &str, why: &str) -> Self {
        Self::of(param, "unsupported_parameter", format!("`{param}` is not supported: {why}"))
    }

    /// What the protocol does not know.
    pub(crate) fn unknown(param: &str) -> Self {
        let message = format!("`{param}` is not a parameter that this server knows; leave it out");
        Self::of(param, "unknown_parameter", message)
    }

    /// A prompt that leaves no room.
    pub(crate) fn too_long(param: &str, prompt: usize, context: usize) -> Self {
        let message = format!(
            "the prompt has {prompt} tokens, and the context of {context} must hold prompt and answer; shorten `{param}`"
        );
        Self::of(param, "context_length_exceeded", message)
    }

    /// What the engine refuses, by its own word.
    pub(crate) fn refused(code: &str, message: String) -> Self {
        let code = if code == "context_exceeded" { "context_length_exceeded" } else { code };
        let refused = Self::new(StatusCode::BAD_REQUEST, "", message);
        Self { code: Cow::Owned(code.to_owned()), ..refused }
    }

    /// A model of another name.
    pub(crate) fn no_model(asked: &str, served: &str) -> Self {
        let message = format!("there is no model `{}` here; this server has `{served}`", shortened(asked));
        Self { param: Some("model".to_owned()), ..Self::new(StatusCode::NOT_FOUND, "model_not_found", message) }
    }

    /// No such path.
    pub(crate) fn no_path(path: &str) -> Self {
        let message = format!(
            "there is nothing at `{}`; there are `GET /health`, `GET /v1/models`, `POST /v1/chat/completions` and `POST /v1/completions`",
            shortened(path)
        );
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// A path asked with the wrong method.
    pub(crate) fn bad_method(method: &str) -> Self {
        let message = format!("this path does not take {}", shortened(method));
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// No key, or a wrong one.
    pub(crate) fn unauthorised() -> Self {
        let message = "this server asks for its key: `Authorization: Bearer KEY`; the key is missing or wrong";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    }

    /// A body that is not declared as JSON.
    pub(crate) fn bad_media() -> Self {
        let message = "the body must be declared as `content-type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// A body beyond the limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {} MiB", limit >> 20);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    /// A body that does not arrive.
    pub(crate) fn too_slow(seconds: u64) -> Self {
        let message = format!("the body did not arrive within {seconds} s");
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    /// Too many answers in flight.
    pub(crate) fn queue_full(limit: usize) -> Self {
        let message = format!("{limit} answers are in flight or waiting; ask again later");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
    }

    /// The server is about to end.
    pub(crate) fn ending() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "the server is ending")
    }

    /// A fault of ours.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    fn class(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The error object.
    pub(crate) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.class(), "param": self.param, "code": self.code}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What a client wrote, short enough to be sent back.
pub(crate) fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(MOST).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}
