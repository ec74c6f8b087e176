//! What decoding needs of a net, and nothing more: one pass over packed tokens whose keys and values lie in pages.

/// Tokens in a page of the key and value cache.
pub const PAGE: usize = 16;

/// Failure of a net.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// A step that contradicts itself.
    #[error("malformed step: {0}")]
    Step(String),
}

/// A net as decoding sees it.
pub trait Forward: Send + Sync {
    /// Keys and values of all pages.
    type Cache: Send;

    /// Number of logits of a row.
    fn vocabulary(&self) -> usize;

    /// Longest sequence.
    fn context(&self) -> usize;

    /// Bytes of one page over all layers.
    fn page_bytes(&self) -> usize;

    /// A cache of so many pages.
    ///
    /// # Errors
    /// Where the memory is not there, with numbers.
    fn cache(&self, pages: usize) -> Result<Self::Cache, NetError>;

    /// One pass: keys and values of the step's tokens go to their pages; `logits` becomes those of the rows `wanted`, row
    /// after row, `wanted.len() * vocabulary` numbers. A row depends on its own sequence alone, bit for bit.
    ///
    /// # Errors
    /// Tokens, positions or pages outside their ranges.
    fn forward(
        &self,
        step: &Step<'_>,
        cache: &mut Self::Cache,
        wanted: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), NetError>;

    /// As [`Forward::forward`], with ln softmax(logits)\[target\] for each (row, target).
    ///
    /// # Errors
    /// As for [`Forward::forward`].
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
    /// The tokens.
    pub tokens: &'a [u32],
    /// Whose they are; in order, they cover all tokens.
    pub spans: &'a [Span<'a>],
}

/// The tokens of one sequence in a step.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// Their number.
    pub rows: usize,
    /// Position of the first one.
    pub start: usize,
    /// Page table: position p is in page `pages[p / PAGE]`, slot `p % PAGE`.
    pub pages: &'a [u32],
}

/// Natural log-probability of `target` under softmax of `logits`.
pub fn log_softmax_at(logits: &[f32], target: u32) -> f32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    logits.get(target as usize).map_or(f32::NAN, |logit| (f64::from(logit - largest) - sum.ln()) as f32)
}
