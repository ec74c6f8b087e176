//! A project as the commands see it: the checked graph, the store, the world and the models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pipeline_core::env::FileDigests;
use pipeline_core::event::NoEvents;
use pipeline_core::{Env, EventSink};
use pipeline_engine::dagfile::{self, DagError, DagErrors, DagFile, Node};
use pipeline_engine::records::Success;
use pipeline_engine::store::Version;
use pipeline_engine::{Project, Registry, Runner, Store};
use pipeline_models::{
    Budget, BudgetConfig, CallStore, Engine, ModelConfig, ModelError, ModelSet, OpenOptions, Secret, Timing, open,
};

use crate::args;
use crate::exit::Failure;

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
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<String> {
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
        let (models, budget) = models(&file, &mut errors);
        if !errors.is_empty() && file.stages.is_empty() {
            return Err(rendered(&errors, &file)); // what could not be read has no stages either
        }
        if let Some(limit) = given.limit {
            limit_imports(&mut file, registry, limit);
        }
        let identities = models.iter().map(|(name, config)| (name.clone(), identity(config))).collect();
        let run = file.run.clone();
        let project = match Project::check(file, registry, identities) {
            Ok(project) if errors.is_empty() => project,
            Ok(project) => return Err(rendered(&errors, &project.dag)),
            Err(wrong) => {
                let (file, found) = *wrong;
                errors.extend(found);
                errors.tidy();
                return Err(rendered(&errors, &file));
            }
        };
        let base = dag.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        let out = given
            .out
            .clone()
            .or_else(|| run.out.as_ref().map(|out| base.join(out)))
            .unwrap_or_else(|| base.join("out"));
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
        let budget = Arc::new(Budget::new(budget));
        let mut env = Env::new(&base);
        env.variables = Arc::new(variable);
        env.digests = Arc::new(FileDigests::load(&store.root().join(".digests.json")));
        env.shard_rows = given.shard_rows.or(run.shard_rows).unwrap_or(env.shard_rows);
        let offline = options.offline || run.offline.unwrap_or(false);
        env.services.insert(Arc::new(model_set(models.clone(), base, calls, offline, budget)));
        Ok(Self { dag, out, project, store, env, models, jobs, cancel: Arc::new(AtomicBool::new(false)) })
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
        let version =
            version.ok_or_else(|| Failure::stage(format!("`{name}` has no output yet; `pipeline run` makes it")))?;
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

/// A dag file is named like its folder of links; that folder must not be something else already.
fn ensure_links_of_its_own(dag: &Path, out: &Path, links: &Path) -> Result<(), Failure> {
    let name = links.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_own = links == out || (links == out.join("try") && dag.file_stem().is_none_or(|stem| stem != "try"));
    if is_own || (!name.starts_with('.') && !matches!(name, "calls" | "runs" | "try") && !links.is_symlink()) {
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

/// Reads `[models]` and `[budget]`.
fn models(file: &DagFile, errors: &mut DagErrors) -> (BTreeMap<String, ModelConfig>, BudgetConfig) {
    let mut models = BTreeMap::new();
    for (name, node) in &file.models {
        match dagfile::parse_params::<ModelConfig>(&node.to_json()) {
            Ok(config) => {
                if let Err(error) = config.validate(name) {
                    errors.push(DagError::new(error.to_string()).at(node.key_or_value_place()));
                } else if config.identity().is_none() {
                    let message = format!("model `{name}`: engine `local` is not part of this build");
                    let hint = "serve the weights with any OpenAI-compatible server and use engine `openai`";
                    errors.push(DagError::new(message).at(node.key_or_value_place()).with_hint(hint));
                }
                models.insert(name.clone(), config);
            }
            Err(problem) => errors.push(section_error(&format!("model `{name}`"), node, &problem)),
        }
    }
    let budget: BudgetConfig = match &file.budget {
        None => BudgetConfig::default(),
        Some(node) => dagfile::parse_params(&node.to_json()).unwrap_or_else(|problem| {
            errors.push(section_error("`[budget]`", node, &problem));
            BudgetConfig::default()
        }),
    };
    let unpriced = models.iter().find(|(_, config)| config.engine == Engine::Openai && config.price.is_none());
    if let (Some(_), Some((name, _)), Some(node)) = (budget.money, unpriced, &file.budget) {
        let message = format!("a budget in money needs the price of model `{name}`");
        let hint =
            "add `price = { input = 0.27, output = 1.10, currency = \"USD\" }` (per million tokens), or use `tokens`";
        errors.push(DagError::new(message).at(node.key_or_value_place()).with_hint(hint));
    }
    (models, budget)
}

/// A mistake in a section at its place.
fn section_error(what: &str, node: &Node, problem: &dagfile::ParamProblem) -> DagError {
    let mut words = problem.message.split('`');
    let word = words.nth(1).unwrap_or_default();
    let key = problem.path.iter().find_map(|segment| match segment {
        dagfile::PathSegment::Key(key) => node.get(key),
        dagfile::PathSegment::Index(_) => None,
    });
    let place = key.or_else(|| node.get(word)).map_or_else(|| node.key_or_value_place(), Node::key_or_value_place);
    let error =
        DagError::new(format!("{what}: {}", problem.message.split(", expected").next().unwrap_or_default())).at(place);
    if !problem.message.starts_with("unknown") {
        return error;
    }
    let known: Vec<&str> = words.skip(1).step_by(2).collect();
    match dagfile::nearest(word, &known) {
        Some(near) => error.with_nearest(Some(near)),
        None => error.with_hint(format!("there are: {}", known.join(", "))),
    }
}

/// Identity of a model as recipes hold it.
fn identity(config: &ModelConfig) -> String {
    config.identity().map_or_else(
        || config.digest.clone().unwrap_or_else(|| "local weights".to_owned()),
        |identity| identity.to_string(),
    )
}

fn model_set(
    models: BTreeMap<String, ModelConfig>,
    base: PathBuf,
    calls: PathBuf,
    offline: bool,
    budget: Arc<Budget>,
) -> ModelSet {
    let store: std::sync::OnceLock<Result<Arc<CallStore>, String>> = std::sync::OnceLock::new();
    ModelSet::new(move |name| {
        let config = models.get(name).ok_or_else(|| ModelError::config(name, "is not in `[models]`"))?;
        let opened = store.get_or_init(|| CallStore::open(&calls).map(Arc::new).map_err(|error| error.to_string()));
        let calls = opened.clone().map_err(|message| ModelError::config(name, message))?;
        let options = OpenOptions {
            offline,
            budget: Arc::clone(&budget),
            environment: &|name| variable(name).map(Secret::new),
            timing: Timing::default(),
        };
        open(config, name, &base, calls, &options)
    })
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
