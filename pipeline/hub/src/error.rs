//! Errors of an export, each with what the reader needs to act on it.

use std::path::PathBuf;

use pipeline_core::StageError;
use thiserror::Error;

use crate::request::Format;

/// Why nothing was exported. The folder is then as it was before.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The stage's output has no rows.
    #[error("stage `{stage}` has no rows, there is nothing to export")]
    Empty {
        /// The stage.
        stage: String,
    },
    /// The stage's rows are of a table that is not a dataset.
    #[error("stage `{stage}` gives `{table}`, only `queries` and `traces` can be exported")]
    Table {
        /// The stage.
        stage: String,
        /// Its table.
        table: String,
    },
    /// The format needs answers, the rows are questions.
    #[error("format `{format}` needs answers and stage `{stage}` gives queries; use `messages` or `parquet`")]
    NoAnswers {
        /// The stage.
        stage: String,
        /// The format.
        format: Format,
    },
    /// A column that cannot be written.
    #[error("column `{column}` {message}")]
    Column {
        /// Its name.
        column: String,
        /// What is wrong.
        message: String,
    },
    /// A row that cannot be turned into the format.
    #[error("row {row} of `{}` (id `{id}`) {message}", path.display())]
    Row {
        /// File of the stage.
        path: PathBuf,
        /// Row in the file, from 0.
        row: u64,
        /// The row's id.
        id: String,
        /// What is wrong.
        message: String,
    },
    /// A file in the folder that has the name of a shard but is none of ours.
    #[error("`{}` was not written by an export; move it away or choose another folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A README that cannot be merged with the card.
    #[error("`{}` cannot be merged with the card: {message}", path.display())]
    Readme {
        /// The file.
        path: PathBuf,
        /// What is in the way, and what to do.
        message: String,
    },
    /// Another export to the same folder is at work.
    #[error("another export to `{}` is running", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried: `write`, `rename`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The stage's files cannot be read, or a shard cannot be written.
    #[error(transparent)]
    Stage(#[from] StageError),
}

impl ExportError {
    /// Wraps an error of the file system.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// An error about a column.
    pub(crate) fn column(column: &str, message: impl Into<String>) -> Self {
        Self::Column { column: column.to_owned(), message: message.into() }
    }
}
