//! Programs of code rows: where they run, in which languages, and where their reports are kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use pipeline_core::{Env, External, ParamError, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage_verify::code::{self, CodeError, Compile, Judge, Tests, Toolchain, Toolchains, Verdicts};
use stage_verify::sandbox::{Cgroups, Isolation, Launch, Sandbox, SandboxError, Settings};
use stage_verify::{Extraction, Judgement, Verdict};

/// How programs of the data are run in this process: registered by the program as a service.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The executable that shuts programs in.
    pub launch: Launch,
    /// Whether they are shut in.
    pub isolation: Isolation,
    /// Programs that run at one time.
    pub workers: usize,
    /// Folder where reports are kept, so that a program is run once for its tests; `None` keeps none.
    pub folder: Option<PathBuf>,
}

impl Default for Programs {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self { launch: Launch::Itself, isolation: Isolation::Full, workers, folder: None }
    }
}

/// How programs of one language are made and run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// Name of the program's file, such as `main.go`.
    file: String,
    /// Command that compiles it in the folder of the file, its first word an absolute path. Absent for interpreted
    /// languages.
    #[serde(default)]
    compile: Vec<String>,
    /// The executable that `compile` leaves. Default `program`.
    #[serde(default = "executable")]
    output: String,
    /// Command that runs the program, its first word an absolute path; for a compiled language the arguments of the
    /// executable.
    #[serde(default)]
    run: Vec<String>,
    /// Command that prints the version, which enters fingerprints.
    version: Vec<String>,
    /// A program of the language that prints `42`, run once before the first verdict: a broken installation must not
    /// look like wrong programs.
    probe: String,
    /// Folders of this machine that it needs beside `/usr`, `/bin` and `/lib`; programs can read them.
    #[serde(default)]
    folders: Vec<PathBuf>,
    /// Environment variables.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Processes that the language needs for itself, beside those that the tests allow.
    #[serde(default)]
    processes: u32,
}

fn executable() -> String {
    "program".to_owned()
}

/// Checks commands against each other.
///
/// # Errors
/// When one cannot be run.
pub fn validate(toolchains: &BTreeMap<String, Commands>) -> Result<(), ParamError> {
    for (language, commands) in toolchains {
        let fail =
            |key: &str, message: &str| Err(ParamError::new(format!("toolchains.{language}.{key}"), message.to_owned()));
        if commands.file.is_empty() || commands.file.contains('/') {
            return fail("file", "`file` is the name of one file, such as `main.go`");
        }
        if commands.compile.is_empty() && commands.run.is_empty() {
            return fail("run", "give `run`, or `compile` for a compiled language");
        }
        let first = |command: &[String]| command.first().is_none_or(|word| Path::new(word).is_absolute());
        if !first(&commands.compile) {
            return fail("compile", "the first word of `compile` must be an absolute path");
        }
        if commands.compile.is_empty() && !first(&commands.run) {
            return fail("run", "the first word of `run` must be an absolute path");
        }
        if commands.version.is_empty() {
            return fail("version", "give the command that prints the version, such as [\"/usr/bin/go\", \"version\"]");
        }
        if commands.folders.iter().any(|folder| !folder.is_absolute()) {
            return fail("folders", "folders must be absolute paths");
        }
    }
    Ok(())
}

/// Languages of this machine and those of the stage.
fn toolchains(given: &BTreeMap<String, Commands>) -> Result<Toolchains, StageError> {
    let mut toolchains = Toolchains::found();
    for (language, commands) in given {
        let compile = (!commands.compile.is_empty())
            .then(|| Compile { command: commands.compile.clone(), output: commands.output.clone() });
        let toolchain = Toolchain {
            file: commands.file.clone(),
            compile,
            run: commands.run.clone(),
            roots: commands.folders.clone(),
            environment: commands.environment.clone().into_iter().collect(),
            processes: commands.processes,
            version: version(language, &commands.version)?,
            probe: commands.probe.clone(),
        };
        toolchains = toolchains.with(language, toolchain);
    }
    Ok(toolchains)
}

fn version(language: &str, command: &[String]) -> Result<String, StageError> {
    let path = format!("toolchains.{language}.version");
    let fail = |message: String| StageError::Param(ParamError::new(path.clone(), message));
    let [program, arguments @ ..] = command else { return Err(fail("the command is empty".to_owned())) };
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| fail(format!("cannot run `{program}`: {error}; install it, or name its absolute path")))?;
    if !output.status.success() {
        return Err(fail(format!("`{}` ends with {}", command.join(" "), output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// What decides the verdicts on programs beside programs and tests: the versions of languages.
///
/// # Errors
/// When a language of the stage does not tell its version.
pub fn externals(_env: &Env, given: &BTreeMap<String, Commands>) -> Result<Vec<External>, StageError> {
    let toolchains = toolchains(given)?;
    let external = |(language, version): (&str, &str)| External {
        name: format!("toolchain {language}"),
        digest: version.to_owned(),
        sliced: false,
    };
    Ok(toolchains.versions().into_iter().map(external).collect())
}

/// Runs programs of one stage. The sandbox starts with the first.
pub struct Runner {
    programs: Programs,
    toolchains: Arc<Toolchains>,
    judge: Mutex<Option<Arc<Judge<'static>>>>,
}

impl Runner {
    /// For the languages of a stage.
    ///
    /// # Errors
    /// When a language does not tell its version.
    pub fn new(env: &Env, given: &BTreeMap<String, Commands>) -> Result<Self, StageError> {
        let programs = env.services.get::<Programs>().map(|programs| (*programs).clone()).unwrap_or_default();
        Ok(Self { programs, toolchains: Arc::new(toolchains(given)?), judge: Mutex::default() })
    }

    /// The verdict on the program of a trace, or why the machinery failed for now.
    ///
    /// # Errors
    /// When no program can be run here: no isolation, a language that is missing or broken, reports that cannot be
    /// kept.
    pub fn judge(
        &self,
        tests: &str,
        trace: &str,
        extraction: Extraction,
    ) -> Result<Result<Judgement, String>, StageError> {
        let tests = match Tests::parse(tests) {
            Ok(tests) => tests,
            Err(error) => {
                let reason = format!("tests_unreadable: {error}");
                return Ok(Ok(Judgement::new(Verdict::LabelUnparsable, reason, "")));
            }
        };
        let judge = self.started()?;
        match code::verify(&judge, &tests, trace, extraction) {
            Ok(judgement) => Ok(Ok(judgement)),
            Err(CodeError::Sandbox(error @ (SandboxError::Lost(_) | SandboxError::Run { .. }))) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(StageError::Alarm(error.to_string())),
        }
    }

    fn started(&self) -> Result<Arc<Judge<'static>>, StageError> {
        let alarm = |error: &dyn std::fmt::Display| StageError::Alarm(error.to_string());
        let mut slot = self.judge.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judge) = slot.as_ref() {
            return Ok(Arc::clone(judge));
        }
        let settings = Settings {
            launch: self.programs.launch.clone(),
            isolation: self.programs.isolation,
            cgroups: Cgroups::Auto,
            roots: self.toolchains.roots(),
            workers: self.programs.workers,
        };
        let sandbox = Sandbox::new(settings).map_err(|error| alarm(&error))?;
        let verdicts = match &self.programs.folder {
            Some(folder) => Verdicts::open(folder).map_err(|error| alarm(&error))?,
            None => Verdicts::in_memory(),
        };
        let judge = Judge::new(Arc::new(sandbox), Arc::clone(&self.toolchains)).with_verdicts(Arc::new(verdicts));
        let judge = Arc::new(judge);
        *slot = Some(Arc::clone(&judge));
        Ok(judge)
    }
}
