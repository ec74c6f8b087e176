//! `pipeline serve`: a local model behind an OpenAI-compatible API, until it is asked to end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pipeline_core::env::FileDigests;
use pipeline_models::Secret;
use pipeline_serve::{Ended, Local, ServeOptions, Server};
use stage_candle::decode::ServiceOptions;

use crate::args::Serve;
use crate::exit::{Exit, Failure};
use crate::session::variable;
use crate::{models, output};

/// How long answers in flight may go on after the first signal.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn serve(arguments: &Serve) -> Result<Exit, Failure> {
    let key = arguments.api_key_env.as_deref().map(key).transpose()?;
    let Weights { path, name, digest } = find(&arguments.model)?;
    let options = ServeOptions {
        host: arguments.host,
        port: arguments.port,
        name: name.clone(),
        aliases: arguments.alias.clone(),
        key,
        queue: usize::try_from(arguments.queue).unwrap_or(usize::MAX),
        grace: GRACE,
    };
    let service = ServiceOptions {
        threads: arguments.threads.map_or_else(cores, |threads| usize::try_from(threads).unwrap_or(usize::MAX)),
        slots: usize::try_from(arguments.slots).unwrap_or(usize::MAX),
        context: arguments.context.map(|context| usize::try_from(context).unwrap_or(usize::MAX)),
        cache_bytes: None,
    };
    // the address first: whether it is free is known at once, and the weights take a while
    let bound = Server::bind(options).map_err(|error| Failure::usage(error.to_string()))?;
    let engine = Local::open(&path, &digest, &service).map_err(|error| Failure::usage(error.to_string()))?;
    let engine = Arc::new(engine);
    let is_guarded = bound.key_is_asked() || arguments.host.is_loopback();
    if !is_guarded {
        output::note("anybody who reaches this address may use the model; `--api-key-env VARIABLE` asks for a key");
    }
    let context = pipeline_serve::Engine::context(engine.as_ref());
    output::note(format!("listening on http://{}/v1 (model `{name}`, context {context})", bound.address()));
    let ended = bound.run(engine).map_err(|error| Failure { message: error.to_string(), exit: Exit::Internal })?;
    match ended {
        Ended::Clean => Ok(Exit::Done),
        Ended::Cut(answers) => {
            output::note(format!("{answers} answers were cut off"));
            Ok(Exit::Interrupted)
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn key(name: &str) -> Result<Secret, Failure> {
    let key = variable(name).map(Secret::new).filter(|key| !key.is_empty());
    key.ok_or_else(|| Failure::usage(format!("environment variable `{name}`, named by `--api-key-env`, is not set")))
}

/// Weights to serve.
struct Weights {
    path: PathBuf,
    /// What requests call them, beside the aliases.
    name: String,
    digest: String,
}

/// `DAG:NAME` is a model of a project; anything else is a file or folder, which goes by its own name.
fn find(model: &Path) -> Result<Weights, Failure> {
    if let Some((dag, name)) = model.to_str().and_then(|text| text.rsplit_once(':'))
        && has_extension(Path::new(dag), "toml")
    {
        let (path, digest) = models::weights_of(Path::new(dag), name)?;
        return Ok(Weights { path, name: name.to_owned(), digest });
    }
    let full = std::fs::canonicalize(model)
        .map_err(|error| Failure::usage(format!("open the model `{}`: {error}", model.display())))?;
    if has_extension(&full, "toml") {
        let message = format!("`{0}` has models by name; say `{0}:NAME`", model.display());
        return Err(Failure::usage(message));
    }
    let given = if model.file_name().is_some() { model } else { &full };
    let name = if full.is_dir() { given.file_name() } else { given.file_stem() };
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    if name.is_empty() {
        return Err(Failure::usage(format!("the model `{}` has no name that can be sent", model.display())));
    }
    let digest = stage_phases::digest(model, &FileDigests::default())?;
    Ok(Weights { path: model.to_owned(), name: name.to_owned(), digest })
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}
