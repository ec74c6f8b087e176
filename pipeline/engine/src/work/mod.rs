//! Working on a version: tasks under leases, each committed by the first manifest, then the success record.
//!
//! Any number of threads and processes may work on one version. What a task wrote becomes visible by the exclusive
//! creation of its manifest; whoever comes second throws its files away. A kill at any moment leaves files without a
//! manifest, which nobody reads.

mod step;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pipeline_core::port::MAIN;
use pipeline_core::task::{InputFile, PortInput, Shared};
use pipeline_core::{Digest, Env, EventSink, StageError};

use crate::lease;
use crate::project::Node;
use crate::records::{Counts, FORMAT, FileRecord, Manifest, OutputRecord, Plan, Success, TaskPlan};
use crate::store::{create_json, read_json, write_json};
use step::StepRun;

/// Work on one version.
pub struct Work<'a> {
    /// The stage.
    pub node: &'a Node,
    /// Folder of the version.
    pub folder: &'a Path,
    /// Its tasks.
    pub plan: &'a Plan,
    /// What comes in.
    pub inputs: &'a BTreeMap<String, Vec<PortInput>>,
    /// The world.
    pub env: &'a Env,
    /// Seed of `dag.toml`.
    pub seed: u64,
    /// Listener.
    pub events: &'a dyn EventSink,
    /// Set when the run is interrupted.
    pub cancel: &'a AtomicBool,
    /// Threads that take tasks.
    pub jobs: usize,
    /// Time after which an untouched lease may be stolen.
    pub ttl: Duration,
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Work({})", self.folder.display())
    }
}

/// Folder of a version for what a later attempt may go on from.
pub const STATE: &str = "state";

/// Folders of a version.
const FOLDERS: [&str; 6] = ["data", "rejects", "manifest", "lease", "tmp", "attempts"];

/// Makes the folders of a version.
///
/// # Errors
/// When the disk refuses.
pub fn create_folders(folder: &Path) -> Result<(), StageError> {
    for name in FOLDERS {
        let path = folder.join(name);
        fs::create_dir_all(&path).map_err(StageError::io("create", &path))?;
    }
    Ok(())
}

/// Path of a task's manifest.
pub fn manifest_path(folder: &Path, task: &str) -> PathBuf {
    folder.join("manifest").join(format!("{task}.json"))
}

/// The manifest of a task, if it is committed and its files are there at full length. One that is not whole is
/// removed, so that the task runs again.
pub fn committed(folder: &Path, task: &TaskPlan) -> Option<Manifest> {
    let path = manifest_path(folder, &task.id);
    let found = read_json::<Manifest>(&path);
    let manifest = match found {
        Ok(Some(manifest)) => Some(manifest),
        Ok(None) => return None,
        Err(_) => None,
    };
    let is_whole = |manifest: &Manifest| {
        manifest.input_key == task.input_key
            && manifest
                .files()
                .all(|file| fs::metadata(folder.join(&file.file)).is_ok_and(|found| found.len() == file.bytes))
    };
    let manifest = manifest.filter(is_whole);
    if manifest.is_none() {
        let _ = fs::remove_file(&path);
    }
    manifest
}

impl Work<'_> {
    /// Runs every task that is not committed and writes the success record.
    ///
    /// # Errors
    /// The first error of a task; what other tasks committed stays.
    pub fn execute(&self) -> Result<Success, StageError> {
        let outcome = create_folders(self.folder).and_then(|()| self.run_steps());
        match outcome {
            Ok(success) => Ok(success),
            // another process may have completed the version and tidied up under our hands
            Err(error) => self.completed().ok_or(error),
        }
    }

    /// The success record, if some process has written it.
    fn completed(&self) -> Option<Success> {
        read_json(&self.folder.join("_SUCCESS.json")).ok().flatten()
    }

    fn run_steps(&self) -> Result<Success, StageError> {
        let shared = Shared::default();
        let mut earlier = BTreeMap::new();
        let mut last = Vec::new();
        for index in 0..self.node.steps.len() {
            if let Some(success) = self.completed() {
                return Ok(success);
            }
            let manifests = self.run_step(index, &earlier, &shared)?;
            let step = &self.node.steps[index];
            if let Some(schema) = &step.schema {
                let files = manifests
                    .iter()
                    .filter_map(|manifest| manifest.outputs.get(MAIN))
                    .map(|file| self.input_file(file));
                earlier.insert(step.name, PortInput { schema: schema.clone(), files: files.collect() });
            }
            last = manifests;
        }
        self.succeed(&last)
    }

    fn input_file(&self, file: &FileRecord) -> InputFile {
        InputFile {
            path: self.folder.join(&file.file),
            rows: file.rows,
            digest: file.digest,
            partitions: file.partitions.clone(),
        }
    }

    /// Runs the tasks of a step and returns their manifests in plan order.
    fn run_step(
        &self,
        index: usize,
        earlier: &BTreeMap<&'static str, PortInput>,
        shared: &Shared,
    ) -> Result<Vec<Manifest>, StageError> {
        let tasks = &self.plan.steps[index].tasks;
        let open: VecDeque<usize> =
            (0..tasks.len()).filter(|task| committed(self.folder, &tasks[*task]).is_none()).collect();
        if !open.is_empty() {
            let attempt = lease::unique();
            let step = StepRun { work: self, index, earlier, shared, attempt: &attempt, stop: AtomicBool::new(false) };
            step.run(open)?;
        }
        tasks
            .iter()
            .map(|task| {
                let missing = || StageError::Internal(format!("task {} was not committed", task.id));
                committed(self.folder, task).ok_or_else(missing)
            })
            .collect()
    }

    /// Writes `_SUCCESS.json` and removes what only served the work.
    fn succeed(&self, manifests: &[Manifest]) -> Result<Success, StageError> {
        let mut counts = Counts::default();
        let mut whole = blake3::Hasher::new();
        let mut outputs: BTreeMap<String, (blake3::Hasher, OutputRecord)> = BTreeMap::new();
        let (mut rejects, mut kept_files) = (Vec::new(), Vec::new());
        let (mut notes, mut seconds) = (BTreeMap::new(), 0.0);
        for output in &self.node.outputs {
            let record = OutputRecord { digest: Digest::of(b""), rows: 0, files: Vec::new() };
            outputs.insert(output.name.to_owned(), (blake3::Hasher::new(), record));
        }
        for manifest in manifests {
            counts.add(&manifest.counts);
            whole.update(manifest.task.as_bytes()).update(manifest.content().bytes());
            for (name, file) in &manifest.outputs {
                if let Some((hasher, record)) = outputs.get_mut(name) {
                    hasher.update(file.digest.bytes());
                    record.rows += file.rows;
                    record.files.push(file.clone());
                }
            }
            rejects.extend(manifest.rejects.clone());
            kept_files.extend(manifest.kept_files.clone());
            notes.extend(manifest.notes.clone());
            seconds += manifest.seconds;
        }
        let outputs = outputs
            .into_iter()
            .map(|(name, (hasher, record))| (name, OutputRecord { digest: Digest::finish(&hasher), ..record }));
        for step in &self.plan.steps[..self.plan.steps.len().saturating_sub(1)] {
            for task in &step.tasks {
                if let Some(manifest) = committed(self.folder, task) {
                    notes.extend(manifest.notes);
                    counts.add(&Counts { counters: manifest.counts.counters, ..Counts::default() });
                    seconds += manifest.seconds;
                }
            }
        }
        let success = Success {
            format: FORMAT,
            stage: self.plan.stage.clone(),
            kind: self.plan.kind.clone(),
            fingerprint: self.plan.fingerprint,
            digest: Digest::finish(&whole),
            outputs: outputs.collect(),
            kept_files,
            rejects,
            counts,
            notes,
            seconds,
        };
        let path = self.folder.join("_SUCCESS.json");
        create_json(&path, &success)?;
        for folder in ["steps", "tmp", "lease", STATE] {
            let _ = fs::remove_dir_all(self.folder.join(folder));
        }
        let written = read_json::<Success>(&path)?;
        written.ok_or_else(|| StageError::Internal("the success record is gone".to_owned()))
    }
}

/// Writes the plan unless one is there, and returns the one that is.
///
/// # Errors
/// When the disk refuses, or the plan there is of another recipe.
pub fn settle_plan(folder: &Path, plan: &Plan) -> Result<Plan, StageError> {
    fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
    let path = folder.join("plan.json");
    create_json(&path, plan)?;
    match read_json::<Plan>(&path)? {
        Some(found) if found.fingerprint == plan.fingerprint => Ok(found),
        _ => {
            let message = "is the plan of another recipe".to_owned();
            Err(StageError::Damaged { path, message })
        }
    }
}

/// Writes a record of a version that never changes.
///
/// # Errors
/// When the disk refuses.
pub fn write_recipe(folder: &Path, recipe: &pipeline_core::Recipe) -> Result<(), StageError> {
    fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
    let path = folder.join("recipe.json");
    // one that is damaged is written anew
    let is_whole = matches!(read_json::<pipeline_core::Recipe>(&path), Ok(Some(found)) if found == *recipe);
    if is_whole { Ok(()) } else { write_json(&path, recipe) }
}
