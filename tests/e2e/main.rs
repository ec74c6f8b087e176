//! End to end, through the program itself. Names of tests are claims.

mod conformance;
mod errors;
mod incremental;
mod jobs;
mod kill;
mod layout;
mod quickstart;
mod recorded;
mod situations;
mod sums;
mod support;
