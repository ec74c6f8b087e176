//! What a person is told about batches.

use std::fmt;

/// Something about a batch that a person may want to read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchNote {
    /// Requests went to the provider.
    Submitted {
        /// The provider's name of the batch.
        batch: String,
        /// Requests in it.
        requests: u64,
    },
    /// A batch of an earlier run is followed; nothing of it is asked again.
    TakenUp {
        /// The provider's name of the batch.
        batch: String,
        /// Requests in it.
        requests: u64,
    },
    /// The provider's state of a batch has changed.
    Progress {
        /// The provider's name of the batch.
        batch: String,
        /// The provider's word, such as `in_progress`.
        status: String,
        /// Requests answered.
        completed: u64,
        /// Requests refused.
        failed: u64,
        /// Requests in it.
        total: u64,
    },
    /// A batch is over and what it gave is stored.
    Ended {
        /// The provider's name of the batch.
        batch: String,
        /// The provider's word, such as `completed` or `expired`.
        status: String,
        /// Requests of it whose answer, or final refusal, is stored.
        settled: u64,
        /// Requests of it without one.
        unsettled: u64,
    },
    /// Requests without an answer go out in a further batch.
    Again {
        /// Their number.
        requests: u64,
    },
    /// Some requests are in a batch that another stage or process follows.
    Elsewhere {
        /// Their number.
        requests: u64,
    },
    /// The pass was cancelled; the provider works on.
    LeftRunning {
        /// Batches left.
        batches: u64,
    },
    /// Something odd that costs no answer.
    Oddity {
        /// In words.
        message: String,
    },
}

impl fmt::Display for BatchNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submitted { batch, requests } => {
                write!(formatter, "batch `{batch}` submitted with {requests} requests")
            }
            Self::TakenUp { batch, requests } => {
                write!(formatter, "batch `{batch}` of an earlier run is taken up, {requests} requests")
            }
            Self::Progress { batch, status, completed, failed, total } => {
                write!(formatter, "batch `{batch}` is {status}: {completed} of {total} answered, {failed} refused")
            }
            Self::Ended { batch, status, settled, unsettled } => {
                write!(formatter, "batch `{batch}` ended as {status}: {settled} stored, {unsettled} without an answer")
            }
            Self::Again { requests } => write!(formatter, "{requests} requests go into a further batch"),
            Self::Elsewhere { requests } => {
                write!(formatter, "{requests} requests are in batches that another stage or process follows; waiting")
            }
            Self::LeftRunning { batches } => {
                write!(formatter, "{batches} batches keep running at the provider; run again to fetch their answers")
            }
            Self::Oddity { message } => formatter.write_str(message),
        }
    }
}
