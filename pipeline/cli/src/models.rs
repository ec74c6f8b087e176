//! `[models.NAME]` and `[budget]`: read, checked, given their identities, and opened when a stage first needs one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pipeline_core::env::{FileDigests, MadeFolders};
use pipeline_core::event::NoEvents;
use pipeline_core::table_io::TableFile;
use pipeline_core::{ParamError, rows};
use pipeline_engine::dagfile::{self, DagError, DagErrors, DagFile, Node};
use pipeline_engine::project::problem;
use pipeline_engine::records::Success;
use pipeline_engine::{Project, Selection, store};
use pipeline_models::{
    Budget, BudgetConfig, CallStore, Engine, ModelConfig, ModelError, ModelSet, OpenOptions, Secret, Timing, open,
};
use schemas::checkpoints;
use stage_candle::LocalModel;

use crate::commands::plan::action;
use crate::exit::{Exit, Failure};
use crate::local;
use crate::session::{Session, variable};

/// How the newest checkpoint of a stage is called where none is named.
const LAST: &str = "(last)";

/// Name of a script that fetches weights, looked for beside the dag file.
const FETCH_SCRIPT: &str = "fetch_model.sh";

/// Reads `[models]` and `[budget]`. Weights that are there get their digest, which is their identity.
pub fn read(
    file: &DagFile,
    base: &Path,
    digests: &FileDigests,
    errors: &mut DagErrors,
) -> (BTreeMap<String, ModelConfig>, BudgetConfig) {
    let mut models = BTreeMap::new();
    for (name, node) in &file.models {
        match dagfile::parse_params::<ModelConfig>(&node.to_json()) {
            Ok(mut config) => {
                if let Err(error) = config.validate(name) {
                    errors.push(DagError::new(error.to_string()).at(node.key_or_value_place()));
                } else if let Err(error) = settle_digest(name, &mut config, node, base, digests) {
                    errors.push(error);
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
    if let (Some(money), Some(node)) =
        (budget.money.filter(|money| !(*money >= 0.0 && money.is_finite())), &file.budget)
    {
        errors.push(
            DagError::new(format!("`money` must be a number from 0, found {money}")).at(node.key_or_value_place()),
        );
    }
    let unpriced = models.iter().find(|(_, config)| config.engine == Engine::Openai && config.price.is_none());
    if let (Some(_), Some((name, _)), Some(node)) = (budget.money, unpriced, &file.budget) {
        let message = format!("a budget in money needs the price of model `{name}`");
        let hint =
            "add `price = { input = 0.27, output = 1.10, currency = \"USD\" }` (per million tokens), or use `tokens`";
        errors.push(DagError::new(message).at(node.key_or_value_place()).with_hint(hint));
    }
    (models, budget)
}

/// Works out the digest of weights that are there, and holds it against the one that is given.
fn settle_digest(
    name: &str,
    config: &mut ModelConfig,
    node: &Node,
    base: &Path,
    digests: &FileDigests,
) -> Result<(), DagError> {
    let Some(path) = weights_path(config, base) else { return Ok(()) };
    let place = |key: &str| node.get(key).map_or_else(|| node.key_or_value_place(), Node::key_or_value_place);
    if !path.exists() {
        if config.digest.is_some() {
            return Ok(());
        }
        let message = format!("model `{name}`: there are no weights at `{}`", path.display());
        let hint = format!(
            "{}, or name their `digest = \"sha256:…\"`: with it, `--offline` runs from recorded answers without them",
            way_to_weights(base)
        );
        return Err(DagError::new(message).at(place("path")).with_hint(hint));
    }
    let found = stage_phases::digest(&path, digests)
        .map_err(|error| DagError::new(format!("model `{name}`: {error}")).at(place("path")))?;
    match &config.digest {
        Some(expected) if *expected != found => {
            let message = format!(
                "model `{name}`: the weights `{}` are not those of `digest`: expected {expected}, found {found}",
                path.display()
            );
            let hint = "fetch the right weights, or change `digest` if these are meant";
            Err(DagError::new(message).at(place("digest")).with_hint(hint))
        }
        _ => {
            config.digest = Some(found);
            Ok(())
        }
    }
}

fn weights_path(config: &ModelConfig, base: &Path) -> Option<PathBuf> {
    let path = config.path.as_ref().filter(|_| config.engine == Engine::Local)?;
    Some(base.join(path))
}

/// Weights of a local model of a project, and their digest.
///
/// # Errors
/// Mistakes of the dag file, a model that it does not have, or one that is no local model.
pub fn weights_of(dag: &Path, name: &str) -> Result<(PathBuf, String), Failure> {
    let reading = dagfile::read(dag, &dagfile::Disk, &variable);
    let (file, mut errors) = (reading.dag, reading.errors);
    let base = dag.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (models, _) = read(&file, base, &FileDigests::default(), &mut errors);
    if !errors.is_empty() {
        return Err(Failure::usage(errors.render(&file.sources)));
    }
    let Some(config) = models.get(name) else {
        let names: Vec<&str> = models.keys().map(String::as_str).collect();
        let message = format!("`{}` has no model `{name}`; there are: {}", dag.display(), names.join(", "));
        return Err(Failure::usage(message));
    };
    if let Some(stage) = &config.stage {
        let message = format!("model `{name}` is made by stage `{stage}`; serve the folder of a checkpoint of it");
        return Err(Failure::usage(format!(
            "{message}: `{}`",
            base.join("out").join(stage).join("checkpoints").display()
        )));
    }
    let path = weights_path(config, base).filter(|path| path.exists());
    match (path, &config.digest) {
        (Some(path), Some(digest)) => Ok((path, digest.clone())),
        _ if config.engine == Engine::Local => Err(Failure {
            message: format!("the weights of model `{name}` are not there; {}", way_to_weights(base)),
            exit: Exit::Model,
        }),
        _ => Err(Failure::usage(format!("model `{name}` is no local model; only `engine = \"local\"` can be served"))),
    }
}

/// How a person gets weights.
fn way_to_weights(base: &Path) -> String {
    let script = base.join(FETCH_SCRIPT);
    if script.is_file() {
        return format!("fetch them with `bash {}`", script.display());
    }
    "put them there".to_owned()
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

/// Identity of each model that is `named`, as recipes hold it. Where a mistake keeps it from being known, nothing runs
/// anyway.
pub fn identities(models: &BTreeMap<String, ModelConfig>, named: Vec<String>) -> BTreeMap<String, String> {
    let identity = |name: &String| {
        let config = models.get(name)?;
        if config.stage.is_some() {
            // what the stage makes is an input of those that use it; here stands only which checkpoint is meant
            return Some(format!("checkpoint {}", config.checkpoint.as_deref().unwrap_or(LAST)));
        }
        config.identity().map(|identity| identity.to_string())
    };
    named.into_iter().map(|name| (name.clone(), identity(&name).unwrap_or_default())).collect()
}

/// Stages whose model is to score given texts, or to be trained, and cannot.
pub fn ensure_able(project: &Project, models: &BTreeMap<String, ModelConfig>, errors: &mut DagErrors) {
    for node in project.nodes.iter().filter(|node| node.entry.scores) {
        for (name, param) in &node.models {
            if models.get(name).is_some_and(|config| config.engine == Engine::Openai) {
                let message = format!("model `{name}` has engine `openai`, and servers do not score given texts");
                let error = ParamError::new(param, message);
                let error = error.hint("only engine `local` can, or engine `replay` from recorded scores");
                errors.push(problem(&node.def, &error));
            }
        }
    }
    for node in project.nodes.iter().filter(|node| node.entry.weights) {
        for (name, param) in &node.models {
            if models.get(name).is_some_and(|config| config.engine != Engine::Local) {
                let message = format!("kind `{}` works on weights, and model `{name}` has none here", node.entry.kind);
                let error = ParamError::new(param, message).hint("name a model with engine `local`");
                errors.push(problem(&node.def, &error));
            }
        }
    }
}

/// Refuses a run in which a stage would need weights or a key that are not there, before any work is done.
///
/// # Errors
/// The model, what it lacks, the stage, and the ways out.
pub fn ensure_usable(session: &Session, selection: &Selection) -> Result<(), Failure> {
    let fault_of = |config: &ModelConfig| {
        if let Some(name) = config.api_key_env.as_deref().filter(|_| config.engine == Engine::Openai) {
            let is_set = variable(name).is_some_and(|key| !key.is_empty());
            return (!is_set).then(|| format!("environment variable `{name}`, named by its `api_key_env`, is not set"));
        }
        let path = weights_path(config, &session.env.base)?;
        if !path.exists() {
            return Some(format!("there are no weights at `{}`", path.display()));
        }
        LocalModel::inspect(&path).err().map(|error| format!("its weights cannot be used: {error}"))
    };
    if session.offline || !session.models.values().any(|config| fault_of(config).is_some()) {
        return Ok(());
    }
    for planned in session.runner(&NoEvents).plan(selection)? {
        let node = &session.project.nodes[planned.stage];
        let faulty = node.models.keys().find_map(|name| Some((name, fault_of(session.models.get(name)?)?)));
        let Some((name, fault)) = faulty.filter(|_| !matches!(action(&planned), "reuse" | "fail")) else { continue };
        let of_weights = session.models.get(name).is_some_and(|config| config.engine == Engine::Local);
        let (way, exit) = if of_weights {
            (way_to_weights(&session.env.base), Exit::Model)
        } else {
            ("set it".to_owned(), Exit::Usage)
        };
        let message = format!(
            "stage `{}` needs model `{name}`, and {fault}\nhint: {way}, or say `--offline`: it runs from recorded answers without",
            node.name,
        );
        return Err(Failure { message, exit });
    }
    Ok(())
}

/// How the models of a run are opened.
pub struct Opening {
    /// Folder of the dag file.
    pub base: PathBuf,
    /// Call store.
    pub calls: PathBuf,
    /// Recorded answers only.
    pub offline: bool,
    /// Limits of the run.
    pub budget: Arc<Budget>,
    /// Threads for weights in this process.
    pub threads: usize,
    /// Versions of stages that this run reads.
    pub made: Arc<MadeFolders>,
    /// Digests of files.
    pub digests: Arc<FileDigests>,
}

/// The models of a run by name, opened when a stage first needs one.
pub fn model_set(models: BTreeMap<String, ModelConfig>, opening: Opening) -> ModelSet {
    let store: OnceLock<Result<Arc<CallStore>, String>> = OnceLock::new();
    let weights = local::opener(opening.threads);
    let sources = Arc::new(Sources { models, base: opening.base, made: opening.made, digests: opening.digests });
    let (calls, offline, budget, base) = (opening.calls, opening.offline, opening.budget, sources.base.clone());
    let open_one = Arc::new(move |config: &ModelConfig, name: &str| {
        let opened = store.get_or_init(|| CallStore::open(&calls).map(Arc::new).map_err(|error| error.to_string()));
        let calls = opened.clone().map_err(|message| ModelError::config(name, message))?;
        let options = OpenOptions {
            offline,
            budget: Arc::clone(&budget),
            environment: &|name| variable(name).map(Secret::new),
            timing: Timing::default(),
            weights: Some(Arc::clone(&weights)),
        };
        open(config, name, &base, calls, &options)
    });
    let (open_named, located) = (Arc::clone(&open_one), Arc::clone(&sources));
    ModelSet::new(move |name| open_named(&sources.config(name)?, name))
        .locating(move |name| located.weights(name))
        .opening_folders(move |folder, digest| open_one(&ModelConfig::weights(folder, digest), &shown(folder)))
}

/// A folder of weights in messages.
fn shown(folder: &Path) -> String {
    folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Where models come from.
struct Sources {
    models: BTreeMap<String, ModelConfig>,
    base: PathBuf,
    made: Arc<MadeFolders>,
    digests: Arc<FileDigests>,
}

impl Sources {
    /// The configuration of a model; the weights of one that a stage makes are those that it has made.
    fn config(&self, name: &str) -> Result<ModelConfig, ModelError> {
        let config = self.models.get(name).ok_or_else(|| ModelError::config(name, "is not in `[models]`"))?;
        let Some(stage) = &config.stage else { return Ok(config.clone()) };
        let wrong = |message: String| ModelError::config(name, message);
        let folder = self.made.get(stage);
        let folder = folder.ok_or_else(|| wrong(format!("stage `{stage}` has no output yet; run it first")))?;
        let checkpoint = Checkpoint::find(&folder, config.checkpoint.as_deref())
            .map_err(|message| wrong(format!("stage `{stage}`: {message}")))?;
        let found =
            stage_phases::digest(&checkpoint.folder, &self.digests).map_err(|error| wrong(error.to_string()))?;
        if found != checkpoint.digest {
            let place = checkpoint.folder.display();
            let message = format!("the weights `{place}` are not those that stage `{stage}` wrote");
            return Err(wrong(format!("{message}; make it anew with `--force {stage}`")));
        }
        let path = std::path::absolute(&checkpoint.folder).unwrap_or(checkpoint.folder);
        let mut config = config.clone();
        (config.path, config.digest, config.stage, config.checkpoint) = (Some(path), Some(found), None, None);
        Ok(config)
    }

    fn weights(&self, name: &str) -> Result<PathBuf, ModelError> {
        let config = self.config(name)?;
        let path = weights_path(&config, &self.base).filter(|path| path.exists());
        path.ok_or_else(|| ModelError::config(name, format!("has no weights here; {}", way_to_weights(&self.base))))
    }
}

/// A checkpoint in the version of a stage.
struct Checkpoint {
    folder: PathBuf,
    digest: String,
}

impl Checkpoint {
    /// The checkpoint of this name, or the last one.
    fn find(version: &Path, wanted: Option<&str>) -> Result<Self, String> {
        let record = store::read_json::<Success>(&version.join("_SUCCESS.json")).map_err(|error| error.to_string())?;
        let files = record.as_ref().and_then(Success::main).map(|main| main.files.as_slice()).unwrap_or_default();
        let mut names = Vec::new();
        let mut last = None;
        for file in files {
            let table = TableFile::open(&version.join(&file.file)).map_err(|error| error.to_string())?;
            for batch in table.read(0, file.rows, None).map_err(|error| error.to_string())? {
                let batch = batch.map_err(|error| error.to_string())?;
                let column = |name| rows::texts(&batch, name).map_err(|error| error.to_string());
                let (checkpoints, digests) = (column(checkpoints::CHECKPOINT)?, column(checkpoints::DIGEST)?);
                for row in 0..batch.num_rows() {
                    let name = checkpoints.value(row);
                    let folder = version.join(checkpoints::FOLDER).join(name);
                    let found = Self { folder, digest: digests.value(row).to_owned() };
                    if wanted == Some(name) {
                        return Ok(found);
                    }
                    names.push(name.to_owned());
                    last = Some(found);
                }
            }
        }
        match (wanted, last) {
            (None, Some(last)) => Ok(last),
            (Some(wanted), Some(_)) => Err(format!("has no checkpoint `{wanted}`; there are: {}", names.join(", "))),
            (_, None) => Err("has made no checkpoint".to_owned()),
        }
    }
}
