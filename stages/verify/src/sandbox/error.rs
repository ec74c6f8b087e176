//! Failures of the sandbox itself; what a program does wrong is an [`Outcome`](super::Outcome).

/// The sandbox could not do its work. Never a verdict on a program.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// There is no sandbox for this operating system.
    #[error("programs can be shut in on Linux only: run this on Linux")]
    NotLinux,
    /// The host denies a layer.
    #[error(
        "programs cannot be shut in here: {step}: {reason}; {remedy}; \
             `--unsafe-no-sandbox` runs trusted programs without"
    )]
    Unavailable {
        /// What was tried.
        step: String,
        /// What the kernel answered.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The caller's `main` would not serve as supervisor.
    #[error(
        "this program cannot be its own supervisor: `supervise_if_asked()` must come first \
             in its `main`, or name one by `Launch::Program`"
    )]
    NotAsked,
    /// The supervisor could not be started.
    #[error("cannot start the sandbox's supervisor `{program}`: {source}")]
    Start {
        /// The executable.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The supervisor ended, fell silent or spoke nonsense, twice.
    #[error("the sandbox's supervisor was lost: {0}; check that nothing kills it and that memory is left")]
    Lost(String),
    /// A run could not be prepared or watched.
    #[error("a run failed in the sandbox: {step}: {reason}")]
    Run {
        /// What was tried.
        step: String,
        /// What the kernel answered.
        reason: String,
    },
    /// The program could not be executed.
    #[error("cannot execute `{program}` in the sandbox: {reason}; its folder must be in `/usr` or among the roots")]
    Program {
        /// Its path.
        program: String,
        /// What the kernel answered.
        reason: String,
    },
    /// The job asks what cannot be.
    #[error("bad job for the sandbox: {0}")]
    Job(String),
}
