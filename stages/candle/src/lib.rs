//! Nets, ops with backward, decoding and scoring: the local model.

pub mod decode;
mod forward;

pub use forward::{Forward, NetError, PAGE, Span, Step, log_softmax_at};
