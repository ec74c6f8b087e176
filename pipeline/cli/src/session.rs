//! A project as the commands see it: the checked graph, the store, the world and the models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pipeline_core::env::{FileDigests, SecretNames};
use pipeline_core::event::NoEvents;
use pipeline_core::{Env, EventSink};
use pipeline_engine::dagfile::{self, DagErrors, DagFile};
use pipeline_engine::records::Success;
use pipeline_engine::store::Version;
use pipeline_engine::{Project, Registry, Runner, Store};
use pipeline_models::{Budget, BudgetConfig, ModelConfig};
use stage_curate::Programs;
use stage_verify::sandbox::Isolation;

use crate::args;
use crate::exit::Failure;
use crate::models::{self, Opening};

/// An opened project.
#[derive(Debug)]
pub struct Session {
    /// The dag file.
    pub dag: PathBuf,
    /// Folder of results.
    pub out: PathBuf,
    /// Checked graph.
    pub project: Project,
    /// Versions and links.
    pub store: Store,
    /// The world around stages.
    pub env: Env,
    /// Models by name.
    pub models: BTreeMap<String, ModelConfig>,
    /// Limits of a run.
    pub limits: BudgetConfig,
    /// Whether only the first rows of imports are read, whose versions are linked apart.
    pub is_try_out: bool,
    /// Whether recorded answers must do.
    pub offline: bool,
    /// Threads.
    pub jobs: usize,
    /// Set when the run is interrupted.
    pub cancel: Arc<AtomicBool>,
}

/// How a run goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Recorded answers only.
    pub offline: bool,
    /// Threads.
    pub jobs: Option<u64>,
    /// Run programs of the data without a sandbox.
    pub unsafe_no_sandbox: bool,
}

/// Folder of what programs of the data did in their tests, beside the folder of calls.
const VERDICTS: &str = "verdicts";

/// An environment variable.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Session {
    /// Reads and checks a project.
    ///
    /// # Errors
    /// All mistakes of the dag file, rendered with their places.
    pub fn open(given: &args::Project, registry: &Registry, options: Options) -> Result<Self, Failure> {
        let dag = given.dag.clone();
        if dag.is_dir() {
            let message = format!(
                "`{}` is a folder; name the dag file in it, such as `{}`",
                dag.display(),
                dag.join("dag.toml").display()
            );
            return Err(Failure::usage(message));
        }
        let reading = dagfile::read(&dag, &dagfile::Disk, &variable);
        let (mut file, mut errors) = (reading.dag, reading.errors);
        let base = dag.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        let out = given.out.clone().or_else(|| file.run.out.as_ref().map(|out| base.join(out)));
        let out = out.unwrap_or_else(|| base.join("out"));
        let digests = Arc::new(FileDigests::load(&digest_memory(&out)));
        let (models, budget) = models::read(&file, &base, &digests, &mut errors);
        if !errors.is_empty() && file.stages.is_empty() {
            return Err(rendered(&errors, &file)); // what could not be read has no stages either
        }
        if let Some(limit) = given.limit {
            limit_imports(&mut file, registry, limit);
        }
        let run = file.run.clone();
        let named = file.models.keys().cloned().collect();
        let project = match Project::check(file, registry, models::identities(&models, named)) {
            Ok(project) => {
                models::ensure_able(&project, &models, &mut errors);
                if !errors.is_empty() {
                    return Err(rendered(&errors, &project.dag));
                }
                project
            }
            Err(wrong) => {
                let (file, found) = *wrong;
                errors.extend(found);
                errors.tidy();
                return Err(rendered(&errors, &file));
            }
        };
        let calls = given.calls.clone().or_else(|| run.calls.as_ref().map(|calls| base.join(calls)));
        let calls = calls.unwrap_or_else(|| out.join("calls"));
        let links = match (given.limit, dag.file_stem().and_then(|stem| stem.to_str())) {
            (Some(_), _) => out.join("try"),
            (None, Some("dag") | None) => out.clone(),
            (None, Some(stem)) => out.join(stem),
        };
        ensure_links_of_its_own(&dag, &out, &links)?;
        let store = Store::new(&out, links);
        let jobs = options.jobs.or(run.jobs).and_then(|jobs| usize::try_from(jobs).ok());
        let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let limits = budget;
        let budget = Arc::new(Budget::new(limits));
        let mut env = Env::new(&base);
        env.variables = Arc::new(variable);
        env.digests = digests;
        env.shard_rows = given.shard_rows.or(run.shard_rows).unwrap_or(env.shard_rows);
        let offline = options.offline || run.offline.unwrap_or(false);
        let (made, digests) = (Arc::clone(&env.made), Arc::clone(&env.digests));
        let opening = Opening { base, calls, offline, budget, threads: jobs, made, digests };
        env.services.insert(Arc::new(models::model_set(models.clone(), opening)));
        let secrets = models.values().filter_map(|model| model.api_key_env.clone()).collect();
        env.services.insert(Arc::new(SecretNames(secrets)));
        env.services.insert(Arc::new(programs(&out, jobs, options.unsafe_no_sandbox)));
        let (is_try_out, cancel) = (given.limit.is_some(), Arc::new(AtomicBool::new(false)));
        Ok(Self { dag, out, project, store, env, models, limits, is_try_out, offline, jobs, cancel })
    }

    /// The driver over this project.
    pub fn runner<'a>(&'a self, events: &'a dyn EventSink) -> Runner<'a> {
        Runner {
            project: &self.project,
            store: &self.store,
            env: &self.env,
            dag: &self.dag,
            events,
            cancel: &self.cancel,
            jobs: self.jobs,
            ttl: pipeline_engine::lease::TTL,
        }
    }

    /// The currency of the models' prices, where there is one that all share.
    pub fn currency(&self) -> Option<String> {
        let mut currencies = self.models.values().filter_map(|model| model.price.as_ref().map(|price| &price.currency));
        let first = currencies.next()?;
        currencies.all(|currency| currency == first).then(|| first.clone())
    }

    /// Lets Ctrl-C and SIGTERM end the run cleanly; a second Ctrl-C ends it at once.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen_for_signals(&self) -> Result<(), Failure> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let refused = |error: std::io::Error| Failure::stage(format!("cannot listen for signals: {error}"));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&self.cancel)).map_err(refused)?;
            signal_hook::flag::register(signal, Arc::clone(&self.cancel)).map_err(refused)?;
        }
        Ok(())
    }

    /// The current output of a stage, every file of it checked. A damaged file is taken out of the store, so that the
    /// next run makes it anew.
    ///
    /// # Errors
    /// When there is none, or a file of it is damaged.
    pub fn output_of(&self, name: &str) -> Result<(Version, Success), Failure> {
        let version = self.store.current(name);
        let version = version.ok_or_else(|| {
            Failure::stage(if self.is_try_out {
                format!(
                    "`{name}` has no output in `out/try`: `--limit` looks at try-outs, which `pipeline run --limit` makes; how many rows are shown says `-n`"
                )
            } else {
                format!("`{name}` has no output yet; `pipeline run` makes it")
            })
        })?;
        let success = version.success().map_err(|damage| {
            Failure::stage(format!("the output of `{name}` is damaged: {damage}; run again to make it anew"))
        })?;
        let success =
            success.ok_or_else(|| Failure::stage(format!("the output of `{name}` is not complete; run again")))?;
        let checked = version.check_files(&success, &self.env.digests);
        self.env.digests.save();
        if let Err(error) = checked {
            self.runner(&NoEvents).set_aside(&error);
            return Err(error.into());
        }
        Ok((version, success))
    }

    /// Index of a stage.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn stage(&self, name: &str) -> Result<usize, Failure> {
        self.project.find(name).ok_or_else(|| {
            let names: Vec<&str> = self.project.nodes.iter().map(|node| node.name.as_str()).collect();
            let way_out = dagfile::nearest(name, &names)
                .map_or_else(|| format!("there are: {}", names.join(", ")), |near| format!("did you mean `{near}`?"));
            Failure::usage(format!("no stage `{name}`; {way_out}"))
        })
    }
}

/// How programs of the data are run, and where their reports are kept.
fn programs(out: &Path, jobs: usize, is_unsafe: bool) -> Programs {
    Programs {
        isolation: if is_unsafe { Isolation::Off } else { Isolation::Full },
        workers: jobs,
        folder: Some(out.join(VERDICTS)),
        ..Programs::default()
    }
}

/// Where digests of files are remembered between runs.
fn digest_memory(out: &Path) -> PathBuf {
    Store::new(out, out.to_owned()).root().join(".digests.json")
}

/// A dag file is named like its folder of links; that folder must not be something else already.
fn ensure_links_of_its_own(dag: &Path, out: &Path, links: &Path) -> Result<(), Failure> {
    let name = links.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_own = links == out || (links == out.join("try") && dag.file_stem().is_none_or(|stem| stem != "try"));
    if is_own || (!name.starts_with('.') && !matches!(name, "calls" | "runs" | "try" | VERDICTS) && !links.is_symlink())
    {
        return Ok(());
    }
    let message = format!(
        "the dag file `{}` would keep its links in `{}`, which is something else; give the file another name",
        dag.display(),
        links.display()
    );
    Err(Failure::usage(message))
}

fn rendered(errors: &DagErrors, file: &DagFile) -> Failure {
    Failure::usage(errors.render(&file.sources))
}

/// `--limit`: imports that feed no evaluation port read their first rows only.
fn limit_imports(file: &mut DagFile, registry: &Registry, limit: u64) {
    let evaluation: Vec<usize> = file
        .stages
        .iter()
        .flat_map(|def| {
            let ports = registry.get(&def.kind).map_or(&[][..], |entry| entry.ports);
            def.inputs
                .iter()
                .filter(|(name, _)| ports.iter().any(|port| port.evaluation && port.name == name.as_str()))
                .flat_map(|(_, references)| references)
        })
        .flat_map(|reference| dagfile::resolve(&file.stages, reference))
        .collect();
    for (index, def) in file.stages.iter_mut().enumerate() {
        let reads_files = registry.get(&def.kind).is_some_and(|entry| entry.ports.is_empty());
        if reads_files
            && !evaluation.contains(&index)
            && let Some(params) = def.params.as_object_mut()
        {
            let smaller = params.get("limit").and_then(serde_json::Value::as_u64).map_or(limit, |own| own.min(limit));
            params.insert("limit".to_owned(), smaller.into());
        }
    }
}
