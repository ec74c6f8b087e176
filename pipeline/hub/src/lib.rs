//! Export of one stage's rows to a folder that `datasets`, `polars` and `pyarrow` load as it is, with a dataset card.
//!
//! This is a command, never a stage: a rerun must not publish. The same rows give the same bytes, however they were
//! cut into files, so an export can be repeated, compared and committed. Deliberately absent: times, hosts and paths
//! in anything that is written; figures of sizes in the card's header, which would keep a folder from loading once
//! they were old; and joins (a row is complete by itself).
//!
//! The curated set that the report trains on (VibeThinker-3B, section 2.1) leaves the pipeline here.

pub mod error;
pub mod request;

mod card;
mod export;
mod header;
mod install;
mod language;
mod layout;
mod license;
mod readme;
mod shards;
mod tally;

pub use error::ExportError;
pub use export::export;
pub use request::{CardFacts, DEFAULT_SHARD_BYTES, ExportReport, ExportRequest, Format, ModelFact, StageFact};
