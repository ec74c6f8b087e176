//! Models behind one trait, and every answer ever paid for.
//!
//! A stage that needs a model works in two passes. [`Model::ensure`] asks whatever is missing, in any
//! order, and puts each answer into the [`CallStore`] the moment it arrives; then the stage reads
//! the answers in its own order with [`Model::answer`]. So memory does not grow with the number of
//! requests, a kill costs only what is in flight, and the output's order never depends on the network.
//! A server's sampling is not reproducible even with a seed, so determinism comes from the stored
//! answer and never from asking again. Scores of given texts go the same way
//! ([`Model::ensure_scores`], [`Model::score_of`]). Teacher sampling is section 2.1 of the report, rollouts 2.2.
//!
//! *What is deliberately absent*: no token passed on before its answer is whole, no retry that hides a lost row, no
//! knowledge of stages or tables. Async stays inside this crate.

mod answer;
mod budget;
mod claims;
mod config;
mod error;
mod key;
mod known;
mod local;
mod model;
mod openai;
mod reasoning;
mod recordings;
mod replay;
mod request;
mod secret;
mod set;
mod store;
mod structured;
mod weights;

pub use answer::{Answer, ParseError, parse_answer};
pub use budget::{Budget, BudgetConfig, Price, Usage};
pub use config::{
    BatchConfig, Engine, ModelConfig, OpenOptions, Streaming, StructuredOutput, Timing, WeightsOpener, open,
};
pub use error::{ErrorClass, ModelError};
pub use key::{CallKey, RecordingKey};
pub use model::{Ensured, Model, Note, Progress, Recorded};
pub use openai::BatchNote;
pub use reasoning::{Split, split_reasoning};
pub use recordings::Recordings;
pub use request::{Asked, Message, ModelId, Request, Sampling, ScoreRequest};
pub use secret::Secret;
pub use set::ModelSet;
pub use store::{CallStore, CallSummary, Compacted, Damage, Prune, Pruned, Reply, Shape, StoredCall, Written};
pub use structured::{Holds, SchemaError, Structured, Unusable};
pub use weights::{Desk, Generation, Refusal, Score, Weights, WeightsError};
