//! Everything goes wrong at once: every fault of the scripted server switched on, and the client killed again and again.
//!
//! All rows end as answers or typed rejects, none twice and none lost, and nothing is asked twice but what was in flight
//! at a kill. `make chaos` runs it at full size: 20,000 rows of 4 samples and ten kills.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::{Duration, Instant};

use scripted_server::{Fault, Options, Script, Server, Stats};
use serde_json::Value;

use crate::support::{Project, ended};
use crate::teacher;

const SAMPLES: u32 = 4;
const IN_FLIGHT: u64 = 64;

struct Size {
    rows: u64,
    kills: u64,
    /// Share of each fault.
    share: f64,
    /// Share of each fault that makes all requests wait for a second.
    waits: f64,
}

fn size() -> Size {
    match std::env::var("PIPELINE_CHAOS").as_deref() {
        Ok("full") => Size { rows: 20_000, kills: 10, share: 0.005, waits: 0.000_25 },
        _ => Size { rows: 600, kills: 5, share: 0.006, waits: 0.001_5 },
    }
}

/// A server on which every fault is on; `lasting_500` is the share of requests that it never answers.
fn options(share: f64, share_of_waits: f64, lasting_500: f64) -> Options {
    let mut options = Options { seed: 4, ..Options::default() };
    options.faults.every = share;
    let waits = [Fault::RateLimited, Fault::RateLimitedSeconds, Fault::RateLimitedDate, Fault::Error503Wait];
    options.faults.shares = waits.map(|fault| fault.at(share_of_waits)).to_vec();
    options.faults.shares.push(Fault::Always500.at(lasting_500));
    options.latency.delay = "lognormal:15ms,0.8".parse().unwrap();
    options.latency.drip_over = Some(Duration::from_millis(100));
    options.latency.hang_for = Some(Duration::from_millis(300));
    options.answers.reasoning = scripted_server::ReasoningShape::Mixed;
    options.answers.wrong_share = 0.3;
    options
}

/// Waits until the server gave that many answers; false when the client ended before.
fn reached(server: &Server, child: &mut Child, answers: u64) -> bool {
    while server.stats().answers < answers {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn every_row_survives_every_fault_and_every_kill() {
    let size = size();
    let server = Server::start(Script::from(options(size.share, size.waits, 0.002))).unwrap();
    let project = teacher::project(&server.url(), &format!("max_in_flight = {IN_FLIGHT}"), size.rows, SAMPLES);
    project.edit("max_tokens = 256", "max_tokens = 256\nmax_errors = 0.2");
    let shard_rows = (size.rows / 12).to_string();
    let arguments = ["--json", "--shard-rows", shard_rows.as_str()];
    let begun = Instant::now();
    let wanted = size.rows * u64::from(SAMPLES);
    let mut kills = 0;
    for place in 1..=size.kills {
        let mut child = project.start("run", &arguments);
        let is_running = reached(&server, &mut child, wanted * place / (size.kills + 2));
        kills += u64::from(is_running);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(kills, size.kills, "the client ended before it was killed");
    project.call("run", &arguments).ok();
    let chaotic = server.stats();
    let met: BTreeSet<&str> = chaotic.faults.keys().map(String::as_str).collect();
    let missed: Vec<&str> = Fault::all().map(Fault::name).filter(|name| !met.contains(name)).collect();
    assert!(missed.len() <= 3, "faults that nobody met: {missed:?}");
    assert!(chaotic.repeated <= IN_FLIGHT * kills, "{} asked twice after {kills} kills", chaotic.repeated);
    let before = balanced(&project, size.rows);

    // those whose requests never succeeded are asked again when the server has come to its senses
    let healed = Server::start(Script::from(options(0.0, 0.0, 0.0))).unwrap();
    project.edit(&server.url(), &healed.url());
    let mut again = arguments.to_vec();
    again.push("--retry-errors");
    project.call("run", &again).ok();
    let after = balanced(&project, size.rows);
    assert_eq!(after.transient, 0);
    assert!(healed.stats().answers <= before.transient * u64::from(SAMPLES), "{:?}", healed.stats());
    every_row_is_somewhere(&project, size.rows, &after);
    report(&size, begun, &chaotic, &healed.stats(), &before, &after);
}

/// Counts of the stage that asks.
struct Counts {
    kept: u64,
    rejected: u64,
    transient: u64,
    written: u64,
    refused: u64,
}

/// The counts, checked: what was read is kept, rejected or transient.
fn balanced(project: &Project, rows: u64) -> Counts {
    let success = project.success("paths");
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let counts = &success["counts"];
    let rejected = counts["rejected"].as_object().map_or(0, |reasons| reasons.values().map(number).sum());
    let found = Counts {
        kept: number(&counts["kept"]),
        rejected,
        transient: number(&counts["transient"]),
        written: number(&counts["written"]),
        refused: number(&counts["counters"]["refused_answers"]),
    };
    assert_eq!(number(&counts["read"]), rows);
    assert_eq!(found.kept + found.rejected + found.transient, rows);
    found
}

/// Each query is kept or rejected, each of its samples a trace or a refusal.
fn every_row_is_somewhere(project: &Project, rows: u64, counts: &Counts) {
    let id = |row: &Value| row["query_id"].as_str().unwrap().to_owned();
    let traces = project.rows("paths", &[]);
    let kept: BTreeSet<String> = traces.iter().map(id).collect();
    let rejects = project.rows("paths", &["--rejects"]);
    let rejected: BTreeSet<String> = rejects.iter().map(id).collect();
    let all: BTreeSet<String> = project.rows("problems", &[]).iter().map(id).collect();
    assert_eq!(all.len() as u64, rows);
    assert!(kept.is_disjoint(&rejected));
    assert_eq!(kept.union(&rejected).cloned().collect::<BTreeSet<_>>(), all);
    assert!(rejects.iter().all(|row| row["reject_reason"].as_str().is_some_and(|reason| !reason.is_empty())));
    let samples: BTreeSet<(String, u64)> =
        traces.iter().map(|row| (id(row), row["sample"].as_u64().unwrap())).collect();
    assert_eq!((samples.len(), traces.len() as u64), (traces.len(), counts.written));
    assert_eq!(counts.written + counts.refused, rows * u64::from(SAMPLES));
}

fn report(size: &Size, begun: Instant, chaotic: &Stats, healed: &Stats, before: &Counts, after: &Counts) {
    println!(
        "{} rows x {SAMPLES}, {} kills, {:.0} s: {} requests, {} answers, {} answered twice, {} aborted; transient {} then {}; \
         kept {}, rejected {}, refused samples {}; asked afterwards {}; faults {:?}",
        size.rows,
        size.kills,
        begun.elapsed().as_secs_f64(),
        chaotic.requests,
        chaotic.answers,
        chaotic.repeated,
        chaotic.aborted,
        before.transient,
        after.transient,
        after.kept,
        after.rejected,
        after.refused,
        healed.requests,
        chaotic.faults,
    );
}

#[test]
fn a_kill_right_after_an_answer_does_not_ask_for_it_again() {
    // one request at a time: whatever the server handed over before the last one is in the store
    let mut options = Options::default();
    options.latency.delay = "20ms".parse().unwrap();
    let server = Server::start(options).unwrap();
    let project = teacher::project(&server.url(), "max_in_flight = 1", 40, 1);
    for place in 1..=4 {
        let mut child = project.start("run", &["--json"]);
        assert!(reached(&server, &mut child, place * 8));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    ended(project.command("run", &["--json"]).output().unwrap()).ok();
    assert!(server.stats().repeated <= 4, "{:?}", server.stats());
    assert_eq!(project.success("paths")["counts"]["kept"], 40);
}
