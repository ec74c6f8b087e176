//! How many pages a thread's cache has.

use std::fs;
use std::path::Path;

use crate::PAGE;
use crate::decode::job::ServiceOptions;
use crate::local::LocalError;

/// Tokens of a slot on average for which there is room by default; longer answers wait for each other.
const SLOT_TOKENS: usize = 1024;
/// By default, the caches take this part of the memory that is free.
const SHARE: usize = 4;

/// Pages of each thread: what `cache_bytes` gives, and by default room for a whole context and for usual answers in all
/// slots, if a quarter of the free memory has it.
///
/// # Errors
/// When there is no room for a single page.
pub(super) fn pages_for(options: &ServiceOptions, context: usize, page_bytes: usize) -> Result<u32, LocalError> {
    let threads = options.threads.max(1);
    let (bytes, is_default) = match options.cache_bytes {
        Some(bytes) => (bytes, false),
        None => (available().unwrap_or(usize::MAX) / SHARE, true),
    };
    let useful = context.div_ceil(PAGE).saturating_mul(if is_default { 1 } else { options.slots.max(1) });
    let useful = if is_default { useful.max(options.slots.saturating_mul(SLOT_TOKENS) / PAGE) } else { useful };
    let pages = (bytes / threads / page_bytes.max(1)).min(useful);
    match u32::try_from(pages) {
        Ok(0) => Err(LocalError::NoCache { bytes, is_default, threads, page_bytes }),
        Ok(pages) => Ok(pages),
        Err(_) => Ok(u32::MAX),
    }
}

/// Bytes that can be allocated without pushing others out: of the machine, and of the control group where it has a limit.
/// `None` where the system does not say.
fn available() -> Option<usize> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_bytes(&text));
    let group =
        fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_bytes(&text, Path::new("/sys/fs/cgroup")));
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// `MemAvailable` of /proc/meminfo.
fn machine_bytes(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The least room in the groups from this process's up to the root, for both versions of control groups.
fn group_bytes(text: &str, root: &Path) -> Option<usize> {
    let mut least = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (base, limit, used) = if controllers.is_empty() {
            (root.to_owned(), "memory.max", "memory.current")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        let own = base.join(path.trim_start_matches('/'));
        for folder in own.ancestors().take_while(|folder| folder.starts_with(&base)) {
            let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<usize>().ok();
            // `max` is no number and stands for no limit.
            let (Some(limit), Some(used)) = (number(limit), number(used)) else { continue };
            let room = limit.saturating_sub(used);
            least = Some(least.map_or(room, |least: usize| least.min(room)));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_a_share_of_memory_and_no_larger_than_useful() {
        let options = |cache_bytes| ServiceOptions { threads: 2, slots: 4, cache_bytes, context: None };
        assert_eq!(pages_for(&options(Some(100 * 1000)), 64 * PAGE, 1000).unwrap(), 50);
        assert_eq!(pages_for(&options(Some(usize::MAX)), 64 * PAGE, 1000).unwrap(), 256);
        assert_eq!(pages_for(&options(None), 64 * PAGE, 1).unwrap(), 256);
        assert_eq!(pages_for(&options(None), 640 * PAGE, 1).unwrap(), 640);
    }

    #[test]
    fn no_room_for_a_page_is_an_error_with_numbers() {
        let options = ServiceOptions { threads: 2, slots: 4, cache_bytes: Some(1999), context: None };
        let error = pages_for(&options, 64, 1000).unwrap_err().to_string();
        assert!(error.contains("1999") && error.contains("1000") && error.contains("cache_bytes"), "{error}");
        let none = ServiceOptions { cache_bytes: Some(0), ..options };
        assert!(pages_for(&none, 64, 1000).is_err());
    }

    #[test]
    fn memory_is_read_from_what_the_system_says() {
        assert_eq!(machine_bytes("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 * 1024));
        assert_eq!(machine_bytes("MemTotal: 9 kB\n"), None);
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        fs::write(group.join("memory.current"), "10\n").unwrap();
        assert_eq!(group_bytes("0::/a/b\n", root.path()), None);
        fs::write(root.path().join("a/memory.max"), "100\n").unwrap();
        fs::write(root.path().join("a/memory.current"), "30\n").unwrap();
        assert_eq!(group_bytes("0::/a/b\n", root.path()), Some(70));
        fs::write(group.join("memory.max"), "35\n").unwrap();
        assert_eq!(group_bytes("0::/a/b\n", root.path()), Some(25));
        let old = root.path().join("memory/c");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("memory.limit_in_bytes"), "64\n").unwrap();
        fs::write(old.join("memory.usage_in_bytes"), "4\n").unwrap();
        assert_eq!(group_bytes("5:cpu,memory:/c\n4:pids:/c\n", root.path()), Some(60));
    }
}
