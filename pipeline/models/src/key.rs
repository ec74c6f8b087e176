//! The key under which an answer is stored: the hash of everything that decides it.
//!
//! Key = blake3 of the canonical JSON of model identity, messages, sampling, sample index, salt, schema and attempt. The
//! JSON is compact, its object keys stand in alphabetical order, absent values are left out, and
//! numbers are written in their shortest form. URL, engine, stage and time are not in it.
//!
//! A request for a score has messages, text, whether it is complete, token ids and their tokenizer in it, and
//! `"kind":"score"`, so that it never agrees with one for an answer.
//!
//! Recordings have a key of their own ([`RecordingKey`]): the same without seed and salt, because who
//! writes a recording knows neither, and with `top_k = 0` and `min_p = 0` equal to leaving them out.
//! A recorded score is found with the token ids of the request and, failing that, without any.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::request::{Message, ModelId, Request, Sampling, ScoreRequest, is_zero};

/// Raised when the same request shall have another key: every stored answer is asked again then.
const FORMAT: u32 = 1;

/// Identity of one call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey(pub [u8; 32]);

/// Identity of one call among recordings: seed and salt do not matter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingKey(pub [u8; 32]);

/// Keys of requests to one model that come one after the other: the samples of one query share their messages, which
/// stand at the beginning of the JSON and so are hashed once.
#[derive(Default)]
pub(crate) struct KeysInRow {
    front: Option<blake3::Hasher>,
    text: Vec<u8>,
}

impl KeysInRow {
    /// The key of a request; `before` is the one that was given before it.
    pub(crate) fn of(&mut self, model: &ModelId, request: &Request, before: Option<&Request>) -> CallKey {
        let is_like = |before: &Request| before.attempt == request.attempt && before.messages == request.messages;
        if !before.is_some_and(is_like) {
            self.front = None;
        }
        let text = &mut self.text;
        let front = self.front.get_or_insert_with(|| {
            text.clear();
            let messages = request.messages.iter().map(CanonicalMessage::of).collect();
            write_json(text, &Front { attempt: request.attempt, format: FORMAT, messages });
            // the object goes on
            text.pop();
            text.push(b',');
            let mut hasher = blake3::Hasher::new();
            hasher.update(text);
            hasher
        });
        text.clear();
        write_json(
            text,
            &Back {
                model: &model.model,
                revision: model.revision.as_deref(),
                salt: request.salt.as_deref(),
                sample: request.sample,
                sampling: CanonicalSampling::of(&request.sampling),
                schema: request.schema.as_deref(),
            },
        );
        let mut hasher = front.clone();
        hasher.update(text.get(1..).unwrap_or_default());
        CallKey(*hasher.finalize().as_bytes())
    }
}

impl CallKey {
    /// The key of a request to a model.
    pub fn of(model: &ModelId, request: &Request) -> Self {
        KeysInRow::default().of(model, request, None)
    }

    /// The key of a text to be scored by a model.
    pub fn of_score(model: &ModelId, request: &ScoreRequest) -> Self {
        Self(hash(&CanonicalScore::of(model, request, true)))
    }
}

impl RecordingKey {
    /// The key of a request to a model, among recordings.
    pub fn of(model: &ModelId, request: &Request) -> Self {
        let Request { messages, sampling, sample, .. } = request;
        let mut plain = CanonicalSampling::of(sampling);
        plain.seed = None;
        plain.top_k = plain.top_k.filter(|top_k| *top_k != 0);
        plain.min_p = plain.min_p.filter(|min_p| *min_p > 0.0);
        Self(hash(&Canonical {
            front: Front {
                attempt: request.attempt,
                format: FORMAT,
                messages: messages.iter().map(CanonicalMessage::of).collect(),
            },
            back: Back {
                model: &model.model,
                revision: model.revision.as_deref(),
                salt: None,
                sample: *sample,
                sampling: plain,
                schema: request.schema.as_deref(),
            },
        }))
    }

    /// The key of a score among recordings: with the request's token ids, or of the text alone.
    pub fn of_score(model: &ModelId, request: &ScoreRequest, with_ids: bool) -> Self {
        Self(hash(&CanonicalScore::of(model, request, with_ids)))
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for CallKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CallKey({self})")
    }
}

impl fmt::Debug for RecordingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RecordingKey({})", CallKey(self.0))
    }
}

impl FromStr for CallKey {
    type Err = String;

    /// Reads the 64 hexadecimal digits that `Display` writes.
    fn from_str(text: &str) -> Result<Self, String> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|error| format!("`{text}` is no call key: {error}"))
    }
}

// Fields stand in alphabetical order: serde writes them as they are declared.
#[derive(Serialize)]
struct Canonical<'a> {
    #[serde(flatten)]
    front: Front<'a>,
    #[serde(flatten)]
    back: Back<'a>,
}

/// What the samples of one query have in common, as far as it stands at the beginning.
#[derive(Serialize)]
struct Front<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    attempt: u32,
    format: u32,
    messages: Vec<CanonicalMessage<'a>>,
}

#[derive(Serialize)]
struct Back<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    salt: Option<&'a str>,
    sample: u32,
    sampling: CanonicalSampling<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'a str>,
}

#[derive(Serialize)]
struct CanonicalScore<'a> {
    format: u32,
    is_complete: bool,
    kind: &'static str,
    messages: Vec<CanonicalMessage<'a>>,
    model: &'a str,
    response: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<&'a str>,
}

impl<'a> CanonicalScore<'a> {
    fn of(model: &'a ModelId, request: &'a ScoreRequest, with_ids: bool) -> Self {
        Self {
            format: FORMAT,
            is_complete: request.is_complete,
            kind: "score",
            messages: request.messages.iter().map(CanonicalMessage::of).collect(),
            model: &model.model,
            response: &request.response,
            revision: model.revision.as_deref(),
            token_ids: request.token_ids.as_deref().filter(|_| with_ids),
            tokenizer: request.tokenizer.as_deref().filter(|_| with_ids),
        }
    }
}

#[derive(Serialize)]
struct CanonicalMessage<'a> {
    content: &'a str,
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a str>,
}

impl<'a> CanonicalMessage<'a> {
    fn of(message: &'a Message) -> Self {
        Self { content: &message.content, role: &message.role, tool_calls: message.tool_calls.as_deref() }
    }
}

#[derive(Serialize)]
struct CanonicalSampling<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    logprobs: bool,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    temperature: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    top_p: f64,
}

impl<'a> CanonicalSampling<'a> {
    fn of(sampling: &'a Sampling) -> Self {
        Self {
            logprobs: sampling.logprobs,
            max_tokens: sampling.max_tokens,
            min_p: sampling.min_p.map(without_negative_zero),
            seed: sampling.seed,
            stop: &sampling.stop,
            temperature: without_negative_zero(sampling.temperature),
            top_k: sampling.top_k,
            top_p: without_negative_zero(sampling.top_p),
        }
    }
}

fn without_negative_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}

fn hash(canonical: &impl Serialize) -> [u8; 32] {
    let mut text = Vec::with_capacity(1024);
    write_json(&mut text, canonical);
    *blake3::hash(&text).as_bytes()
}

fn write_json(text: &mut Vec<u8>, canonical: &impl Serialize) {
    // Writing to memory cannot fail, and no value here is a map with keys that are not text; a
    // failure would leave a prefix, which still is a function of the request.
    let _ = serde_json::to_writer(text, canonical);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            messages: vec![Message::new("system", "逐步推理。"), Message::new("user", "What is 7 + 5?\n")],
            sampling: Sampling {
                temperature: 0.8,
                top_p: 1.0,
                top_k: Some(0),
                min_p: Some(0.0),
                max_tokens: 48,
                stop: vec!["\n\n".to_owned()],
                seed: Some(17),
                logprobs: true,
            },
            sample: 3,
            salt: Some("b".to_owned()),
            schema: None,
            attempt: 0,
        }
    }

    fn model() -> ModelId {
        ModelId::named("smollm2-135m", Some("q4_1"))
    }

    fn recording_key(request: &Request) -> RecordingKey {
        RecordingKey::of(&model(), request)
    }

    #[test]
    fn the_key_derivation_is_frozen() {
        // When one of these changes, every answer stored by users is asked and paid for again.
        assert_eq!(
            CallKey::of(&model(), &request()).to_string(),
            "b5d9d661f721148f8de596d6213db92696efa73c438752dd935fedcac0a5bad3"
        );
        let sampling = Sampling { top_k: None, min_p: None, ..Sampling::full(0.0, 16) };
        let bare = Request::new(vec![Message::new("user", "hi")], sampling, 0);
        let json = concat!(
            r#"{"format":1,"messages":[{"content":"hi","role":"user"}],"model":"m","sample":0,"#,
            r#""sampling":{"max_tokens":16,"temperature":0.0,"top_p":1.0}}"#
        );
        assert_eq!(CallKey::of(&ModelId::named("m", None), &bare).0, *blake3::hash(json.as_bytes()).as_bytes());
    }

    #[test]
    fn the_key_is_the_hash_of_the_documented_json() {
        let json = concat!(
            r#"{"format":1,"messages":[{"content":"逐步推理。","role":"system"},{"content":"What is 7 + 5?\n","role":"user"}],"#,
            r#""model":"smollm2-135m","revision":"q4_1","salt":"b","sample":3,"sampling":{"logprobs":true,"max_tokens":48,"#,
            r#""min_p":0.0,"seed":17,"stop":["\n\n"],"temperature":0.8,"top_k":0,"top_p":1.0}}"#
        );
        assert_eq!(CallKey::of(&model(), &request()).0, *blake3::hash(json.as_bytes()).as_bytes());
    }

    #[test]
    fn keys_in_a_row_are_the_keys_of_each_request() {
        let mut requests = Vec::new();
        for (text, attempt) in [("a", 0), ("a", 1), ("b", 1), ("b", 0), ("", 0)] {
            for sample in 0..3 {
                let messages = vec![Message::new("user", text), Message::new("user", "\"\n…")];
                requests.push(Request { messages, sample, attempt, ..request() });
            }
        }
        let (mut keys, mut before) = (KeysInRow::default(), None);
        for request in &requests {
            assert_eq!(keys.of(&model(), request, before), CallKey::of(&model(), request));
            before = Some(request);
        }
    }

    #[test]
    fn everything_that_decides_an_answer_changes_its_key() {
        let first = CallKey::of(&model(), &request());
        let changes: [fn(&mut Request); 14] = [
            |r| r.messages[1].content.push(' '),
            |r| r.messages[1].role = "assistant".to_owned(),
            |r| r.messages[1].tool_calls = Some("[]".to_owned()),
            |r| r.sampling.temperature = 0.7,
            |r| r.sampling.top_p = 0.9,
            |r| r.sampling.top_k = None,
            |r| r.sampling.min_p = Some(0.1),
            |r| r.sampling.max_tokens = 49,
            |r| r.sampling.stop.clear(),
            |r| r.sampling.seed = None,
            |r| r.sample = 4,
            |r| r.salt = None,
            |r| r.schema = Some("{}".to_owned()),
            |r| r.attempt = 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = request();
            change(&mut other);
            assert_ne!(CallKey::of(&model(), &other), first, "change {number}");
        }
        let renamed = ModelId::named("smollm2-135m", None);
        assert_ne!(CallKey::of(&renamed, &request()), first);
    }

    #[test]
    fn recordings_are_found_whatever_the_seed_and_salt() {
        let mut other = request();
        other.sampling.seed = Some(99);
        other.salt = None;
        other.sampling.top_k = None;
        other.sampling.min_p = None;
        assert_eq!(recording_key(&other), recording_key(&request()));
        other.sampling.top_k = Some(40);
        assert_ne!(recording_key(&other), recording_key(&request()));
    }

    fn score() -> ScoreRequest {
        ScoreRequest {
            messages: vec![Message::new("user", "二加二")],
            response: "4".to_owned(),
            is_complete: true,
            token_ids: Some(vec![36, 2]),
            tokenizer: Some("sha256:ab".to_owned()),
        }
    }

    #[test]
    fn the_key_of_a_score_is_the_hash_of_the_documented_json() {
        let model = ModelId::weights("sha256:00", "f32");
        let json = concat!(
            r#"{"format":1,"is_complete":true,"kind":"score","messages":[{"content":"二加二","role":"user"}],"#,
            r#""model":"sha256:00","response":"4","revision":"f32","token_ids":[36,2],"tokenizer":"sha256:ab"}"#
        );
        assert_eq!(CallKey::of_score(&model, &score()).0, *blake3::hash(json.as_bytes()).as_bytes());
        let bare = ScoreRequest { token_ids: None, tokenizer: None, ..score() };
        let json = json.replace(r#","token_ids":[36,2],"tokenizer":"sha256:ab""#, "");
        assert_eq!(CallKey::of_score(&model, &bare).0, *blake3::hash(json.as_bytes()).as_bytes());
        assert_eq!(RecordingKey::of_score(&model, &bare, true), RecordingKey::of_score(&model, &score(), false));
        // When this changes, every score stored by users is computed again.
        let frozen = "d90c65236b7edf029b0ae8be39a745ef7593b3dcfefb5413e8d0865efa2bd8af";
        assert_eq!(CallKey::of_score(&model, &score()).to_string(), frozen);
    }

    #[test]
    fn everything_that_decides_a_score_changes_its_key() {
        let first = CallKey::of_score(&model(), &score());
        let changes: [fn(&mut ScoreRequest); 5] = [
            |r| r.messages[0].content.push(' '),
            |r| r.response.push(' '),
            |r| r.is_complete = false,
            |r| r.token_ids = Some(vec![36]),
            |r| r.tokenizer = None,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = score();
            change(&mut other);
            assert_ne!(CallKey::of_score(&model(), &other), first, "change {number}");
        }
        assert_ne!(CallKey::of_score(&ModelId::weights("sha256:00", "bf16"), &score()), first);
    }

    #[test]
    fn a_key_survives_its_text_form() {
        let key = CallKey::of(&model(), &request());
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("abc".parse::<CallKey>().is_err());
    }
}
