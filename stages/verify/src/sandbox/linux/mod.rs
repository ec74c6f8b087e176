//! The sandbox on Linux. In reading order: what the caller does (`pool`, `client`, `group`), what goes over the
//! socket (`wire`, `order`), what the supervisor does (`supervisor`, `namespaces`, `root`, `run`, `watch`,
//! `counters`, `census`) and what happens in the run itself (`init`, `confine`, `calls`).

mod artifact;
mod calls;
mod census;
mod client;
mod confine;
mod counters;
mod group;
mod init;
mod namespaces;
mod order;
mod pool;
mod room;
mod root;
mod run;
mod supervisor;
mod system;
mod watch;
mod wire;

pub use artifact::Artifact;
pub use pool::Sandbox;
pub use supervisor::supervise_if_asked;
