//! Tests that need a driver in the program's process: calls of a function, and assertions.
//!
//! The driver (`driver.py`) is asked on stdin and answers on descriptor 3, each line marked with a word
//! that is new in every run, so that what a program writes there by mistake is not taken for a result.

use super::CodeError;
use super::compare::equal;
use super::ended::{by_clock, fault, is_memory_error, usage};
use super::json::{Json, quote};
use super::judge::{Judge, Run, Series};
use super::line::{cut, shortened};
use super::report::{Ran, Report, TestReport};
use super::tests::FunctionCase;
use crate::sandbox::Outcome;
use std::hash::{BuildHasher, RandomState};

const FILE: &str = "driver.py";
const DRIVER: &str = include_str!("driver.py");

/// Digest of the driver, for cache keys.
pub(super) fn driver() -> blake3::Hash {
    blake3::hash(DRIVER.as_bytes())
}

impl Judge<'_> {
    pub(super) fn function(
        &self,
        run: &Run<'_>,
        source: &str,
        entry: &str,
        cases: &[FunctionCase],
        tolerance: f64,
    ) -> Result<Report, CodeError> {
        let mut series = Series::new(self.runs_all, cases.len());
        for case in cases {
            let ask = format!("call\n{entry}\n{}", case.arguments.text());
            let (outcome, lines) = self.drive(run, source, &ask)?;
            let found = called(&outcome, run, lines.as_deref(), case, tolerance);
            if let Some((Ran::CompileError, why)) = found {
                return Ok(Report::refused(cases.len(), None, why, false));
            }
            if series.push(&outcome, found) {
                break;
            }
        }
        Ok(series.report())
    }

    pub(super) fn assertions(
        &self,
        run: &Run<'_>,
        source: &str,
        setup: &str,
        asserts: &[String],
    ) -> Result<Report, CodeError> {
        let mut ask = String::from("check\n{\"setup\":");
        quote(setup, &mut ask);
        ask.push_str(",\"statements\":[");
        for (index, statement) in asserts.iter().enumerate() {
            ask.push_str(if index > 0 { "," } else { "" });
            quote(statement, &mut ask);
        }
        ask.push_str(&format!("],\"all\":{}}}", self.runs_all));
        let (outcome, lines) = self.drive(run, source, &ask)?;
        let lines = lines.as_deref().unwrap_or_default();
        let told = |kind: &str| lines.iter().find(|line| line.kind == kind).map(Line::text);
        if let Some(why) = told("tests") {
            return Err(CodeError::BrokenTests { why: cut(&why, 300) });
        }
        if let Some(why) = told("syntax") {
            return Ok(Report { in_process: true, ..Report::refused(asserts.len(), None, cut(&why, 300), false) });
        }
        let tests = asserted(&outcome, run, lines, asserts);
        Ok(Report { in_process: true, ..Report::of(tests, asserts.len(), None, by_clock(&outcome)) })
    }

    /// Runs the driver; its lines are `None` where something else was written on its channel.
    fn drive(&self, run: &Run<'_>, source: &str, ask: &str) -> Result<(Outcome, Option<Vec<Line>>), CodeError> {
        let mark = mark();
        let files = [(FILE, DRIVER.as_bytes()), (run.toolchain.file.as_str(), source.as_bytes())];
        let outcome = self.outcome(run, &files, format!("{mark}\n{ask}").as_bytes(), Some(FILE))?;
        let lines = read(&outcome.report, &mark);
        Ok((outcome, lines))
    }
}

/// One line of the driver.
struct Line {
    kind: String,
    value: Json,
}

impl Line {
    fn text(&self) -> String {
        match &self.value {
            Json::Text(text) => text.clone(),
            other => other.text(),
        }
    }

    /// Number of an assertion, and what was said of it.
    fn numbered(&self) -> Option<(usize, &str)> {
        match &self.value {
            Json::List(parts) => match parts.as_slice() {
                [Json::Number(at), Json::Text(text)] => Some((at.parse().ok()?, text)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A word that a program cannot guess.
fn mark() -> String {
    let state = RandomState::new();
    format!("{:016x}{:016x}", state.hash_one(0_u8), state.hash_one(1_u8))
}

fn read(report: &[u8], mark: &str) -> Option<Vec<Line>> {
    let text = std::str::from_utf8(report).ok()?;
    let line = |line: &str| {
        let (kind, value) = line.strip_prefix(mark)?.strip_prefix(' ')?.split_once(' ')?;
        Some(Line { kind: kind.to_string(), value: Json::parse(value).ok()? })
    };
    text.split_terminator('\n').map(line).collect()
}

/// What came of a call; `None` when its value is right.
fn called(
    outcome: &Outcome,
    run: &Run<'_>,
    lines: Option<&[Line]>,
    case: &FunctionCase,
    tolerance: f64,
) -> Option<(Ran, String)> {
    let found = match lines {
        Some([line]) => Some((line.kind.as_str(), line)),
        _ => None,
    };
    match found {
        Some(("syntax", line)) => return Some((Ran::CompileError, cut(&line.text(), 300))),
        Some(("raised", line)) => return Some(raised(&line.text())),
        Some(("missing", line)) => {
            return Some((Ran::RuntimeError, format!("the program defines no `{}`", line.text())));
        }
        _ => {}
    }
    if let Some(fault) = fault(outcome, &run.limits) {
        return Some(fault);
    }
    let wanted = || case.expected.first().map_or_else(String::new, |value| shortened(&value.text()));
    match found {
        Some(("value", line)) if case.expected.iter().any(|expected| equal(&line.value, expected, tolerance)) => None,
        Some(("value", line)) => {
            Some((Ran::WrongAnswer, format!("got {}, expected {}", shortened(&line.value.text()), wanted())))
        }
        Some(("strange", line)) => Some((
            Ran::WrongAnswer,
            format!("got {}, which is not plain data, expected {}", cut(&line.text(), 80), wanted()),
        )),
        _ if outcome.report.is_empty() => {
            Some((Ran::RuntimeError, "the program left before the call returned".to_string()))
        }
        _ => Some((Ran::RuntimeError, "the program wrote to the channel of results".to_string())),
    }
}

fn raised(text: &str) -> (Ran, String) {
    let ran = if is_memory_error(text) { Ran::MemoryLimit } else { Ran::RuntimeError };
    (ran, cut(text, 300))
}

/// One result for each assertion that ran. Only lines in their order count, and after the last one the closing line must come.
fn asserted(outcome: &Outcome, run: &Run<'_>, lines: &[Line], asserts: &[String]) -> Vec<TestReport> {
    let usage = usage(outcome);
    let result = |(ran, detail): (Ran, String)| TestReport { ran, usage, detail: cut(&detail, 400) };
    let mut tests = Vec::new();
    let mut is_done = false;
    for line in lines {
        let found = match (line.kind.as_str(), line.numbered()) {
            ("passed", Some((index, _))) if index == tests.len() => (Ran::Accepted, String::new()),
            ("failed", Some((index, text))) if index == tests.len() => {
                let why = if text == "AssertionError: " { String::new() } else { format!(" ({text})") };
                let statement = asserts.get(index).map_or("", |statement| statement.trim());
                (Ran::WrongAnswer, format!("{} does not hold{why}", shortened(statement)))
            }
            ("broke", Some((index, text))) if index == tests.len() => raised(text),
            ("raised", _) => raised(&line.text()),
            (kind, _) => {
                is_done = kind == "done" && tests.len() == asserts.len();
                break;
            }
        };
        tests.push(result(found));
    }
    let fault = fault(outcome, &run.limits);
    if tests.iter().all(|test| test.ran == Ran::Accepted) && (!is_done || fault.is_some()) {
        let left = || (Ran::RuntimeError, "the program left before its tests were done".to_string());
        // the last one did not end well, whatever was said of it
        tests.truncate(asserts.len().saturating_sub(1));
        tests.push(result(fault.unwrap_or_else(left)));
    }
    tests
}
