//! The registry of kinds that work row by row or exchange rows, in the order data meets them.
//!
//! A kind is one file (or one folder, where it has parts) and one line of [`STAGES`]. Start here to read how data is
//! curated; each kind says which part of the report it follows.

mod command;
mod decontaminate;
mod dedup;
mod difficulty;
mod expand;
mod filter_repetition;
mod import;
mod judge_queries;
mod judge_traces;
mod learning_potential;
mod probe;
mod prompt;
mod sample;
mod select_seeds;
mod verify;
mod vote;

mod asking;
mod by_query;
mod calls;
mod exchanges;
mod judging;
#[cfg(test)]
mod quickstart;
#[cfg(test)]
mod recorded;
mod rubric;
mod template;
mod text_column;
#[cfg(test)]
mod text_filters;

use pipeline_core::StageEntry;

pub use exchanges::{Exchange, Exchanges};
pub use import::Import;
pub use verify::Programs;

/// Kinds in the order data meets them.
pub static STAGES: &[StageEntry] = &[
    StageEntry::stage::<Import>(),
    StageEntry::stage::<select_seeds::SelectSeeds>(),
    StageEntry::stage::<expand::Expand>(),
    StageEntry::stage::<judge_queries::JudgeQueries>(),
    StageEntry::stage::<sample::Sample>(),
    StageEntry::stage::<vote::Vote>(),
    StageEntry::stage::<filter_repetition::FilterRepetition>(),
    StageEntry::stage::<decontaminate::Decontaminate>(),
    StageEntry::stage::<dedup::Dedup>(),
    StageEntry::stage::<verify::Verify>(),
    StageEntry::stage::<judge_traces::JudgeTraces>(),
    StageEntry::stage::<difficulty::Difficulty>(),
    StageEntry::stage::<learning_potential::LearningPotential>(),
    StageEntry::stage::<probe::Probe>(),
    StageEntry::stage::<prompt::Prompt>(),
    StageEntry::stage::<command::Command>(),
];
