//! Runs many programs with many tests and shows that nothing is left behind: processes, descriptors, memory.
//!
//! `cargo run --release -p stage-verify --example many_programs [PROGRAMS] [TESTS]` (1,000 programs with 20 tests each).
//! Every tenth program leaves processes behind, every tenth raises, every tenth is wrong in its last test, and the others are right.
//! At the end the rate is held against bare `python3 -I -c pass` from the same run.

#![cfg_attr(
    target_os = "linux",
    expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")
)]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    stage_verify::sandbox::supervise_if_asked();
    match linux::run() {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use stage_verify::code::{CodeError, Judge, Ran, Tests, Toolchains};
    use stage_verify::sandbox::{Cgroups, Isolation, Launch, Sandbox, Settings};
    use std::collections::BTreeMap;
    use std::error::Error;
    use std::fs;
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::thread;
    use std::time::{Duration, Instant};

    type Counts = BTreeMap<&'static str, usize>;

    /// Whether as many programs ended as they should, and nothing was left behind.
    pub(super) fn run() -> Result<bool, Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let programs: usize = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
        let count: usize = arguments.next().map_or(Ok(20), |text| text.parse())?;
        let workers = thread::available_parallelism()?.get();
        let toolchains = Toolchains::found();
        let settings = Settings {
            launch: Launch::Itself,
            isolation: Isolation::Full,
            cgroups: Cgroups::Auto,
            roots: toolchains.roots(),
            workers,
        };
        let sandbox = Sandbox::new(settings)?;
        println!("{}\n{:?}\n{workers} workers", sandbox.layers(), toolchains.versions());
        let judge = Judge::new(&sandbox, &toolchains);
        let tests = tests(count)?;
        judged(&judge, &tests, 5 * workers, workers)?;
        let before = left();
        println!("before: {before}");
        let started = Instant::now();
        let mut counts = Counts::new();
        for part in 0..10 {
            let share = programs * (part + 1) / 10 - programs * part / 10;
            for (ran, number) in judged(&judge, &tests, share, workers)? {
                *counts.entry(ran).or_default() += number;
            }
            println!("after {} programs: {}", programs * (part + 1) / 10, left());
        }
        let took = started.elapsed();
        // a process that has just been killed may take a moment to vanish
        thread::sleep(Duration::from_millis(500));
        let after = left();
        println!("after:  {after}\n{counts:?} in {:.1} s", took.as_secs_f64());
        rates(&judge, &toolchains, workers)?;
        let is_clean = after.processes <= before.processes && after.descriptors <= before.descriptors;
        let has_grown = after.memory_kib > before.memory_kib + (16 << 10);
        Ok(is_clean && !has_grown && counts.values().sum::<usize>() == programs)
    }

    fn tests(count: usize) -> Result<Tests, Box<dyn Error>> {
        let case = |index: usize| format!(r#"{{"input":"{index} 1","output":"{}"}}"#, index + 1);
        let cases = (0..count).map(case).collect::<Vec<_>>().join(",");
        Ok(Tests::parse(&format!(r#"{{"type":"stdin","cases":[{cases}],"limits":{{"time_s":5}}}}"#))?)
    }

    fn program(index: usize) -> String {
        let sum = "a, b = map(int, input().split())\n";
        match index % 10 {
            0 => format!(
                "{sum}import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)\nprint(a + b, flush=True)\n"
            ),
            1 => format!("{sum}print(a + b)\nraise ValueError(a)\n"),
            2 => format!("{sum}print(a + b if a < 19 else 0)\n"),
            _ => format!("{sum}print(a + b)\n# {index}\n"),
        }
    }

    /// How so many programs ended.
    fn judged(judge: &Judge<'_>, tests: &Tests, programs: usize, workers: usize) -> Result<Counts, CodeError> {
        let next = AtomicUsize::new(0);
        let counts = Mutex::new(Counts::new());
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= programs {
                    return Ok(());
                }
                let ran = judge.run("python", &program(index), tests)?.overall;
                *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(ran.as_str()).or_default() += 1;
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Result<Vec<()>, CodeError>>()
        })?;
        Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What this process and those below it hold.
    struct Left {
        processes: usize,
        descriptors: usize,
        memory_kib: u64,
        memory_below_kib: u64,
    }

    impl std::fmt::Display for Left {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let Self { processes, descriptors, memory_kib, memory_below_kib } = self;
            write!(
                formatter,
                "{processes} processes below, {descriptors} descriptors, {memory_kib} KiB resident, {memory_below_kib} KiB below"
            )
        }
    }

    fn left() -> Left {
        let mut parents = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            parents.insert(pid, rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0_u32));
        }
        let is_below = |pid: u32| {
            std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
                .skip(1)
                .any(|pid| pid == std::process::id())
        };
        let below: Vec<_> = parents.keys().copied().filter(|pid| is_below(*pid)).collect();
        Left {
            processes: below.len(),
            descriptors: fs::read_dir("/proc/self/fd").into_iter().flatten().count(),
            memory_kib: resident("self"),
            memory_below_kib: below.iter().map(|pid| resident(&pid.to_string())).sum(),
        }
    }

    fn resident(process: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
    }

    /// Trivial programs a second, bare and judged, on one thread and on all.
    fn rates(judge: &Judge<'_>, toolchains: &Toolchains, workers: usize) -> Result<(), Box<dyn Error>> {
        const RUNS: usize = 100;
        let python = toolchains.get("python")?.run[0].clone();
        let tests = Tests::parse(r#"{"type":"stdin","cases":[{"input":"","output":""}]}"#)?;
        let bare = || Command::new(&python).args(["-I", "-c", "pass"]).status().is_ok_and(|status| status.success());
        let shut_in = || judge.run("python", "pass", &tests).is_ok_and(|report| report.overall == Ran::Accepted);
        for threads in [1, workers] {
            // twice, so that a change of load shows
            for _ in 0..2 {
                let (bare, shut_in) = (rate(RUNS, threads, &bare)?, rate(RUNS, threads, &shut_in)?);
                println!(
                    "{threads} threads: bare {bare:.1}/s, in the sandbox {shut_in:.1}/s, ratio {:.2}",
                    shut_in / bare
                );
            }
        }
        Ok(())
    }

    fn rate(runs: usize, threads: usize, run: &(impl Fn() -> bool + Sync)) -> Result<f64, Box<dyn Error>> {
        let started = Instant::now();
        let all_right = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| (0..runs).all(|_| run()))).collect();
            threads.into_iter().all(|thread| thread.join().unwrap_or(false))
        });
        if !all_right {
            return Err("a trivial program failed".into());
        }
        Ok((runs * threads) as f64 / started.elapsed().as_secs_f64())
    }
}
