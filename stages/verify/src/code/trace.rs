//! The verdict on a trace whose answer is a program.

use super::program::{NoProgram, Program, Wanted, program};
use super::report::{Ran, Report};
use super::{CodeError, Judge, Tests};
use crate::extract::Extraction;
use crate::verdict::{Judgement, Verdict};
use std::borrow::Cow;

/// Judges the program in `trace` by its tests.
///
/// Accepted is `correct`, anything else `incorrect` with how it ended as reason (`wrong_answer: test 3 of 20: ...`). A trace without
/// program is `no_answer`; one whose program is in a language that `judge` does not know, or whose tests need another, is `undecided`;
/// tests that fail whatever the program is are `label_unparsable`. The tier names the form of the tests.
///
/// # Errors
/// [`CodeError`]: the machinery failed, which says nothing about the trace.
pub fn verify(judge: &Judge<'_>, tests: &Tests, trace: &str, extraction: Extraction) -> Result<Judgement, CodeError> {
    let found = match chosen(judge, tests, trace, extraction) {
        Ok(found) => found,
        Err(judgement) => return Ok(judgement),
    };
    match judge.run(&found.language, &found.source, tests) {
        Ok(report) => Ok(judgement(&report, tests).with_answer(found.source, found.weak)),
        Err(CodeError::BrokenTests { why }) => {
            Ok(Judgement::new(Verdict::LabelUnparsable, format!("broken_tests: {why}"), tests.tier()))
        }
        Err(error) => Err(error),
    }
}

/// The program of a trace that its tests would be run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// Its text.
    pub source: Cow<'a, str>,
    /// Its language, in the usual name: of its fence, else of the tests, else guessed.
    pub language: String,
    /// No fence was there, and the whole answer was taken.
    pub weak: bool,
}

/// The program in `trace` that `tests` are meant for.
///
/// # Errors
/// The verdict on a trace that has none: see [`verify`].
pub fn chosen<'a>(
    judge: &Judge<'_>,
    tests: &Tests,
    trace: &'a str,
    extraction: Extraction,
) -> Result<Chosen<'a>, Judgement> {
    let is_wanted = |name: &str| match tests.language() {
        Some(language) => name == language,
        None => judge.toolchains.knows(name),
    };
    let wanted = Wanted { language: &is_wanted, defines: tests.defines() };
    let found = match program(trace, extraction, &wanted) {
        Ok(found) => found,
        Err(NoProgram::Truncated) => return Err(Judgement::new(Verdict::NoAnswer, "truncated", "")),
        Err(NoProgram::Unmarked) => return Err(Judgement::new(Verdict::NoAnswer, "unmarked", "")),
        Err(NoProgram::Language(name)) => {
            let reason = format!("other_language: the program is written in `{}`", super::line::cut(&name, 40));
            return Err(Judgement::new(Verdict::Undecided, reason, ""));
        }
    };
    let language = found.language.as_deref().or(tests.language()).unwrap_or_else(|| guessed(&found));
    let language = language.to_string();
    Ok(Chosen { source: found.source, language, weak: found.weak })
}

/// The verdict that a report gives.
pub fn judgement(report: &Report, tests: &Tests) -> Judgement {
    match report.overall {
        Ran::Accepted => Judgement::new(Verdict::Correct, format!("accepted: {} tests", report.count), tests.tier()),
        other => Judgement::new(Verdict::Incorrect, format!("{}: {}", other.as_str(), report.detail), tests.tier()),
    }
}

/// The language of a program that names none.
fn guessed(program: &Program<'_>) -> &'static str {
    let is_cpp = program.source.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("#include") || line.starts_with("int main(") || line.starts_with("using namespace")
    });
    if is_cpp { "cpp" } else { "python" }
}
