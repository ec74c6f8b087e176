//! Runs a program on its tests.

use super::ended::{by_clock, diagnostic, fault, usage};
use super::held::Held;
use super::key::key;
use super::limits::{TestLimits, bytes};
use super::line::cut;
use super::report::{Ran, Report, TestReport, Usage};
use super::tests::{Form, StdinCase, Tests};
use super::toolchain::{Compile, Toolchain, Toolchains};
use super::verdicts::Verdicts;
use super::{CodeError, compare::Compare};
use crate::sandbox::{Artifact, End, Job, Limits, Outcome, Program, Sandbox};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Judges programs by their tests. One serves many threads; a program's tests run one after another.
pub struct Judge<'a> {
    sandbox: Held<'a, Sandbox>,
    pub(super) toolchains: Held<'a, Toolchains>,
    verdicts: Option<Held<'a, Verdicts>>,
    pub(super) runs_all: bool,
    /// Languages whose toolchain is known to work.
    ready: Mutex<BTreeSet<String>>,
}

impl<'a> Judge<'a> {
    /// A judge that stops at a program's first failing test and remembers nothing.
    pub fn new(sandbox: impl Into<Held<'a, Sandbox>>, toolchains: impl Into<Held<'a, Toolchains>>) -> Self {
        let (sandbox, toolchains) = (sandbox.into(), toolchains.into());
        Self { sandbox, toolchains, verdicts: None, runs_all: false, ready: Mutex::default() }
    }

    /// Runs every test of a program, also after one has failed.
    #[must_use]
    pub fn all_tests(mut self) -> Self {
        self.runs_all = true;
        self
    }

    /// Looks reports up before running anything, and keeps new ones.
    #[must_use]
    pub fn with_verdicts(mut self, verdicts: impl Into<Held<'a, Verdicts>>) -> Self {
        self.verdicts = Some(verdicts.into());
        self
    }

    /// The report on a program.
    ///
    /// # Errors
    /// [`CodeError`]: the sandbox failed, the language has no toolchain or no driver for this form of tests,
    /// or the tests cannot run whatever the program is. None of them is a verdict.
    pub fn run(&self, language: &str, source: &str, tests: &Tests) -> Result<Report, CodeError> {
        let name = super::language(language);
        let toolchain = self.toolchains.get(&name)?;
        let form = match &tests.form {
            Form::Function { .. } if name != "python" => Some("function"),
            Form::Assert { .. } if name != "python" => Some("assert"),
            _ => None,
        };
        if let Some(form) = form {
            return Err(CodeError::NoDriver { form, language: name });
        }
        let judge = || {
            self.make_ready(&name, toolchain)?;
            self.judge(toolchain, source, tests)
        };
        match &self.verdicts {
            None => judge(),
            Some(verdicts) => verdicts.get_or_run(key(source, &name, tests, &self.toolchains, self.runs_all), judge),
        }
    }

    /// Runs the probe of a toolchain, once: a broken one must not look like wrong programs.
    fn make_ready(&self, name: &str, toolchain: &Toolchain) -> Result<(), CodeError> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.contains(name) {
            return Ok(());
        }
        let limits = TestLimits::default();
        let broken = |why: String| CodeError::BrokenToolchain { language: name.to_string(), why };
        let built = match self.build(toolchain, &toolchain.probe, &limits)? {
            Built::Ready(artifact, _) => artifact,
            Built::Refused { why, .. } => return Err(broken(why)),
        };
        let run = Run { toolchain, artifact: built.as_ref(), limits: case_limits(&limits, toolchain) };
        let outcome = self.outcome(&run, &[(&toolchain.file, toolchain.probe.as_bytes())], b"", None)?;
        if let Some((_, why)) = fault(&outcome, &run.limits) {
            return Err(broken(why));
        }
        if outcome.stdout.trim_ascii() != b"42" {
            return Err(broken("the probe does not print 42".to_string()));
        }
        ready.insert(name.to_string());
        Ok(())
    }

    fn judge(&self, toolchain: &Toolchain, source: &str, tests: &Tests) -> Result<Report, CodeError> {
        let (artifact, compile) = match self.build(toolchain, source, &tests.limits)? {
            Built::Ready(artifact, usage) => (artifact, usage),
            Built::Refused { why, usage, by_clock } => {
                return Ok(Report::refused(tests.len(), Some(usage), why, by_clock));
            }
        };
        let run = Run { toolchain, artifact: artifact.as_ref(), limits: case_limits(&tests.limits, toolchain) };
        let mut report = match &tests.form {
            Form::Stdin { cases, compare } => self.stdin(&run, source, cases, *compare)?,
            Form::Function { entry, cases, tolerance } => self.function(&run, source, entry, cases, *tolerance)?,
            Form::Assert { setup, asserts, .. } => self.assertions(&run, source, setup, asserts)?,
        };
        report.compile = compile;
        Ok(report)
    }

    fn build(&self, toolchain: &Toolchain, source: &str, limits: &TestLimits) -> Result<Built, CodeError> {
        let Some(Compile { command, output }) = &toolchain.compile else {
            return Ok(Built::Ready(None, None));
        };
        let [program, arguments @ ..] = command.as_slice() else {
            let language = toolchain.file.clone();
            return Err(CodeError::BrokenToolchain { language, why: "its command is empty".to_string() });
        };
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let cpu = Duration::from_secs_f64(limits.compile_s);
        let environment = environment(toolchain);
        let job = Job {
            program: Program::Path(OsStr::new(program)),
            arguments: &arguments,
            environment: &environment,
            files: &[(&toolchain.file, source.as_bytes())],
            stdin: b"",
            report: false,
            collect: Some(output),
            limits: Limits {
                cpu,
                wall: TestLimits::wall(cpu),
                memory_bytes: bytes(limits.compile_memory_mb),
                processes: 32 + toolchain.processes,
                stdout_bytes: 1 << 20,
                stderr_bytes: 1 << 18,
                disk_bytes: 256 << 20,
            },
        };
        let outcome = self.sandbox.run(&job)?;
        let why = match (outcome.end, &outcome.artifact) {
            (End::Exited(0), Some(artifact)) => {
                return Ok(Built::Ready(Some(artifact.clone()), Some(usage(&outcome))));
            }
            (End::Exited(0), None) => "the compiler left no executable".to_string(),
            (End::Exited(_), _) => diagnostic(&outcome.stderr),
            _ => fault(&outcome, &job.limits).map_or_else(String::new, |(_, why)| format!("the compiler: {why}")),
        };
        Ok(Built::Refused { why, usage: usage(&outcome), by_clock: by_clock(&outcome) })
    }

    /// Runs a program, or the driver that is named, with these files.
    pub(super) fn outcome(
        &self,
        run: &Run<'_>,
        files: &[(&str, &[u8])],
        stdin: &[u8],
        driver: Option<&str>,
    ) -> Result<Outcome, CodeError> {
        let word = |word: &'_ String| match driver {
            Some(driver) if *word == run.toolchain.file => driver.to_string(),
            _ => word.clone(),
        };
        let words: Vec<String> = run.toolchain.run.iter().map(word).collect();
        let words: Vec<_> = words.iter().map(OsStr::new).collect();
        let (program, arguments) = match (run.artifact, words.as_slice()) {
            (Some(artifact), arguments) => (Program::Artifact(artifact), arguments),
            (None, [program, arguments @ ..]) => (Program::Path(program), arguments),
            (None, []) => {
                let language = run.toolchain.file.clone();
                return Err(CodeError::BrokenToolchain { language, why: "its command is empty".to_string() });
            }
        };
        let environment = environment(run.toolchain);
        let report = driver.is_some();
        let limits = run.limits;
        let job = Job { program, arguments, environment: &environment, files, stdin, report, collect: None, limits };
        Ok(self.sandbox.run(&job)?)
    }

    fn stdin(&self, run: &Run<'_>, source: &str, cases: &[StdinCase], compare: Compare) -> Result<Report, CodeError> {
        let mut series = Series::new(self.runs_all, cases.len());
        let source_file = (run.toolchain.file.as_str(), source.as_bytes());
        let files = if run.artifact.is_some() { &[][..] } else { &[source_file][..] };
        for case in cases {
            let outcome = self.outcome(run, files, case.input.made().as_bytes(), None)?;
            let found = fault(&outcome, &run.limits).or_else(|| {
                let difference = compare.difference(&outcome.stdout, &case.output.made())?;
                let place =
                    if difference.place.is_empty() { String::new() } else { format!(" at {}", difference.place) };
                let detail = format!("got {}, expected {}{place}", difference.got, difference.expected);
                Some((Ran::WrongAnswer, detail))
            });
            if matches!(found, Some((Ran::CompileError, _))) {
                let why = found.map_or_else(String::new, |(_, why)| why);
                return Ok(Report::refused(cases.len(), None, why, false));
            }
            if series.push(&outcome, found) {
                break;
            }
        }
        Ok(series.report())
    }
}

/// What all runs of a program share.
pub(super) struct Run<'a> {
    pub(super) toolchain: &'a Toolchain,
    artifact: Option<&'a Artifact>,
    pub(super) limits: Limits,
}

enum Built {
    /// The executable, if the language has one.
    Ready(Option<Artifact>, Option<Usage>),
    /// Why it is not a program, and the compiler's run.
    Refused { why: String, usage: Usage, by_clock: bool },
}

/// Results of tests that have a process each.
pub(super) struct Series {
    tests: Vec<TestReport>,
    count: usize,
    runs_all: bool,
    by_clock: bool,
}

impl Series {
    pub(super) fn new(runs_all: bool, count: usize) -> Self {
        Self { tests: Vec::new(), count, runs_all, by_clock: false }
    }

    /// Adds a result; whether it was the last to be run.
    pub(super) fn push(&mut self, outcome: &Outcome, found: Option<(Ran, String)>) -> bool {
        let (ran, detail) = found.unwrap_or((Ran::Accepted, String::new()));
        self.by_clock |= by_clock(outcome);
        self.tests.push(TestReport { ran, usage: usage(outcome), detail: cut(&detail, 400) });
        ran != Ran::Accepted && !self.runs_all
    }

    pub(super) fn report(self) -> Report {
        Report::of(self.tests, self.count, None, self.by_clock)
    }
}

fn environment(toolchain: &Toolchain) -> Vec<(&str, &str)> {
    toolchain.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn case_limits(limits: &TestLimits, toolchain: &Toolchain) -> Limits {
    Limits {
        cpu: limits.cpu(),
        wall: TestLimits::wall(limits.cpu()),
        memory_bytes: bytes(limits.memory_mb),
        processes: limits.processes.saturating_add(toolchain.processes),
        stdout_bytes: bytes(limits.output_mb),
        stderr_bytes: 1 << 16,
        disk_bytes: bytes(limits.disk_mb),
    }
}
