//! Decoding: many answers at once, each a function of its prompt and its [`Draw`] alone.
mod job;

pub use job::{Draw, Drawn, End, Job, Listener, Piece, ServiceOptions};
