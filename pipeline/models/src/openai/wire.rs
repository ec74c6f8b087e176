//! The body of a chat completion request.
//!
//! Every sampling parameter is sent, since servers have defaults of their own that truncate the distribution. What
//! servers differ in (several samples at once, streaming, JSON schemas) is in the [`Shape`].

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::request::{Message, Request};

/// Servers differ in the integers they take as a seed; all take 31 bits.
const SEED_MASK: u64 = 0x7fff_ffff;
/// Name of every schema: servers want one.
const SCHEMA_NAME: &str = "answer";
const SCHEMA_WORDS: &str = "Reply with a single JSON value and nothing else: no code fence, and no text before or after it. The value must be valid under this JSON schema:";

/// How a request is put to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Samples that one request asks for.
    pub(super) samples: u32,
    pub(super) is_streamed: bool,
    /// A streamed answer is to end with the count of its tokens.
    pub(super) is_counted: bool,
    pub(super) schema: Schema,
}

/// Where the schema of a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schema {
    /// There is none.
    None,
    /// Into `response_format`: the server enforces it.
    Server,
    /// To the end of the last message of the user.
    Prompt,
}

impl Shape {
    /// One sample, whole.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self { samples: 1, is_streamed: false, is_counted: false, schema: Schema::None };
}

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
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    n: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'a str,
    content: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: JsonSchema<'a>,
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    name: &'static str,
    schema: &'a RawValue,
    strict: bool,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The body for one request; an error says which part of the row is no JSON.
pub(super) fn body(model: &str, request: &Request, shape: Shape) -> Result<Vec<u8>, String> {
    let sampling = &request.sampling;
    let mut messages = request.messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    let mut response_format = None;
    if let Some(text) = &request.schema {
        let schema: &RawValue =
            serde_json::from_str(text).map_err(|error| format!("the JSON schema is no JSON: {error}"))?;
        match shape.schema {
            Schema::None => {}
            Schema::Server => {
                let json_schema = JsonSchema { name: SCHEMA_NAME, schema, strict: true };
                response_format = Some(ResponseFormat { r#type: "json_schema", json_schema });
            }
            Schema::Prompt => put_into_words(&mut messages, text),
        }
    }
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
        response_format,
        n: shape.samples,
        stream: shape.is_streamed,
        stream_options: (shape.is_streamed && shape.is_counted).then_some(StreamOptions { include_usage: true }),
    };
    serde_json::to_vec(&body).map_err(|error| error.to_string())
}

/// Writes the schema at the end of the last message of the user, or of the last message if there is none of the user.
fn put_into_words(messages: &mut [WireMessage<'_>], schema: &str) {
    let of_user = messages.iter().rposition(|message| message.role == "user");
    let place = of_user.or(messages.len().checked_sub(1));
    if let Some(message) = place.and_then(|place| messages.get_mut(place)) {
        message.content = Cow::Owned(format!("{}\n\n{SCHEMA_WORDS}\n{schema}", message.content));
    }
}

fn message(message: &Message) -> Result<WireMessage<'_>, String> {
    let tool_calls = match &message.tool_calls {
        None => None,
        Some(text) => {
            Some(RawValue::from_string(text.clone()).map_err(|error| format!("`tool_calls` is no JSON: {error}"))?)
        }
    };
    Ok(WireMessage { role: &message.role, content: Cow::Borrowed(&message.content), tool_calls })
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
        let json: serde_json::Value = serde_json::from_slice(&body("m", &request, Shape::PLAIN).unwrap()).unwrap();
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
        assert!(body("m", &request, Shape::PLAIN).unwrap_err().contains("tool_calls"));
    }

    fn written(request: &Request, shape: Shape) -> serde_json::Value {
        serde_json::from_slice(&body("m", request, shape).unwrap()).unwrap()
    }

    #[test]
    fn a_schema_goes_to_the_server_or_into_the_last_words_of_the_user() {
        let messages =
            vec![Message::new("user", "first"), Message::new("assistant", "a"), Message::new("user", "last")];
        let mut request = Request::new(messages, Sampling::full(0.0, 8), 0);
        request.schema = Some(r#"{"type":"object"}"#.to_owned());
        let json = written(&request, Shape { schema: Schema::Server, ..Shape::PLAIN });
        let expected = serde_json::json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true}});
        assert_eq!(json["response_format"], expected);
        assert_eq!(json["messages"][2]["content"], "last");
        let json = written(&request, Shape { schema: Schema::Prompt, ..Shape::PLAIN });
        assert_eq!(json.get("response_format"), None);
        let text = json["messages"][2]["content"].as_str().unwrap();
        assert!(text.starts_with("last\n\n") && text.ends_with("\n{\"type\":\"object\"}"), "{text}");
        assert_eq!(json["messages"][0]["content"], "first");
        request.schema = Some("{".to_owned());
        let error = body("m", &request, Shape { schema: Schema::Server, ..Shape::PLAIN }).unwrap_err();
        assert!(error.contains("schema"), "{error}");
    }

    #[test]
    fn a_stream_asks_for_its_count_of_tokens() {
        let request = Request::new(vec![Message::new("user", "a")], Sampling::full(0.0, 8), 0);
        let json = written(&request, Shape { is_streamed: true, is_counted: true, samples: 3, ..Shape::PLAIN });
        assert_eq!((&json["stream"], &json["n"]), (&true.into(), &3.into()));
        assert_eq!(json["stream_options"], serde_json::json!({"include_usage": true}));
        let json = written(&request, Shape { is_streamed: true, ..Shape::PLAIN });
        assert_eq!(json.get("stream_options"), None);
    }
}
