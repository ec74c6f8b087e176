//! Tests of the server over real connections.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod faults;
mod program;
mod shapes;
