//! What the sandbox costs: a program that does nothing and Python that does nothing, bare and shut in, in turns.
//!
//! The figures to look at are the ratios: both sides meet the same load of the machine. Run by `cargo bench -p stage-verify --bench sandbox`.

#![expect(clippy::print_stdout, reason = "a bench is read by people")]

use stage_verify::sandbox::{Cgroups, Isolation, Job, Launch, Limits, Program, Sandbox, SandboxError, Settings};
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 100;

fn main() -> Result<(), SandboxError> {
    stage_verify::sandbox::supervise_if_asked();
    for cgroups in [Cgroups::Auto, Cgroups::None] {
        let sandbox = Sandbox::new(Settings {
            launch: Launch::Itself,
            isolation: Isolation::Full,
            cgroups,
            roots: Vec::new(),
            workers: 1,
        })?;
        println!("{}\n", sandbox.layers());
        for (name, program, arguments) in
            [("true", "/usr/bin/true", &[][..]), ("python3 -I -c pass", "/usr/bin/python3", &["-I", "-c", "pass"])]
        {
            compare(&sandbox, name, program, arguments)?;
        }
    }
    Ok(())
}

fn compare(sandbox: &Sandbox, name: &str, program: &str, arguments: &[&str]) -> Result<(), SandboxError> {
    let inside: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let job = Job {
        program: Program::Path(OsStr::new(program)),
        arguments: &inside,
        environment: &[],
        files: &[],
        stdin: b"",
        report: false,
        collect: None,
        limits: Limits {
            cpu: Duration::from_secs(5),
            wall: Duration::from_secs(30),
            memory_bytes: 256 << 20,
            processes: 32,
            stdout_bytes: 1 << 20,
            stderr_bytes: 1 << 16,
            disk_bytes: 32 << 20,
        },
    };
    let (mut bare, mut shut_in) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let ended = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).output();
        bare.push(start.elapsed());
        assert!(ended.is_ok_and(|output| output.status.success()), "`{program}` does not run here");
        let start = Instant::now();
        sandbox.run(&job)?;
        shut_in.push(start.elapsed());
    }
    bare.sort_unstable();
    shut_in.sort_unstable();
    let mean = |times: &[Duration]| times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap_or(1);
    println!("{name}");
    print("mean", mean(&bare), mean(&shut_in));
    print("median", bare[ROUNDS / 2], shut_in[ROUNDS / 2]);
    // nearest to what a machine without other load would show
    print("fastest", bare[0], shut_in[0]);
    Ok(())
}

fn print(what: &str, bare: Duration, shut_in: Duration) {
    let [bare, shut_in] = [bare, shut_in].map(|time| time.as_secs_f64() * 1e3);
    let (more, rate) = (shut_in - bare, bare / shut_in);
    println!("  {what:8} {bare:7.2} ms bare, {shut_in:7.2} ms shut in: {more:+.2} ms, rate x {rate:.2}");
}
