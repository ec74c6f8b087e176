//! Writes what a call store holds as recordings, so that a project can carry the answers it was made with.
//!
//! See [`Recordings`](crate::Recordings) for the lines. They are sorted, and hold neither seeds and salts, which a
//! recording is not looked up by, nor times and hosts: the same answers give the same bytes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use serde::Serialize;

use super::{Asked, CallStore, Reply, read};
use crate::answer::{Answer, parse_answer};
use crate::error::ModelError;
use crate::key::CallKey;
use crate::reasoning::split_reasoning;
use crate::request::{Message, ModelId, Request, Sampling, ScoreRequest, is_zero};
use crate::weights::Score;

/// Recordings are written once and read often.
const STRONG: i32 = 19;

/// What [`CallStore::write_recordings`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Lines of the file.
    pub calls: u64,
    /// Calls left out since their answer cannot be read.
    pub unreadable: u64,
}

impl CallStore {
    /// Writes every call of `model` (its name, or `name@revision`; all models without it) as a line of recordings to
    /// `file`, compressed where its name ends in `.gz` or `.zst`. The file is put in place whole; when there is nothing
    /// to write it stays as it was.
    ///
    /// # Errors
    /// A store that cannot be read, or a file that cannot be written.
    pub fn write_recordings(&self, model: Option<&str>, file: &Path) -> Result<Written, ModelError> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let draft = file.with_file_name(format!(".{name}.{}", std::process::id()));
        let failed = |error| ModelError::store(file, error);
        let written = File::create(&draft).map_err(failed).and_then(|out| {
            let mut out = BufWriter::new(out);
            let written = match file.extension().and_then(|ending| ending.to_str()) {
                Some("gz") => {
                    let mut packed = GzEncoder::new(&mut out, flate2::Compression::best());
                    let written = self.write_lines(model, &mut packed)?;
                    packed.finish().map_err(failed)?;
                    written
                }
                Some("zst") => {
                    let mut packed = zstd::stream::write::Encoder::new(&mut out, STRONG).map_err(failed)?;
                    let written = self.write_lines(model, &mut packed)?;
                    packed.finish().map_err(failed)?;
                    written
                }
                _ => self.write_lines(model, &mut out)?,
            };
            out.flush().map_err(failed)?;
            Ok(written)
        });
        if written.as_ref().is_ok_and(|written| written.calls > 0) {
            fs::rename(&draft, file).map_err(failed)?;
        } else {
            // what is left of a draft is in nobody's way
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn write_lines(&self, model: Option<&str>, target: &mut dyn Write) -> Result<Written, ModelError> {
        let mut keys: Vec<CallKey> = read(&self.index).calls.keys().copied().collect();
        keys.sort_unstable();
        let mut written = Written::default();
        for key in keys {
            let Some(call) = self.get(&key)? else { continue };
            if model.is_some_and(|name| call.model.model != name && call.model.to_string() != name) {
                continue;
            }
            let Some(line) = line(&call.model, call.request, call.reply) else {
                written.unreadable += 1;
                continue;
            };
            serde_json::to_writer(&mut *target, &line)
                .map_err(io::Error::from)
                .and_then(|()| target.write_all(b"\n"))
                .map_err(|error| ModelError::store(self.folder(), error))?;
            written.calls += 1;
        }
        Ok(written)
    }
}

fn line(model: &ModelId, asked: Asked, reply: Reply) -> Option<Line> {
    let outcome = match reply {
        Reply::RowError { code, message } => Outcome::Error { code, message },
        Reply::Score(score) => Outcome::Score(score),
        Reply::Answer(raw) => Outcome::Answer(parse_answer(&raw).ok()?.into()),
    };
    let (messages, question) = match asked {
        Asked::Answer(Request { messages, mut sampling, sample, salt: _, schema, attempt }) => {
            sampling.seed = None;
            (messages, Question::Answer { sampling, sample, schema, attempt })
        }
        Asked::Score(ScoreRequest { messages, response, is_complete, token_ids, tokenizer }) => {
            (messages, Question::Score { response, is_complete, token_ids, tokenizer })
        }
    };
    let (name, revision) = (model.model.clone(), model.revision.clone());
    Some(Line { model: name, revision, messages, question, outcome })
}

#[derive(Serialize)]
struct Line {
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    messages: Vec<Message>,
    #[serde(flatten)]
    question: Question,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Question {
    Answer {
        sampling: Sampling,
        sample: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        schema: Option<String>,
        #[serde(skip_serializing_if = "is_zero")]
        attempt: u32,
    },
    Score {
        response: String,
        is_complete: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        token_ids: Option<Vec<u32>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tokenizer: Option<String>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Answer(RecordedAnswer),
    Score(Score),
    Error { code: String, message: String },
}

#[derive(Serialize)]
struct RecordedAnswer {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_logprobs: Option<Vec<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
}

impl From<Answer> for RecordedAnswer {
    fn from(answer: Answer) -> Self {
        // reasoning that stands in the text is found there again; only what came apart from it is written
        let in_text = split_reasoning(&answer.text, None).reasoning;
        let reasoning = answer.reasoning.filter(|reasoning| in_text.as_ref() != Some(reasoning));
        Self {
            text: answer.text,
            reasoning,
            finish_reason: answer.finish_reason,
            prompt_tokens: answer.prompt_tokens,
            completion_tokens: answer.completion_tokens,
            token_ids: answer.token_ids,
            token_logprobs: answer.token_logprobs,
            tool_calls: answer.tool_calls,
            model: answer.model,
            tokenizer: answer.tokenizer,
            template: answer.template,
        }
    }
}
