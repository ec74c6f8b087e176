//! What the tests of the sandbox share: a sandbox to run Python in, with limits that no honest program meets.

use stage_verify::sandbox::{Cgroups, End, Isolation, Job, Launch, Limits, Outcome, Program, Sandbox, Settings};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Variable that names the supervisor's executable.
pub const SUPERVISOR: &str = "SANDBOX_TEST_SUPERVISOR";

/// Limits that no honest program of these tests meets.
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
        launch: Launch::Program(supervisor()),
        isolation: Isolation::Full,
        cgroups: Cgroups::Auto,
        roots: Vec::new(),
        workers: 2,
    }
}

/// The supervisor's executable; tests that run as another user name a copy.
fn supervisor() -> PathBuf {
    std::env::var_os(SUPERVISOR).map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandbox-supervisor")), PathBuf::from)
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

/// One with control groups, where the host has any, and one without.
pub fn sandboxes() -> Vec<Sandbox> {
    let kinds = [Cgroups::Auto, Cgroups::None];
    kinds.into_iter().filter_map(|cgroups| sandbox_of(Settings { cgroups, ..settings() })).collect()
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

/// Secret of the caller that no program may find.
pub const CANARY: &str = "PIPELINE_CANARY_TOKEN";

/// Whether this process was started for one test: what another test needs a process of its own for does nothing in the
/// common one.
pub fn is_alone() -> bool {
    std::env::var_os(CANARY).is_some()
}

/// Runs the test `name` of this program in a process of its own, with a secret in its environment.
pub fn alone(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path of the tests"));
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(CANARY, "canary-value");
    command
}

/// Runs it and expects success.
pub fn succeeds(mut command: Command) {
    let output = command.output().expect("the test program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("1 passed"), "{}\n{stdout}\n{stderr}", output.status);
}

/// Processes of the host whose command line contains `marker`.
pub fn processes_with(marker: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_marker = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(marker)
    };
    pids.filter(has_marker).collect()
}

/// Waits until `done` holds, ten seconds at most.
pub fn eventually(done: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
