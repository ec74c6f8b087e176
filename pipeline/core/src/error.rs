//! Errors of stages, each with what the reader needs to act on it.

use std::path::PathBuf;

use thiserror::Error;

/// A parameter that cannot be accepted; the engine adds the place in `dag.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ParamError {
    /// Parameter and, inside it, keys and indices: `columns.prompt`, `edges[2]`.
    pub path: String,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ParamError {
    /// An error at one parameter.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Refuses a share outside 0 to 1.
///
/// # Errors
/// When `share` is not a number from 0 to 1.
pub fn ensure_share(name: &str, share: f64) -> Result<(), ParamError> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(ParamError::new(name, format!("`{name}` must lie between 0 and 1, found {share}")))
}

/// What a failed model call means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFailure {
    /// No answer after all retries, key refused, or budget spent: the run ends with exit code 4.
    Unavailable,
    /// Offline, and some answers are not recorded.
    NotRecorded,
}

/// Why a stage could not do its work.
#[derive(Debug, Error)]
pub enum StageError {
    /// A file of the user's that cannot be used, with the place inside it.
    #[error("`{}`{}: {message}", path.display(), place.as_deref().map(|place| format!(", {place}")).unwrap_or_default())]
    Input {
        /// The file.
        path: PathBuf,
        /// Line, row or byte, in words: `line 1000`.
        place: Option<String>,
        /// What is wrong and what to do.
        message: String,
    },
    /// A parameter that only shows as wrong when data is there.
    #[error("parameter `{}`: {}", .0.path, .0.message)]
    Param(#[from] ParamError),
    /// A column that is not what the kind needs.
    #[error("column `{column}`: {message}")]
    Column {
        /// Its name.
        column: String,
        /// What is wrong.
        message: String,
    },
    /// The stage's own check found that its result cannot be right.
    #[error("{0}")]
    Alarm(String),
    /// A model did not answer.
    #[error("{message}")]
    Model {
        /// What it means for the run.
        failure: ModelFailure,
        /// What happened.
        message: String,
    },
    /// Rows failed for passing reasons; their answers can be had by running again.
    #[error("{message}")]
    Transient {
        /// What happened, with counts.
        message: String,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Cancelled,
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried: `write`, `open`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file of the store is damaged.
    #[error("`{}` is damaged: {message}; run again to make it anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        message: String,
    },
    /// Arrow or Parquet refused.
    #[error("columnar data: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// A fault of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl StageError {
    /// An error about a user's file.
    pub fn input(path: impl Into<PathBuf>, place: Option<String>, message: impl Into<String>) -> Self {
        Self::Input { path: path.into(), place, message: message.into() }
    }

    /// An error about a column.
    pub fn column(column: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Column { column: column.into(), message: message.into() }
    }

    /// Wraps an error of the file system.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Wraps an error of the Parquet reader or writer.
    pub fn parquet(path: impl Into<PathBuf>) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.into();
        move |error| match error {
            parquet::errors::ParquetError::External(source) => match source.downcast::<std::io::Error>() {
                Ok(source) => Self::Io { action: "read or write", path, source: *source },
                Err(other) => Self::Input { path, place: None, message: other.to_string() },
            },
            other => Self::Input { path, place: None, message: other.to_string() },
        }
    }
}
