//! Kills at any moment, and two processes at once: one result, and nothing asked twice but what was in flight.

use std::time::{Duration, Instant};

use parquet::file::reader::{FileReader as _, SerializedFileReader};

use crate::sums;
use crate::support::{Project, ended};

const ARGUMENTS: [&str; 3] = ["--json", "--shard-rows", "5"];
const PROBLEMS: u64 = 30;
/// `max_in_flight` of the project.
const IN_FLIGHT: u64 = 4;
const DELAY: Duration = Duration::from_millis(4);

/// Files of each stage.
type AllBytes = Vec<(String, std::collections::BTreeMap<String, Vec<u8>>)>;

/// Bytes of every stage after a run that nothing disturbed, and the events in its record.
fn undisturbed() -> (AllBytes, usize) {
    let (project, server) = sums::project(PROBLEMS, DELAY);
    project.call("run", &ARGUMENTS).ok();
    assert_eq!(server.asked_again(), 0);
    (all_bytes(&project), events(&project))
}

/// Events that the records of all runs hold so far.
fn events(project: &Project) -> usize {
    let Ok(records) = std::fs::read_dir(project.path().join("out/runs")) else { return 0 };
    let texts = records.map(|record| std::fs::read_to_string(record.unwrap().path()).unwrap_or_default());
    texts.map(|text| text.lines().count()).sum()
}

fn all_bytes(project: &Project) -> AllBytes {
    project.digests().into_keys().map(|stage| (stage.clone(), project.bytes_of(&stage))).collect()
}

/// Where two results differ: the stage, the file, and the first rows of it that are not the same.
fn difference(expected: &AllBytes, found: &AllBytes) -> String {
    for ((stage, files), (other_stage, other_files)) in expected.iter().zip(found) {
        if stage != other_stage || files.keys().ne(other_files.keys()) {
            return format!("{stage} {:?} is {other_stage} {:?}", files.keys(), other_files.keys());
        }
        for (name, bytes) in files {
            let other = &other_files[name];
            if bytes != other {
                let (rows, other_rows) = (printed(bytes), printed(other));
                let at = rows.iter().zip(&other_rows).position(|(one, two)| one != two);
                let pair = at.map(|at| (&rows[at], &other_rows[at]));
                return format!(
                    "{stage}/{name}, {} and {} rows, the first that differ: {pair:#?}",
                    rows.len(),
                    other_rows.len()
                );
            }
        }
    }
    format!("{} stages and {}", expected.len(), found.len())
}

/// Rows of a Parquet file as text.
fn printed(bytes: &[u8]) -> Vec<String> {
    let reader = SerializedFileReader::new(bytes::Bytes::copy_from_slice(bytes)).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
}

#[test]
fn a_kill_at_any_moment_costs_only_what_was_in_flight() {
    let (expected, all) = undisturbed();
    assert_eq!(expected.len(), 8);
    assert!(all >= 30, "{all} events");
    // a linear congruential generator: the moments are the same in every run of the test, and on a slow machine too
    let mut state = 20_261_130_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut interrupted = 0;
    for _ in 0..30 {
        let (event, wait) = (random(all), Duration::from_micros(random(8_000) as u64));
        let moment = format!("{wait:?} behind event {event} of {all}");
        let (project, server) = sums::project(PROBLEMS, DELAY);
        let mut child = project.start("run", &ARGUMENTS);
        while events(&project) < event && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(500));
        }
        std::thread::sleep(wait);
        interrupted += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        let rerun = project.call("run", &ARGUMENTS).ok();
        assert!(!rerun.states().values().any(|state| state == "failed"));
        let found = all_bytes(&project);
        assert!(found == expected, "other bytes after a kill at {moment}: {}", difference(&expected, &found));
        assert!(server.asked_again() <= IN_FLIGHT, "{} repeated after a kill at {moment}", server.asked_again());
    }
    assert!(interrupted >= 15, "only {interrupted} runs were killed before their end");
}

#[test]
fn two_runs_at_once_both_end_well_with_one_result() {
    let (expected, _) = undisturbed();
    let (project, server) = sums::project(PROBLEMS, DELAY);
    let one = project.start("run", &ARGUMENTS);
    let two = project.start("run", &ARGUMENTS);
    ended(one.wait_with_output().unwrap()).ok();
    ended(two.wait_with_output().unwrap()).ok();
    assert!(all_bytes(&project) == expected);
    assert_eq!(server.asked_again(), 0);
}

#[test]
fn committed_tasks_of_a_killed_run_are_not_done_again() {
    let (project, server) = sums::project(PROBLEMS, Duration::from_millis(20));
    let mut child = project.start("run", &ARGUMENTS);
    // wait until some tasks of the sampling are committed, then kill
    let deadline = Instant::now() + Duration::from_mins(1);
    while server.calls() < 50 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = manifests(&project);
    assert!(!before.is_empty());
    project.call("run", &ARGUMENTS).ok();
    let after = manifests(&project);
    for (name, bytes) in &before {
        assert_eq!(after.get(name), Some(bytes), "{name} was written again");
    }
}

/// Manifests of the sampling by name.
fn manifests(project: &Project) -> std::collections::BTreeMap<String, Vec<u8>> {
    let store = project.path().join("out/.store");
    let mut found = std::collections::BTreeMap::new();
    for version in std::fs::read_dir(store).unwrap().map(Result::unwrap) {
        if version.file_name().to_string_lossy().starts_with("paths-") {
            for entry in std::fs::read_dir(version.path().join("manifest")).unwrap().map(Result::unwrap) {
                let name = entry.file_name().into_string().unwrap();
                if !name.starts_with('.') {
                    found.insert(name, std::fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn an_interrupt_ends_the_run_with_its_own_code_and_the_next_run_goes_on() {
    let (project, server) = sums::project(PROBLEMS, Duration::from_millis(20));
    let child = project.start("run", &ARGUMENTS);
    let deadline = Instant::now() + Duration::from_mins(1);
    while server.calls() < 10 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let interrupted = ended(child.wait_with_output().unwrap());
    assert_eq!(interrupted.code, 130, "{interrupted:?}");
    project.call("run", &ARGUMENTS).ok();
    assert!(server.asked_again() <= IN_FLIGHT);
}
