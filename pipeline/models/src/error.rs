//! Why a model gave no answers, and what that means for the run.
//!
//! Nothing here loses work: what was answered before the error is in the call store, and a second run
//! continues from there.

use std::io;
use std::path::PathBuf;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// No connection, no answers, only "too many requests", or weights that cannot be used.
    Unreachable,
    /// The server refuses the key, the account or the model.
    KeyRefused,
    /// Tokens or money of the run are used up.
    BudgetSpent,
    /// Offline or replay, and answers are missing.
    NotRecorded,
    /// The caller asked to stop.
    Cancelled,
    /// The call store could not be read or written.
    Store,
    /// The configuration or a recordings file is wrong.
    Config,
    /// The engine cannot do what was asked.
    Unsupported,
}

impl ErrorClass {
    /// Exit code of the program for this class: 2 configuration, 3 stage failed, 4 model, 130 interrupted.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Unreachable | Self::KeyRefused | Self::BudgetSpent => 4,
            Self::NotRecorded | Self::Store => 3,
            Self::Config | Self::Unsupported => 2,
            Self::Cancelled => 130,
        }
    }
}

/// Failure of a whole pass; a single row's failure is in [`Ensured`](crate::Ensured) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Several failures in a row and no success.
    #[error("model `{model}` at {host} is unreachable: {failures} failures in a row, the last: {message}")]
    Unreachable {
        /// Name of the model in the configuration.
        model: String,
        /// Scheme, host and port.
        host: String,
        /// Failures since the last success.
        failures: u32,
        /// The last failure.
        message: String,
    },
    /// Weights that are not there, cannot be opened, or fail as a whole.
    #[error("model `{model}`: weights `{}`: {message}", .path.display())]
    Weights {
        /// Name of the model in the configuration.
        model: String,
        /// File or folder of the weights.
        path: PathBuf,
        /// What is wrong, and the way out.
        message: String,
    },
    /// Only "too many requests" for longer than the run's patience.
    #[error(
        "model `{model}` at {host} answers only \"too many requests\" and asks to wait {wait_seconds} s more; answers so far are kept, run again later"
    )]
    RateLimited {
        /// Name of the model in the configuration.
        model: String,
        /// Scheme, host and port.
        host: String,
        /// Seconds that would have to be waited now.
        wait_seconds: u64,
    },
    /// 401, 402, 403, or a quota that is used up.
    #[error("{host} refuses the key or account of model `{model}` ({status}): {message}")]
    KeyRefused {
        /// Name of the model in the configuration.
        model: String,
        /// Scheme, host and port.
        host: String,
        /// HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// Model not found, wrong path, or every request malformed for this server.
    #[error("{host} refuses requests to model `{model}` ({status}): {message}")]
    Refused {
        /// Name of the model in the configuration.
        model: String,
        /// Scheme, host and port.
        host: String,
        /// HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// A batch that the provider did not take, or does not know any more.
    #[error("batch `{batch}` of model `{model}` at {host}: {message}")]
    Batch {
        /// Name of the model in the configuration.
        model: String,
        /// Scheme, host and port.
        host: String,
        /// The provider's name of the batch.
        batch: String,
        /// What is wrong, and the way out.
        message: String,
    },
    /// A limit of `[budget]` is reached.
    #[error(
        "budget spent: {used} of {limit} {what} used; answers so far are kept, and another run goes on from them (`[budget]` is for each run)"
    )]
    BudgetSpent {
        /// `tokens`, or the currency.
        what: String,
        /// Used so far in this run.
        used: String,
        /// The limit.
        limit: String,
    },
    /// Answers are missing and may not be asked for.
    #[error("{count} answers of model `{model}` are not recorded, the first: {first}{hint}")]
    NotRecorded {
        /// Identity of the model.
        model: String,
        /// Number of requests without an answer.
        count: u64,
        /// The first of them: sample, key and the beginning of its last message.
        first: String,
        /// What the recordings hold instead, if that helps.
        hint: String,
    },
    /// The caller's flag was set.
    #[error("cancelled")]
    Cancelled,
    /// The call store could not be read or written.
    #[error("call store `{}`: {source}", .path.display())]
    Store {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A recordings file could not be read.
    #[error("recordings `{}`{}: {message}", .path.display(), .line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Recordings {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: Option<u64>,
        /// What is wrong.
        message: String,
    },
    /// A mistake in `[models.NAME]`.
    #[error("model `{model}`: {message}")]
    Config {
        /// Name of the model in the configuration.
        model: String,
        /// What is wrong, and the way out.
        message: String,
    },
    /// The engine cannot do this.
    #[error("model `{model}` cannot {what}")]
    Unsupported {
        /// Identity of the model.
        model: String,
        /// What was asked for.
        what: String,
    },
}

impl ModelError {
    /// What a caller does about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. } | Self::RateLimited { .. } | Self::Weights { .. } => ErrorClass::Unreachable,
            Self::KeyRefused { .. } | Self::Refused { .. } | Self::Batch { .. } => ErrorClass::KeyRefused,
            Self::BudgetSpent { .. } => ErrorClass::BudgetSpent,
            Self::NotRecorded { .. } => ErrorClass::NotRecorded,
            Self::Cancelled => ErrorClass::Cancelled,
            Self::Store { .. } => ErrorClass::Store,
            Self::Recordings { .. } | Self::Config { .. } => ErrorClass::Config,
            Self::Unsupported { .. } => ErrorClass::Unsupported,
        }
    }

    /// Exit code of the program.
    pub fn exit_code(&self) -> u8 {
        self.class().exit_code()
    }

    pub(crate) fn store(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Store { path: path.into(), source }
    }

    /// A mistake in the configuration of the model of this name.
    pub fn config(model: &str, message: impl Into<String>) -> Self {
        Self::Config { model: model.to_owned(), message: message.into() }
    }
}
