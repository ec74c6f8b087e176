//! Nets, ops with backward, decoding and scoring: the local model.

pub mod decode;
