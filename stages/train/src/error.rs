//! What can go wrong in training.

use std::io;
use std::path::{Path, PathBuf};

use stage_candle::NetError;
use stage_tokens::TokensError;

/// Why training, saving or merging stops.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// Weights, configuration or a pass over the net.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Tokenizer or chat template.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A loss or gradient that is NaN or infinite. Weights are as they were before the step.
    #[error("step {step}: the {what} is {value}; rows of the batch: {}", rows.join(", "))]
    NotFinite {
        /// The step, from 1.
        step: u64,
        /// `loss` or `gradient norm`.
        what: &'static str,
        /// The number.
        value: f64,
        /// Names of the rows that were trained on.
        rows: Vec<String>,
    },
    /// A step without anything to learn from.
    #[error("step {0} has no supervised token")]
    Nothing(u64),
    /// Numbers that make no schedule, optimizer or merge.
    #[error("{0}")]
    Parameter(String),
    /// A state that is damaged or of another version.
    #[error("`{}`: {message}", path.display())]
    State {
        /// The file or folder.
        path: PathBuf,
        /// What does not fit.
        message: String,
    },
    /// Models that cannot be merged.
    #[error("`{}` cannot be merged with `{}`: {message}", other.display(), first.display())]
    Misfit {
        /// The first model.
        first: PathBuf,
        /// The one that differs from it.
        other: PathBuf,
        /// What differs.
        message: String,
    },
}

impl TrainError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Read { path, source }
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Write { path, source }
    }

    pub(crate) fn state(path: &Path, message: impl Into<String>) -> Self {
        Self::State { path: path.to_owned(), message: message.into() }
    }
}
