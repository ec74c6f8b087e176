//! The trait that every engine stands behind, and what passes over it.

use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::answer::Answer;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::openai::BatchNote;
use crate::request::{ModelId, Request, ScoreRequest};
use crate::weights::Score;

/// A model that answers requests. Engines differ only in where a missing answer comes from.
pub trait Model: Send + Sync {
    /// Identity that enters fingerprints and call keys.
    fn id(&self) -> &ModelId;

    /// Gets every answer that is missing, in any order, into the call store. The iterator is read as room
    /// becomes free, so memory does not grow with the number of requests. Rows that fail for a passing
    /// reason are listed in [`Ensured::transient`]; rows that can never be answered are stored as such.
    ///
    /// # Errors
    /// What ends the whole pass: see [`ModelError`]. Answers that had arrived are kept in every case.
    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError>;

    /// The answer to one request, from the store or the recordings; never asks.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn answer(&self, request: &Request) -> Result<Recorded, ModelError>;

    /// The answers to many requests, in their order: the same as [`Model::answer`] for each, but read together.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn answers(&self, requests: &[Request]) -> Result<Vec<Recorded>, ModelError> {
        requests.iter().map(|request| self.answer(request)).collect()
    }

    /// Gets every score that is missing into the call store, as [`Model::ensure`] does for answers.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`], before anything is read, unless the engine holds weights or recorded scores: servers
    /// do not score given text. Otherwise as for [`Model::ensure`].
    fn ensure_scores(
        &self,
        _requests: &mut dyn Iterator<Item = ScoreRequest>,
        _progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        Err(no_scores(self.id()))
    }

    /// The score of one text, from the store or the recordings; never computes.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] as for [`Model::ensure_scores`], or a store that cannot be read.
    fn score_of(&self, _request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        Err(no_scores(self.id()))
    }
}

fn no_scores(model: &ModelId) -> ModelError {
    ModelError::Unsupported {
        model: model.to_string(),
        what: "score a given text: only engine `local` can, or engine `replay` from its recordings".to_owned(),
    }
}

/// What is known about one request: for an answer, or for the [`Score`] of a given text.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded<A = Answer> {
    /// What the model gave.
    Answer(A),
    /// The request can never be answered: a reject, not an error of the run.
    RowError {
        /// Short `snake_case` word, such as `context_exceeded`.
        code: String,
        /// The server's words.
        message: String,
    },
    /// Nothing is known: not asked yet, or failed for a passing reason.
    Missing,
}

/// Counts of one pass. `asked + from_store + from_recordings` is the number of requests seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ensured {
    /// Requests that had to be put to the model in this pass, whatever came of them.
    pub asked: u64,
    /// Requests that the call store knew, row errors included.
    pub from_store: u64,
    /// Requests that a recording answered.
    pub from_recordings: u64,
    /// Requests that can never be answered, found now or known before.
    pub row_errors: u64,
    /// Requests that failed for a passing reason, with the last failure; nothing is stored for them.
    pub transient: Vec<(CallKey, String)>,
    /// Tokens read by the model in this pass.
    pub prompt_tokens: u64,
    /// Of these, tokens that the server says were in its prompt cache.
    pub cached_tokens: u64,
    /// Tokens written by the model in this pass.
    pub completion_tokens: u64,
    /// Cost of this pass by the configured price, in its currency.
    pub money: f64,
}

impl Ensured {
    /// Requests seen so far.
    pub fn seen(&self) -> u64 {
        self.asked + self.from_store + self.from_recordings
    }
}

/// Something a person may want to read while a pass runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The server asked all requests to wait.
    RateLimited {
        /// Seconds from now.
        wait_seconds: u64,
    },
    /// A server that has answered cannot be reached any more; requests wait for it.
    OutOfReach {
        /// The failure.
        message: String,
        /// Longest wait.
        patience_seconds: u64,
    },
    /// A request failed and is tried again.
    Retrying {
        /// The failure.
        message: String,
    },
    /// The server answers under another model name than the one asked for.
    OtherModel {
        /// Name in the response.
        answered: String,
    },
    /// Something about a batch.
    Batch(BatchNote),
    /// The server refused requests without saying what it allows; requests are paced at what it was seen to take.
    RateLearned {
        /// Requests a minute, rounded.
        requests_per_minute: u64,
    },
    /// The server refuses JSON schemas: from now on they are written into the prompt.
    SchemaInPrompt {
        /// The server's words.
        message: String,
    },
    /// The server does not count tokens of streamed answers: they are estimated.
    UncountedStream {
        /// The server's words.
        message: String,
    },
    /// The server refuses to stream: answers are asked for whole.
    NotStreamed {
        /// The server's words.
        message: String,
    },
    /// The server refuses several samples in one request: each is asked for alone.
    SamplesAlone {
        /// The server's words.
        message: String,
    },
    /// Log-probabilities were asked for and the server gives none.
    NoLogprobs,
    /// The server lists other tokens than it counts.
    TokensIncomplete {
        /// Answers with log-probabilities are from now on asked for whole.
        is_stream: bool,
    },
    /// A request that failed in several runs, while others were answered, is from now on a row error.
    GivenUp {
        /// The last failure.
        message: String,
    },
}

impl Note {
    /// Whether it is of use to a reader of the run's output; the others are many, and of use to a log only.
    pub fn is_worth_telling(&self) -> bool {
        !matches!(self, Self::Retrying { .. })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited { wait_seconds } => write!(formatter, "the server takes no more requests for now; all wait {wait_seconds} s"),
            Self::OutOfReach { message, patience_seconds } => write!(
                formatter,
                "the server is out of reach ({message}); requests wait for it, at most {patience_seconds} s"
            ),
            Self::Retrying { message } => write!(formatter, "a request failed and is tried again: {message}"),
            Self::OtherModel { answered } => write!(formatter, "the server answers as model `{answered}`"),
            Self::Batch(note) => note.fmt(formatter),
            Self::RateLearned { requests_per_minute } => write!(
                formatter,
                "the server took about {requests_per_minute} requests a minute; they are paced at that (set `requests_per_minute` if you know the limit, or `max_in_flight` if it is one of requests at the same time)"
            ),
            Self::SchemaInPrompt { message } => write!(
                formatter,
                "the server refuses a JSON schema, which is written into the prompt from now on: {message}"
            ),
            Self::UncountedStream { message } => {
                write!(
                    formatter,
                    "the server does not count the tokens of streamed answers, which are estimated: {message}"
                )
            }
            Self::NotStreamed { message } => {
                write!(formatter, "the server refuses to stream, and answers are asked for whole: {message}")
            }
            Self::SamplesAlone { message } => write!(
                formatter,
                "the server refuses several samples in one request, and each is asked for alone: {message}"
            ),
            Self::NoLogprobs => {
                formatter.write_str("the server gives no log-probabilities, although they were asked for")
            }
            Self::TokensIncomplete { is_stream: false } => formatter.write_str(
                "the server lists other tokens than it counts for some answers; these have no token ids and log-probabilities",
            ),
            Self::TokensIncomplete { is_stream: true } => formatter.write_str(
                "the server leaves tokens out of streamed answers; these have no token ids and log-probabilities, and such answers are asked for whole from now on (`stream = \"never\"` asks so from the start)",
            ),
            Self::GivenUp { message } => write!(
                formatter,
                "a request that failed in several runs, while others were answered, is given up as a row error: {message}"
            ),
        }
    }
}

/// Follows a pass. Called from the thread that called [`Model::ensure`].
pub trait Progress {
    /// Name of the stage that asks: a label in the call store, never part of a key.
    #[expect(clippy::unnecessary_literal_bound, reason = "implementations return what they hold")]
    fn stage(&self) -> &str {
        ""
    }

    /// Counts so far; called after every few outcomes.
    fn update(&self, _counts: &Ensured) {}

    /// Something to tell.
    fn note(&self, _note: &Note) {}
}

/// Follows nothing.
impl Progress for () {}
