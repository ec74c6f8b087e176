//! `metrics`: what evaluations and trainers report.

use crate::column::{Column, Table, Type};

/// The table.
pub static TABLE: Table = Table {
    name: "metrics",
    version: 1,
    doc: "One figure of a checkpoint or model.",
    base: &[
        Column::required("subject", Type::Text, "checkpoint or model"),
        Column::new("step", Type::Int, "optimizer step"),
        Column::new("domain", Type::Text, "domain, null = all"),
        Column::required("metric", Type::Text, "pass@1, pass@8, loss, mean_tokens, majority, clr ..."),
        Column::new("value", Type::Float, "the figure"),
        Column::new("std_err", Type::Float, "its standard error"),
        Column::new("n", Type::Int, "observations behind it"),
    ],
    own: &[],
};
