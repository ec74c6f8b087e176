//! What a run is asked and what it answers.

use super::Artifact;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The executable that serves as supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// This program itself. Its `main` must call [`supervise_if_asked`](super::supervise_if_asked) first.
    Itself,
    /// Another program whose `main` does so, for tests and users of the library.
    Program(PathBuf),
}

/// Whether programs are shut in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// All layers; where the host denies them there is no sandbox.
    Full,
    /// Limits alone and no protection: programs can read and change whatever their user can.
    Off,
}

/// Whether control groups count memory, processes and processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 2 or else 1, where the caller may make groups; otherwise none.
    Auto,
    /// None: the supervisor watches alone.
    None,
}

/// How a [`Sandbox`](super::Sandbox) is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The supervisor's executable.
    pub launch: Launch,
    /// Whether programs are shut in.
    pub isolation: Isolation,
    /// Whether control groups are used.
    pub cgroups: Cgroups,
    /// Absolute paths of the host that programs may read besides `/usr`, `/bin`, `/sbin` and `/lib*`: prefixes of
    /// toolchains.
    pub roots: Vec<PathBuf>,
    /// Runs at one time, at least 1.
    pub workers: usize,
}

/// Limits of one run. All count every process of the run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processor time.
    pub cpu: Duration,
    /// Time on the clock.
    pub wall: Duration,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processes at one time, ended ones that nobody waited for among them; a run with more is stopped as by signal
    /// 9. Threads have room besides (256 with processes together), since the kernel counts both as one.
    pub processes: u32,
    /// Bytes of standard output, and of the report; a program that writes more is stopped.
    pub stdout_bytes: u64,
    /// Bytes of standard error that are kept; what is written beyond is dropped.
    pub stderr_bytes: u64,
    /// Bytes of files in the work folder, `/tmp` and `/dev/shm` together.
    pub disk_bytes: u64,
}

/// What is executed.
#[derive(Debug, Clone, Copy)]
pub enum Program<'a> {
    /// An absolute path as seen inside.
    Path(&'a OsStr),
    /// An executable that an earlier run made.
    Artifact(&'a Artifact),
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What is executed.
    pub program: Program<'a>,
    /// Arguments after the program's name.
    pub arguments: &'a [&'a OsStr],
    /// Environment besides `PATH`, `HOME`, `TMPDIR` and `LANG=C.UTF-8`, which it may replace.
    pub environment: &'a [(&'a str, &'a str)],
    /// Relative paths and contents, put into the work folder, which is the current folder and otherwise empty.
    pub files: &'a [(&'a str, &'a [u8])],
    /// Standard input.
    pub stdin: &'a [u8],
    /// Whether descriptor 3 is a pipe into [`Outcome::report`].
    pub report: bool,
    /// A file of the work folder that is taken out as [`Outcome::artifact`] when the program exits with 0.
    pub collect: Option<&'a str>,
    /// Limits of this run.
    pub limits: Limits,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The program exited with this status, 0 to 255.
    Exited(i32),
    /// The program was ended by this signal, not by a limit.
    Signaled(i32),
    /// [`Limits::cpu`] was reached.
    CpuLimit,
    /// [`Limits::wall`] was reached.
    WallLimit,
    /// [`Limits::memory_bytes`] was reached.
    MemoryLimit,
    /// [`Limits::stdout_bytes`] was reached.
    OutputLimit,
}

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Processor time of all its processes, a millisecond or two of set-up included.
    pub cpu: Duration,
    /// Time on the clock, from the start of the first process to the end of the last.
    pub wall: Duration,
    /// Greatest memory in bytes: by the control group, else as watched.
    pub peak_memory_bytes: u64,
    /// Standard output, at most [`Limits::stdout_bytes`].
    pub stdout: Vec<u8>,
    /// Standard error, at most [`Limits::stderr_bytes`].
    pub stderr: Vec<u8>,
    /// What was written to descriptor 3, at most [`Limits::stdout_bytes`].
    pub report: Vec<u8>,
    /// The file asked for by [`Job::collect`]; `None` if the program failed or left no such regular file.
    pub artifact: Option<Artifact>,
}

/// The layers of isolation that are in force, a line each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layers(pub(super) Vec<String>);

impl Layers {
    /// The lines, such as `landlock: ABI 7`.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("\n"))
    }
}
