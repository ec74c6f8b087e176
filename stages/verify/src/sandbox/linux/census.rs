//! Counts what processes use, by their files in `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// What a run uses at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Use {
    /// Processor time of living processes, and of those that they waited for.
    pub cpu: Duration,
    /// Anonymous memory and tables of pages.
    pub anonymous_bytes: u64,
    /// Mapped shared memory, files of a tmpfs among it.
    pub shared_bytes: u64,
}

/// The descendants of process `ancestor`.
///
/// In isolation all other processes that the supervisor sees are of the run.
pub fn descendants(ancestor: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in processes() {
        if let Some(parent) = stat(pid).and_then(|stat| stat.parent) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut open = vec![ancestor];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found.into_iter().collect()
}

/// Those that still run; the others have ended and await notice.
pub fn living_descendants(ancestor: i32) -> Vec<i32> {
    descendants(ancestor).into_iter().filter(|pid| stat(*pid).is_some_and(|stat| stat.is_alive)).collect()
}

/// What `processes` use together. Memory that a process shares with its forks is counted for each: see
/// [`exact_memory`].
pub fn use_of(processes: &[i32]) -> Use {
    let mut sum = Use::default();
    for pid in processes {
        // a process may end at any moment; its time is then its parent's
        let Some(stat) = stat(*pid) else { continue };
        sum.cpu += stat.cpu;
        if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
            // tables of pages too: addresses that are only read cost nothing else
            sum.anonymous_bytes += kibibytes(&status, "RssAnon:") + kibibytes(&status, "VmPTE:");
            sum.shared_bytes += kibibytes(&status, "RssShmem:");
        }
    }
    sum
}

/// Memory of `processes` with every page counted once, which costs the kernel a walk through all page tables.
pub fn exact_memory(processes: &[i32]) -> (u64, u64) {
    let (mut anonymous, mut shared) = (0, 0);
    for pid in processes {
        if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
            anonymous += kibibytes(&status, "VmPTE:");
        }
        if let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
            anonymous += kibibytes(&rollup, "Pss_Anon:");
            shared += kibibytes(&rollup, "Pss_Shmem:");
        }
    }
    (anonymous, shared)
}

/// Processes and threads of user `uid` that can be seen.
pub fn tasks_of(uid: u32) -> u64 {
    let of_user = processes()
        .into_iter()
        .filter(|pid| fs::metadata(format!("/proc/{pid}")).is_ok_and(|metadata| metadata.uid() == uid));
    of_user.map(|pid| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count() as u64)).sum()
}

fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

struct Stat {
    is_alive: bool,
    parent: Option<i32>,
    cpu: Duration,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads fields 3 (state), 4 (parent) and 14 to 17 (times) of `proc_pid_stat(5)`. The name before them may hold
/// anything, brackets too.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    // a tick is 1/100 s on every Linux of today
    let is_alive = !matches!(*fields.first()?, "Z" | "X");
    Some(Stat { is_alive, parent: fields.get(1)?.parse().ok(), cpu: Duration::from_millis(ticks * 10) })
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "7 (a) b) 9 9 (x) R 3 7 7 0 -1 4194304 90 0 0 0 5 6 7 8 20 0 1 0 100 1 1";
        let stat = parse_stat(text).expect("a whole line");
        assert_eq!((stat.parent, stat.cpu), (Some(3), Duration::from_millis(260)));
    }

    #[test]
    fn a_line_cut_short_is_nothing() {
        assert!(parse_stat("7 (a) R 3 7").is_none());
        assert!(parse_stat("").is_none());
    }

    #[test]
    fn own_memory_is_seen() {
        let own = use_of(&[std::process::id().cast_signed()]);
        assert!(own.anonymous_bytes > 0, "{own:?}");
        assert!(tasks_of(rustix::process::geteuid().as_raw()) > 0);
    }
}
