//! What the tests of the sandbox share: a sandbox to run Python in, with limits that no honest program meets.

use stage_verify::sandbox::{Cgroups, End, Isolation, Job, Launch, Limits, Outcome, Program, Sandbox, Settings};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

pub const LIMITS: Limits = Limits {
    cpu: Duration::from_secs(10),
    wall: Duration::from_mins(1),
    memory_bytes: 256 << 20,
    processes: 32,
    stdout_bytes: 1 << 20,
    stderr_bytes: 64 << 10,
    disk_bytes: 32 << 20,
};

pub fn settings() -> Settings {
    Settings {
        launch: Launch::Program(PathBuf::from(env!("CARGO_BIN_EXE_sandbox-supervisor"))),
        isolation: Isolation::Full,
        cgroups: Cgroups::Auto,
        roots: Vec::new(),
        workers: 2,
    }
}

/// A sandbox, or `None` with a printed reason where the host has no user namespaces.
pub fn sandbox_of(settings: Settings) -> Option<Sandbox> {
    match Sandbox::new(settings) {
        Ok(sandbox) => Some(sandbox),
        Err(error)
            if std::fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|text| text.trim() == "0") =>
        {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn sandbox() -> Option<Sandbox> {
    sandbox_of(settings())
}

/// A job that runs a Python program.
pub fn python<'a>(arguments: &'a [&'a OsStr], limits: Limits) -> Job<'a> {
    Job {
        program: Program::Path(OsStr::new("/usr/bin/python3")),
        arguments,
        environment: &[],
        files: &[],
        stdin: b"",
        report: false,
        collect: None,
        limits,
    }
}

/// Runs Python code and gives what came of it.
pub fn run_with(sandbox: &Sandbox, code: &str, limits: Limits) -> Outcome {
    sandbox.run(&python(&["-I", "-c", code].map(OsStr::new), limits)).expect("the sandbox works")
}

/// What Python code prints; it must exit with 0.
pub fn print_of(sandbox: &Sandbox, code: &str) -> String {
    let outcome = run_with(sandbox, code, LIMITS);
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(outcome.end, End::Exited(0), "{stdout}{stderr}");
    stdout.trim_end().to_owned()
}
