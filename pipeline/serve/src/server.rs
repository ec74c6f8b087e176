//! The server: address, routes, and an end that lets answers in flight finish.

use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{Method, Uri};
use axum::middleware;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use pipeline_models::Secret;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::admission;
use crate::answer::now;
use crate::engine::Engine;
use crate::error::{ApiError, ServeError};
use crate::handle;

/// Mebibytes of bodies that are read at the same time.
const READERS: usize = 512;
/// How long connections may take to hear that the server ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a model is served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen at.
    pub host: IpAddr,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// Name of the model.
    pub name: String,
    /// Other names that it goes by.
    pub aliases: Vec<String>,
    /// Key that every request but `GET /health` must bring; none lets everybody in.
    pub key: Option<Secret>,
    /// Most answers in flight and waiting; at least 1.
    pub queue: usize,
    /// How long answers in flight may go on when the server is asked to end.
    pub grace: Duration,
}

impl ServeOptions {
    /// A model under a name on this machine alone, without a key.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 0,
            name: name.into(),
            aliases: Vec::new(),
            key: None,
            queue: 512,
            grace: Duration::from_secs(5),
        }
    }
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything in flight was answered.
    Clean,
    /// So many answers were cut off.
    Cut(usize),
}

/// The names that a model goes by.
#[derive(Debug)]
pub(crate) struct Names {
    all: Vec<String>,
    since: u64,
}

impl Names {
    /// Whether this model is meant.
    pub(crate) fn check(&self, asked: &str) -> Result<(), ApiError> {
        if self.all.iter().any(|name| name == asked) {
            return Ok(());
        }
        Err(ApiError::no_model(asked, self.all.first().map_or("", String::as_str)))
    }

    fn card(&self, name: &str) -> Value {
        json!({"id": name, "object": "model", "created": self.since, "owned_by": "pipeline"})
    }
}

/// What all requests share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) names: Arc<Names>,
    pub(crate) key: Option<Secret>,
    pub(crate) queue: usize,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) ending: watch::Receiver<bool>,
}

/// A server that has its address.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: ServeOptions,
}

impl Server {
    /// Takes the address. Connections wait until the server runs, so that a model may be opened in between.
    ///
    /// # Errors
    /// When the address is taken or not of this machine.
    pub fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let wanted = SocketAddr::new(options.host, options.port);
        let bind_error = |source| ServeError::Bind { address: wanted.to_string(), source };
        let listener = TcpListener::bind(wanted).map_err(bind_error)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, options })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether requests must bring a key.
    pub fn key_is_asked(&self) -> bool {
        self.options.key.is_some()
    }

    /// Serves until Ctrl-C or SIGTERM; a second one ends the process at once with code 130.
    ///
    /// # Errors
    /// When the system refuses threads or signals.
    pub fn run(self, engine: Arc<dyn Engine>) -> Result<Ended, ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let ended = runtime.block_on(async {
            let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
            let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            let stop = async move {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                tokio::spawn(async move {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    std::process::exit(130);
                });
            };
            self.run_until(engine, stop).await
        });
        // a prompt that is still being encoded is not waited for
        runtime.shutdown_background();
        ended
    }

    /// Serves until `stop` is done, then for as long as answers in flight are allowed to take.
    ///
    /// # Errors
    /// When the system refuses the socket.
    pub async fn run_until(
        self,
        engine: Arc<dyn Engine>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Ended, ServeError> {
        let (cut, ending) = watch::channel(false);
        let (stopping, mut is_stopping) = watch::channel(false);
        let queue = self.options.queue.max(1);
        let places = Arc::new(Semaphore::new(queue));
        let shared = Shared {
            engine,
            names: Arc::new(Names {
                all: std::iter::once(self.options.name).chain(self.options.aliases).collect(),
                since: now(),
            }),
            key: self.options.key,
            queue,
            places: Arc::clone(&places),
            readers: Arc::new(Semaphore::new(READERS)),
            ending,
        };
        let listener = tokio::net::TcpListener::from_std(self.listener)?.tap_io(|connection| {
            // without it small events wait for each other; where the system refuses they just come later
            let _ = connection.set_nodelay(true);
        });
        let stop = async move {
            stop.await;
            let _ = stopping.send(true);
        };
        let serving = axum::serve(listener, router(shared)).with_graceful_shutdown(stop);
        let mut serving = tokio::spawn(serving.into_future());
        let late = async {
            let _ = is_stopping.wait_for(|stopping| *stopping).await;
            tokio::time::sleep(self.options.grace).await;
        };
        tokio::select! {
            _ = &mut serving => return Ok(Ended::Clean),
            () = late => {}
        }
        let open = queue - places.available_permits();
        let _ = cut.send(true);
        let _ = tokio::time::timeout(LAST_WORDS, serving).await;
        Ok(if open == 0 { Ended::Clean } else { Ended::Cut(open) })
    }
}

fn router(shared: Shared) -> Router {
    let with_key = middleware::from_fn_with_state(shared.clone(), admission::check_key);
    Router::new()
        .route("/health", get(|| async { Json(json!({"status": "ok"})) }))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/chat/completions", post(handle::chat))
        .route("/v1/completions", post(handle::completions))
        .fallback(|uri: Uri| async move { ApiError::no_path(uri.path()) })
        .method_not_allowed_fallback(|method: Method| async move { ApiError::bad_method(method.as_str()) })
        .layer(with_key)
        .with_state(shared)
}

async fn models(State(shared): State<Shared>) -> Json<Value> {
    let cards: Vec<Value> = shared.names.all.iter().map(|name| shared.names.card(name)).collect();
    Json(json!({"object": "list", "data": cards}))
}

async fn model(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    shared.names.check(&name)?;
    Ok(Json(shared.names.card(&name)))
}
