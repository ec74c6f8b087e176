//! What is asked of decoding and what comes back: a prompt and a way to draw, pieces of settled text, and one end.

/// One answer wanted. Its text depends on `prompt` and `draw` alone: not on what shares its batch, nor on threads.
pub struct Job {
    /// Token ids of the rendered conversation; at least one.
    pub prompt: Vec<u32>,
    /// How the answer is drawn.
    pub draw: Draw,
    /// Whom to tell.
    pub listener: Box<dyn Listener>,
}

/// How an answer is drawn: temperature first, then `top_k`, `top_p` and `min_p`, see [`crate::decode::Sampler`].
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// 0 is greedy decoding, ties to the smaller id; finite, not negative.
    pub temperature: f64,
    /// Share of the probability mass kept, in (0, 1]; 1 keeps all.
    pub top_p: f64,
    /// Number of tokens kept; 0 keeps all.
    pub top_k: u32,
    /// Least probability relative to the best token, in [0, 1]; 0 keeps all.
    pub min_p: f64,
    /// Most tokens of the answer, its end token included; at least 1.
    pub max_tokens: u32,
    /// Texts that end the answer and are left out of it; none of them empty.
    pub stop: Vec<String>,
    /// Seed of this answer: the n-th token is drawn with the n-th number of the seed's sequence.
    pub seed: u64,
    /// `None`: no log-probabilities; `Some(0)`: of the drawn token; `Some(k)`: of the k likeliest tokens too.
    pub top_logprobs: Option<u8>,
}

impl Default for Draw {
    /// The whole distribution at temperature 1, at most 16 tokens.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_tokens: 16,
            stop: Vec::new(),
            seed: 0,
            top_logprobs: None,
        }
    }
}

impl Draw {
    /// Whether every value lies in its range.
    ///
    /// # Errors
    /// A refusal with code `bad_sampling` that names the first value outside its range.
    pub fn check(&self) -> Result<(), End> {
        let wrong = if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            format!("temperature {} is no finite number from 0 on", self.temperature)
        } else if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            format!("top_p {} is not in (0, 1]", self.top_p)
        } else if !(0.0..=1.0).contains(&self.min_p) {
            format!("min_p {} is not in [0, 1]", self.min_p)
        } else if self.max_tokens == 0 {
            "max_tokens is 0; an answer has at least one token".to_owned()
        } else if self.stop.iter().any(String::is_empty) {
            "a stop string is empty".to_owned()
        } else {
            return Ok(());
        };
        Err(End::refused("bad_sampling", wrong))
    }
}

/// Told what becomes of a job, on the thread that decodes: it must not block.
pub trait Listener: Send {
    /// More of the answer. Returns whether the rest is wanted; `false` gives the job up.
    fn piece(&mut self, piece: &Piece<'_>) -> bool;

    /// What became of the job; called exactly once, after the last piece.
    fn end(&mut self, end: End);

    /// Whether the job is still wanted. Asked once a step, also while it waits for its turn.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// Settled text with the tokens that it completes.
///
/// Text is whole characters and never part of what may still become a stop string. A token comes with the piece that
/// settles its last byte; tokens without text (the end token) and those of a stop string come with the last piece, whose
/// text may be empty. So the texts joined are the answer, and the tokens joined are all that were drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece<'a> {
    /// More of the text; may be empty.
    pub text: &'a str,
    /// The tokens that are complete with it, in order; may be empty.
    pub tokens: &'a [Drawn],
}

/// A token that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Its id.
    pub id: u32,
    /// Its natural log-probability at temperature 1, nothing truncated, where `top_logprobs` asked for it.
    pub logprob: Option<f32>,
    /// The likeliest tokens at this place with their log-probabilities, best first, ties to the smaller id.
    pub top: Vec<(u32, f32)>,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// An end token or a stop string was reached.
    Complete,
    /// `max_tokens` or the end of the context was reached.
    Cut,
    /// The listener did not want it any longer, or the service was stopped.
    GivenUp,
    /// It can never be answered.
    Refused {
        /// Short `snake_case` word: `context_exceeded`, `cache_exceeded`, `bad_sampling`, `empty_prompt`, `bad_token`.
        code: String,
        /// What is wrong, with numbers.
        message: String,
    },
    /// The machinery failed; asked again it may succeed.
    Failed {
        /// What went wrong.
        message: String,
    },
}

impl End {
    /// A refusal in words.
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::Refused { code: code.to_owned(), message: message.into() }
    }

    /// A failure in words.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }
}

/// How a [`Service`](crate::decode::Service) works. Nothing here changes a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Threads that decode, each with its own slots and its own cache; at least 1.
    pub threads: usize,
    /// Sequences that a thread decodes at the same time; at least 1.
    pub slots: usize,
    /// Bytes for keys and values, over all threads; by default a share of the memory that is free.
    pub cache_bytes: Option<usize>,
    /// Longest sequence, prompt included; by default and at most the context of the net.
    pub context: Option<usize>,
}

impl Default for ServiceOptions {
    /// One thread with eight slots.
    fn default() -> Self {
        Self { threads: 1, slots: 8, cache_bytes: None, context: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_their_ranges_are_named() {
        type Change = (fn(&mut Draw), &'static str);
        let changes: [Change; 7] = [
            (|draw| draw.temperature = f64::NAN, "temperature"),
            (|draw| draw.temperature = -0.1, "temperature"),
            (|draw| draw.top_p = 0.0, "top_p"),
            (|draw| draw.top_p = f64::NAN, "top_p"),
            (|draw| draw.min_p = 1.1, "min_p"),
            (|draw| draw.max_tokens = 0, "max_tokens"),
            (|draw| draw.stop.push(String::new()), "stop string"),
        ];
        for (change, name) in changes {
            let mut draw = Draw::default();
            assert_eq!(draw.check(), Ok(()));
            change(&mut draw);
            let Err(End::Refused { code, message }) = draw.check() else { panic!("{name} was accepted") };
            assert_eq!(code, "bad_sampling");
            assert!(message.contains(name), "{message}");
        }
    }
}
