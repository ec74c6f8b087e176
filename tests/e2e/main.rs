//! End to end, through the program itself. Names of tests are claims.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, tell why they skip, and read what `make test` sets"
)]

mod agreement;
mod command;
mod conformance;
mod data;
mod errors;
mod estimates;
mod incremental;
mod jobs;
mod kill;
mod layout;
mod live;
mod quickstart;
mod real_teacher;
mod recorded;
mod scores;
mod serve;
mod situations;
mod sums;
mod support;
mod teacher;
mod teacher_chaos;
mod teacher_keys;
mod tokens;
mod training;
mod verdicts;
