//! The registry of kinds that work row by row or exchange rows, in the order data meets them.
//!
//! A kind is one file (or one folder, where it has parts) and one line of [`STAGES`]. Start here to read how data is
//! curated; each kind says which part of the report it follows.

mod import;
mod sample;
mod vote;
mod filter_repetition;
mod decontaminate;
mod dedup;
mod verify;
mod difficulty;

mod by_query;
mod judging;
mod text_column;
#[cfg(test)]
mod quickstart;
#[cfg(test)]
mod recorded;

use pipeline_core::StageEntry;

pub use import::Import;

/// Kinds in the order data meets them.
pub static STAGES: &[StageEntry] = &[
    StageEntry::stage::<Import>(),
    StageEntry::stage::<sample::Sample>(),
    StageEntry::stage::<vote::Vote>(),
    StageEntry::stage::<filter_repetition::FilterRepetition>(),
    StageEntry::stage::<decontaminate::Decontaminate>(),
    StageEntry::stage::<dedup::Dedup>(),
    StageEntry::stage::<verify::Verify>(),
    StageEntry::stage::<difficulty::Difficulty>(),
];
