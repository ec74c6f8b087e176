//! The tasks of one step: taken under leases by threads, run, committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pipeline_core::port::{Cardinality, MAIN};
use pipeline_core::task::{KeptFile, PortInput, Shared, Task, TaskResult, TaskSetup};
use pipeline_core::{Event, StageError};

use super::{STATE, Work, committed, manifest_path};
use crate::lease::{self, Asked, Lease};
use crate::records::{Counts, FORMAT, FileRecord, Manifest, TaskPlan};
use crate::store::{create_json, sync_folder};

/// How long to wait before looking again at tasks that other processes hold.
const PATIENCE: Duration = Duration::from_millis(50);

/// The tasks of one step, worked on by threads.
pub(super) struct StepRun<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) index: usize,
    pub(super) earlier: &'a BTreeMap<&'static str, PortInput>,
    pub(super) shared: &'a Shared,
    pub(super) attempt: &'a str,
    /// Set by the first error, so that other threads take no further task.
    pub(super) stop: AtomicBool,
}

/// Leases that are held, for the thread that keeps them fresh.
#[derive(Default)]
struct Held {
    paths: Mutex<BTreeSet<PathBuf>>,
    done: Mutex<bool>,
    wake: Condvar,
}

impl StepRun<'_> {
    pub(super) fn run(&self, open: VecDeque<usize>) -> Result<(), StageError> {
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
        let state = self.work.folder.join(STATE);
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
            state: &state,
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
        let kept_files = result.kept_files.iter().map(|file| self.place_kept(task, file)).collect::<Result<_, _>>()?;
        let manifest = Manifest {
            format: FORMAT,
            task: task.id.clone(),
            input_key: task.input_key,
            outputs,
            kept_files,
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

    /// Puts a file beside the tables to its place. It is linked where it can be, since weights are large.
    fn place_kept(&self, task: &TaskPlan, file: &KeptFile) -> Result<FileRecord, StageError> {
        let path = self.work.folder.join(&file.name);
        if committed(self.work.folder, task).is_some() {
            // its name does not tell its content, so what another process has committed is left alone
            return Ok(FileRecord::kept(file));
        }
        let folder = path.parent().unwrap_or(self.work.folder);
        fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
        let draft = folder.join(format!(".draft-{}", lease::unique()));
        let linked = fs::hard_link(&file.path, &draft).or_else(|_| {
            fs::copy(&file.path, &draft)?;
            fs::File::open(&draft)?.sync_all()
        });
        linked.and_then(|()| fs::rename(&draft, &path)).map_err(|error| {
            let _ = fs::remove_file(&draft);
            StageError::io("write", &path)(error)
        })?;
        // two names of one file are not renamed onto each other: the draft is still there then
        let _ = fs::remove_file(&draft);
        sync_folder(folder)?;
        self.work.env.digests.insert(&path, file.digest);
        Ok(FileRecord::kept(file))
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
        if self.work.node.stage.is_deterministic(&self.work.node.ports) {
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
