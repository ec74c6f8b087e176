//! End to end, through the program itself. Names of tests are claims.

mod errors;
mod incremental;
mod jobs;
mod kill;
mod layout;
mod quickstart;
mod situations;
mod sums;
mod support;
