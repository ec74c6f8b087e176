//! What serving needs of a model. Tests put a scripted one here.

use stage_candle::decode::Job;
use stage_tokens::Turn;

use crate::error::ServeError;

/// A model that takes jobs at any time and answers each through its listener.
pub trait Engine: Send + Sync + 'static {
    /// Most tokens of a prompt and its answer together.
    fn context(&self) -> usize;

    /// 1 + the largest token id.
    fn vocabulary(&self) -> usize;

    /// Who answers: a prefix of the weights' digest and the type they compute in.
    fn fingerprint(&self) -> &str;

    /// Token ids of a conversation up to where the assistant's answer begins. Text of a message never becomes a control token.
    ///
    /// # Errors
    /// When there is no chat template, or the template refuses the messages.
    fn chat(&self, turns: &[Turn<'_>]) -> Result<Vec<u32>, ServeError>;

    /// Token ids of a text, nothing added.
    fn encode(&self, text: &str) -> Vec<u32>;

    /// Bytes of one token; none for a control token.
    fn bytes_of(&self, token: u32) -> &[u8];

    /// Takes a job and tells its listener what becomes of it; must not block.
    fn submit(&self, job: Job);
}
