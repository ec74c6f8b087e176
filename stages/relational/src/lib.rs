//! Kinds that look at a whole table: `attach`, `bucket`, `select`, `mix`, in the order data meets them.
//!
//! Texts never pass through a sort, a join or a group here. A kind looks at narrow columns (ids, scores, strata) and
//! hands on what becomes of each row, by the row's ordinal; a last pass then streams the whole rows through and keeps,
//! rejects or completes them. Memory grows with the number of rows, not with their texts. This is the only crate that
//! knows polars: it evaluates SQL conditions ([`condition`]) and sorts by several keys ([`ranking`]).

use pipeline_core::StageEntry;

pub mod bridge;
pub mod condition;
pub mod decisions;
pub mod keys;
pub mod ranking;

pub mod attach;
pub mod bucket;
pub mod edges;
pub mod lengths;
pub mod select;
mod select_steps;

pub mod mix;
pub mod shares;

#[cfg(test)]
mod harness;

/// The kinds of this crate, in the order data meets them.
pub static STAGES: &[StageEntry] = &[
    StageEntry::stage::<attach::Attach>(),
    StageEntry::stage::<bucket::Bucket>(),
    StageEntry::stage::<select::Select>(),
    StageEntry::stage::<mix::Mix>(),
];
