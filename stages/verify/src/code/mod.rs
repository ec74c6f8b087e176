//! Verdicts on programs by their tests: `tests` JSON, a program, a sandbox, and what came of it.
//!
//! Programs run in [`crate::sandbox`]. A `stdin` test is a process with its input and its output. A
//! `function` test is a process in which a small driver calls the function and hands its value out as
//! plain data. In both, what is expected never enters the sandbox: it is compared here, so a program
//! can neither read it nor pronounce itself right. Assertions (`assert`) are statements that must run
//! inside the program's process. There, leaving early, printing success, exit handlers and caught exits gain
//! nothing; but a program written for the purpose can patch what the statements call, return values whose
//! `==` always holds, or find the driver's mark and forge its lines. Nothing can prevent that, so such
//! verdicts say `in_process`. Report section 2.2.2 (code).

mod compare;
mod drive;
mod ended;
mod forms;
mod held;
mod json;
mod judge;
mod key;
mod limits;
mod line;
mod program;
mod report;
mod tests;
mod toolchain;
mod trace;
mod verdicts;

pub use held::Held;
pub use judge::Judge;
pub use key::key;
pub use limits::TestLimits;
pub use program::{NoProgram, Program, Wanted, program};
pub use report::{Ran, Report, TestReport, Usage};
pub use tests::{Tests, TestsError};
pub use toolchain::{Compile, Toolchain, Toolchains, language};
pub use trace::{Chosen, chosen, judgement, verify};
pub use verdicts::{Verdicts, VerdictsError};

use crate::sandbox::SandboxError;
use thiserror::Error;

/// Raised when the same program and tests would get another report.
pub const VERSION: u32 = 1;

/// Why there is no report: never the program's fault.
#[derive(Debug, Error)]
pub enum CodeError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A language that is unknown, or not installed.
    #[error("no toolchain for `{language}`: {why}")]
    NoToolchain {
        /// The language that was asked for.
        language: String,
        /// Why, and what to do.
        why: String,
    },
    /// The interpreter or compiler does not work in the sandbox.
    #[error(
        "the toolchain of `{language}` fails on a program that is right: {why}; check its installation and that its folders are among the roots of the sandbox"
    )]
    BrokenToolchain {
        /// The language.
        language: String,
        /// What it did instead.
        why: String,
    },
    /// Tests of this form run in Python only.
    #[error("tests of the form `{form}` run programs in Python, not in `{language}`; give `stdin` tests")]
    NoDriver {
        /// `function` or `assert`.
        form: &'static str,
        /// The program's language.
        language: String,
    },
    /// The statements of the tests fail by themselves.
    #[error("the tests cannot run, whatever the program: {why}")]
    BrokenTests {
        /// The error.
        why: String,
    },
    /// The stored verdicts failed.
    #[error(transparent)]
    Verdicts(#[from] VerdictsError),
}
