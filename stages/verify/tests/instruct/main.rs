//! Instruction constraints: the base, and every kind of IFEval.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "what was skipped is printed, and a constraint that cannot be read must stop the test"
)]

mod base;
mod bench;
mod bench_readings;
mod cases;
mod ifeval;
mod laws;

use serde_json::Value;
use stage_verify::instruct::{Check, Constraint};

/// Checks one response against one constraint.
fn check(id: &str, kwargs: &Value, response: &str) -> Check {
    match Constraint::parse(id, kwargs) {
        Ok(constraint) => constraint.check(response),
        Err(error) => panic!("{error}"),
    }
}

/// Whether one response holds.
fn holds(id: &str, kwargs: &Value, response: &str) -> bool {
    check(id, kwargs, response).holds
}

/// The message of a constraint that cannot be read.
fn complaint(id: &str, kwargs: &Value) -> String {
    Constraint::parse(id, kwargs).map_or_else(|error| error.to_string(), |_| format!("`{id}` was read"))
}
