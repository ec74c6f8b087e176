//! Log-probabilities of tokens: natural logarithms at temperature 1, nothing truncated.
//!
//! The end token is listed like any other, with no text and no bytes. `id` is an addition to the protocol: training
//! needs the ids that were drawn, since encoding the text again gives other ones.

use serde_json::{Map, Value, json};
use stage_candle::decode::Drawn;

use crate::engine::Engine;

/// What stands for a token that has no chance at all: JSON knows no infinity.
const NO_CHANCE: f64 = -9999.0;

fn number(logprob: Option<f32>) -> Value {
    let logprob = f64::from(logprob.unwrap_or(f32::NEG_INFINITY));
    json!(if logprob.is_finite() { logprob.max(NO_CHANCE) } else { NO_CHANCE })
}

/// The form of chats.
pub(super) fn chat(engine: &dyn Engine, tokens: &[Drawn]) -> Value {
    let entry = |id: u32, logprob: Option<f32>| {
        let bytes = engine.bytes_of(id);
        let token = String::from_utf8_lossy(bytes);
        json!({"token": token, "id": id, "bytes": bytes, "logprob": number(logprob)})
    };
    let content = tokens.iter().map(|token| {
        let mut written = entry(token.id, token.logprob);
        written["top_logprobs"] = token.top.iter().map(|(id, logprob)| entry(*id, Some(*logprob))).collect();
        written
    });
    json!({"content": content.collect::<Vec<_>>(), "refusal": null})
}

/// Where the next token begins in the text of a completion, in characters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offsets(usize);

impl Offsets {
    /// After a text that was given back first.
    pub(crate) fn after(text: &str) -> Self {
        Self(text.chars().count())
    }

    /// A character counts where it begins; the bytes that continue it do not.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let begins = self.0;
        self.0 += bytes.iter().filter(|byte| *byte & 0b1100_0000 != 0b1000_0000).count();
        begins
    }
}

/// The form of completions: parallel lists.
pub(super) fn text(engine: &dyn Engine, tokens: &[Drawn], offsets: &mut Offsets) -> Value {
    let mut names = Vec::with_capacity(tokens.len());
    let mut logprobs = Vec::with_capacity(tokens.len());
    let mut tops = Vec::with_capacity(tokens.len());
    let mut places = Vec::with_capacity(tokens.len());
    for token in tokens {
        places.push(offsets.pass(engine.bytes_of(token.id)));
        names.push(name(engine, token.id));
        logprobs.push(number(token.logprob));
        let mut top = Map::new();
        for (id, logprob) in &token.top {
            // names may repeat, as those of control tokens do; the likeliest comes first and stays
            top.entry(name(engine, *id)).or_insert_with(|| number(Some(*logprob)));
        }
        if !token.top.is_empty() {
            top.entry(name(engine, token.id)).or_insert_with(|| number(token.logprob));
        }
        tops.push(Value::Object(top));
    }
    json!({"tokens": names, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": places})
}

/// A token's text; one that holds a part of a character is written as its bytes.
fn name(engine: &dyn Engine, id: u32) -> String {
    let bytes = engine.bytes_of(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}")),
    }
}
