//! The server through real connections on loopback, over a scripted engine. Names of tests are claims.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod answers;
mod clients;
mod refusals;
mod scripted;

use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn ask(content: &str) -> Value {
    json!({"model": "small", "messages": [{"role": "user", "content": content}]})
}

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}
