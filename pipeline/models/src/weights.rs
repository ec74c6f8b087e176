//! What engine `local` stands on: weights in this process, behind one trait.
//!
//! This crate knows no nets. The program registers how weights are opened; requests are handed over one by one as room
//! becomes free, and each answer goes to the call store the moment it is written, as a server's would.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::CallKey;
use crate::request::{Request, ScoreRequest};

/// Weights that write and score text.
pub trait Weights: Send + Sync {
    /// Writes an answer to every request of the desk, in any order. Returns when the desk has no more and all that was
    /// taken is answered, or soon after it is cancelled.
    ///
    /// The text depends on the request alone (messages, sampling with its seed, sample): not on what shares its batch, nor
    /// on the number of threads.
    ///
    /// # Errors
    /// What ends the whole pass, such as no memory for the cache. What concerns one request is told to the desk.
    fn generate(&self, desk: &dyn Desk<Request, Generation>) -> Result<(), WeightsError>;

    /// Scores every request of the desk, in any order; see [`Weights::generate`].
    ///
    /// # Errors
    /// As for [`Weights::generate`].
    fn score(&self, desk: &dyn Desk<ScoreRequest, Score>) -> Result<(), WeightsError>;
}

/// Where requests are taken from and outcomes are told to, from any thread.
pub trait Desk<Q, A>: Sync {
    /// The next request; `None` when there are no more, now or later. It may wait for one for as long as what was taken
    /// is not answered (a budget can ask for that), so the thread that answers what was taken must not be the one that
    /// waits here.
    fn next(&self) -> Option<(CallKey, Q)>;

    /// What became of a request that was taken; told once for each.
    fn done(&self, key: CallKey, outcome: Result<A, Refusal>);

    /// Nothing more is taken: from now on there is no next request, also for who waits for one. Weights that fail say so,
    /// since what they have taken will not be answered.
    fn close(&self);

    /// Whether to stop at once; what is in flight is given up and not told.
    fn is_cancelled(&self) -> bool;
}

/// A text that the weights have written.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The text, without the stop string that ended it; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Whether the end token or a stop string was reached; otherwise `max_tokens` or the context cut it.
    pub is_complete: bool,
    /// Tokens of the rendered conversation.
    pub prompt_tokens: u32,
    /// Tokens written, the end token included.
    pub token_ids: Vec<u32>,
    /// Natural log-probability of each token at temperature 1, nothing truncated, where it was asked for.
    pub token_logprobs: Option<Vec<f32>>,
    /// Digest of the tokenizer behind `token_ids`.
    pub tokenizer: String,
    /// Digest of the chat template behind the prompt.
    pub template: String,
}

/// How likely a given text is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum of the natural log-probabilities of the text's tokens; at most 0.
    pub log_prob: f64,
    /// Number of those tokens; never 0.
    pub tokens: u32,
}

/// A request that can never be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Short `snake_case` word, such as `context_exceeded`.
    pub code: String,
    /// What is wrong, with numbers.
    pub message: String,
}

/// Failure of a whole pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WeightsError(pub String);

impl WeightsError {
    /// A failure in words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}
