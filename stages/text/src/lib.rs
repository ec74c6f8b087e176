//! Plain functions on text: a view for matching, repetition, contamination and near-duplicates.
//!
//! This is the n-gram layer of the report's quality control (VibeThinker-3B, section on data for SFT:
//! anomalous repetition, template degeneration, overlap with evaluation sets by 10-grams over
//! normalised text). Everything here reads text and answers with numbers, hashes and byte spans; stored
//! text is never changed. Nothing knows tables, files or stages.
//!
//! Reading order: [`view`] cuts a text into tokens, [`ngram`] hashes runs of them, [`repetition`] and
//! [`contamination`] are the two filters, and [`shingle`], [`minhash`], [`lsh`], [`cluster`] and
//! [`union_find`] are the steps of near-duplicate search.

pub mod cluster;
pub mod contamination;
pub mod error;
pub mod lsh;
pub mod minhash;
pub mod ngram;
pub mod repetition;
pub mod shingle;
pub mod union_find;
pub mod view;

mod character;
mod latex;
mod region;
mod scan;
mod token;

pub use error::TextError;
pub use view::{FoldedView, Symbols, TokenKind, View, ViewBuilder};
