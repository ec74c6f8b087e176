//! Kinds that make models: from nothing, by fine-tuning, by merging.
//!
//! A model that a stage makes is a row of the table `checkpoints` and a folder beside it, in the layout of Hugging Face.
//! `[models.x] stage = "..."` lets other stages use it.

mod artifact;
mod digest;
mod fault;
mod merge;
mod new_model;
mod sft;
mod storage;

use pipeline_core::StageEntry;

pub use digest::{deciding_files, digest};
pub use new_model::NewModel;

/// Kinds in the order data meets them.
pub static STAGES: &[StageEntry] =
    &[StageEntry::stage::<new_model::NewModel>(), StageEntry::stage::<sft::Sft>(), StageEntry::stage::<merge::Merge>()];
