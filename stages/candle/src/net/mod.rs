//! Nets: their configuration, the one definition of the decoder, and passes over packed weights with a paged cache.

mod backward;
mod cache;
mod config;
mod decoder;
mod packed;
mod rotary;
mod taped;

pub use backward::{Batch, Checkpointing, Gradients, Readings, Target};
pub use cache::Cache;
pub use config::{Architecture, NetConfig, RopeScaling};
pub use decoder::{Arithmetic, Decoder, Layer, Linear};
pub use packed::Net;
pub use rotary::Rotary;
pub use taped::TapedNet;

use crate::NetError;

/// Tokens in a page of the key/value cache.
pub const PAGE: usize = 16;

/// What decoding needs of a net.
pub trait Forward: Send + Sync {
    /// Keys and values of past tokens, and buffers.
    type Cache: Send;

    /// Tokens that have logits.
    fn vocabulary(&self) -> usize;

    /// Most tokens in a sequence.
    fn context(&self) -> usize;

    /// Bytes of one page over all layers.
    fn page_bytes(&self) -> usize;

    /// A cache of `pages` pages. Memory is reserved now and touched as pages are first written.
    ///
    /// # Errors
    /// When the memory is not there, with numbers.
    fn cache(&self, pages: usize) -> Result<Self::Cache, NetError>;

    /// One pass over the step's tokens: their keys and values go to their pages; then for each index in `wanted` (rows of
    /// the step) the logits, row after row, into `logits`, which is resized to `wanted.len() * vocabulary`.
    ///
    /// The values of a row depend on its own sequence alone, bit for bit: not on the other rows, on their number or on
    /// how a prompt was cut into steps.
    ///
    /// # Errors
    /// For a token outside the vocabulary, a position outside the context, or a step that contradicts itself.
    fn forward(
        &self,
        step: &Step<'_>,
        cache: &mut Self::Cache,
        wanted: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), NetError>;

    /// As [`Forward::forward`], but gives `ln softmax(logits)[target]` for each (row, target), and never holds the logits
    /// of many rows at once. The numbers are those of [`crate::log_softmax_at`].
    ///
    /// # Errors
    /// As for [`Forward::forward`], also for a target outside the vocabulary.
    fn log_probs(
        &self,
        step: &Step<'_>,
        cache: &mut Self::Cache,
        wanted: &[(usize, u32)],
        out: &mut Vec<f32>,
    ) -> Result<(), NetError>;
}

/// Tokens of several sequences, packed.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// All tokens, sequence after sequence: one row each.
    pub tokens: &'a [u32],
    /// The sequences, in order; together they cover all tokens.
    pub spans: &'a [Span<'a>],
}

/// Part of one sequence in a step.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// Tokens of this sequence in the step.
    pub rows: usize,
    /// Position of the first of them; all earlier positions are in the cache.
    pub start: usize,
    /// Page table: position `p` is in `pages[p / PAGE]`, slot `p % PAGE`.
    pub pages: &'a [u32],
}

impl Step<'_> {
    /// Position of every row.
    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> {
        self.spans.iter().flat_map(|span| span.start..span.start + span.rows)
    }

    /// Checks that spans cover the tokens, fit the context and have pages, and that tokens have rows.
    pub(crate) fn check(&self, vocabulary: usize, context: usize, pages: usize) -> Result<(), NetError> {
        let rows: usize = self.spans.iter().map(|span| span.rows).sum();
        if rows != self.tokens.len() {
            let message = format!("spans cover {rows} rows, but there are {} tokens", self.tokens.len());
            return Err(NetError::Step(message));
        }
        for token in self.tokens {
            if *token as usize >= vocabulary {
                return Err(NetError::Token { token: *token, vocabulary });
            }
        }
        for (index, span) in self.spans.iter().enumerate() {
            let end = span.start + span.rows;
            if end > context {
                return Err(NetError::Context { position: end - 1, context });
            }
            let needed = end.div_ceil(PAGE);
            if span.pages.len() < needed {
                let message = format!("span {index} ends at position {end}, but has {} pages", span.pages.len());
                return Err(NetError::Step(message));
            }
            if let Some(page) = span.pages[..needed].iter().find(|page| **page as usize >= pages) {
                return Err(NetError::Step(format!("span {index} names page {page} of a cache of {pages} pages")));
            }
        }
        Ok(())
    }
}
