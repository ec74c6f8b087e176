//! The shared sandbox cases: verdicts and invariants, for each user and with and without control groups.
//!
//! Every set is judged in a process of its own, because the canaries lie in its environment and what it leaves
//! behind is looked for among its descendants.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop and tell")]

mod code_stand;
#[path = "code_stand/data.rs"]
mod data;

use code_stand::{sandbox, supervisor};
use data::json_lines;
use serde_json::Value;
use stage_verify::code::{Judge, Ran, Report, Tests, Toolchains};
use stage_verify::sandbox::Cgroups;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

const FILE: &str = "/tmp/pipeline-canary-host-file";
const NOBODY: u32 = 65534;

/// The sets disturb each other's clocks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn every_case_has_its_verdict_and_invariants() {
    judged_apart("auto", false);
}

#[test]
fn every_case_has_its_verdict_and_invariants_without_control_groups() {
    judged_apart("none", false);
}

#[test]
fn every_case_has_its_verdict_and_invariants_for_an_unprivileged_user() {
    judged_apart("auto", true);
}

#[test]
fn every_case_has_its_verdict_and_invariants_for_an_unprivileged_user_without_control_groups() {
    judged_apart("none", true);
}

fn judged_apart(cgroups: &str, as_nobody: bool) {
    let _turn = ONE_AT_A_TIME.lock();
    if as_nobody && !rustix::process::geteuid().is_root() {
        println!("skipped: the user is unprivileged anyway");
        return;
    }
    // where another user may execute them
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, supervisor_copy) = (folder.path().join("cases"), folder.path().join("supervisor"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::copy(supervisor(), &supervisor_copy).unwrap();
    let mut command = Command::new(&program);
    command.args(["--exact", "judge_every_case", "--nocapture"]).current_dir("/");
    command.env("PIPELINE_CANARY_TOKEN", "CANARY").env("CODE_TESTS_SUPERVISOR", &supervisor_copy);
    command.env("CODE_TESTS_CGROUPS", cgroups);
    if as_nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "the set was not judged");
}

#[test]
fn judge_every_case() {
    if std::env::var_os("CODE_TESTS_SUPERVISOR").is_none() {
        return; // the other tests run it, in processes of its own
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let Some(cases) = json_lines("cases/sandbox.jsonl") else { return };
    let cgroups = match std::env::var_os("CODE_TESTS_CGROUPS") {
        Some(word) if word == "none" => Cgroups::None,
        _ => Cgroups::Auto,
    };
    let network = TcpListener::bind("127.0.0.1:0").unwrap();
    network.set_nonblocking(true).unwrap();
    // a set of another build may listen already, which serves as well
    let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name("pipeline-canary").unwrap());
    if let Ok(unix) = &unix {
        unix.set_nonblocking(true).unwrap();
    }
    if !Path::new(FILE).exists() {
        fs::write(FILE, "canary").unwrap();
    }
    let toolchains = Toolchains::found();
    let sandbox = sandbox(&toolchains, cgroups);
    println!("{}\n{:?}", sandbox.layers(), toolchains.versions());
    let stand = Stand { judge: Judge::new(&sandbox, &toolchains), host: host(), idle: 0.into() };
    stand.plain_program_is_accepted();
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| stand.plain_program_is_accepted()))));
    stand.idle.store(descendants().len() as u64, Ordering::Relaxed);
    let mut wrong = Vec::new();
    let mut counts = BTreeMap::new();
    for case in &cases {
        // time and free space belong to the whole machine: another user of it must not fail a case
        let found = (0..3).map(|_| stand.judged(case)).find_or_last();
        match found {
            Ok(ran) => *counts.entry(ran.as_str()).or_insert(0) += 1,
            Err(why) => wrong.push(format!("{}: {why}", case["id"])),
        }
    }
    println!("{} cases: {counts:?}, {} wrong", cases.len(), wrong.len());
    assert!(network.accept().is_err(), "a program reached the loopback network of the host");
    assert!(unix.iter().all(|unix| unix.accept().is_err()), "a program reached a socket of the host");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first result that is right, or the last.
trait FindOrLast<T, E>: Iterator<Item = Result<T, E>> + Sized {
    fn find_or_last(self) -> Result<T, E> {
        let mut last = None;
        for result in self {
            if result.is_ok() {
                return result;
            }
            last = Some(result);
        }
        last.unwrap()
    }
}

impl<T, E, I: Iterator<Item = Result<T, E>>> FindOrLast<T, E> for I {}

struct Stand<'a> {
    judge: Judge<'a>,
    host: BTreeMap<String, Option<Vec<u8>>>,
    /// Processes below this one while nothing runs.
    idle: AtomicU64,
}

impl Stand<'_> {
    fn plain_program_is_accepted(&self) {
        let tests = Tests::parse(r#"{"type":"stdin","cases":[{"input":"2 3","output":"5"}]}"#).unwrap();
        let found = self.judge.run("python", "print(sum(map(int, input().split())))", &tests).unwrap();
        assert_eq!(found.overall, Ran::Accepted, "{}", found.detail);
    }

    fn judged(&self, case: &Value) -> Result<Ran, String> {
        let tests = Tests::parse(&case["tests"].to_string()).map_err(|error| error.to_string())?;
        let program = case["program"].as_str().unwrap();
        let started = Instant::now();
        let (report, growth) =
            watching_the_disk(|| self.judge.run(case["language"].as_str().unwrap(), program, &tests));
        let took = started.elapsed();
        let report = report.map_err(|error| error.to_string())?;
        let mut allowed = vec![&case["expected_verdict"]];
        allowed.extend(case["also_ok"].as_array().unwrap());
        if !allowed.iter().any(|word| *word == report.overall.as_str()) {
            return Err(format!("{} where {allowed:?} was expected: {}", report.overall.as_str(), report.detail));
        }
        for invariant in case["invariants"].as_array().unwrap() {
            self.holds(invariant.as_str().unwrap(), &report, took, growth)?;
        }
        // these hold for every program, whether its case names them or not
        for invariant in ["no_survivors", "host_unchanged", "runner_rss_mb:300"] {
            self.holds(invariant, &report, took, growth)?;
        }
        Ok(report.overall)
    }

    fn holds(&self, invariant: &str, report: &Report, took: Duration, growth: u64) -> Result<(), String> {
        let (name, amount) = invariant.split_once(':').unwrap_or((invariant, ""));
        let number = || amount.parse::<u64>().unwrap();
        let holds = match name {
            "no_survivors" => self.is_idle_again(),
            "runner_alive" => {
                self.plain_program_is_accepted();
                true
            }
            "host_unchanged" => host() == self.host,
            // a busy machine gives a program less than its share of time: then the clock ends it, a little later
            "verdict_within_s" if report.by_clock => took <= Duration::from_secs(number() * 3 / 2),
            "verdict_within_s" => took <= Duration::from_secs(number()),
            "runner_rss_mb" => peak_memory() <= number() << 20,
            "host_disk_growth_mb" => growth <= number() << 20,
            "diagnostic_without" => !format!("{report:?}").contains(amount),
            other => return Err(format!("the invariant `{other}` is unknown to this test")),
        };
        if holds {
            return Ok(());
        }
        Err(format!(
            "`{invariant}` does not hold: {took:?}, {} MiB of memory, {} MiB on disk",
            peak_memory() >> 20,
            growth >> 20
        ))
    }

    fn is_idle_again(&self) -> bool {
        let idle = self.idle.load(Ordering::Relaxed);
        (0..100).any(|_| {
            let is_idle = descendants().len() as u64 <= idle;
            thread::sleep(Duration::from_millis(if is_idle { 0 } else { 20 }));
            is_idle
        })
    }
}

/// What no program may change, by path.
fn host() -> BTreeMap<String, Option<Vec<u8>>> {
    let folders = ["/usr", "/lib", "/etc", "/root", "/home", "/var", "", "/tmp", "/work", "/usr/lib", "/dev/shm"];
    let mut paths: Vec<_> = folders.iter().map(|folder| format!("{folder}/.sandbox-probe")).collect();
    let kernel = ["core_pattern", "hostname", "sysrq"].map(|name| format!("/proc/sys/kernel/{name}"));
    paths.extend(kernel);
    paths.extend([FILE.to_string(), "/sys/kernel/uevent_helper".to_string(), "/etc/hosts".to_string()]);
    paths.into_iter().map(|path| (path.clone(), fs::read(path).ok())).collect()
}

/// Processes below this one, at any depth; those whose parent died are among them, since this process inherits them.
fn descendants() -> BTreeSet<u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        parents.insert(pid, rest.split_whitespace().nth(1).and_then(|parent| parent.parse::<u32>().ok()).unwrap_or(0));
    }
    let is_below = |pid: &u32| {
        let mut at = *pid;
        while let Some(&parent) = parents.get(&at) {
            if parent == std::process::id() {
                return true;
            }
            at = parent;
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

/// Greatest memory that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// What `act` gives, and by how much files grew at most while it ran.
fn watching_the_disk<T>(act: impl FnOnce() -> T) -> (T, u64) {
    let free = || {
        let space = |path: &&str| rustix::fs::statvfs(*path).map_or(0, |space| space.f_bfree * space.f_frsize);
        ["/", "/tmp", "/dev/shm"].iter().map(space).collect::<Vec<_>>()
    };
    let (before, growth, ends) = (free(), AtomicU64::new(0), AtomicBool::new(false));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let grown = before.iter().zip(free()).map(|(before, now)| before.saturating_sub(now)).max();
                growth.fetch_max(grown.unwrap_or(0), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        let done = act();
        ends.store(true, Ordering::Relaxed);
        done
    });
    (done, growth.load(Ordering::Relaxed))
}
