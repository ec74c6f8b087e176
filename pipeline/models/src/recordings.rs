//! Answers recorded in files, for runs without a server and for tests.
//!
//! JSON Lines (`.jsonl`, also `.jsonl.gz` and `.jsonl.zst`), one answer a line:
//! ```json
//! {"model": "smollm2-135m", "revision": "q4_1", "messages": [{"role": "user", "content": "What is 7 + 5?"}],
//!  "sampling": {"temperature": 0.8, "top_p": 1.0, "max_tokens": 48}, "sample": 0,
//!  "answer": {"text": "The answer is \\boxed{12}.", "finish_reason": "stop", "prompt_tokens": 9, "completion_tokens": 8}}
//! ```
//! A line of a text that was scored has `response`, `is_complete` and `score` instead of `sampling` and `answer`:
//! ```json
//! {"model": "smollm2-135m", "revision": "q4_1", "messages": [{"role": "user", "content": "What is 7 + 5?"}],
//!  "response": "12", "is_complete": true, "score": {"log_prob": -12.5, "tokens": 3}}
//! ```
//! With `token_ids` and `tokenizer` it holds for these ids alone, without them for whatever ids a text has.
//! `error` with `code` and `message` in place of `answer` or `score` records a request that can never be answered.
//! Unknown fields are ignored. Looked up by [`RecordingKey`]: model, revision, messages, sampling without seed, and
//! sample, or the text; the first of several lines with one key counts. A plain file is indexed by offset and read when
//! wanted; of a compressed file the answers are kept in memory.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::answer::Answer;
use crate::error::ModelError;
use crate::key::RecordingKey;
use crate::model::Recorded;
use crate::reasoning::split_reasoning;
use crate::request::{Message, ModelId, Request, Sampling, ScoreRequest};
use crate::weights::Score;

/// Recorded answers and scores of one model.
#[derive(Debug)]
pub struct Recordings {
    model: ModelId,
    files: Vec<(PathBuf, File)>,
    answers: HashMap<RecordingKey, Place>,
    others: BTreeSet<String>,
}

#[derive(Debug)]
enum Place {
    InFile { file: usize, offset: u64, length: usize },
    InMemory(Box<str>),
}

impl Recordings {
    /// Indexes the lines of `model` in `files`, which are relative to `folder`.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is no recording, with its number.
    pub fn open(model: &ModelId, folder: &Path, files: &[PathBuf]) -> Result<Self, ModelError> {
        let mut recordings =
            Self { model: model.clone(), files: Vec::new(), answers: HashMap::new(), others: BTreeSet::new() };
        for file in files {
            recordings.index(folder.join(file))?;
        }
        Ok(recordings)
    }

    /// Number of answers and scores recorded for this model.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether nothing is recorded for this model.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Whether a request has a recording.
    pub fn contains(&self, request: &Request) -> bool {
        !self.answers.is_empty() && self.answers.contains_key(&self.key(request))
    }

    /// Whether a text has a recorded score.
    pub fn contains_score(&self, request: &ScoreRequest) -> bool {
        self.place_of_score(request).is_some()
    }

    /// The recording of a request, or [`Recorded::Missing`].
    ///
    /// # Errors
    /// A file that has changed since it was indexed.
    pub fn get(&self, request: &Request) -> Result<Recorded, ModelError> {
        if self.answers.is_empty() {
            return Ok(Recorded::Missing);
        }
        self.read(self.answers.get(&self.key(request)), outcome::<RecordedAnswer, Answer>)
    }

    /// The recorded score of a text, or [`Recorded::Missing`].
    ///
    /// # Errors
    /// A file that has changed since it was indexed.
    pub fn get_score(&self, request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        self.read(self.place_of_score(request), score)
    }

    fn place_of_score(&self, request: &ScoreRequest) -> Option<&Place> {
        if self.answers.is_empty() {
            return None;
        }
        let place = |with_ids| self.answers.get(&RecordingKey::of_score(&self.model, request, with_ids));
        place(true).or_else(|| place(false))
    }

    fn read<A>(
        &self,
        place: Option<&Place>,
        parse: fn(&str) -> Result<Recorded<A>, String>,
    ) -> Result<Recorded<A>, ModelError> {
        match place {
            None => Ok(Recorded::Missing),
            Some(Place::InMemory(text)) => {
                parse(text).map_err(|message| ModelError::Recordings { path: PathBuf::new(), line: None, message })
            }
            Some(Place::InFile { file, offset, length }) => {
                let Some((path, file)) = self.files.get(*file) else {
                    return Ok(Recorded::Missing);
                };
                let fail = |message: String| ModelError::Recordings { path: path.clone(), line: None, message };
                let mut bytes = vec![0; *length];
                file.read_exact_at(&mut bytes, *offset).map_err(|error| fail(error.to_string()))?;
                let line: Line<'_> = serde_json::from_slice(&bytes)
                    .map_err(|error| fail(format!("changed since it was opened: {error}")))?;
                parse(line.outcome().map_err(&fail)?).map_err(&fail)
            }
        }
    }

    /// What else the files hold, to help whoever finds nothing.
    pub(crate) fn hint(&self) -> String {
        if self.is_empty() && !self.others.is_empty() {
            let names: Vec<&str> = self.others.iter().map(String::as_str).collect();
            return format!("; the recordings hold other models: {}", names.join(", "));
        }
        String::new()
    }

    fn key(&self, request: &Request) -> RecordingKey {
        RecordingKey::of(&self.model, request)
    }

    fn index(&mut self, path: PathBuf) -> Result<(), ModelError> {
        let fail = |line: Option<u64>, message: String| ModelError::Recordings { path: path.clone(), line, message };
        let file = File::open(&path).map_err(|error| fail(None, error.to_string()))?;
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_plain = !matches!(ending, "gz" | "zst");
        let reader = unpack(&file, ending).map_err(|error| fail(None, error.to_string()))?;
        let mut reader = BufReader::with_capacity(1 << 16, reader);
        let (mut number, mut offset, mut bytes) = (0_u64, 0_u64, Vec::new());
        let file_number = self.files.len();
        loop {
            bytes.clear();
            // Lines end with a line feed only: JSON text may hold other line separators.
            let read =
                reader.read_until(b'\n', &mut bytes).map_err(|error| fail(Some(number + 1), error.to_string()))?;
            if read == 0 {
                break;
            }
            number += 1;
            let mark = if number == 1 && bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
            let text = bytes[mark..].trim_ascii_end();
            if !text.trim_ascii_start().is_empty() {
                let place = is_plain.then(|| Place::InFile {
                    file: file_number,
                    offset: offset + mark as u64,
                    length: text.len(),
                });
                self.index_line(text, place).map_err(|message| fail(Some(number), message))?;
            }
            offset += read as u64;
        }
        drop(reader);
        self.files.push((path, file));
        Ok(())
    }

    fn index_line(&mut self, text: &[u8], place: Option<Place>) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let told = line.outcome()?;
        let id = ModelId { model: line.model, revision: line.revision };
        let is_ours = id == self.model;
        if !is_ours {
            self.others.insert(id.to_string());
        }
        let messages: Vec<Message> = line.messages.into_iter().map(Message::from).collect();
        let key = if let Some(response) = line.response {
            score(told)?;
            let is_complete = line.is_complete.ok_or("missing field `is_complete`")?;
            let (token_ids, tokenizer) = (line.token_ids, line.tokenizer);
            let request = ScoreRequest { messages, response, is_complete, token_ids, tokenizer };
            RecordingKey::of_score(&id, &request, true)
        } else {
            outcome::<RecordedAnswer, Answer>(told)?;
            let sampling = line.sampling.ok_or("missing field `sampling`")?;
            let (schema, attempt) = (line.schema, line.attempt);
            let request = Request { schema, attempt, ..Request::new(messages, sampling, line.sample) };
            RecordingKey::of(&id, &request)
        };
        if is_ours {
            let place = place.unwrap_or_else(|| Place::InMemory(told.into()));
            self.answers.entry(key).or_insert(place);
        }
        Ok(())
    }
}

/// Reads what stands under `answer`, `score` or `error`.
fn outcome<T: DeserializeOwned, A: From<T>>(text: &str) -> Result<Recorded<A>, String> {
    match serde_json::from_str(text).map_err(|error| format!("`answer`, `score` or `error`: {error}"))? {
        Outcome::Told::<T>(told) => Ok(Recorded::Answer(told.into())),
        Outcome::RowError { code, message } => Ok(Recorded::RowError { code, message }),
    }
}

/// Reads a score, which must be one.
fn score(text: &str) -> Result<Recorded<Score>, String> {
    let told = outcome::<Score, Score>(text)?;
    match told {
        Recorded::Answer(score) if score.tokens == 0 || score.log_prob.is_nan() || score.log_prob > 0.0 => {
            Err("`score` needs a `log_prob` of at most 0 and `tokens` from 1".to_owned())
        }
        told => Ok(told),
    }
}

fn unpack<'a>(file: &'a File, ending: &str) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match ending {
        "gz" => Box::new(flate2::read::MultiGzDecoder::new(file)),
        "zst" => Box::new(zstd::stream::read::Decoder::new(file)?),
        _ => Box::new(file),
    })
}

#[derive(Deserialize)]
struct Line<'a> {
    model: String,
    #[serde(default)]
    revision: Option<String>,
    messages: Vec<RecordedMessage>,
    #[serde(default)]
    sampling: Option<Sampling>,
    #[serde(default)]
    sample: u32,
    #[serde(default)]
    schema: Option<String>,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    response: Option<String>,
    #[serde(default)]
    is_complete: Option<bool>,
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    #[serde(default)]
    tokenizer: Option<String>,
    #[serde(borrow, default)]
    answer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    score: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    fn outcome(&self) -> Result<&'a str, String> {
        let (told, name) = if self.response.is_some() { (self.score, "score") } else { (self.answer, "answer") };
        told.or(self.error).map(RawValue::get).ok_or_else(|| format!("missing field `{name}`"))
    }
}

/// A message as people write it: content may be null, tool calls may be JSON or its text.
#[derive(Deserialize)]
struct RecordedMessage {
    role: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<serde_json::Value>,
}

impl From<RecordedMessage> for Message {
    fn from(message: RecordedMessage) -> Self {
        Self {
            role: message.role,
            content: message.content.unwrap_or_default(),
            tool_calls: message.tool_calls.and_then(|calls| match calls {
                serde_json::Value::Null => None,
                serde_json::Value::String(text) => Some(text),
                calls => Some(calls.to_string()),
            }),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome<T> {
    Told(T),
    RowError { code: String, message: String },
}

#[derive(Deserialize)]
struct RecordedAnswer {
    text: String,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    #[serde(default)]
    token_logprobs: Option<Vec<f32>>,
    #[serde(default)]
    tool_calls: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    tokenizer: Option<String>,
    #[serde(default)]
    template: Option<String>,
}

impl From<RecordedAnswer> for Answer {
    fn from(recorded: RecordedAnswer) -> Self {
        let split = split_reasoning(&recorded.text, recorded.reasoning.as_deref());
        Self {
            text: recorded.text,
            reasoning: split.reasoning,
            answer_text: split.answer,
            finish_reason: recorded.finish_reason,
            prompt_tokens: recorded.prompt_tokens,
            cached_tokens: None,
            completion_tokens: recorded.completion_tokens,
            token_ids: recorded.token_ids,
            token_logprobs: recorded.token_logprobs,
            tokens_incomplete: false,
            tool_calls: recorded.tool_calls,
            model: recorded.model,
            tokenizer: recorded.tokenizer,
            template: recorded.template,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(content: &str, sample: u32, text: &str) -> String {
        serde_json::json!({
            "model": "m", "revision": "r", "note": 1,
            "messages": [{"role": "user", "content": content}],
            "sampling": {"temperature": 1, "top_p": 1.0, "max_tokens": 8, "seed": 5},
            "sample": sample,
            "answer": {"text": text, "finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 2}
        })
        .to_string()
    }

    fn request(content: &str, sample: u32) -> Request {
        let sampling = Sampling { seed: Some(99), ..Sampling::full(1.0, 8) };
        Request { salt: Some("s".to_owned()), ..Request::new(vec![Message::new("user", content)], sampling, sample) }
    }

    fn model() -> ModelId {
        ModelId::named("m", Some("r"))
    }

    #[test]
    fn plain_and_compressed_files_give_the_same_answers() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            format!("\u{feff}{}\r\n\n{}\n", line("七\u{2028}加", 0, "十<think>二"), line("b", 1, "<think>x</think>y"));
        std::fs::write(folder.path().join("a.jsonl"), &text).unwrap();
        std::fs::write(folder.path().join("a.jsonl.zst"), zstd::encode_all(text.as_bytes(), 3).unwrap()).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        std::fs::write(folder.path().join("a.jsonl.gz"), gzip.finish().unwrap()).unwrap();
        for name in ["a.jsonl", "a.jsonl.zst", "a.jsonl.gz"] {
            let recordings = Recordings::open(&model(), folder.path(), &[name.into()]).unwrap();
            assert_eq!(recordings.len(), 2, "{name}");
            let Recorded::Answer(answer) = recordings.get(&request("b", 1)).unwrap() else { panic!("{name}") };
            assert_eq!((answer.reasoning.as_deref(), answer.answer_text.as_str()), (Some("x"), "y"));
            let Recorded::Answer(answer) = recordings.get(&request("七\u{2028}加", 0)).unwrap() else {
                panic!("{name}")
            };
            assert_eq!((answer.text.as_str(), answer.prompt_tokens), ("十<think>二", Some(3)));
            assert_eq!(recordings.get(&request("b", 0)).unwrap(), Recorded::Missing);
        }
    }

    #[test]
    fn a_line_that_is_no_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for bad in [
            "{",
            "{}",
            &line("a", 0, "x").replace("\"answer\"", "\"reply\""),
            &line("a", 0, "x").replace("\"text\"", "\"txt\""),
        ] {
            std::fs::write(folder.path().join("a.jsonl"), format!("{}\n{bad}\n", line("a", 0, "x"))).unwrap();
            let error = Recordings::open(&model(), folder.path(), &["a.jsonl".into()]).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{error}");
        }
        assert!(Recordings::open(&model(), folder.path(), &["none.jsonl".into()]).is_err());
    }

    #[test]
    fn the_first_line_of_a_key_counts_and_other_models_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("a.jsonl"),
            format!("{}\n{}\n", line("a", 0, "first"), line("a", 0, "second")),
        )
        .unwrap();
        let recordings = Recordings::open(&model(), folder.path(), &["a.jsonl".into()]).unwrap();
        let Recorded::Answer(answer) = recordings.get(&request("a", 0)).unwrap() else { panic!() };
        assert_eq!(answer.text, "first");
        let other = Recordings::open(&ModelId::named("m", None), folder.path(), &["a.jsonl".into()]).unwrap();
        assert!(other.is_empty());
        assert_eq!(other.hint(), "; the recordings hold other models: m@r");
    }

    fn scored(more: &serde_json::Value, log_prob: f64) -> String {
        let mut line = serde_json::json!({
            "model": "m", "revision": "r", "messages": [{"role": "user", "content": "a"}], "response": "b",
            "is_complete": true, "score": {"log_prob": log_prob, "tokens": 3},
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    }

    #[test]
    fn a_score_is_found_by_its_token_ids_and_else_by_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let ids = serde_json::json!({"token_ids": [1, 2, 3], "tokenizer": "t"});
        let refused = serde_json::json!({"response": "c", "score": null, "error": {"code": "x", "message": "y"}});
        let lines =
            [scored(&ids, -0.1), scored(&serde_json::json!({}), -2.5), scored(&refused, 0.0), line("a", 0, "x")];
        std::fs::write(folder.path().join("a.jsonl"), lines.join("\n")).unwrap();
        let recordings = Recordings::open(&model(), folder.path(), &["a.jsonl".into()]).unwrap();
        let request = |response: &str, token_ids: Option<Vec<u32>>| ScoreRequest {
            messages: vec![Message::new("user", "a")],
            response: response.to_owned(),
            is_complete: true,
            tokenizer: token_ids.as_ref().map(|_| "t".to_owned()),
            token_ids,
        };
        let score = |log_prob| Recorded::Answer(Score { log_prob, tokens: 3 });
        assert_eq!(recordings.get_score(&request("b", Some(vec![1, 2, 3]))).unwrap(), score(-0.1));
        assert_eq!(recordings.get_score(&request("b", Some(vec![9]))).unwrap(), score(-2.5));
        assert_eq!(recordings.get_score(&request("b", None)).unwrap(), score(-2.5));
        assert!(matches!(recordings.get_score(&request("c", None)).unwrap(), Recorded::RowError { .. }));
        assert_eq!(recordings.get_score(&request("d", None)).unwrap(), Recorded::Missing);
        let cut = ScoreRequest { is_complete: false, ..request("b", None) };
        assert!(!recordings.contains_score(&cut));
    }

    #[test]
    fn a_score_that_can_be_none_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        for bad in [
            scored(&serde_json::json!({}), 0.5),
            scored(&serde_json::json!({"score": {"log_prob": -1.0, "tokens": 0}}), 0.0),
            scored(&serde_json::json!({"score": {"log_prob": -1.0}}), 0.0),
            scored(&serde_json::json!({"is_complete": null}), 0.0),
        ] {
            std::fs::write(folder.path().join("a.jsonl"), format!("{}\n{bad}\n", line("a", 0, "x"))).unwrap();
            let error = Recordings::open(&model(), folder.path(), &["a.jsonl".into()]).unwrap_err();
            assert!(error.to_string().contains("line 2"), "{error}");
        }
    }

    #[test]
    fn a_row_error_can_be_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&line("a", 0, "x")).unwrap();
        value.as_object_mut().unwrap().remove("answer");
        value["error"] = serde_json::json!({"code": "context_exceeded", "message": "too long"});
        std::fs::write(folder.path().join("a.jsonl"), value.to_string()).unwrap();
        let recordings = Recordings::open(&model(), folder.path(), &["a.jsonl".into()]).unwrap();
        let expected = Recorded::RowError { code: "context_exceeded".to_owned(), message: "too long".to_owned() };
        assert_eq!(recordings.get(&request("a", 0)).unwrap(), expected);
    }
}
