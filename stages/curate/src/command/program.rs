//! One process of the user's program: started without a shell and with a bare environment, watched, and ended with all
//! that it started.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pipeline_core::{ParamError, StageError};
use rustix::process::{Pid, Signal, kill_process_group};

/// What an argument may name.
pub const PLACES: [&str; 4] = ["{input}", "{output}", "{rejects}", "{params}"];

/// Bytes of what a program printed that are told.
const TAIL_BYTES: u64 = 4096;
/// Lines of it.
const TAIL_LINES: usize = 20;
/// Shortest value of a variable that is taken out of what a program printed.
const SHORTEST_SECRET: usize = 4;
/// Time that a program has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Longest time between two looks at a process.
const LOOK: Duration = Duration::from_millis(50);

/// The files of one process.
#[derive(Debug)]
pub struct Paths {
    /// Rows to work on.
    pub input: PathBuf,
    /// Rows that the program writes.
    pub output: PathBuf,
    /// Rows that it rejects, if it wants to.
    pub rejects: PathBuf,
    /// Its parameters.
    pub params: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Paths {
    /// Files below the folder of a task, apart from those that the task writes itself.
    pub fn below(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name);
        Self {
            input: path("input.parquet"),
            output: path("output.parquet"),
            rejects: path("command-rejects.parquet"),
            params: path("params.json"),
            stdout: path("stdout.txt"),
            stderr: path("stderr.txt"),
        }
    }

    /// An argument with its places filled in.
    pub fn fill_in(&self, argument: &str) -> String {
        let paths = [&self.input, &self.output, &self.rejects, &self.params];
        PLACES
            .iter()
            .zip(paths)
            .fold(argument.to_owned(), |text, (place, path)| text.replace(place, &path.to_string_lossy()))
    }
}

/// A process to be run.
#[derive(Debug)]
pub struct Call<'a> {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Folder that it starts in.
    pub folder: PathBuf,
    /// Its whole environment.
    pub variables: BTreeMap<String, String>,
    /// Variables whose values are taken out of what is told.
    pub secrets: &'a [String],
    /// Longest time.
    pub timeout: Duration,
    /// Set when the run is interrupted.
    pub cancel: &'a AtomicBool,
}

impl Call<'_> {
    /// Runs the process to its end; gives the last lines that it printed.
    ///
    /// # Errors
    /// When it cannot be started, ends with another code than 0, takes too long, or the run is interrupted.
    pub fn run(&self, paths: &Paths) -> Result<String, StageError> {
        let file = |path: &Path| File::create(path).map_err(StageError::io("write", path));
        let (stdout, stderr) = (file(&paths.stdout)?, file(&paths.stderr)?);
        let [program, arguments @ ..] = self.argv.as_slice() else {
            return Err(ParamError::new("run", "`run` names no program").into());
        };
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .envs(&self.variables)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn();
        let child = child.map_err(|error| {
            let message = format!("cannot start `{program}`: {error}");
            ParamError::new("run[0]", message).hint("install it, or give its path from the folder of `dag.toml`")
        })?;
        let status = self.wait(child, paths)?;
        if status.success() {
            let printed = [self.tail(&paths.stdout), self.tail(&paths.stderr)];
            return Ok(printed.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"));
        }
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => format!("ended with {status}"),
        };
        Err(self.failed(&how, paths))
    }

    /// Waits for the process; ends it and its children when the time or the run is over.
    fn wait(&self, child: Child, paths: &Paths) -> Result<ExitStatus, StageError> {
        let mut running = Running { child, is_over: false };
        let (begun, mut pause) = (Instant::now(), Duration::from_millis(2));
        loop {
            if let Some(status) = running.look()? {
                return Ok(status);
            }
            if self.cancel.load(Ordering::Relaxed) {
                running.end();
                return Err(StageError::Cancelled);
            }
            if begun.elapsed() >= self.timeout {
                running.end();
                let how = format!("ran longer than {} s (`timeout_seconds`) and was ended", self.timeout.as_secs());
                return Err(self.failed(&how, paths));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK);
        }
    }

    fn failed(&self, how: &str, paths: &Paths) -> StageError {
        let said = [("stderr", &paths.stderr), ("stdout", &paths.stdout)]
            .into_iter()
            .map(|(name, path)| (name, self.tail(path)))
            .find(|(_, text)| !text.is_empty());
        let said = said.map_or_else(
            || " and printed nothing".to_owned(),
            |(name, text)| format!("; the end of its {name}:\n{text}"),
        );
        StageError::Alarm(format!("`{}` {how}{said}", self.argv.first().map_or("", String::as_str)))
    }

    /// The last lines of a file, without the values of the variables of `env`.
    fn tail(&self, path: &Path) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(path)?;
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let text = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        let values = self.secrets.iter().filter_map(|name| Some((name, self.variables.get(name)?)));
        values
            .filter(|(_, value)| value.len() >= SHORTEST_SECRET)
            .fold(text, |text, (name, value)| text.replace(value.as_str(), &format!("[{name}]")))
    }
}

/// A process that does not outlive its task.
struct Running {
    child: Child,
    is_over: bool,
}

impl Running {
    fn look(&mut self) -> Result<Option<ExitStatus>, StageError> {
        let status = self
            .child
            .try_wait()
            .map_err(|error| StageError::Alarm(format!("cannot wait for the program: {error}")))?;
        self.is_over |= status.is_some();
        Ok(status)
    }

    /// Asks the process and all that it started to end, and ends them when they do not.
    fn end(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < GRACE && matches!(self.look(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = kill_process_group(group, Signal::KILL);
        if !self.is_over {
            let _ = self.child.wait();
            self.is_over = true;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
        }
    }
}
