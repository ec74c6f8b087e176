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
    let mean = |times: &[Duration]| times.iter().sum::<Duration>().as_secs_f64() * 1e3 / times.len() as f64;
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    let means = (mean(&bare), mean(&shut_in));
    let medians = (median(&mut bare), median(&mut shut_in));
    println!(
        "{name}: mean {:.2} ms bare, {:.2} ms shut in (+{:.2} ms, rate x {:.2}); median {:.2} ms bare, {:.2} ms shut in (+{:.2} ms, \
         rate x {:.2})",
        means.0,
        means.1,
        means.1 - means.0,
        means.0 / means.1,
        medians.0,
        medians.1,
        medians.1 - medians.0,
        medians.0 / medians.1
    );
    Ok(())
}
