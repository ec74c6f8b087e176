//! Decoding: many answers at once, each a function of its prompt and its [`Draw`] alone.
//!
//! A [`Service`] has threads; a thread has slots, and whenever a sequence ends another job takes its place in the next step.
//! Keys and values lie in pages, and a prefix of whole pages that some sequence has computed is not computed again. Three
//! things make a text independent of all that: a row of the net depends on its own sequence alone, bit for bit
//! ([`crate::Forward`]); a token is drawn from its row with a number that its seed and its place decide; and a
//! sequence that loses its pages computes the same ones again.

mod batch;
mod job;
mod memory;
mod pages;
mod philox;
mod queue;
mod sampler;
mod sequence;
mod service;
mod stops;
#[cfg(test)]
mod toy;

pub use job::{Draw, Drawn, End, Job, Listener, Piece, ServiceOptions};
pub use sampler::Sampler;
pub use sequence::ScoreListener;
pub use service::{ScoreJob, Service, Vocabulary};
pub use stops::TextCutter;
