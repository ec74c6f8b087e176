//! A local model behind the OpenAI protocol: `pipeline serve`.
//!
//! A request is read field by field; what cannot be honoured is refused by name. Each choice becomes
//! a job of the [`Engine`], which decodes all jobs of all requests together; what it tells is sent on, whole or as a
//! stream. Async stays inside this crate.
//!
//! *What is deliberately absent*: tools, constrained answers and penalties (the engine draws from the model's own
//! distribution); several models in a process; TLS and users (a server beyond this machine stands behind a proxy).

mod admission;
mod answer;
mod engine;
mod error;
mod fields;
mod handle;
mod inbox;
mod local;
mod request;
mod server;

pub use engine::Engine;
pub use error::ServeError;
pub use local::Local;
pub use server::{Ended, ServeOptions, Server};
