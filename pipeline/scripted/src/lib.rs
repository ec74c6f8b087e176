//! A scripted, faulty model server with the protocol of `OpenAI`: for tests of everything that asks a model.
//!
//! It answers chat requests at once or late, right or wrong, whole or cut; it limits, refuses, resets and hangs; it has
//! a batch API; and it counts what happened, so that a test can say what a client really did. What it does is decided
//! by its seed and by what is asked, never by chance: the same test does the same again.
//!
//! # As a library
//!
//! ```
//! use scripted_server::{Act, Fault, Options, Script, Server};
//!
//! let mut options = Options::default();
//! options.latency.delay = "uniform:1ms,5ms".parse()?;
//! options.faults.shares = vec![Fault::CutBody.at(0.05), Fault::RateLimitedSeconds.at(0.05)];
//! options.limits.requests_per_minute = Some(600);
//! let server = Server::start(options)?;
//! assert!(server.url().ends_with("/v1")); // the `base_url` for a client
//! assert_eq!(server.stats().requests, 0);
//!
//! // or decided request by request
//! let script = Script::of(|seen| match seen.text {
//!     "fail" => Act::Fail(Fault::Reset),
//!     text => Act::say(format!("You said {text}")),
//! });
//! let server = Server::start(script)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # As a program
//!
//! `scripted-server --port 8000 --delay lognormal:200ms,0.6 --every-fault 0.005 --requests-per-minute 3000`;
//! `--help` tells all switches, which are the fields of [`Options`]. `GET /stats` gives the counts ([`Stats`]).
//!
//! # What it serves
//!
//! | path | |
//! |---|---|
//! | `POST /v1/chat/completions` | whole or as a stream; `n`, `seed`, `max_tokens`, `logprobs`, JSON schema |
//! | `GET /v1/models`, `GET /health`, `GET /stats` | names, life, counts (the last two without key, faults or limits) |
//! | `POST /v1/files`, `GET`/`DELETE /v1/files/ID`, `GET /v1/files/ID/content` | files of batches |
//! | `POST /v1/batches`, `GET /v1/batches[/ID]`, `POST /v1/batches/ID/cancel` | batches |
//!
//! Sums such as `12 + 30` in the last message are worked out, with the result in `\boxed{}`; other questions get a text
//! made of their first words and the seed; a JSON schema, in `response_format` or written in a message, gets an
//! instance. Rules ([`Rule`], one JSON object a line of a file) and closures ([`Script::of`]) say something else. A
//! token is four letters.
//!
//! Passing faults are drawn anew each time the same bytes arrive, so a client that asks again gets on; lasting faults
//! stay with a request ([`Fault::is_lasting`]). Of batches, single requests meet lasting faults, and uploads and polls
//! meet passing ones.

mod answer;
mod batch;
mod chat;
mod connection;
mod counts;
mod delay;
mod draw;
mod fault;
mod http;
mod limits;
mod multipart;
mod options;
mod plan;
mod schema;
mod script;
mod server;
mod service;

pub use answer::Answer;
pub use counts::Stats;
pub use delay::Delay;
pub use fault::{Fault, FaultShare};
pub use http::{Body, Reply};
pub use options::{
    Access, Answers, Batches, Beyond, Faults, Latency, LimitHeaders, LimitWait, Limits, LogprobsMode, Options,
    ReasoningShape, RefuseAfter, SchemaMode, Window,
};
pub use script::{Act, Decide, Rule, Script, Seen};
pub use server::{Server, StartError};
