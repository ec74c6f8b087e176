//! A server that goes away in the middle of a run, and comes back or does not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipeline_models::{
    Budget, BudgetConfig, CallStore, Ensured, Message, Model, ModelConfig, ModelError, Note, OpenOptions, Progress,
    Request, Sampling, Timing, open,
};
use scripted_server::{Latency, Options, Server};

fn model(url: &str, folder: &Path, outage: Duration) -> Arc<dyn Model> {
    let text = format!("engine = \"openai\"\nmodel = \"m\"\nbase_url = \"{url}\"\nmax_in_flight = 16");
    let config: ModelConfig = toml::from_str(&text).unwrap();
    let timing = Timing { backoff: Duration::from_millis(1), attempts: 3, outage, ..Timing::default() };
    let options = OpenOptions {
        offline: false,
        budget: Arc::new(Budget::new(BudgetConfig::default())),
        environment: &|_| None,
        timing,
        weights: None,
    };
    open(&config, "teacher", folder, Arc::new(CallStore::open(folder.join("calls")).unwrap()), &options).unwrap()
}

fn slow() -> Options {
    Options { latency: Latency { delay: "20ms".parse().unwrap(), ..Latency::default() }, ..Options::default() }
}

/// Remembers notes, and stops the server once so many answers have come.
struct Stopping {
    server: Mutex<Option<Server>>,
    after: u64,
    notes: Mutex<Vec<String>>,
}

impl Progress for Stopping {
    fn update(&self, counts: &Ensured) {
        if counts.asked >= self.after {
            self.server.lock().unwrap().take();
        }
    }

    fn note(&self, note: &Note) {
        self.notes.lock().unwrap().push(note.to_string());
    }
}

fn requests() -> impl Iterator<Item = Request> {
    let request = |number| Request::new(vec![Message::new("user", format!("{number}"))], Sampling::full(0.8, 48), 0);
    (0..400).map(request)
}

#[test]
fn a_restart_of_the_server_costs_no_row_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(slow()).unwrap();
    let (url, address) = (server.url(), server.address());
    let stopping = Stopping { server: Mutex::new(Some(server)), after: 60, notes: Mutex::default() };
    let counts = std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            while stopping.server.lock().unwrap().is_some() {
                std::thread::sleep(Duration::from_millis(10));
            }
            // longer than all attempts of a row together
            std::thread::sleep(Duration::from_secs(2));
            Server::start_at(slow(), address).unwrap()
        });
        let model = model(&url, folder.path(), Duration::from_mins(5));
        let counts = model.ensure(&mut requests(), &stopping, &AtomicBool::new(false)).unwrap();
        again.join().unwrap();
        counts
    });
    assert_eq!((counts.transient.len(), counts.asked), (0, 400));
    let notes = stopping.notes.lock().unwrap();
    assert_eq!(notes.iter().filter(|note| note.contains("out of reach")).count(), 1, "{notes:?}");
}

#[test]
fn a_server_that_does_not_come_back_ends_the_run_and_fails_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(slow()).unwrap();
    let url = server.url();
    let stopping = Stopping { server: Mutex::new(Some(server)), after: 60, notes: Mutex::default() };
    let model = model(&url, folder.path(), Duration::from_secs(3));
    let error = model.ensure(&mut requests(), &stopping, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, ModelError::Unreachable { .. }), "{error}");
    assert_eq!(error.exit_code(), 4);
}
