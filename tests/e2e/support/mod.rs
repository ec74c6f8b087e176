//! A project in a folder of its own, the program run on it, and what it printed.

pub mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Root of the repository.
pub fn repository() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

/// Folder of shared test data beside the repository; `None`, with a printed reason, where there is none.
pub fn shared() -> Option<PathBuf> {
    let folder = repository().parent().unwrap().join("shared");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: there is no folder `shared` beside the repository");
    None
}

/// The small model of the sample project in the user's cache; `None`, with a printed reason, where it was not fetched.
pub fn model() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let model = cache.join("pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if model.is_file() {
        return Some(model);
    }
    println!("skipped: the model is not in the cache; `make model` fetches it");
    None
}

/// What the program printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// The JSON on stdout.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Fails with all that was printed unless the program ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self
    }

    /// The state of each stage after `run --json`.
    pub fn states(&self) -> BTreeMap<String, String> {
        let document = self.json();
        let stages = document["stages"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        stages.iter().map(|stage| (text(&stage["stage"]), text(&stage["state"]))).collect()
    }

    /// Names of the stages that ran.
    pub fn ran(&self) -> Vec<String> {
        self.states().into_iter().filter(|(_, state)| state == "ran").map(|(stage, _)| stage).collect()
    }

    /// The line on stderr that says why a stage ran or was reused.
    pub fn reason(&self, stage: &str) -> String {
        let has = |line: &&str| {
            let mut words = line.split_whitespace();
            matches!(words.next(), Some("run" | "reuse")) && words.nth(1) == Some(stage)
        };
        self.err.lines().find(has).unwrap_or_else(|| panic!("no line about `{stage}`:\n{}", self.err)).to_owned()
    }
}

/// A project in a temporary folder.
pub struct Project {
    folder: TempDir,
    below: PathBuf,
}

impl Project {
    /// An empty project.
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), below: PathBuf::new() }
    }

    /// A project with this dag file.
    pub fn new(dag: &str) -> Self {
        let project = Self::empty();
        project.write("dag.toml", dag);
        project
    }

    /// A copy of the sample project.
    pub fn quickstart() -> Self {
        let project = Self::empty();
        copy(&repository().join("datasets/quickstart"), project.folder.path());
        project
    }

    /// The folder.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.below)
    }

    /// Moves the whole project to another folder of the same disk.
    pub fn move_to(&mut self, name: &str) {
        let target = self.folder.path().join(name);
        fs::create_dir(&target).unwrap();
        for entry in fs::read_dir(self.path()).unwrap().map(Result::unwrap) {
            if entry.path() != target {
                fs::rename(entry.path(), target.join(entry.file_name())).unwrap();
            }
        }
        self.below = PathBuf::from(name);
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// Changes the dag file; the text to replace must be there.
    #[track_caller]
    pub fn edit(&self, from: &str, to: &str) {
        let dag = self.read("dag.toml");
        assert!(dag.contains(from), "`{from}` is not in the dag file");
        self.write("dag.toml", dag.replace(from, to));
    }

    /// The program with arguments that follow the name of the command and the dag file.
    pub fn command(&self, command: &str, arguments: &[&str]) -> Command {
        let mut program = program();
        program.arg(command).arg(self.path().join("dag.toml")).args(arguments).current_dir(self.path());
        program
    }

    /// Runs a command to its end.
    pub fn call(&self, command: &str, arguments: &[&str]) -> Ended {
        ended(self.command(command, arguments).output().unwrap())
    }

    /// `run --json`
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.call("run", &[&["--json"], arguments].concat())
    }

    /// Starts a command and leaves it running.
    pub fn start(&self, command: &str, arguments: &[&str]) -> Child {
        self.command(command, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Digest of every file that a stage's readers see, by path below its folder.
    pub fn bytes_of(&self, stage: &str) -> BTreeMap<String, Vec<u8>> {
        let folder = fs::canonicalize(self.path().join("out").join(stage)).unwrap();
        let mut files = BTreeMap::new();
        for below in ["data", "rejects"] {
            let Ok(entries) = fs::read_dir(folder.join(below)) else { continue };
            for entry in entries.map(Result::unwrap) {
                let name = format!("{below}/{}", entry.file_name().into_string().unwrap());
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
        files
    }

    /// Output digests of all stages that are linked.
    pub fn digests(&self) -> BTreeMap<String, String> {
        let mut digests = BTreeMap::new();
        for entry in fs::read_dir(self.path().join("out")).unwrap().map(Result::unwrap) {
            let success = entry.path().join("_SUCCESS.json");
            if let Ok(text) = fs::read_to_string(success) {
                let record: Value = serde_json::from_str(&text).unwrap();
                digests.insert(entry.file_name().into_string().unwrap(), record["digest"].as_str().unwrap().to_owned());
            }
        }
        digests
    }

    /// The success record of a stage.
    pub fn success(&self, stage: &str) -> Value {
        serde_json::from_str(&self.read(&format!("out/{stage}/_SUCCESS.json"))).unwrap()
    }

    /// All rows of a stage as `show --json` prints them.
    pub fn rows(&self, stage: &str, more: &[&str]) -> Vec<Value> {
        let shown = self.call("show", &[&[stage, "--json", "-n", "1000000"], more].concat()).ok();
        shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The program under test.
pub fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pipeline"));
    program.env("NO_COLOR", "1");
    program
}

/// What a process that ended printed.
pub fn ended(output: std::process::Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Copies the files of a folder, without results of earlier runs.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if name == "out" || name == "models" || name == "__pycache__" {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(name));
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}
