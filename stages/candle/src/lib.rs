//! Nets, ops with backward, decoding and scoring: the local model.

mod error;
pub mod kernels;
mod net;
pub mod ops;
mod weights;

pub mod decode;
mod desk;
mod local;
mod local_weights;

pub use error::NetError;
pub use kernels::log_softmax_at;
pub use local::{LocalError, LocalModel};
pub use local_weights::LocalWeights;
pub use net::{
    Architecture, Arithmetic, Batch, Cache, Checkpointing, Decoder, Forward, Gradients, Layer, Linear, Net, NetConfig,
    PAGE, Readings, RopeScaling, Rotary, Span, Step, TapedNet, Target,
};
pub use weights::Shards;
