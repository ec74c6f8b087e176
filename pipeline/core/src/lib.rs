//! What a kind of stage is written against: its ports, steps and task, and the recipe that decides its output.
//!
//! This crate knows no engine and no stage. A kind implements [`Stage`] (or the simpler [`RowFilter`] and
//! [`Annotate`]) and is listed in a registry as a [`StageEntry`]; the engine plans tasks, runs them and commits what
//! they wrote.

pub mod canonical;
pub mod checkpoints;
pub mod digest;
pub mod env;
pub mod error;
pub mod event;
pub mod example;
pub mod json_rows;
pub mod port;
pub mod recipe;
pub mod row_kinds;
pub mod rows;
pub mod seed;
pub mod stage;
pub mod table_io;
pub mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use digest::Digest;
pub use env::{Env, External, Services};
pub use error::{ParamError, StageError};
pub use event::{Event, EventSink, Spent};
pub use example::Example;
pub use port::{Output, Port, Ports, TableType};
pub use recipe::{Fingerprint, Recipe};
pub use row_kinds::{Annotate, Judgement, RowFilter};
pub use rows::Row;
pub use seed::Seed;
pub use stage::{AnyStage, Estimate, Source, SourceRange, Stage, StageEntry, Step, StepKind};
pub use task::{Rejection, Task};
