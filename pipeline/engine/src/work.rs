//! Working on a version: tasks under leases, each committed by the first manifest, then the success record.
//!
//! Any number of threads and processes may work on one version. What a task wrote becomes visible by the exclusive
//! creation of its manifest; whoever comes second throws its files away. A kill at any moment leaves files without a
//! manifest, which nobody reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pipeline_core::port::{Cardinality, MAIN};
use pipeline_core::task::{InputFile, PortInput, Shared, Task, TaskResult, TaskSetup};
use pipeline_core::{Digest, Env, Event, EventSink, StageError};

use crate::lease::{self, Asked, Lease};
use crate::project::Node;
use crate::records::{Counts, FORMAT, FileRecord, Manifest, OutputRecord, Plan, Success, TaskPlan};
use crate::store::{create_json, read_json, sync_folder, write_json};

/// How long to wait before looking again at tasks that other processes hold.
const PATIENCE: Duration = Duration::from_millis(50);

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
            && manifest.files().all(|file| fs::metadata(folder.join(&file.file)).is_ok_and(|found| found.len() == file.bytes))
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
                let files = manifests.iter().filter_map(|manifest| manifest.outputs.get(MAIN)).map(|file| self.input_file(file));
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
        let (mut rejects, mut notes, mut seconds) = (Vec::new(), BTreeMap::new(), 0.0);
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
            notes.extend(manifest.notes.clone());
            seconds += manifest.seconds;
        }
        let outputs = outputs.into_iter().map(|(name, (hasher, record))| {
            (name, OutputRecord { digest: Digest::finish(&hasher), ..record })
        });
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
            rejects,
            counts,
            notes,
            seconds,
        };
        let path = self.folder.join("_SUCCESS.json");
        create_json(&path, &success)?;
        for folder in ["steps", "tmp", "lease"] {
            let _ = fs::remove_dir_all(self.folder.join(folder));
        }
        let written = read_json::<Success>(&path)?;
        written.ok_or_else(|| StageError::Internal("the success record is gone".to_owned()))
    }
}

/// The tasks of one step, worked on by threads.
struct StepRun<'a> {
    work: &'a Work<'a>,
    index: usize,
    earlier: &'a BTreeMap<&'static str, PortInput>,
    shared: &'a Shared,
    attempt: &'a str,
    /// Set by the first error, so that other threads take no further task.
    stop: AtomicBool,
}

/// Leases that are held, for the thread that keeps them fresh.
#[derive(Default)]
struct Held {
    paths: Mutex<BTreeSet<PathBuf>>,
    done: Mutex<bool>,
    wake: Condvar,
}

impl StepRun<'_> {
    fn run(&self, open: VecDeque<usize>) -> Result<(), StageError> {
        let threads = self.work.jobs.clamp(1, open.len().max(1));
        let (queue, held) = (Mutex::new(open), Held::default());
        let failure = Mutex::new(None);
        std::thread::scope(|scope| {
            scope.spawn(|| self.keep_fresh(&held));
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        if let Err(error) = self.take_tasks(&queue, &held) {
                            self.stop.store(true, Ordering::Relaxed);
                            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            // a worker that was only told to stop does not hide the reason
                            if failure.is_none() || matches!(*failure, Some(StageError::Cancelled)) {
                                *failure = Some(error);
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                let _ = worker.join();
            }
            *held.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
            held.wake.notify_all();
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn keep_fresh(&self, held: &Held) {
        let mut done = held.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            let waited = held.wake.wait_timeout(done, self.work.ttl / 6).unwrap_or_else(PoisonError::into_inner);
            done = waited.0;
            for path in held.paths.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                lease::touch(path);
            }
        }
    }

    /// Takes tasks until none is open. Tasks that another process holds are looked at again until they are committed.
    fn take_tasks(&self, queue: &Mutex<VecDeque<usize>>, held: &Held) -> Result<(), StageError> {
        let tasks = &self.work.plan.steps[self.index].tasks;
        let mut refused = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) || self.work.cancel.load(Ordering::Relaxed) {
                return Err(StageError::Cancelled);
            }
            let (next, left) = {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                (queue.pop_front(), queue.len())
            };
            let Some(next) = next else { return Ok(()) };
            let task = &tasks[next];
            if committed(self.work.folder, task).is_some() {
                continue;
            }
            let path = self.work.folder.join("lease").join(&task.id);
            match Lease::ask(&path, self.attempt, self.work.ttl) {
                Ok(Asked::Granted(lease)) => {
                    refused = 0;
                    held.paths.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
                    // another process may have committed it between the look and the lease
                    let outcome = match committed(self.work.folder, task) {
                        Some(_) => Ok(()),
                        None => self.run_task(task),
                    };
                    held.paths.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
                    drop(lease);
                    outcome?;
                }
                Ok(Asked::Taken) => {
                    queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(next);
                    refused += 1;
                    if refused > left {
                        std::thread::sleep(PATIENCE);
                        refused = 0;
                    }
                }
                // the folder of leases goes away when another process completes the version
                Err(error) => {
                    if committed(self.work.folder, task).is_none() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn run_task(&self, task: &TaskPlan) -> Result<(), StageError> {
        let folder = self.work.folder.join("tmp").join(format!("{}.{}", task.id, lease::unique()));
        let outcome = fs::create_dir_all(&folder)
            .map_err(StageError::io("create", &folder))
            .and_then(|()| self.try_task(task, &folder));
        let _ = fs::remove_dir_all(&folder);
        match outcome {
            Err(error) => {
                // whoever committed the task first may also have tidied up under our hands
                if committed(self.work.folder, task).is_some() {
                    return Ok(());
                }
                self.record(task, "error", &error.to_string());
                Err(error)
            }
            Ok(lost_race) => {
                self.record(task, if lost_race { "lost-race" } else { "commit" }, "");
                let stage = self.work.node.name.clone();
                self.work.events.emit(&Event::TaskCommitted { stage, task: task.id.clone(), lost_race });
                Ok(())
            }
        }
    }

    fn try_task(&self, task: &TaskPlan, folder: &Path) -> Result<bool, StageError> {
        let begun = Instant::now();
        let node = self.work.node;
        let step = &node.steps[self.index];
        let setup = TaskSetup {
            stage: &node.name,
            id: &task.id,
            step,
            seed: self.work.seed,
            slices: &task.slices,
            source: task.source.as_ref(),
            partition: task.partition,
            partitions: self.work.plan.partitions,
            rows_port: node.rows_port(),
            inputs: self.work.inputs,
            earlier: self.earlier,
            outputs: &node.outputs,
            env: self.work.env,
            shared: self.shared,
            events: self.work.events,
            cancel: self.work.cancel,
            folder,
            max_errors: node.def.max_errors.unwrap_or(0.0),
        };
        let result = run_caught(|| {
            let mut running = Task::begin(setup)?;
            node.stage.run(step, &mut running)?;
            running.finish()
        })?;
        let is_last = step.schema.is_none();
        let counts = if is_last {
            let main = node.outputs.first();
            let one_to_one = main.is_some_and(|output| output.cardinality == Cardinality::OneToOne);
            Counts::of(&result, main.map_or(MAIN, |output| output.name), one_to_one).map_err(StageError::Internal)?
        } else {
            Counts { counters: result.counters.clone(), ..Counts::default() }
        };
        self.commit(task, &result, counts, begun.elapsed().as_secs_f64())
    }

    /// Moves files to their final names and creates the manifest; says whether another process was first.
    fn commit(&self, task: &TaskPlan, result: &TaskResult, counts: Counts, seconds: f64) -> Result<bool, StageError> {
        let step = &self.work.node.steps[self.index];
        let mut outputs = BTreeMap::new();
        for (name, written) in &result.outputs {
            let below = match (&step.schema, name.as_str()) {
                (Some(_), _) => format!("steps/{}", step.name),
                (None, MAIN) => "data".to_owned(),
                (None, other) => other.to_owned(),
            };
            let file = self.place(&below, &task.id, written)?;
            outputs.insert(name.clone(), FileRecord::new(file, written, result.partitions.clone()));
        }
        let rejects = match &result.rejects {
            Some(written) => Some(FileRecord::new(self.place("rejects", &task.id, written)?, written, Vec::new())),
            None => None,
        };
        let manifest = Manifest {
            format: FORMAT,
            task: task.id.clone(),
            input_key: task.input_key,
            outputs,
            rejects,
            counts,
            notes: result.notes.clone(),
            attempt: self.attempt.to_owned(),
            seconds,
        };
        let created = create_json(&manifest_path(self.work.folder, &task.id), &manifest)?;
        if !created {
            self.compare(task, &manifest);
        }
        Ok(!created)
    }

    /// Moves a file to its place, which its content names.
    fn place(&self, below: &str, task: &str, written: &pipeline_core::table_io::Written) -> Result<String, StageError> {
        let folder = self.work.folder.join(below);
        fs::create_dir_all(&folder).map_err(StageError::io("create", &folder))?;
        let file = format!("{below}/{task}.{}.parquet", written.digest.short());
        let path = self.work.folder.join(&file);
        fs::rename(&written.path, &path).map_err(StageError::io("write", &path))?;
        sync_folder(&folder)?;
        self.work.env.digests.insert(&path, written.digest);
        Ok(file)
    }

    /// Another process was first: its files count, and ours go unless they are the same.
    fn compare(&self, task: &TaskPlan, ours: &Manifest) {
        let Some(theirs) = committed(self.work.folder, task) else { return };
        if theirs.content() == ours.content() {
            return;
        }
        let kept: BTreeSet<&str> = theirs.files().map(|file| file.file.as_str()).collect();
        for file in ours.files().filter(|file| !kept.contains(file.file.as_str())) {
            let _ = fs::remove_file(self.work.folder.join(&file.file));
        }
        if self.work.node.entry.deterministic {
            let message = format!(
                "task {} was done twice with different results; the first one counts. Please report this: kind `{}` should give the same bytes again",
                task.id, self.work.node.entry.kind
            );
            self.work.events.emit(&Event::Warning { stage: Some(self.work.node.name.clone()), message });
        }
    }

    /// Notes what became of an attempt. A record that cannot be written is no reason to fail.
    fn record(&self, task: &TaskPlan, outcome: &str, message: &str) {
        use std::io::Write as _;
        let line = serde_json::json!({ "task": task.id, "outcome": outcome, "message": message });
        let path = self.work.folder.join("attempts").join(format!("{}.jsonl", self.attempt));
        if let Ok(mut file) = fs::File::options().create(true).append(true).open(path) {
            let _ = writeln!(file, "{line}");
        }
    }
}

fn run_caught<T>(work: impl FnOnce() -> Result<T, StageError>) -> Result<T, StageError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let message = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "no message".to_owned());
        Err(StageError::Internal(format!("the kind panicked: {message}")))
    })
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
    if path.exists() { Ok(()) } else { write_json(&path, recipe) }
}
