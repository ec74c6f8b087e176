//! Exit codes: what a script may rely on.

use std::process::ExitCode;

use pipeline_core::StageError;
use pipeline_core::error::ModelFailure;

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is done.
    Done,
    /// A fault of the program.
    Internal,
    /// Arguments or `dag.toml` are wrong.
    Usage,
    /// A stage failed.
    StageFailed,
    /// A model is unreachable, a key refused, or the budget spent.
    Model,
    /// `plan --check` found something to do.
    Stale,
    /// Interrupted.
    Interrupted,
    /// A code of `pipeline worker`, which executors read.
    Worker(u8),
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::StageFailed => 3,
            Self::Model => 4,
            Self::Stale => 5,
            Self::Interrupted => 130,
            Self::Worker(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<&StageError> for Exit {
    fn from(error: &StageError) -> Self {
        match error {
            StageError::Internal(_) => Self::Internal,
            StageError::Param(_) => Self::Usage,
            StageError::Model { failure: ModelFailure::Unavailable, .. } => Self::Model,
            StageError::Cancelled => Self::Interrupted,
            _ => Self::StageFailed,
        }
    }
}

/// A message for a person, and the exit code that goes with it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What is wrong and what to do, with or without the word `error`.
    pub message: String,
    /// The code.
    pub exit: Exit,
}

impl Failure {
    /// A mistake in arguments or in `dag.toml`.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::Usage }
    }

    /// A stage that failed.
    pub fn stage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::StageFailed }
    }
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        Self { exit: Exit::from(&error), message: error.to_string() }
    }
}
