//! What a client may ask, and what is refused by name.
//!
//! Only what the engine honours is taken. Fields without bearing on an answer (`user`, `metadata`, `store`) are ignored;
//! everything else is refused with the field's name, so that a client never believes that it got what it did not get.

mod chat;
mod completion;
mod sampling;

use serde_json::Value;

pub(crate) use chat::Chat;
pub(crate) use completion::{Completion, Prompt};
pub(crate) use sampling::{Asked, random};

/// Fields that say nothing about the answer.
const WITHOUT_BEARING: [&str; 5] = ["user", "metadata", "store", "safety_identifier", "prompt_cache_key"];

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn is_none(value: &Value) -> bool {
    value == "none"
}

fn never(_: &Value) -> bool {
    false
}
