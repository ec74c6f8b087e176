//! What came of running a program on its tests.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a run ended, on one test or on all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// It gave what was expected, and ended well.
    Accepted,
    /// It ended well and gave something else.
    WrongAnswer,
    /// It raised, crashed, or left with another status than 0.
    RuntimeError,
    /// It used more CPU time than its limit, or waited too long by the clock.
    TimeLimit,
    /// It asked for more memory than its limit.
    MemoryLimit,
    /// It wrote more than its limit.
    OutputLimit,
    /// It is not a program of its language.
    CompileError,
}

impl Ran {
    /// The word that is stored.
    ///
    /// ```
    /// assert_eq!(stage_verify::code::Ran::WrongAnswer.as_str(), "wrong_answer");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::WrongAnswer => "wrong_answer",
            Self::RuntimeError => "runtime_error",
            Self::TimeLimit => "time_limit",
            Self::MemoryLimit => "memory_limit",
            Self::OutputLimit => "output_limit",
            Self::CompileError => "compile_error",
        }
    }
}

/// Time and memory of a process and its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time.
    pub cpu: Duration,
    /// Time by the clock.
    pub wall: Duration,
    /// Memory at its highest, in bytes.
    pub peak_memory_bytes: u64,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReport {
    /// How it ended.
    pub ran: Ran,
    /// Of its process; tests that share a process each show the whole process.
    pub usage: Usage,
    /// What was got and expected, or the error; empty when accepted. One line.
    pub detail: String,
}

/// All tests that were run: up to the first that fails, unless all were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Accepted when every test is; else how the first failing one ended.
    pub overall: Ran,
    /// The tests in order. Empty when the program did not compile.
    pub tests: Vec<TestReport>,
    /// How many tests there are.
    pub count: usize,
    /// The tests ran in the program's own process: a program made for it can pass without solving anything.
    pub in_process: bool,
    /// The compiler's run, for languages that have one.
    pub compile: Option<Usage>,
    /// Which test failed and how, in one line: `test 3 of 20: got ..., expected ...`; empty when accepted.
    pub detail: String,
    /// A test ended by the clock, not by its CPU time: another run may end otherwise, so this is not kept for later.
    pub by_clock: bool,
}

impl Report {
    /// A program that was refused before its first test.
    pub(super) fn refused(count: usize, compile: Option<Usage>, detail: String, by_clock: bool) -> Self {
        Self { overall: Ran::CompileError, tests: Vec::new(), count, in_process: false, compile, detail, by_clock }
    }

    /// From the tests that were run.
    pub(super) fn of(tests: Vec<TestReport>, count: usize, compile: Option<Usage>, by_clock: bool) -> Self {
        let failed = tests.iter().enumerate().find(|(_, test)| test.ran != Ran::Accepted);
        let (overall, detail) = match failed {
            Some((index, test)) => (test.ran, format!("test {} of {count}: {}", index + 1, test.detail)),
            // fewer results than tests are never a pass
            None if tests.len() < count => {
                (Ran::RuntimeError, format!("test {} of {count}: no result", tests.len() + 1))
            }
            None => (Ran::Accepted, String::new()),
        };
        Self { overall, tests, count, in_process: false, compile, detail, by_clock }
    }

    /// How many tests passed.
    pub fn passed(&self) -> usize {
        self.tests.iter().filter(|test| test.ran == Ran::Accepted).count()
    }
}
