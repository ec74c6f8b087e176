//! The client against a scripted server: what goes wrong delays rows or names them, and never loses one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod scripted;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, SystemTime};

use pipeline_models::{
    Budget, BudgetConfig, CallKey, CallStore, Ensured, ErrorClass, Message, Model, ModelConfig, ModelError, Note,
    OpenOptions, Progress, Recorded, Request, Sampling, ScoreRequest, Secret, Timing, open,
};
use scripted::{Reply, Seen, Server, answer};

const KEY: &str = "sk-very-secret";

/// A model and the folder it keeps calls in.
struct Setup {
    folder: tempfile::TempDir,
    keys: BTreeMap<&'static str, String>,
    budget: BudgetConfig,
    timing: Timing,
    offline: bool,
}

impl Setup {
    fn new(url: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            keys: BTreeMap::from([
                ("base_url", format!("{url:?}")),
                ("engine", "\"openai\"".to_owned()),
                ("model", "\"m\"".to_owned()),
            ]),
            budget: BudgetConfig::default(),
            timing: Timing {
                backoff: Duration::from_millis(1),
                grace: Duration::ZERO,
                idle: Duration::from_mins(1),
                per_token: Duration::ZERO,
                ..Timing::default()
            },
            offline: false,
        }
    }

    fn with(mut self, key: &'static str, value: impl Display) -> Self {
        self.keys.insert(key, value.to_string());
        self
    }

    fn store(&self) -> Arc<CallStore> {
        Arc::new(CallStore::open(self.folder.path().join("calls")).unwrap())
    }

    fn try_open(&self) -> Result<Arc<dyn Model>, ModelError> {
        let lines: Vec<String> = self.keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let config: ModelConfig = toml::from_str(&lines.join("\n")).unwrap();
        let options = OpenOptions {
            offline: self.offline,
            budget: Arc::new(Budget::new(self.budget)),
            environment: &|name| (name == "TEACHER_KEY").then(|| Secret::new(KEY)),
            timing: self.timing.clone(),
            weights: None,
        };
        open(&config, "teacher", self.folder.path(), self.store(), &options)
    }

    fn open(&self) -> Arc<dyn Model> {
        self.try_open().unwrap()
    }

    fn calls(&self) -> usize {
        self.store().len()
    }
}

/// Keeps what is told.
struct Notes(Mutex<Vec<Note>>);
impl Progress for Notes {
    fn note(&self, note: &Note) {
        self.0.lock().unwrap().push(note.clone());
    }
}

/// Measures how many requests were read beyond those that were answered.
struct Window<'a>(&'a AtomicUsize, Arc<AtomicUsize>);
impl Progress for Window<'_> {
    fn update(&self, counts: &Ensured) {
        let ahead = self.0.load(Ordering::SeqCst) as u64 - counts.seen();
        self.1.fetch_max(usize::try_from(ahead).unwrap(), Ordering::SeqCst);
    }
}

fn request(text: &str) -> Request {
    Request::new(vec![Message::new("user", text)], Sampling::full(0.8, 48), 0)
}

fn requests(count: usize) -> Vec<Request> {
    (0..count).map(|number| request(&format!("question {number}"))).collect()
}

fn ensure(model: &dyn Model, requests: &[Request]) -> Result<Ensured, ModelError> {
    model.ensure(&mut requests.iter().cloned(), &(), &AtomicBool::new(false))
}

fn text_of(model: &dyn Model, request: &Request) -> String {
    match model.answer(request).unwrap() {
        Recorded::Answer(answer) => answer.text,
        other => panic!("{other:?}"),
    }
}

fn echo(seen: &Seen) -> Reply {
    Reply::answer(&format!("re: {}", seen.last_text()))
}

#[test]
fn an_answer_is_asked_for_once_and_read_ever_after() {
    let server = Server::start(echo);
    let setup = Setup::new(&server.url);
    let mut wanted = requests(20);
    wanted.extend(requests(5));
    let model = setup.open();
    let counts = ensure(&*model, &wanted).unwrap();
    assert_eq!((counts.asked, counts.from_store, counts.transient.len()), (20, 5, 0));
    assert_eq!((counts.prompt_tokens, counts.completion_tokens), (200, 400));
    let again = ensure(&*setup.open(), &wanted).unwrap();
    assert_eq!((again.asked, again.from_store), (0, 25));
    assert_eq!(server.seen(), 20);
    for request in &wanted {
        assert_eq!(text_of(&*model, request), format!("re: {}", request.messages[0].content));
    }
}

#[test]
fn another_address_of_the_same_model_reuses_its_answers() {
    let server = Server::start(echo);
    let setup = Setup::new(&server.url);
    ensure(&*setup.open(), &requests(3)).unwrap();
    drop(server);
    let moved = Server::start(echo);
    let setup = setup.with("base_url", format!("{:?}", moved.url));
    assert_eq!(ensure(&*setup.open(), &requests(3)).unwrap().from_store, 3);
    let setup = setup.with("revision", "\"other\"");
    assert_eq!(ensure(&*setup.open(), &requests(3)).unwrap().asked, 3);
}

#[test]
fn too_many_requests_delay_rows_and_drop_none() {
    let past = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH);
    let server = Server::start(move |seen| {
        let wait = if seen.number % 2 == 0 { "0".to_owned() } else { past.clone() };
        if seen.number < 40 { Reply::Status(429, vec![("Retry-After", wait)], String::new()) } else { echo(seen) }
    });
    let mut setup = Setup::new(&server.url).with("max_in_flight", 8);
    // Not one failure is allowed: a refusal is none.
    setup.timing.attempts = 1;
    let counts = ensure(&*setup.open(), &requests(30)).unwrap();
    assert_eq!((counts.asked, counts.transient), (30, vec![]));
    assert_eq!(server.seen(), 70);
}

#[test]
fn a_wait_asked_for_is_told_and_kept() {
    let server = Server::start(|seen| {
        if seen.number == 0 {
            Reply::Status(429, vec![("retry-after", "1".to_owned())], String::new())
        } else {
            echo(seen)
        }
    });
    let notes = Notes(Mutex::default());
    let model = Setup::new(&server.url).open();
    let counts = model.ensure(&mut requests(1).into_iter(), &notes, &AtomicBool::new(false)).unwrap();
    assert_eq!(counts.asked, 1);
    assert_eq!(*notes.0.lock().unwrap(), [Note::RateLimited { wait_seconds: 1 }]);
}

#[test]
fn patience_with_refusals_ends_resumable() {
    let server = Server::start(|seen| {
        if seen.number < 3 {
            echo(seen)
        } else {
            Reply::Status(429, vec![("Retry-After", "86400".to_owned())], String::new())
        }
    });
    let setup = Setup::new(&server.url).with("max_in_flight", 1);
    let error = ensure(&*setup.open(), &requests(10)).unwrap_err();
    assert!(matches!(error, ModelError::RateLimited { wait_seconds: 86400, .. }), "{error}");
    assert_eq!((error.class(), error.exit_code()), (ErrorClass::Unreachable, 4));
    assert_eq!(setup.calls(), 3);
}

#[test]
fn a_server_error_is_tried_again_and_then_named_as_passing() {
    let server = Server::start(|seen| match seen.last_text().as_str() {
        "question 1" => Reply::error(500, "boom"),
        "question 2" if seen.number < 8 => Reply::Status(502, vec![], "<html>".to_owned()),
        _ => echo(seen),
    });
    let mut setup = Setup::new(&server.url);
    setup.timing.attempts = 4;
    let model = setup.open();
    let wanted = requests(10);
    let counts = ensure(&*model, &wanted).unwrap();
    assert_eq!(counts.asked, 10);
    let key = CallKey::of(model.id(), &wanted[1]);
    assert_eq!(counts.transient.last(), Some(&(key, "status 500: boom".to_owned())));
    assert_eq!(model.answer(&wanted[1]).unwrap(), Recorded::Missing);
    assert_eq!(setup.calls(), 10 - counts.transient.len());
}

#[test]
fn cut_and_unreadable_replies_are_asked_again() {
    let server = Server::start(|seen| match seen.number {
        0 => Reply::Cut(answer("x", 1, 1)),
        1 => Reply::Status(200, vec![], "{\"choices\": [{\"mess".to_owned()),
        2 => Reply::Status(200, vec![], String::new()),
        _ => echo(seen),
    });
    let model = Setup::new(&server.url).with("max_in_flight", 1).open();
    let wanted = requests(1);
    let counts = ensure(&*model, &wanted).unwrap();
    assert_eq!((counts.asked, counts.transient.len(), server.seen()), (1, 0, 4));
    assert_eq!(text_of(&*model, &wanted[0]), "re: question 0");
}

#[test]
fn a_server_that_hangs_costs_a_row_its_attempts_and_no_more() {
    let server = Server::start(|seen| if seen.last_text() == "question 0" { Reply::Hang } else { echo(seen) });
    let mut setup = Setup::new(&server.url);
    setup.timing.idle = Duration::from_millis(200);
    setup.timing.attempts = 2;
    let counts = ensure(&*setup.open(), &requests(4)).unwrap();
    assert_eq!((counts.asked, counts.transient.len()), (4, 1));
    assert!(counts.transient[0].1.contains("no reply within"), "{:?}", counts.transient);
    assert_eq!(setup.calls(), 3);
}

#[test]
fn a_refused_key_stops_at_once_and_is_never_shown() {
    let server = Server::start(|_| Reply::error(401, "Incorrect API key provided: sk-very-secret"));
    let setup = Setup::new(&server.url).with("max_in_flight", 2).with("api_key_env", "\"TEACHER_KEY\"");
    let error = ensure(&*setup.open(), &requests(1000)).unwrap_err();
    assert!(matches!(error, ModelError::KeyRefused { status: 401, .. }), "{error}");
    assert_eq!((error.class(), error.exit_code()), (ErrorClass::KeyRefused, 4));
    assert!(!error.to_string().contains(KEY) && error.to_string().contains("[key]"), "{error}");
    assert!(server.seen() <= 4, "{} requests", server.seen());
    assert_eq!(setup.calls(), 0);
}

#[test]
fn the_key_is_sent_and_stands_nowhere_on_disk() {
    let server = Server::start(|seen| {
        assert_eq!(seen.authorization.as_deref(), Some("Bearer sk-very-secret"));
        assert_eq!(seen.path, "/v1/chat/completions");
        if seen.last_text() == "question 0" {
            Reply::error(400, "context length exceeded, sk-very-secret")
        } else {
            echo(seen)
        }
    });
    let setup = Setup::new(&server.url).with("api_key_env", "\"TEACHER_KEY\"");
    let model = setup.open();
    let wanted = requests(3);
    ensure(&*model, &wanted).unwrap();
    for request in &wanted {
        let call = setup.store().get(&CallKey::of(model.id(), request)).unwrap().unwrap();
        assert!(!serde_json::to_string(&call).unwrap().contains(KEY));
    }
    let error = setup.with("api_key_env", "\"OTHER\"").try_open().err().unwrap();
    assert!(error.to_string().contains("OTHER"), "{error}");
}

#[test]
fn an_unknown_model_stops_at_once() {
    let server = Server::start(|_| Reply::error(404, "The model `m` does not exist"));
    let error = ensure(&*Setup::new(&server.url).open(), &requests(100)).unwrap_err();
    assert!(matches!(error, ModelError::Refused { status: 404, .. }), "{error}");
    assert_eq!(error.exit_code(), 4);
}

#[test]
fn a_request_beyond_the_context_is_a_stored_row_error() {
    let server = Server::start(|seen| {
        if seen.last_text() == "question 1" {
            let body = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#;
            return Reply::Status(400, vec![], body.to_owned());
        }
        echo(seen)
    });
    let setup = Setup::new(&server.url);
    let model = setup.open();
    let wanted = requests(3);
    let counts = ensure(&*model, &wanted).unwrap();
    assert_eq!((counts.asked, counts.row_errors, counts.transient.len()), (3, 1, 0));
    let Recorded::RowError { code, message } = model.answer(&wanted[1]).unwrap() else { panic!() };
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("context_exceeded", "the request exceeds the available context size")
    );
    let again = ensure(&*setup.open(), &wanted).unwrap();
    assert_eq!((again.asked, again.from_store, again.row_errors, server.seen()), (0, 3, 1, 3));
}

#[test]
fn requests_that_are_all_malformed_stop_the_run_and_are_not_stored() {
    let server = Server::start(|_| Reply::error(400, "unrecognized argument: top_k"));
    let setup = Setup::new(&server.url).with("max_in_flight", 1);
    let error = ensure(&*setup.open(), &requests(100)).unwrap_err();
    assert!(matches!(error, ModelError::Refused { status: 400, .. }) && error.to_string().contains("top_k"), "{error}");
    assert_eq!((setup.calls(), server.seen()), (0, 5));
}

#[test]
fn as_many_requests_are_in_flight_as_configured() {
    const IN_FLIGHT: usize = 120;
    let meeting = Barrier::new(IN_FLIGHT);
    let server = Server::start(move |seen| {
        // Nobody is answered before all are here.
        meeting.wait();
        echo(seen)
    });
    let model = Setup::new(&server.url).with("max_in_flight", IN_FLIGHT).open();
    let wanted = requests(3 * IN_FLIGHT);
    std::thread::scope(|scope| {
        // Two passes at once share the limit.
        let (first, second) = wanted.split_at(IN_FLIGHT);
        let other = scope.spawn(|| ensure(&*model, second).unwrap().asked);
        assert_eq!(ensure(&*model, first).unwrap().asked, IN_FLIGHT as u64);
        assert_eq!(other.join().unwrap(), 2 * IN_FLIGHT as u64);
    });
    assert_eq!(server.peak(), IN_FLIGHT);
}

#[test]
fn two_passes_at_once_never_ask_the_same() {
    let server = Server::start(echo);
    let model = Setup::new(&server.url).with("max_in_flight", 4).open();
    let wanted = requests(50);
    std::thread::scope(|scope| {
        let passes: Vec<_> = (0..4).map(|_| scope.spawn(|| ensure(&*model, &wanted).unwrap())).collect();
        let counts: Vec<Ensured> = passes.into_iter().map(|pass| pass.join().unwrap()).collect();
        assert_eq!(counts.iter().map(|count| count.asked).sum::<u64>(), 50);
        assert!(counts.iter().all(|count| count.seen() == 50));
    });
    assert_eq!(server.seen(), 50);
}

#[test]
fn a_spent_budget_keeps_everything_and_a_larger_one_continues() {
    let server = Server::start(echo);
    let mut setup = Setup::new(&server.url);
    setup.budget.tokens = Some(100);
    let error = ensure(&*setup.open(), &requests(50)).unwrap_err();
    assert!(matches!(error, ModelError::BudgetSpent { .. }), "{error}");
    assert_eq!(error.exit_code(), 4);
    assert_eq!((setup.calls(), server.seen()), (4, 4), "30 tokens an answer");
    setup.budget.tokens = None;
    let counts = ensure(&*setup.open(), &requests(50)).unwrap();
    assert_eq!((counts.asked, counts.from_store), (46, 4));
}

#[test]
fn money_is_counted_by_the_price() {
    let server = Server::start(echo);
    let mut setup = Setup::new(&server.url).with("price", "{ input = 1000.0, output = 500.0, currency = \"EUR\" }");
    setup.budget.money = Some(0.05);
    let error = ensure(&*setup.open(), &requests(50)).unwrap_err();
    assert!(error.to_string().starts_with("budget spent: 0.0600 of 0.0500 EUR used; "), "{error}");
    setup.budget.money = None;
    let counts = ensure(&*setup.open(), &requests(50)).unwrap();
    assert!((counts.money - 47.0 * 0.02).abs() < 1e-9, "{}", counts.money);
}

#[test]
fn a_server_out_of_reach_ends_the_run_soon() {
    let server = Server::start(echo);
    let url = server.url.clone();
    drop(server);
    // The port is closed once the listening thread has gone; until then connections are dropped.
    let mut setup = Setup::new(&url);
    setup.timing.breaker = 3;
    let error = ensure(&*setup.open(), &requests(100)).unwrap_err();
    assert!(matches!(error, ModelError::Unreachable { .. }), "{error}");
    assert_eq!(error.exit_code(), 4);
}

#[test]
fn cancelling_drops_what_is_in_flight() {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    let server = Server::start(move |_| {
        flag.store(true, Ordering::SeqCst);
        Reply::Hang
    });
    let setup = Setup::new(&server.url);
    let error = setup.open().ensure(&mut requests(10_000).into_iter(), &(), &cancel).unwrap_err();
    assert!(matches!(error, ModelError::Cancelled), "{error}");
    assert_eq!(error.exit_code(), 130);
}

#[test]
fn requests_are_read_only_as_room_becomes_free() {
    let read = AtomicUsize::new(0);
    let read_when_first_answered = Arc::new(AtomicUsize::new(0));
    let server = Server::start(echo);
    let model = Setup::new(&server.url).with("max_in_flight", 4).open();
    let mut requests = requests(500).into_iter().inspect(|_| {
        read.fetch_add(1, Ordering::SeqCst);
    });
    let window = Window(&read, Arc::clone(&read_when_first_answered));
    model.ensure(&mut requests, &window, &AtomicBool::new(false)).unwrap();
    assert!(read_when_first_answered.load(Ordering::SeqCst) <= 8);
}

fn record(folder: &Path, name: &str, count: usize) {
    let lines: Vec<String> = (0..count)
        .map(|number| {
            serde_json::json!({
                "model": "m", "messages": [{"role": "user", "content": format!("question {number}")}],
                "sampling": {"temperature": 0.8, "top_p": 1, "max_tokens": 48}, "sample": 0,
                "answer": {"text": format!("recorded {number}"), "finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 2}
            })
            .to_string()
        })
        .collect();
    std::fs::write(folder.join(name), lines.join("\n")).unwrap();
}

#[test]
fn recordings_come_after_the_store_and_before_the_network() {
    let server = Server::start(echo);
    let setup = Setup::new(&server.url);
    ensure(&*setup.open(), &requests(2)).unwrap();
    record(setup.folder.path(), "a.jsonl", 5);
    let setup = setup.with("recordings", "[\"a.jsonl\"]");
    let model = setup.open();
    let counts = ensure(&*model, &requests(8)).unwrap();
    assert_eq!((counts.from_store, counts.from_recordings, counts.asked), (2, 3, 3));
    let texts: Vec<String> = requests(6).iter().map(|request| text_of(&*model, request)).collect();
    assert_eq!(texts, ["re: question 0", "re: question 1", "recorded 2", "recorded 3", "recorded 4", "re: question 5"]);
}

#[test]
fn offline_lists_what_is_missing_and_asks_nothing() {
    let server = Server::start(echo);
    let mut setup = Setup::new(&server.url).with("api_key_env", "\"UNSET\"");
    record(setup.folder.path(), "a.jsonl", 5);
    setup.keys.insert("recordings", "[\"a.jsonl\"]".to_owned());
    setup.offline = true;
    let model = setup.open();
    assert_eq!(ensure(&*model, &requests(5)).unwrap().from_recordings, 5);
    let error = ensure(&*model, &requests(9)).unwrap_err();
    let ModelError::NotRecorded { count, first, .. } = &error else { panic!("{error}") };
    assert_eq!(*count, 4);
    assert!(first.contains("question 5"), "{first}");
    assert_eq!((error.class(), error.exit_code(), server.seen()), (ErrorClass::NotRecorded, 3, 0));
    assert_eq!(model.answer(&request("question 8")).unwrap(), Recorded::Missing);
}

#[test]
fn replay_needs_no_address() {
    let mut setup = Setup::new("");
    setup.keys = BTreeMap::from([
        ("engine", "\"replay\"".to_owned()),
        ("model", "\"m\"".to_owned()),
        ("recordings", "[\"a.jsonl\"]".to_owned()),
    ]);
    record(setup.folder.path(), "a.jsonl", 2);
    let model = setup.open();
    assert_eq!(ensure(&*model, &requests(2)).unwrap().from_recordings, 2);
    assert_eq!(text_of(&*model, &request("question 1")), "recorded 1");
}

#[test]
fn a_server_that_is_to_score_a_text_is_an_error_before_anything_is_read_or_asked() {
    let server = Server::start(echo);
    let model = Setup::new(&server.url).open();
    let text = ScoreRequest {
        messages: vec![Message::new("user", "a")],
        response: "b".to_owned(),
        is_complete: true,
        token_ids: None,
        tokenizer: None,
    };
    let mut texts = std::iter::from_fn(|| panic!("nothing is read"));
    let errors = [
        model.ensure_scores(&mut texts, &(), &AtomicBool::new(false)).unwrap_err(),
        model.score_of(&text).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.class(), ErrorClass::Unsupported);
        assert!(error.to_string().contains("only engine `local` can"), "{error}");
    }
    assert_eq!(server.seen(), 0);
}
