//! Control groups, the supervisor's part: sets limits and reads counters through files that the caller opened.

use super::system;
use super::wire::{Failure, Step};
use crate::sandbox::Limits;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Memory that the supervisor itself takes at most, besides what it keeps of the program's output.
const OWN_BYTES: u64 = 24 << 20;

/// Versions of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// What a file of a group is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Most memory.
    MemoryLimit,
    /// Most swap (version 2) or most of memory and swap (version 1).
    SwapLimit,
    /// Memory in use.
    MemoryUse,
    /// Most memory since the file was last written to.
    MemoryPeak,
    /// How many processes were killed for want of memory.
    MemoryKills,
    /// Most processes and threads.
    Tasks,
    /// Processes and threads.
    TasksNow,
    /// Processor time.
    Cpu,
}

impl Kind {
    /// All kinds; a packet names a file by its place here.
    pub const ALL: [Self; 8] = [
        Self::MemoryLimit,
        Self::SwapLimit,
        Self::MemoryUse,
        Self::MemoryPeak,
        Self::MemoryKills,
        Self::Tasks,
        Self::TasksNow,
        Self::Cpu,
    ];

    /// Name of the file.
    pub fn file(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::MemoryLimit, Version::One) => "memory.limit_in_bytes",
            (Self::MemoryLimit, Version::Two) => "memory.max",
            (Self::SwapLimit, Version::One) => "memory.memsw.limit_in_bytes",
            (Self::SwapLimit, Version::Two) => "memory.swap.max",
            (Self::MemoryUse, Version::One) => "memory.usage_in_bytes",
            (Self::MemoryUse, Version::Two) => "memory.current",
            (Self::MemoryPeak, Version::One) => "memory.max_usage_in_bytes",
            (Self::MemoryPeak, Version::Two) => "memory.peak",
            (Self::MemoryKills, Version::One) => "memory.oom_control",
            (Self::MemoryKills, Version::Two) => "memory.events",
            (Self::Tasks, _) => "pids.max",
            (Self::TasksNow, _) => "pids.current",
            (Self::Cpu, Version::One) => "cpuacct.usage",
            (Self::Cpu, Version::Two) => "cpu.stat",
        }
    }

    /// Whether it is written to. The peak is where that begins it anew: in version 2 since Linux 6.12.
    pub fn is_written(self) -> bool {
        matches!(self, Self::MemoryLimit | Self::SwapLimit | Self::MemoryPeak | Self::Tasks)
    }
}

/// The files of a supervisor's group.
#[derive(Debug)]
pub struct Counters {
    version: Version,
    files: BTreeMap<Kind, OwnedFd>,
}

/// Counters at the start of a run.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    memory: u64,
    kills: u64,
    cpu: Duration,
    own_cpu: Duration,
}

impl Counters {
    /// Of files with their kinds.
    pub fn new(version: Version, files: BTreeMap<Kind, OwnedFd>) -> Self {
        Self { version, files }
    }

    /// Sets the limits of a run that may have `tasks` processes and threads, and begins its counters.
    pub fn begin(&self, limits: &Limits, tasks: u64) -> Result<Start, Failure> {
        let output = limits.stdout_bytes.saturating_mul(2).saturating_add(limits.stderr_bytes);
        let memory = limits.memory_bytes.saturating_add(output).saturating_add(OWN_BYTES);
        let swap = if self.version == Version::One { memory } else { 0 };
        if self.version == Version::One {
            // the sum of memory and swap may never be below memory: out of the way first. Hosts without swap
            // accounting have no such file
            drop(self.write(Kind::SwapLimit, "-1"));
        }
        self.write(Kind::MemoryLimit, &memory.to_string()).step("set the memory limit of the control group")?;
        drop(self.write(Kind::SwapLimit, &swap.to_string()));
        if self.files.contains_key(&Kind::Tasks) {
            self.write(Kind::Tasks, &tasks.to_string()).step("set the process limit of the control group")?;
        }
        // where it cannot be begun anew, the peak is what was seen in use
        drop(self.write(Kind::MemoryPeak, "0"));
        Ok(Start {
            memory: self.number(Kind::MemoryUse).unwrap_or(0),
            kills: self.kills(),
            cpu: self.cpu().unwrap_or_default(),
            own_cpu: system::usage(false).cpu,
        })
    }

    /// Lifts the memory limit once the run has ended: what is told of it is copied twice, and the supervisor must not be
    /// killed for that.
    pub fn lift(&self) {
        let none = if self.version == Version::One { "-1" } else { "max" };
        for kind in [Kind::SwapLimit, Kind::MemoryLimit] {
            drop(self.write(kind, none));
        }
    }

    /// Processor time of the run; `None` if it is not counted.
    pub fn cpu_since(&self, start: &Start) -> Option<Duration> {
        let own = system::usage(false).cpu.saturating_sub(start.own_cpu);
        Some(self.cpu()?.saturating_sub(start.cpu).saturating_sub(own))
    }

    /// Memory of the run, now or at its greatest if that is counted.
    pub fn memory_since(&self, start: &Start) -> u64 {
        let most = self.number(Kind::MemoryPeak).or_else(|| self.number(Kind::MemoryUse));
        most.unwrap_or(0).saturating_sub(start.memory)
    }

    /// Processes and threads, the supervisor's own among them; `None` if they are not counted.
    pub fn tasks(&self) -> Option<u64> {
        self.number(Kind::TasksNow)
    }

    /// Whether the kernel killed a process of the run for want of memory.
    pub fn has_killed_since(&self, start: &Start) -> bool {
        self.kills() > start.kills
    }

    fn kills(&self) -> u64 {
        self.read(Kind::MemoryKills).and_then(|text| named(&text, "oom_kill")).unwrap_or(0)
    }

    fn cpu(&self) -> Option<Duration> {
        let text = self.read(Kind::Cpu)?;
        match self.version {
            Version::One => text.trim().parse().ok().map(Duration::from_nanos),
            Version::Two => named(&text, "usage_usec").map(Duration::from_micros),
        }
    }

    fn number(&self, kind: Kind) -> Option<u64> {
        self.read(kind)?.trim().parse().ok()
    }

    fn read(&self, kind: Kind) -> Option<String> {
        let mut text = vec![0; 4096];
        let length = rustix::io::pread(self.files.get(&kind)?, &mut text[..], 0).ok()?;
        text.truncate(length);
        String::from_utf8(text).ok()
    }

    fn write(&self, kind: Kind, text: &str) -> io::Result<()> {
        let file = self.files.get(&kind).ok_or(io::ErrorKind::NotFound)?;
        rustix::io::pwrite(file, text.as_bytes(), 0)?;
        Ok(())
    }
}

/// The number after a name that begins a line.
fn named(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    const LIMITS: Limits = Limits {
        cpu: Duration::from_secs(1),
        wall: Duration::from_secs(1),
        memory_bytes: 1000,
        processes: 1,
        stdout_bytes: 10,
        stderr_bytes: 5,
        disk_bytes: 0,
    };

    fn fake(name: &str, version: Version, contents: &[(Kind, &str)]) -> (PathBuf, Counters) {
        let folder = std::env::temp_dir().join(format!("counters-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let mut files = BTreeMap::new();
        for (kind, content) in contents {
            let path = folder.join(kind.file(version));
            fs::write(&path, content).expect("a temporary file");
            let file = OpenOptions::new().read(true).write(kind.is_written()).open(&path).expect("a temporary file");
            files.insert(*kind, file.into());
        }
        (folder, Counters::new(version, files))
    }

    #[test]
    fn version_2_is_limited_and_read() {
        let contents = [
            (Kind::MemoryLimit, ""),
            (Kind::SwapLimit, ""),
            (Kind::MemoryUse, "500\n"),
            (Kind::MemoryKills, "low 0\noom 9\noom_kill 2\noom_group_kill 0\n"),
            (Kind::Tasks, ""),
            (Kind::Cpu, "usage_usec 1000\nuser_usec 7\n"),
        ];
        let (folder, counters) = fake("two", Version::Two, &contents);
        let start = counters.begin(&LIMITS, 300).expect("files that can be written");
        let read = |kind: Kind| fs::read_to_string(folder.join(kind.file(Version::Two))).expect("a file");
        assert_eq!(read(Kind::MemoryLimit), (1000 + 25 + OWN_BYTES).to_string());
        assert_eq!((read(Kind::Tasks), read(Kind::SwapLimit)), ("300".to_owned(), "0".to_owned()));
        assert!(!counters.has_killed_since(&start));
        fs::write(folder.join("memory.events"), "oom_kill 3\n").expect("a file");
        fs::write(folder.join("cpu.stat"), "usage_usec 900001000\n").expect("a file");
        fs::write(folder.join("memory.current"), "800\n").expect("a file");
        assert!(counters.has_killed_since(&start));
        assert!(counters.cpu_since(&start).is_some_and(|cpu| cpu > Duration::from_secs(800)));
        assert_eq!(counters.memory_since(&start), 300);
        drop(fs::remove_dir_all(folder));
    }

    #[test]
    fn version_1_may_lack_all_but_memory() {
        let contents = [
            (Kind::MemoryLimit, ""),
            (Kind::MemoryUse, "100\n"),
            (Kind::MemoryPeak, ""),
            (Kind::MemoryKills, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ];
        let (folder, counters) = fake("one", Version::One, &contents);
        let start = counters.begin(&LIMITS, 300).expect("files that can be written");
        assert_eq!(counters.cpu_since(&start), None);
        fs::write(folder.join("memory.max_usage_in_bytes"), "700\n").expect("a file");
        fs::write(folder.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n").expect("a file");
        assert!(counters.has_killed_since(&start));
        assert_eq!(counters.memory_since(&start), 600);
        drop(fs::remove_dir_all(folder));
    }
}
