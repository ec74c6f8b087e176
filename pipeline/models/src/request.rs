//! What is asked of a model: messages, sampling, sample index; and who the model is.
//!
//! Servers fill in their own defaults for sampling parameters that are not sent (`top_k` 40, `min_p`
//! 0.05 ...), which silently truncates the distribution of section 2.1 of the report; so every
//! parameter that has a value here is sent, and all of them are part of the call key.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One turn of a conversation. Text is stored and sent byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text of the turn.
    pub content: String,
    /// Tool calls of an assistant turn, as JSON text (an array), so that their shape may differ from row to row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<String>,
}

impl Message {
    /// A turn without tool calls.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), tool_calls: None }
    }
}

/// How an answer is drawn. Each `Some` is sent; a `None` leaves the server's default in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy decoding; finite, not negative.
    pub temperature: f64,
    /// Share of the probability mass kept, in (0, 1]; 1 keeps all.
    pub top_p: f64,
    /// Number of tokens kept at each step; `Some(0)` keeps all. `None` for servers that refuse the parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Least probability relative to the best token, in [0, 1]; `Some(0.0)` keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Most tokens of an answer, reasoning included.
    pub max_tokens: u32,
    /// Texts that end an answer; servers leave them out of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed of this one sample, derived by the caller. Its lowest 31 bits are sent, since servers differ
    /// in the integers they take; the whole number is part of the call key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Ask for the log-probability of each token written. A server may still give none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logprobs: bool,
}

impl Sampling {
    /// Sampling from the whole distribution: temperature and limit given, nothing truncated.
    pub fn full(temperature: f64, max_tokens: u32) -> Self {
        Self {
            temperature,
            top_p: 1.0,
            top_k: Some(0),
            min_p: Some(0.0),
            max_tokens,
            stop: Vec::new(),
            seed: None,
            logprobs: false,
        }
    }
}

/// One answer wanted: independent samples of the same messages differ in `sample`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The whole conversation that the model sees, system prompt and shots included.
    pub messages: Vec<Message>,
    /// How the answer is drawn.
    pub sampling: Sampling,
    /// Index of the sample, from 0.
    pub sample: u32,
    /// Draws afresh where it differs; otherwise without meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// JSON schema, as compact JSON text, that the answer shall follow. Servers that can are made to enforce it; the
    /// answer must be checked all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Counts the askings of one sample from 0: an answer that could not be used is kept, and asked for again under the
    /// next number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Request {
    /// The first asking of a sample, in words.
    pub fn new(messages: Vec<Message>, sampling: Sampling, sample: u32) -> Self {
        Self { messages, sampling, sample, salt: None, schema: None, attempt: 0 }
    }
}

/// A given text to be scored: how likely the model finds it after the messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreRequest {
    /// The conversation before the text.
    pub messages: Vec<Message>,
    /// The text.
    pub response: String,
    /// Whether the text is complete: then the token that ends a turn is scored after it.
    pub is_complete: bool,
    /// Ids of the text as they were sampled, end token included where there was one; used instead of encoding the text
    /// when `tokenizer` is the scoring model's own and they are the ids of this very text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Digest of the tokenizer behind `token_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
}

/// What was asked in one call: an answer, or the score of a given text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Asked {
    /// An answer; told from a score by its `sampling`.
    Answer(Request),
    /// A score; told from an answer by its `response`.
    Score(ScoreRequest),
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        Self::Answer(request)
    }
}

impl From<ScoreRequest> for Asked {
    fn from(request: ScoreRequest) -> Self {
        Self::Score(request)
    }
}

/// Who answers. Never where: neither URL nor engine is part of it, so that a moved server reuses all answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelId {
    /// Name that the server knows, or the digest of the weights.
    pub model: String,
    /// Revision of a named model if the user gives one, or the compute type of weights.
    #[serde(default)]
    pub revision: Option<String>,
}

impl ModelId {
    /// A model known by name.
    pub fn named(model: impl Into<String>, revision: Option<&str>) -> Self {
        Self { model: model.into(), revision: revision.map(str::to_owned) }
    }

    /// A model known by the digest of its weights and the type it computes in (`f32`, `bf16`).
    pub fn weights(digest: impl Into<String>, compute: impl Into<String>) -> Self {
        Self { model: digest.into(), revision: Some(compute.into()) }
    }

    /// Folder name of this model in a call store: readable, and distinct for distinct identities.
    pub fn slug(&self) -> String {
        const READABLE: usize = 60;
        let mut name = String::new();
        for character in self.to_string().chars().take(READABLE) {
            let plain = character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
            name.push(if plain { character } else { '-' });
        }
        let name = name.trim_start_matches('.');
        let revision = self.revision.as_deref().unwrap_or_default();
        let has_revision = u8::from(self.revision.is_some());
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.model.len() as u64).to_le_bytes());
        hasher.update(self.model.as_bytes());
        hasher.update(&[has_revision]);
        hasher.update(revision.as_bytes());
        let digest = hasher.finalize().to_hex();
        format!("{name}-{}", &digest[..8])
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.model)?;
        match &self.revision {
            Some(revision) => write!(formatter, "@{revision}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_of_distinct_models_differ_even_when_they_read_alike() {
        let models = [
            ModelId::named("a/b", None),
            ModelId::named("a:b", None),
            ModelId::named("a-b", None),
            ModelId::named("a", Some("b")),
            ModelId::named("a@b", None),
            ModelId::named("模型", Some("一")),
            ModelId::named("..", None),
        ];
        let slugs: std::collections::BTreeSet<String> = models.iter().map(ModelId::slug).collect();
        assert_eq!(slugs.len(), models.len());
        for slug in slugs {
            assert!(!slug.starts_with('.') && !slug.contains('/'), "{slug}");
        }
    }
}
