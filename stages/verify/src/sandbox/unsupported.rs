//! Systems other than Linux: the same names, and an error at the first use.

use super::{Job, Layers, Outcome, SandboxError, Settings};

/// Does nothing: there are no supervisors here.
pub fn supervise_if_asked() {}

/// Never made on this system.
#[derive(Debug, Clone)]
pub enum Artifact {}

/// Never made on this system.
#[derive(Debug)]
pub enum Sandbox {}

impl Sandbox {
    /// Gives [`SandboxError::NotLinux`].
    pub fn new(_settings: Settings) -> Result<Self, SandboxError> {
        Err(SandboxError::NotLinux)
    }

    /// Never called.
    pub fn run(&self, _job: &Job<'_>) -> Result<Outcome, SandboxError> {
        match *self {}
    }

    /// Never called.
    pub fn layers(&self) -> &Layers {
        match *self {}
    }
}
