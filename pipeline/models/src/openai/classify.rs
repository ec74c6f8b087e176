//! What a reply means: an answer, a reason to wait, to try again, to give a row up, or to stop the run.
//!
//! Servers word their errors differently; the table is made from those of llama.cpp, vLLM, and the
//! services that follow `OpenAI`. A refusal that is not known to be the row's own fault is never stored
//! before an answer of the same pass has shown that the shape of the requests is right.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::answer::{Answer, parse_answer};

/// What to do about a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Meaning {
    /// Store and count it.
    Answer(Box<Answer>),
    /// All requests wait.
    Wait(Option<Duration>),
    /// A passing failure of the server, as far as one reply tells; `kind` says what it did where it may do so to this
    /// request alone, again and again.
    Again { message: String, kind: Option<String> },
    /// This request can never be answered.
    RowError { code: &'static str, message: String },
    /// Refused for a reason that may be the row's or the configuration's.
    BadRequest(String),
    /// The key or account is refused.
    KeyRefused(String),
    /// The model or the address is wrong.
    Refused(String),
}

impl Meaning {
    /// A passing failure that is not the request's own.
    pub(super) fn again(message: impl Into<String>) -> Self {
        Self::Again { message: message.into(), kind: None }
    }
}

const CONTEXT: [&str; 11] = [
    "exceed_context_size",
    "context_length_exceeded",
    "maximum context length",
    "context window",
    "context length",
    "context size",
    "max_model_len",
    "prompt is too long",
    "input is too long",
    "longer than the maximum model length",
    "too many tokens",
];
const CONTENT: [&str; 5] =
    ["content_filter", "content_policy", "data_inspection_failed", "content management policy", "content exists risk"];
const NO_MODEL: [&str; 4] = ["model_not_found", "model not found", "does not exist", "no such model"];
const QUOTA: [&str; 3] = ["insufficient_quota", "insufficient balance", "billing_hard_limit"];

/// Reads a reply. `retry_after` is that header's text, `now` what its date is compared with.
pub(super) fn classify(status: u16, retry_after: Option<&str>, body: &str, now: SystemTime) -> Meaning {
    let wait = retry_after.and_then(|text| parse_retry_after(text, now));
    match status {
        200..=299 => success(status, body, wait),
        300..=399 => Meaning::Refused("the server redirects; give the final address as `base_url`".to_owned()),
        _ => failure(status, body, wait),
    }
}

/// Seconds, also with a fraction, or an HTTP date; a date in the past is no wait. What is no time at all (a negative
/// number, `nan`) counts as not given, so that our own growing wait applies.
pub(super) fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

fn success(status: u16, body: &str, wait: Option<Duration>) -> Meaning {
    match parse_answer(body) {
        Ok(answer) => Meaning::Answer(Box::new(answer)),
        Err(error) => match carried_status(body) {
            // Some gateways pass an error on with status 200.
            Some(carried) if carried != status => failure(carried, body, wait),
            _ => Meaning::Again { message: format!("unreadable reply: {error}"), kind: Some("unreadable".to_owned()) },
        },
    }
}

fn failure(status: u16, body: &str, wait: Option<Duration>) -> Meaning {
    let message = error_message(body);
    let says = |words: &[&str]| {
        let body = body.to_lowercase();
        words.iter().any(|word| body.contains(word))
    };
    match status {
        429 if says(&QUOTA) => Meaning::KeyRefused(message),
        429 => Meaning::Wait(wait),
        503 | 529 if wait.is_some() => Meaning::Wait(wait),
        401..=403 if says(&CONTENT) => Meaning::RowError { code: "content_filter", message },
        401..=403 => Meaning::KeyRefused(message),
        404 | 405 | 410 => Meaning::Refused(message),
        408 | 409 | 425 | 502..=504 | 529 => Meaning::again(format!("status {status}: {message}")),
        400..=499 if says(&CONTEXT) => Meaning::RowError { code: "context_exceeded", message },
        400..=499 if says(&CONTENT) => Meaning::RowError { code: "content_filter", message },
        400..=499 if says(&NO_MODEL) => Meaning::Refused(message),
        413 => Meaning::RowError { code: "request_too_large", message },
        400..=499 => Meaning::BadRequest(message),
        _ => Meaning::Again { message: format!("status {status}: {message}"), kind: Some(format!("status {status}")) },
    }
}

/// Status in `error.code`, if it is one of an error.
pub(super) fn carried_status(body: &str) -> Option<u16> {
    let value: Value = serde_json::from_str(body).ok()?;
    let code = value.get("error")?.get("code")?;
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(code).ok().filter(|code| (400..600).contains(code))
}

/// Characters of an error that are read. They are shortened for a reader once the key was taken out.
const READ: usize = 20_000;

/// The server's words: `error.message`, `error`, `message` or `detail`, else the body.
fn error_message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let error = value.get("error");
    let found = error
        .and_then(|error| error.get("message"))
        .or(error)
        .or_else(|| value.get("message"))
        .or_else(|| value.get("detail"))
        .filter(|found| !found.is_null());
    let text = match found {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => body.trim().to_owned(),
    };
    if text.is_empty() {
        return "no message".to_owned();
    }
    text.chars().take(READ).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(status: u16, body: &str) -> Meaning {
        classify(status, None, body, SystemTime::UNIX_EPOCH)
    }

    fn error(message: &str) -> String {
        format!(r#"{{"error":{{"message":"{message}","type":"x","code":null}}}}"#)
    }

    #[test]
    fn the_wait_is_read_as_seconds_or_as_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let cases = [
            ("0", Some(0)),
            (" 17 ", Some(17)),
            ("-3", None),
            ("nan", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("1e400", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(parse_retry_after("0.5", now), Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_request_that_exceeds_the_context_is_the_rows_own_error() {
        let bodies = [
            r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":2048}}"#,
            r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
            r#"{"object":"error","message":"This model's maximum context length is 2048 tokens.","code":400}"#,
        ];
        for body in bodies {
            let is_context = matches!(meaning(400, body), Meaning::RowError { code: "context_exceeded", .. });
            assert!(is_context, "{body}");
        }
    }

    #[test]
    fn statuses_mean_what_they_mean() {
        let no_model = error("The model `x` does not exist");
        assert_eq!(meaning(429, ""), Meaning::Wait(None));
        assert_eq!(classify(503, Some("2"), "", SystemTime::now()), Meaning::Wait(Some(Duration::from_secs(2))));
        assert!(matches!(
            meaning(429, r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#),
            Meaning::KeyRefused(_)
        ));
        assert_eq!(meaning(401, &error("bad key")), Meaning::KeyRefused("bad key".to_owned()));
        assert!(matches!(meaning(402, ""), Meaning::KeyRefused(_)));
        assert!(matches!(meaning(403, ""), Meaning::KeyRefused(_)));
        assert!(matches!(meaning(404, &no_model), Meaning::Refused(_)));
        assert!(matches!(meaning(400, &no_model), Meaning::Refused(_)));
        assert!(matches!(meaning(400, &error("top_k: unknown")), Meaning::BadRequest(_)));
        assert!(matches!(meaning(302, ""), Meaning::Refused(_)));
        let again =
            |message: &str, kind: &str| Meaning::Again { message: message.to_owned(), kind: Some(kind.to_owned()) };
        assert_eq!(meaning(500, "oops"), again("status 500: oops", "status 500"));
        assert!(matches!(meaning(503, ""), Meaning::Again { kind: None, .. }));
        assert!(matches!(meaning(200, "{\"choices\":[{\"mess"), Meaning::Again { kind: Some(_), .. }));
        assert!(matches!(meaning(200, r#"{"error":{"message":"slow down","code":429}}"#), Meaning::Wait(_)));
        assert!(matches!(meaning(200, r#"{"choices":[{"message":{"content":"x"}}]}"#), Meaning::Answer(_)));
    }

    #[test]
    fn the_servers_words_are_found_wherever_they_stand() {
        for body in
            [r#"{"error":"no"}"#, r#"{"message":"no"}"#, r#"{"detail":"no"}"#, r#"{"error":{"message":"no"}}"#, "no\n"]
        {
            assert_eq!(error_message(body), "no");
        }
    }
}
