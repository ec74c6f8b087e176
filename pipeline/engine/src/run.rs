//! The driver: goes through the stages in order, decides about each, runs what must run and links what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pipeline_core::task::PortInput;
use pipeline_core::{Env, Event, EventSink, StageError};

use crate::decide::{Decision, Outcome, decide};
use crate::edges::{Made, digests, port_inputs, rows_of};
use crate::lease;
use crate::project::{Node, Project};
use crate::records::Success;
use crate::store::{Store, Version, manifests};
use crate::work::{Work, manifest_path, settle_plan, write_recipe};

/// Which stages to look at, and what to do beyond what is stale.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// These stages and all that they need; empty = all.
    pub stages: Vec<String>,
    /// This stage alone, on inputs as they are.
    pub only: Option<String>,
    /// This stage and all after it, on inputs as they are.
    pub from: Option<String>,
    /// These stages even if they are fresh.
    pub force: Vec<String>,
    /// Reopen rows that failed for passing reasons.
    pub retry_errors: bool,
}

/// How a run goes.
pub struct Runner<'a> {
    /// The checked graph.
    pub project: &'a Project,
    /// Where versions lie.
    pub store: &'a Store,
    /// The world.
    pub env: &'a Env,
    /// Dag file, for plans.
    pub dag: &'a Path,
    /// Listener.
    pub events: &'a dyn EventSink,
    /// Set when the run is interrupted.
    pub cancel: &'a AtomicBool,
    /// Threads that take tasks.
    pub jobs: usize,
    /// Time after which an untouched lease may be stolen.
    pub ttl: Duration,
}

impl std::fmt::Debug for Runner<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Runner({})", self.dag.display())
    }
}

/// What became of a stage.
#[derive(Debug)]
pub enum Status {
    /// Its earlier output served.
    Reused(Box<Success>),
    /// It ran.
    Ran(Box<Success>),
    /// It could not be made.
    Failed(StageError),
    /// A stage that it needs could not be made.
    Blocked,
    /// It was not asked for.
    Skipped,
}

impl Status {
    /// The record of its output.
    pub fn success(&self) -> Option<&Success> {
        match self {
            Self::Reused(success) | Self::Ran(success) => Some(success),
            _ => None,
        }
    }
}

/// What is to be done about a stage, as `plan` and `status` show it.
#[derive(Debug)]
pub struct Planned {
    /// Index of the stage.
    pub stage: usize,
    /// `None` when an input is itself to be made, so that nobody can tell yet.
    pub decision: Option<Decision>,
    /// Why.
    pub reason: String,
    /// Rows of the first port, where they are known.
    pub rows: Option<u64>,
    /// Why the output that is there cannot be used, which running again would not change.
    pub alarm: Option<String>,
}

impl Runner<'_> {
    /// Runs what is stale among the selected stages. Stages after a failed one are blocked, others go on.
    ///
    /// # Errors
    /// A selected name that is no stage.
    pub fn run(&self, selection: &Selection) -> Result<Vec<Status>, StageError> {
        let begun = Instant::now();
        let selected = self.select(selection)?;
        self.store.create()?;
        let stages = selected.iter().filter(|chosen| **chosen).count();
        self.events.emit(&Event::RunStarted { pipeline: self.project.name.clone(), stages });
        let mut made: BTreeMap<usize, Made> = BTreeMap::new();
        let mut statuses = Vec::with_capacity(self.project.nodes.len());
        for (index, node) in self.project.nodes.iter().enumerate() {
            let status = if selected[index] {
                self.stage(node, selection, &mut made, index)
            } else {
                self.as_it_is(node, index, &mut made);
                Status::Skipped
            };
            if let Status::Failed(error) = &status {
                self.events.emit(&Event::Failed { stage: node.name.clone(), message: error.to_string() });
            }
            let is_interrupted = matches!(status, Status::Failed(StageError::Cancelled));
            statuses.push(status);
            if is_interrupted {
                break;
            }
        }
        statuses.resize_with(self.project.nodes.len(), || Status::Blocked);
        self.env.digests.save();
        let complete = statuses.iter().all(|status| !matches!(status, Status::Failed(_) | Status::Blocked));
        self.events.emit(&Event::RunFinished { complete, seconds: begun.elapsed().as_secs_f64() });
        Ok(statuses)
    }

    /// Says what a run would do. Runs nothing and writes nothing.
    ///
    /// # Errors
    /// A selected name that is no stage, or a file that cannot be read.
    pub fn plan(&self, selection: &Selection) -> Result<Vec<Planned>, StageError> {
        let selected = self.select(selection)?;
        let mut made = BTreeMap::new();
        let mut planned = Vec::new();
        for (index, node) in self.project.nodes.iter().enumerate() {
            if !selected[index] {
                self.as_it_is(node, index, &mut made);
                continue;
            }
            let waiting: BTreeSet<&str> = node
                .upstream()
                .filter(|stage| !made.contains_key(stage))
                .map(|stage| self.project.nodes[stage].name.as_str())
                .collect();
            if !waiting.is_empty() {
                let names: Vec<&str> = waiting.into_iter().collect();
                let reason = format!("depends on what `{}` will give", names.join("`, `"));
                planned.push(Planned { stage: index, decision: None, reason, rows: None, alarm: None });
                continue;
            }
            let mut decision = decide(self.project, node, self.store, self.env, digests(self.project, node, &made))?;
            let rows = node.rows_port().and_then(|port| rows_of(self.project, node, port, &made));
            Self::adjust(node, selection, &mut decision);
            let mut alarm = None;
            let reason = match &decision.outcome {
                Outcome::Reuse { success, .. } if Self::alarm(node, success).is_some() => {
                    alarm = Self::alarm(node, success);
                    alarm.clone().unwrap_or_default()
                }
                Outcome::Reuse { success, reason } => {
                    made.insert(index, Made { version: decision.version.clone(), success: success.as_ref().clone() });
                    reason.clone()
                }
                Outcome::Run { reason } => reason.clone(),
            };
            planned.push(Planned { stage: index, decision: Some(decision), reason, rows, alarm });
        }
        self.env.digests.save();
        Ok(planned)
    }

    /// Which stages a run looks at.
    fn select(&self, selection: &Selection) -> Result<Vec<bool>, StageError> {
        let count = self.project.nodes.len();
        for name in selection.stages.iter().chain(&selection.force).chain(&selection.only).chain(&selection.from) {
            self.find(name)?;
        }
        if let Some(only) = &selection.only {
            return Ok((0..count).map(|index| is_named(&self.project.nodes[index], only)).collect());
        }
        let mut selected = vec![selection.stages.is_empty() && selection.from.is_none(); count];
        if let Some(from) = &selection.from {
            for index in 0..count {
                let node = &self.project.nodes[index];
                selected[index] = is_named(node, from) || node.upstream().any(|stage| selected[stage]);
            }
        }
        for index in (0..count).rev() {
            let node = &self.project.nodes[index];
            if selection.stages.iter().any(|name| is_named(node, name)) {
                selected[index] = true;
            }
            if selected[index] && selection.from.is_none() {
                for stage in node.upstream() {
                    selected[stage] = true;
                }
            }
        }
        Ok(selected)
    }

    fn find(&self, name: &str) -> Result<(), StageError> {
        if self.project.nodes.iter().any(|node| is_named(node, name)) {
            return Ok(());
        }
        let names: Vec<&str> = self.project.nodes.iter().map(|node| node.name.as_str()).collect();
        let near = crate::dagfile::nearest(name, &names);
        let hint =
            near.map_or_else(|| format!("there are: {}", names.join(", ")), |near| format!("did you mean `{near}`?"));
        let message = format!("no stage `{name}`; {hint}");
        Err(StageError::Param(pipeline_core::ParamError::new("stage", message)))
    }

    /// What the current versions of the stages before it give to a stage.
    ///
    /// # Errors
    /// When one of them has no output yet.
    pub fn inputs_as_they_are(&self, node: &Node) -> Result<BTreeMap<String, Vec<PortInput>>, StageError> {
        port_inputs(self.project, node, &self.made_before(node)?)
    }

    /// The recipe of a stage over the current versions of the stages before it.
    ///
    /// # Errors
    /// When one of them has no output yet, or a file is missing.
    pub fn recipe_as_it_is(&self, node: &Node) -> Result<pipeline_core::Recipe, StageError> {
        let made = self.made_before(node)?;
        crate::decide::recipe(self.project, node, self.env, digests(self.project, node, &made))
    }

    fn made_before(&self, node: &Node) -> Result<BTreeMap<usize, Made>, StageError> {
        let mut made = BTreeMap::new();
        for stage in node.upstream() {
            let before = &self.project.nodes[stage];
            self.as_it_is(before, stage, &mut made);
            if !made.contains_key(&stage) {
                return Err(StageError::Alarm(format!("its input `{}` has no output yet; run it first", before.name)));
            }
        }
        Ok(made)
    }

    /// Takes the current version of a stage that is not selected.
    fn as_it_is(&self, node: &Node, index: usize, made: &mut BTreeMap<usize, Made>) {
        if let Some(version) = self.store.current(&node.name)
            && let Ok(Some(success)) = version.success()
        {
            self.env.made.insert(&node.name, &version.folder);
            made.insert(index, Made { version, success });
        }
    }

    fn stage(&self, node: &Node, selection: &Selection, made: &mut BTreeMap<usize, Made>, index: usize) -> Status {
        if self.cancel.load(Ordering::Relaxed) {
            return Status::Failed(StageError::Cancelled);
        }
        if let Some(missing) = node.upstream().find(|stage| !made.contains_key(stage)) {
            if selection.only.is_some() || selection.from.is_some() {
                let name = &self.project.nodes[missing].name;
                return Status::Failed(StageError::Alarm(format!(
                    "its input `{name}` has no output yet; run it first"
                )));
            }
            return Status::Blocked;
        }
        match self.make(node, selection, made) {
            Ok((version, success, ran)) => {
                self.env.made.insert(&node.name, &version.folder);
                made.insert(index, Made { version, success: success.clone() });
                match Self::alarm(node, &success) {
                    Some(message) => {
                        made.remove(&index);
                        Status::Failed(StageError::Alarm(message))
                    }
                    None if ran => Status::Ran(Box::new(success)),
                    None => Status::Reused(Box::new(success)),
                }
            }
            Err(error) => {
                self.set_aside(&error);
                Status::Failed(error)
            }
        }
    }

    fn make(
        &self,
        node: &Node,
        selection: &Selection,
        made: &BTreeMap<usize, Made>,
    ) -> Result<(Version, Success, bool), StageError> {
        let mut decision = decide(self.project, node, self.store, self.env, digests(self.project, node, made))?;
        Self::adjust(node, selection, &mut decision);
        let Decision { recipe, version, outcome } = decision;
        match outcome {
            Outcome::Reuse { success, reason } => {
                write_recipe(&version.folder, &recipe)?;
                self.store.link(&node.name, &version)?;
                let rows = success.main().map_or(0, |output| output.rows);
                let (stage, kind) = (node.name.clone(), node.entry.kind.to_owned());
                self.events.emit(&Event::Reused { stage, kind, reason, rows });
                Ok((version, *success, false))
            }
            Outcome::Run { reason } => {
                let begun = Instant::now();
                let aside = Self::reopen(node, selection, &version)?;
                let success = self.work(node, made, &recipe, &version, reason);
                settle(aside.as_deref(), &version, success.is_ok());
                let success = success?;
                self.store.link(&node.name, &version)?;
                self.finished(node, &success, begun.elapsed().as_secs_f64());
                Ok((version, success, true))
            }
        }
    }

    /// Turns a reuse into a run where the user asked for it.
    fn adjust(node: &Node, selection: &Selection, decision: &mut Decision) {
        let Outcome::Reuse { success, .. } = &decision.outcome else { return };
        if selection.force.iter().any(|name| is_named(node, name)) {
            decision.outcome = Outcome::Run { reason: "forced".to_owned() };
        } else if selection.retry_errors && success.counts.transient > 0 {
            let reason = format!("{} rows had failed for passing reasons", success.counts.transient);
            decision.outcome = Outcome::Run { reason };
        }
    }

    /// Takes back what a forced run or a retry must do again. A forced run moves the version aside and says where.
    fn reopen(node: &Node, selection: &Selection, version: &Version) -> Result<Option<PathBuf>, StageError> {
        let success = version.folder.join("_SUCCESS.json");
        if selection.force.iter().any(|name| is_named(node, name)) {
            // links of other dag files go on pointing to the name; the old bytes stay until the new ones are there
            let aside = version.folder.with_file_name(format!(".replaced-{}-{}", version.name, lease::unique()));
            if version.folder.exists() {
                fs::rename(&version.folder, &aside).map_err(StageError::io("move", &version.folder))?;
                return Ok(Some(aside));
            }
        } else if success.exists() {
            let _ = fs::remove_file(&success);
            for manifest in manifests(&version.folder).iter().filter(|manifest| manifest.counts.transient > 0) {
                let _ = fs::remove_file(manifest_path(&version.folder, &manifest.task));
            }
        }
        Ok(None)
    }

    fn work(
        &self,
        node: &Node,
        made: &BTreeMap<usize, Made>,
        recipe: &pipeline_core::Recipe,
        version: &Version,
        reason: String,
    ) -> Result<Success, StageError> {
        let inputs = port_inputs(self.project, node, made)?;
        let dag = crate::paths::relative(self.dag, &version.folder);
        let plan = crate::plan::make(node, recipe.fingerprint(), &inputs, self.env, dag)?;
        let folder = &version.folder;
        write_recipe(folder, recipe)?;
        let plan = settle_plan(folder, &plan)?;
        crate::work::create_folders(folder)?;
        let reused_tasks =
            if node.is_row_wise() { crate::share::share_tasks(self.store, node, recipe, folder, &plan)? } else { 0 };
        self.events.emit(&Event::Started {
            stage: node.name.clone(),
            kind: node.entry.kind.to_owned(),
            reason,
            tasks: plan.steps.iter().map(|step| step.tasks.len()).sum(),
            reused_tasks,
            rows: node
                .rows_port()
                .and_then(|port| inputs.get(port))
                .map(|given| given.iter().map(PortInput::rows).sum()),
        });
        Work {
            node,
            folder,
            plan: &plan,
            inputs: &inputs,
            env: self.env,
            seed: self.project.seed,
            events: self.events,
            cancel: self.cancel,
            jobs: self.jobs,
            ttl: self.ttl,
        }
        .execute()
    }

    fn finished(&self, node: &Node, success: &Success, seconds: f64) {
        let counts = &success.counts;
        self.events.emit(&Event::Finished {
            stage: node.name.clone(),
            kind: node.entry.kind.to_owned(),
            read: counts.read,
            kept: counts.kept,
            written: counts.written,
            rejected: counts.rejected.clone(),
            transient: counts.transient,
            seconds,
        });
        if counts.transient > 0 {
            let message = format!(
                "{} rows failed for passing reasons and are left out; `run --retry-errors` asks for them again",
                counts.transient
            );
            self.events.emit(&Event::Warning { stage: Some(node.name.clone()), message });
        }
    }

    /// A result that cannot be meant: a stage that reads rows and keeps none, an import that finds none.
    fn alarm(node: &Node, success: &Success) -> Option<String> {
        let counts = &success.counts;
        if node.allow_empty || counts.written > 0 {
            return None;
        }
        let way_out = "set `allow_empty = true` if that is meant";
        if counts.read == 0 {
            return Some(format!("read no row at all; {way_out}"));
        }
        let reasons: Vec<String> = counts.rejected.iter().map(|(reason, rows)| format!("{reason} {rows}")).collect();
        Some(format!("kept none of {} rows ({}); {way_out}", counts.read, reasons.join(", ")))
    }

    /// Takes a damaged file out of the store, so that the next run makes that task anew and nothing else.
    pub fn set_aside(&self, error: &StageError) {
        let StageError::Damaged { path, .. } = error else { return };
        let Ok(below) = path.strip_prefix(self.store.root()) else { return };
        let Some(version) = below.components().next() else { return };
        let _ = fs::remove_file(self.store.root().join(version).join("_SUCCESS.json"));
        let _ = fs::remove_file(path);
    }
}

/// After a forced run: the old version goes, or comes back when the new one could not be made.
fn settle(aside: Option<&Path>, version: &Version, is_made: bool) {
    let Some(aside) = aside else { return };
    if !is_made {
        let _ = fs::remove_dir_all(&version.folder);
        if fs::rename(aside, &version.folder).is_ok() {
            return;
        }
    }
    let _ = fs::remove_dir_all(aside);
}

/// Whether a name on the command line means this stage: its own name, or the one it has before its matrix.
pub fn is_named(node: &Node, name: &str) -> bool {
    node.name == name || node.def.base == name
}
