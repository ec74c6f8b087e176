//! The body of a chat completion request.
//!
//! Every sampling parameter is sent, since servers have defaults of their own that truncate the distribution.
//! Always one choice: some servers cap `n` at their slots and count tokens of one choice only.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::request::{Message, Request};

/// Servers differ in the integers they take as a seed; all take 31 bits.
const SEED_MASK: u64 = 0x7fff_ffff;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    temperature: f64,
    top_p: f64,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    // Without `top_logprobs` some servers give no log-probabilities at all, and say nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<u32>,
    n: u32,
    stream: bool,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Box<RawValue>>,
}

/// The body for one request; an error says which part of the row is no JSON.
pub(super) fn body(model: &str, request: &Request) -> Result<Vec<u8>, String> {
    let sampling = &request.sampling;
    let messages = request.messages.iter().map(message).collect::<Result<_, _>>()?;
    let body = Body {
        model,
        messages,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        max_tokens: sampling.max_tokens,
        top_k: sampling.top_k,
        min_p: sampling.min_p,
        stop: &sampling.stop,
        seed: sampling.seed.map(|seed| seed & SEED_MASK),
        logprobs: sampling.logprobs.then_some(true),
        top_logprobs: sampling.logprobs.then_some(1),
        n: 1,
        stream: false,
    };
    serde_json::to_vec(&body).map_err(|error| error.to_string())
}

fn message(message: &Message) -> Result<WireMessage<'_>, String> {
    let tool_calls = match &message.tool_calls {
        None => None,
        Some(text) => {
            Some(RawValue::from_string(text.clone()).map_err(|error| format!("`tool_calls` is no JSON: {error}"))?)
        }
    };
    Ok(WireMessage { role: &message.role, content: &message.content, tool_calls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Sampling;

    #[test]
    fn everything_that_decides_the_distribution_is_sent() {
        let mut call = Message::new("assistant", "");
        call.tool_calls = Some(r#"[{"id":"1"}]"#.to_owned());
        let sampling = Sampling { seed: Some(u64::MAX), logprobs: true, ..Sampling::full(0.8, 48) };
        let request = Request::new(vec![Message::new("user", "七"), call], sampling, 4);
        let json: serde_json::Value = serde_json::from_slice(&body("m", &request).unwrap()).unwrap();
        let expected = serde_json::json!({
            "model": "m",
            "messages": [{"role": "user", "content": "七"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}],
            "temperature": 0.8, "top_p": 1.0, "max_tokens": 48, "top_k": 0, "min_p": 0.0, "seed": 0x7fff_ffff,
            "logprobs": true, "top_logprobs": 1, "n": 1, "stream": false
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn tool_calls_that_are_no_json_are_the_rows_fault() {
        let mut call = Message::new("assistant", "");
        call.tool_calls = Some("[".to_owned());
        let request = Request::new(vec![call], Sampling::full(0.0, 1), 0);
        assert!(body("m", &request).unwrap_err().contains("tool_calls"));
    }
}
