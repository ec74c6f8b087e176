//! Batch mode against the scripted server, whose batch API was written without this client in view.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pipeline_models::{
    Budget, BudgetConfig, CallStore, Ensured, Message, Model, ModelConfig, OpenOptions, Recorded, Request, Sampling,
    Timing, open,
};
use scripted_server::{Batches, Options, Server};

fn model(server: &Server, folder: &Path) -> Arc<dyn Model> {
    let config: ModelConfig = toml::from_str(&format!(
        "engine = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\nbatch = {{ requests = 30, poll_seconds = 1 }}",
        server.url()
    ))
    .unwrap();
    let options = OpenOptions {
        offline: false,
        budget: Arc::new(Budget::new(BudgetConfig::default())),
        environment: &|_| None,
        timing: Timing { backoff: Duration::from_millis(1), ..Timing::default() },
        weights: None,
    };
    open(&config, "teacher", folder, Arc::new(CallStore::open(folder.join("calls")).unwrap()), &options).unwrap()
}

fn requests(count: usize) -> Vec<Request> {
    let request = |number| Request::new(vec![Message::new("user", format!("{number}"))], Sampling::full(0.8, 48), 0);
    (0..count).map(request).collect()
}

/// One run as a process of its own, and how many of the requests are answered after it.
fn run(server: &Server, folder: &Path, requests: &[Request]) -> (Ensured, u64) {
    let model = model(server, folder);
    let counts = model.ensure(&mut requests.iter().cloned(), &(), &AtomicBool::new(false)).unwrap();
    assert_eq!(counts.seen(), requests.len() as u64);
    let is_answered = |request: &&Request| matches!(model.answer(request).unwrap(), Recorded::Answer(_));
    (counts, requests.iter().filter(is_answered).count() as u64)
}

fn start(batches: Batches) -> Server {
    Server::start(Options { batches, ..Options::default() }).unwrap()
}

#[test]
fn no_answer_of_an_expired_batch_is_asked_for_twice() {
    let batches = Batches { batch_expired_share: 1.0, batch_unanswered_share: Some(0.3), ..Batches::default() };
    let (server, folder) = (start(batches), tempfile::tempdir().unwrap());
    let (counts, answered) = run(&server, folder.path(), &requests(50));
    assert_eq!(counts.transient.len() as u64 + answered, 50);
    let stats = server.stats();
    assert_eq!((stats.batch_answers, stats.repeated, stats.requests), (answered, 0, 0));
    assert_eq!(stats.batches, 6, "two batches, each three times");
}

#[test]
fn every_request_is_answered_once_whatever_share_of_a_batch_fails() {
    let batches = Batches { batch_error_share: 0.4, ..Batches::default() };
    let (server, folder) = (start(batches), tempfile::tempdir().unwrap());
    let mut answered = 0;
    for _ in 0..20 {
        (_, answered) = run(&server, folder.path(), &requests(50));
        if answered == 50 {
            break;
        }
    }
    let stats = server.stats();
    assert_eq!((answered, stats.batch_answers, stats.repeated), (50, 50, 0));
}
