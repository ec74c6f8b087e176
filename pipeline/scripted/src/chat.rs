//! A chat request as far as it is looked at, and the reply in the shape that it asks for.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Choice, pieces, tokens_of};
use crate::draw::{hash_of, mix, share_of};
use crate::http::{Body, Reply};

/// Answers have at most this many tokens where the request names no limit.
const MOST_TOKENS: u64 = 1 << 20;

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
    n: Option<u32>,
    seed: Option<i64>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    response_format: Option<Value>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A chat request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chat {
    pub(crate) model: String,
    /// Text of the last message.
    pub(crate) text: String,
    pub(crate) prompt_tokens: u64,
    pub(crate) choices: u32,
    pub(crate) seed: u64,
    pub(crate) most_tokens: u64,
    pub(crate) is_stream: bool,
    pub(crate) has_usage: bool,
    pub(crate) logprobs: bool,
    pub(crate) top_logprobs: u32,
    /// The schema of `response_format`, of any shape.
    pub(crate) schema: Option<Value>,
    /// A schema that stands in a message instead.
    pub(crate) written_schema: Option<Value>,
}

impl Chat {
    /// Reads a body; an error says what is wrong with it.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let wire: Wire<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let last = wire.messages.last().ok_or("`messages` is empty")?;
        let text = last.content.map(content_text).transpose()?.unwrap_or_default();
        let letters: usize = wire.messages.iter().map(|message| message.content.map_or(0, |raw| raw.get().len())).sum();
        let format = wire.response_format.as_ref();
        let schema = format.filter(|format| format["type"] == "json_schema").map(|format| {
            format.pointer("/json_schema/schema").or(format.get("schema")).cloned().unwrap_or(Value::Null)
        });
        let written_schema = wire.messages.iter().rev().filter_map(|message| message.content).find_map(written_schema);
        Ok(Self {
            model: wire.model.map(Cow::into_owned).unwrap_or_default(),
            prompt_tokens: (letters / 4 + 4 * wire.messages.len()) as u64,
            text,
            choices: wire.n.unwrap_or(1),
            seed: wire.seed.map_or(0, i64::cast_unsigned),
            most_tokens: wire.max_completion_tokens.or(wire.max_tokens).unwrap_or(MOST_TOKENS),
            is_stream: wire.stream.unwrap_or(false),
            has_usage: wire.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
            logprobs: wire.logprobs.unwrap_or(false),
            top_logprobs: wire.top_logprobs.unwrap_or(0),
            schema,
            written_schema,
        })
    }
}

/// Content is a text, or a list of parts of which the texts count.
fn content_text(raw: &RawValue) -> Result<String, String> {
    let content: Value = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    Ok(match content {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    })
}

/// The JSON schema of an object that stands in a message's text.
fn written_schema(raw: &RawValue) -> Option<Value> {
    if !raw.get().contains("\\\"properties\\\"") {
        return None;
    }
    let text = content_text(raw).ok()?;
    text.match_indices('{').find_map(|(place, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[place..]).into_iter::<Value>();
        values.next()?.ok().filter(|value| value.get("properties").is_some_and(Value::is_object))
    })
}

/// How `usage` is told.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum UsageShape {
    #[default]
    Right,
    Missing,
    Wrong,
    Float,
}

/// All that goes into a reply beside the request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: UsageShape,
    pub(crate) counts_one: bool,
    pub(crate) cached: Option<u64>,
    pub(crate) gives_logprobs: bool,
    /// Decides ids.
    pub(crate) number: u64,
}

impl Told {
    pub(crate) fn completion_tokens(&self) -> u64 {
        let counted = if self.counts_one { 1 } else { self.choices.len() };
        // where tokens are listed, the one that ends an answer is among them
        let of = |choice: &Choice| choice.tokens + u64::from(self.gives_logprobs && choice.is_whole());
        self.choices.iter().take(counted).map(of).sum()
    }

    fn usage(&self, chat: &Chat) -> Value {
        let (prompt, completion) = (chat.prompt_tokens, self.completion_tokens());
        let mut usage = match (self.usage, self.number % 3) {
            (UsageShape::Missing, _) => return Value::Null,
            (UsageShape::Right, _) => {
                json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
            }
            (UsageShape::Float, _) => json!({
                "prompt_tokens": prompt as f64, "completion_tokens": completion as f64,
                "total_tokens": (prompt + completion) as f64,
            }),
            (UsageShape::Wrong, 0) => json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
            (UsageShape::Wrong, 1) => {
                json!({"prompt_tokens": prompt, "completion_tokens": completion * 1000, "total_tokens": 1})
            }
            (UsageShape::Wrong, _) => json!({"prompt_tokens": -1, "completion_tokens": -5, "total_tokens": "many"}),
        };
        if let Some(cached) = self.cached {
            usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
        }
        usage
    }

    /// The reply: one object, or a stream.
    pub(crate) fn reply(&self, chat: &Chat) -> Reply {
        if chat.is_stream { self.stream(chat) } else { Reply::json(200, self.object(chat)) }
    }

    fn object(&self, chat: &Chat) -> Vec<u8> {
        let choices: Vec<Value> = self
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                let mut message = json!({"role": "assistant", "content": choice.content});
                if let Some((name, thought)) = &choice.reasoning {
                    message[*name] = json!(thought);
                }
                let logprobs = self.gives_logprobs.then(|| logprobs(choice, chat.top_logprobs));
                json!({"index": index, "message": message, "finish_reason": choice.finish_reason, "logprobs": logprobs})
            })
            .collect();
        let mut object = json!({
            "id": self.id(), "object": "chat.completion", "created": created(), "model": chat.model, "choices": choices,
        });
        if self.usage != UsageShape::Missing {
            object["usage"] = self.usage(chat);
        }
        object.to_string().into_bytes()
    }

    fn stream(&self, chat: &Chat) -> Reply {
        let (id, created) = (self.id(), created());
        let event = |choices: Value, usage: Option<Value>| {
            let mut event = json!({
                "id": id, "object": "chat.completion.chunk", "created": created, "model": chat.model, "choices": choices,
            });
            if let Some(usage) = usage {
                event["usage"] = usage;
            }
            format!("data: {event}\n\n").into_bytes()
        };
        let mut events = Vec::new();
        for (index, choice) in self.choices.iter().enumerate() {
            let mut say = |delta: Value, finish: Value, logprobs: Option<Value>| {
                let mut said = json!({"index": index, "delta": delta, "finish_reason": finish});
                if let Some(logprobs) = logprobs {
                    said["logprobs"] = logprobs;
                }
                events.push(event(json!([said]), None));
            };
            say(json!({"role": "assistant", "content": null}), Value::Null, None);
            if let Some((name, thought)) = &choice.reasoning {
                for piece in pieces(thought) {
                    let logprobs = self.gives_logprobs.then(|| json!({"content": [token(piece, chat.top_logprobs)]}));
                    say(json!({*name: piece}), Value::Null, logprobs);
                }
            }
            for piece in pieces(choice.content.as_deref().unwrap_or_default()) {
                let logprobs = self.gives_logprobs.then(|| json!({"content": [token(piece, chat.top_logprobs)]}));
                say(json!({"content": piece}), Value::Null, logprobs);
            }
            let end =
                (self.gives_logprobs && choice.is_whole()).then(|| json!({"content": [token("", chat.top_logprobs)]}));
            say(json!({}), json!(choice.finish_reason), end);
        }
        if chat.has_usage && self.usage != UsageShape::Missing {
            events.push(event(json!([]), Some(self.usage(chat))));
        }
        events.push(b"data: [DONE]\n\n".to_vec());
        Reply {
            status: 200,
            headers: Vec::new(),
            content_type: Cow::Borrowed("text/event-stream"),
            body: Body::Events(events),
        }
    }

    fn id(&self) -> String {
        format!("chatcmpl-{:016x}", self.number)
    }
}

fn logprobs(choice: &Choice, top: u32) -> Value {
    let thought = choice.reasoning.as_ref().map(|(_, thought)| thought.as_str()).unwrap_or_default();
    let written = pieces(thought).into_iter().chain(pieces(choice.content.as_deref().unwrap_or_default()));
    let end = choice.is_whole().then_some("");
    json!({"content": written.chain(end).map(|piece| token(piece, top)).collect::<Vec<_>>()})
}

/// A token: its id and log-probability come from its letters.
fn token(piece: &str, top: u32) -> Value {
    let number = hash_of("token", piece.as_bytes());
    let logprob = -3.0 * share_of(number);
    let mut token = json!({"id": number % 49_152, "token": piece, "bytes": piece.as_bytes(), "logprob": logprob});
    if top > 0 {
        let others = (0..top.min(20)).map(|rank| {
            let other = mix(number, u64::from(rank));
            match rank {
                0 => json!({"id": number % 49_152, "token": piece, "bytes": piece.as_bytes(), "logprob": logprob}),
                _ => json!({"id": other % 49_152, "token": format!("~{rank}"), "logprob": logprob - f64::from(rank)}),
            }
        });
        token["top_logprobs"] = others.collect();
    }
    token
}

/// Seconds since 1970.
pub(crate) fn created() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or_default()
}

/// Tokens that an answer may still have in a context.
pub(crate) fn room(context: Option<u32>, chat: &Chat) -> u64 {
    let left = context.map_or(u64::MAX, |context| u64::from(context).saturating_sub(chat.prompt_tokens));
    left.min(chat.most_tokens)
}

/// Tokens of a JSON text: what an instance of a schema costs.
pub(crate) fn half_of(text: &str) -> u64 {
    tokens_of(text) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_whatever_else_it_holds() {
        let body = json!({
            "model": "m", "seed": 7, "max_tokens": 9, "temperature": 0.5, "something": {"new": [1]},
            "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "七\n"}]}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        });
        let chat = Chat::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!((chat.text.as_str(), chat.seed, chat.most_tokens, chat.choices), ("七\n", 7, 9, 1));
        assert_eq!(chat.schema, Some(json!({"type": "object"})));
        assert!(Chat::parse(b"{\"messages\": []}").is_err());
        assert!(Chat::parse(b"{\"messages\": [{\"content\": \"x").is_err());
    }

    #[test]
    fn a_schema_in_a_prompt_is_found() {
        let prompt =
            "Answer with JSON as {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}, please {";
        let body = json!({"messages": [{"role": "user", "content": prompt}]});
        let chat = Chat::parse(body.to_string().as_bytes()).unwrap();
        assert!(chat.written_schema.unwrap()["properties"]["a"].is_object());
    }
}
