//! An executable that one run made and later runs execute.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes of an executable in a sealed memory file: no run that executes it can change it. A copy is cheap.
#[derive(Debug, Clone)]
pub struct Artifact(Arc<OwnedFd>);

impl Artifact {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self(Arc::new(file))
    }
}

impl AsFd for Artifact {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
