//! The tables of a project: columns, types, version, and what a row means.
//!
//! A stage's output is declared before its first row, so a column keeps its type even where every value is null. Text
//! is `Utf8View` in memory, which has no 2 GiB limit, and plain `BYTE_ARRAY` on disk. Shapes that differ from row to
//! row live in JSON text (`extra`, `tests`, `kwargs`), never in a struct that grows.

pub mod checkpoints;
pub mod column;
pub mod ids;
pub mod metrics;
pub mod queries;
pub mod rejects;
pub mod traces;

pub use column::{Column, Table, Type};

/// Every table that stages exchange, in the order data meets them.
pub const TABLES: [&Table; 4] = [&queries::TABLE, &traces::TABLE, &metrics::TABLE, &checkpoints::TABLE];

/// Finds a table by name.
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.into_iter().find(|table| table.name == name)
}
