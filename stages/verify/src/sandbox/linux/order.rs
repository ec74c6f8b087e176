//! Jobs and outcomes as bytes.

use super::counters::{Kind, Version};
use super::wire::{Decoder, Encoder};
use crate::sandbox::{End, Isolation, Job, Limits, Program, Settings};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// What a supervisor is to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Charge {
    /// Whether it isolates.
    pub isolated: bool,
    /// The version of its control group and what the descriptors that come along are for.
    pub group: Option<(Version, Vec<Kind>)>,
    /// Folders that runs may read.
    pub roots: Vec<PathBuf>,
}

impl Charge {
    /// The bytes that ask for it.
    pub fn encode(settings: &Settings, group: Option<(Version, &[Kind])>) -> Vec<u8> {
        let mut out = Encoder::default();
        out.number(u64::from(settings.isolation == Isolation::Full));
        let (version, kinds) =
            group.map_or((0, &[][..]), |(version, kinds)| (1 + u64::from(version == Version::Two), kinds));
        out.number(version).number(kinds.len() as u64);
        for wanted in kinds {
            out.number(Kind::ALL.iter().position(|kind| kind == wanted).unwrap_or(Kind::ALL.len()) as u64);
        }
        out.number(settings.roots.len() as u64);
        for root in &settings.roots {
            out.bytes(root.as_os_str().as_bytes());
        }
        out.0
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut input = Decoder(bytes);
        let isolated = input.number()? == 1;
        let version = input.number()?;
        let kinds = input.list(|input| {
            let place = usize::try_from(input.number()?).ok();
            let kind = place.and_then(|place| Kind::ALL.get(place).copied());
            kind.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a file of no kind"))
        })?;
        let version = if version == 2 { Some(Version::Two) } else { (version == 1).then_some(Version::One) };
        Ok(Self {
            isolated,
            group: version.map(|version| (version, kinds)),
            roots: input.list(|input| Ok(PathBuf::from(OsStr::from_bytes(input.bytes()?))))?,
        })
    }
}

/// What is to be executed.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: the run ends where the program would begin, which tries every layer.
    Nothing,
    /// A path inside.
    Path(CString),
    /// The executable that came with the job.
    Artifact,
}

/// A job as the supervisor has it.
#[derive(Debug)]
pub struct Order<'a> {
    /// What is executed.
    pub target: Target,
    /// Arguments, the program's name first.
    pub arguments: Vec<CString>,
    /// Names and values.
    pub environment: Vec<(String, String)>,
    /// Files of the work folder.
    pub files: Vec<(&'a Path, &'a [u8])>,
    /// Whether there is a report.
    pub report: bool,
    /// What is taken out.
    pub collect: Option<&'a Path>,
    /// Limits.
    pub limits: Limits,
}

/// The bytes of a job; `None` is the job that tries every layer and executes nothing.
///
/// # Errors
/// A text with a nul byte, a path that leaves the work folder or a program without absolute path, in words.
pub fn encode_job(job: Option<&Job<'_>>, limits: &Limits) -> Result<Vec<u8>, String> {
    let mut out = Encoder::default();
    encode_limits(limits, &mut out);
    let Some(job) = job else {
        out.number(0).number(0).number(0).number(0).number(0).number(0);
        return Ok(out.0);
    };
    let name = match job.program {
        Program::Path(path) if Path::new(path).is_absolute() => {
            out.number(1);
            path
        }
        Program::Path(path) => return Err(format!("the program `{}` has no absolute path", path.display())),
        Program::Artifact(_) => {
            out.number(2);
            OsStr::new("program")
        }
    };
    out.number(job.arguments.len() as u64 + 1);
    for argument in std::iter::once(&name).chain(job.arguments) {
        out.bytes(without_nul(argument.as_bytes())?);
    }
    out.number(job.environment.len() as u64);
    for (name, value) in job.environment {
        if name.is_empty() || name.contains('=') {
            return Err(format!("`{name}` cannot name an environment variable"));
        }
        out.bytes(without_nul(name.as_bytes())?).bytes(without_nul(value.as_bytes())?);
    }
    out.number(job.files.len() as u64);
    for (path, content) in job.files {
        out.bytes(inner_path(path)?).bytes(content);
    }
    out.number(u64::from(job.report));
    match job.collect {
        Some(path) => out.number(1).bytes(inner_path(path)?),
        None => out.number(0),
    };
    Ok(out.0)
}

/// Reads a job.
pub fn decode_job(bytes: &[u8]) -> io::Result<Order<'_>> {
    let mut input = Decoder(bytes);
    let limits = decode_limits(&mut input)?;
    let kind = input.number()?;
    let arguments = input.list(|input| Ok(CString::new(input.bytes()?)?))?;
    let environment = input.list(|input| Ok((input.text()?, input.text()?)))?;
    let files = input.list(|input| Ok((Path::new(OsStr::from_bytes(input.bytes()?)), input.bytes()?)))?;
    let report = input.number()? == 1;
    let collect = match input.number()? {
        0 => None,
        _ => Some(Path::new(OsStr::from_bytes(input.bytes()?))),
    };
    let target = match (kind, arguments.first()) {
        (1, Some(path)) => Target::Path(path.clone()),
        (2, _) => Target::Artifact,
        _ => Target::Nothing,
    };
    Ok(Order { target, arguments, environment, files, report, collect, limits })
}

fn encode_limits(limits: &Limits, out: &mut Encoder) {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    out.number(micros(limits.cpu)).number(micros(limits.wall));
    out.number(limits.memory_bytes).number(limits.processes.into());
    out.number(limits.stdout_bytes).number(limits.stderr_bytes).number(limits.disk_bytes);
}

fn decode_limits(input: &mut Decoder<'_>) -> io::Result<Limits> {
    Ok(Limits {
        cpu: Duration::from_micros(input.number()?),
        wall: Duration::from_micros(input.number()?),
        memory_bytes: input.number()?,
        processes: u32::try_from(input.number()?).unwrap_or(u32::MAX),
        stdout_bytes: input.number()?,
        stderr_bytes: input.number()?,
        disk_bytes: input.number()?,
    })
}

/// How a run ended and what it wrote, as the supervisor tells it.
#[derive(Debug)]
pub struct Told {
    /// How it ended.
    pub end: End,
    /// Processor time.
    pub cpu: Duration,
    /// Time on the clock.
    pub wall: Duration,
    /// Greatest memory.
    pub peak_memory_bytes: u64,
    /// Standard output, standard error, report.
    pub streams: [Vec<u8>; 3],
}

impl Told {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number) = match self.end {
            End::Exited(status) => (0, status),
            End::Signaled(signal) => (1, signal),
            End::CpuLimit => (2, 0),
            End::WallLimit => (3, 0),
            End::MemoryLimit => (4, 0),
            End::OutputLimit => (5, 0),
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut out = Encoder::default();
        out.number(kind).number(u64::from(number.unsigned_abs()));
        out.number(micros(self.cpu)).number(micros(self.wall)).number(self.peak_memory_bytes);
        for stream in &self.streams {
            out.bytes(stream);
        }
        out.0
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut input = Decoder(bytes);
        let (kind, number) = (input.number()?, i32::try_from(input.number()?).unwrap_or(i32::MAX));
        let end = match kind {
            0 => End::Exited(number),
            1 => End::Signaled(number),
            2 => End::CpuLimit,
            3 => End::WallLimit,
            4 => End::MemoryLimit,
            5 => End::OutputLimit,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an end that does not exist")),
        };
        Ok(Self {
            end,
            cpu: Duration::from_micros(input.number()?),
            wall: Duration::from_micros(input.number()?),
            peak_memory_bytes: input.number()?,
            streams: [input.bytes()?.to_vec(), input.bytes()?.to_vec(), input.bytes()?.to_vec()],
        })
    }
}

fn without_nul(text: &[u8]) -> Result<&[u8], String> {
    if text.contains(&0) {
        return Err(format!("`{}` contains a nul byte", String::from_utf8_lossy(text).escape_debug()));
    }
    Ok(text)
}

/// A path that cannot leave the folder that it is taken in.
fn inner_path(path: &str) -> Result<&[u8], String> {
    let inner = Path::new(path).components().all(|component| matches!(component, Component::Normal(_)));
    if path.is_empty() || path.ends_with('/') || !inner {
        return Err(format!("`{path}` is not a relative path inside the work folder"));
    }
    without_nul(path.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        cpu: Duration::from_millis(1500),
        wall: Duration::from_secs(6),
        memory_bytes: 1,
        processes: 2,
        stdout_bytes: 3,
        stderr_bytes: 4,
        disk_bytes: 5,
    };

    fn job<'a>() -> Job<'a> {
        Job {
            program: Program::Path(OsStr::new("/usr/bin/env")),
            arguments: &[],
            environment: &[("A", "b")],
            files: &[("a/b.txt", b"text")],
            stdin: b"",
            report: true,
            collect: Some("out"),
            limits: LIMITS,
        }
    }

    #[test]
    fn a_job_comes_over_as_it_was() {
        let bytes = encode_job(Some(&job()), &LIMITS).expect("a good job");
        let order = decode_job(&bytes).expect("whole");
        assert_eq!(order.target, Target::Path(c"/usr/bin/env".into()));
        assert_eq!(order.environment, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(order.files, [(Path::new("a/b.txt"), &b"text"[..])]);
        assert_eq!((order.report, order.collect, order.limits), (true, Some(Path::new("out")), LIMITS));
        let trial = encode_job(None, &LIMITS).expect("a good job");
        assert_eq!(decode_job(&trial).expect("whole").target, Target::Nothing);
    }

    #[test]
    fn a_message_cut_anywhere_is_an_error_and_no_panic() {
        let bytes = encode_job(Some(&job()), &LIMITS).expect("a good job");
        for length in 0..bytes.len() {
            assert!(decode_job(&bytes[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn paths_that_leave_the_work_folder_are_refused() {
        for path in ["", "/etc/passwd", "../a", "a/../../b", "a/", "./a", "a\0b"] {
            let files = [(path, &b""[..])];
            assert!(encode_job(Some(&Job { files: &files, ..job() }), &LIMITS).is_err(), "{path:?}");
        }
    }
}
