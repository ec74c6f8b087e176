//! Batch mode against a scripted provider: nothing is paid for twice and nothing is lost, wherever a run ends.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod batch_server;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use batch_server::{End, Fault, Provider, Said};
use pipeline_models::{
    BatchNote, Budget, BudgetConfig, CallKey, CallStore, Ensured, ErrorClass, Message, Model, ModelConfig, ModelError,
    Note, OpenOptions, Progress, Recorded, Reply, Request, Sampling, Secret, Timing, open,
};

const KEY: &str = "sk-very-secret";

struct Setup {
    folder: tempfile::TempDir,
    url: String,
    requests: u32,
    budget: BudgetConfig,
    patience: Duration,
}

impl Setup {
    fn new(provider: &Provider) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            url: provider.url.clone(),
            requests: 50_000,
            budget: BudgetConfig::default(),
            patience: Duration::from_mins(5),
        }
    }

    fn store(&self) -> Arc<CallStore> {
        Arc::new(CallStore::open(self.folder.path().join("calls")).unwrap())
    }

    /// As a process of its own would open it.
    fn open(&self) -> Arc<dyn Model> {
        let config: ModelConfig = toml::from_str(&format!(
            "engine = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\napi_key_env = \"TEACHER_KEY\"\n\
             price = {{ input = 1.0, output = 2.0 }}\n\
             batch = {{ window = \"24h\", requests = {}, poll_seconds = 1 }}",
            self.url, self.requests
        ))
        .unwrap();
        let options = OpenOptions {
            offline: false,
            budget: Arc::new(Budget::new(self.budget)),
            environment: &|name| (name == "TEACHER_KEY").then(|| Secret::new(KEY)),
            timing: Timing {
                backoff: Duration::from_millis(1),
                grace: Duration::ZERO,
                idle: Duration::from_mins(1),
                patience: self.patience,
                ..Timing::default()
            },
            weights: None,
        };
        open(&config, "teacher", self.folder.path(), self.store(), &options).unwrap()
    }

    fn batches(&self) -> PathBuf {
        let calls = self.folder.path().join("calls");
        let model = fs::read_dir(calls).unwrap().next().unwrap().unwrap().path();
        model.join("batches")
    }

    /// Folders of submissions that are not done with.
    fn submissions(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.batches()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    fn stored(&self, request: &Request) -> Option<Reply> {
        let key = CallKey::of(self.open().id(), request);
        self.store().get(&key).unwrap().map(|call| call.reply)
    }
}

#[derive(Default)]
struct Notes(Mutex<Vec<Note>>);
impl Progress for Notes {
    fn stage(&self) -> &'static str {
        "traces"
    }

    fn note(&self, note: &Note) {
        self.0.lock().unwrap().push(note.clone());
    }
}

impl Notes {
    fn has(&self, what: impl Fn(&BatchNote) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(|note| matches!(note, Note::Batch(note) if what(note)))
    }
}

fn answer(text: &str) -> String {
    // Odd on purpose: what is stored must be these bytes.
    format!(
        r#"{{ "model":"m","choices":[{{"index":0,"finish_reason":"stop","message":{{"role":"assistant","content":{}}}}}],"usage":{{"prompt_tokens":10,"completion_tokens":20}},"x":1.50 }}"#,
        serde_json::to_string(text).unwrap()
    )
}

fn requests(count: usize) -> Vec<Request> {
    let request =
        |number| Request::new(vec![Message::new("user", format!("question {number}"))], Sampling::full(0.8, 48), 0);
    (0..count).map(request).collect()
}

fn ensure(model: &dyn Model, requests: &[Request]) -> Result<Ensured, ModelError> {
    ensure_with(model, requests, &Notes::default())
}

fn ensure_with(model: &dyn Model, requests: &[Request], notes: &Notes) -> Result<Ensured, ModelError> {
    model.ensure(&mut requests.iter().cloned(), notes, &AtomicBool::new(false))
}

fn text_of(model: &dyn Model, request: &Request) -> String {
    match model.answer(request).unwrap() {
        Recorded::Answer(answer) => answer.text,
        other => panic!("{other:?}"),
    }
}

fn echo(_batch: usize, text: &str) -> Said {
    Said::Answer(format!("re: {text}"))
}

fn completed(_batch: usize) -> End {
    End::of("completed")
}

/// Completed, but not before the flag is set.
fn when_set(flag: &Arc<AtomicBool>) -> impl Fn(usize) -> End + Send + Sync + 'static {
    let flag = Arc::clone(flag);
    move |_| End { looks: if flag.load(Ordering::SeqCst) { 0 } else { u32::MAX }, ..End::of("completed") }
}

fn number(text: &str) -> usize {
    text.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Every request answered with its own text, each asked for once, and nothing left on disk or at the provider.
fn assert_done(setup: &Setup, provider: &Provider, requests: &[Request]) {
    let model = setup.open();
    for (number, request) in requests.iter().enumerate() {
        assert_eq!(text_of(&*model, request), format!("re: question {number}"));
    }
    assert!(provider.asked().values().all(|times| *times == 1), "{:?}", provider.asked());
    assert_eq!(setup.submissions(), Vec::<PathBuf>::new());
}

#[test]
fn answers_come_by_their_ids_whatever_their_order_and_are_stored_byte_for_byte() {
    let provider = Provider::start(echo, completed);
    let mut setup = Setup::new(&provider);
    setup.requests = 4;
    let (model, notes) = (setup.open(), Notes::default());
    let asked = requests(10);
    let doubled: Vec<Request> = asked.iter().chain(&asked[..2]).cloned().collect();
    let counts = ensure_with(&*model, &doubled, &notes).unwrap();
    assert_eq!((counts.asked, counts.from_store, counts.row_errors), (10, 2, 0));
    assert_eq!((counts.prompt_tokens, counts.completion_tokens), (100, 200));
    assert!((counts.money - 500.0 / 1e6).abs() < 1e-12);
    assert_done(&setup, &provider, &asked);
    assert_eq!(setup.stored(&asked[3]), Some(Reply::Answer(answer("re: question 3"))));
    {
        let state = provider.state();
        let sizes: Vec<usize> = state.batches.iter().map(|batch| batch.lines.len()).collect();
        assert_eq!(sizes, [4, 4, 2]);
        let line = &state.batches[0].lines[0];
        assert_eq!((line["method"].as_str(), line["url"].as_str()), (Some("POST"), Some("/v1/chat/completions")));
        assert_eq!((line["body"]["model"].as_str(), line["body"]["stream"].as_bool()), (Some("m"), Some(false)));
        assert_eq!(state.batches[0].body["completion_window"], "24h");
        assert_eq!(state.authorization.as_deref(), Some("Bearer sk-very-secret"));
        assert!(state.files.is_empty(), "files are deleted once their answers are stored");
    }
    assert!(notes.has(|note| matches!(note, BatchNote::Submitted { requests: 4, .. })));
    assert!(notes.has(|note| matches!(note, BatchNote::Ended { settled: 2, unsettled: 0, .. })));
    let again = ensure(&*setup.open(), &asked).unwrap();
    assert_eq!((again.asked, again.from_store), (0, 10));
    assert_eq!(provider.count("POST /batches"), 3);
}

#[test]
fn of_an_expired_batch_only_the_rest_is_asked_again() {
    let expired = |batch, text: &str| match (batch, number(text)) {
        (0, 7 | 8) => Said::Error("batch_expired"),
        (0, 9) => Said::Nothing,
        _ => echo(batch, text),
    };
    for status in ["expired", "cancelled", "failed"] {
        let provider = Provider::start(expired, move |batch| End::of(if batch == 0 { status } else { "completed" }));
        let (setup, notes) = (Setup::new(&provider), Notes::default());
        let counts = ensure_with(&*setup.open(), &requests(10), &notes).unwrap();
        assert_eq!((counts.asked, counts.transient.len(), counts.prompt_tokens), (10, 0, 100));
        let sizes: Vec<usize> = provider.state().batches.iter().map(|batch| batch.lines.len()).collect();
        assert_eq!(sizes, [10, 3]);
        assert!(notes.has(|note| matches!(note, BatchNote::Ended { settled: 7, unsettled: 3, .. })));
        assert_eq!(text_of(&*setup.open(), &requests(10)[9]), "re: question 9");
    }
}

#[test]
fn a_request_that_is_never_answered_is_given_up_as_passing_after_three_batches() {
    let script =
        |batch, text: &str| if number(text) == 1 { Said::Refused(500, "oops".to_owned()) } else { echo(batch, text) };
    let provider = Provider::start(script, completed);
    let setup = Setup::new(&provider);
    let counts = ensure(&*setup.open(), &requests(3)).unwrap();
    assert_eq!((counts.asked, counts.row_errors, counts.transient.len()), (3, 0, 1));
    assert!(counts.transient[0].1.contains("oops"), "{:?}", counts.transient);
    assert_eq!(provider.count("POST /batches"), 3);
    assert_eq!(setup.open().answer(&requests(3)[1]).unwrap(), Recorded::Missing);
    assert_eq!(setup.submissions(), Vec::<PathBuf>::new());
}

#[test]
fn errors_of_single_requests_are_told_apart() {
    let script = |batch, text: &str| match number(text) {
        0 => Said::Refused(400, "maximum context length is 5 tokens".to_owned()),
        1 => Said::Refused(400, "strange role".to_owned()),
        2 => Said::Error("content_filter"),
        3 => Said::Twice("re: question 3".to_owned()),
        _ => echo(batch, text),
    };
    let provider = Provider::start(script, completed);
    let setup = Setup::new(&provider);
    let counts = ensure(&*setup.open(), &requests(6)).unwrap();
    assert_eq!((counts.asked, counts.row_errors, counts.transient.len()), (6, 3, 0));
    assert_eq!(counts.completion_tokens, 60, "an answer given twice counts once");
    let codes: Vec<Option<String>> = requests(6)
        .iter()
        .map(|request| match setup.stored(request) {
            Some(Reply::RowError { code, .. }) => Some(code),
            _ => None,
        })
        .collect();
    let code = |code: &str| Some(code.to_owned());
    assert_eq!(codes, [code("context_exceeded"), code("bad_request"), code("content_filter"), None, None, None]);
    assert_eq!(text_of(&*setup.open(), &requests(6)[3]), "re: question 3");
}

#[test]
fn a_schema_that_the_provider_refuses_goes_into_the_prompt() {
    let script = |batch, text: &str| match batch {
        0 => Said::Refused(400, "response_format json_schema is not supported".to_owned()),
        _ => echo(batch, text),
    };
    let provider = Provider::start(script, completed);
    let (setup, notes) = (Setup::new(&provider), Notes::default());
    let with_schema = |request| Request { schema: Some(r#"{"type":"number"}"#.to_owned()), ..request };
    let asked: Vec<Request> = requests(6).into_iter().map(with_schema).collect();
    let counts = ensure_with(&*setup.open(), &asked, &notes).unwrap();
    assert_eq!((counts.asked, counts.transient.len(), counts.row_errors), (6, 0, 0));
    let told = notes.0.lock().unwrap().iter().filter(|note| matches!(note, Note::SchemaInPrompt { .. })).count();
    assert_eq!(told, 1);
    let state = provider.state();
    assert!(state.batches[0].lines.iter().all(|line| line["body"]["response_format"].is_object()));
    assert!(state.batches[1].lines.iter().all(|line| line["body"]["response_format"].is_null()));
}

#[test]
fn a_batch_whose_every_request_is_refused_ends_the_run_and_stores_nothing() {
    let provider = Provider::start(|_, _| Said::Refused(400, format!("top_k: unknown to {KEY}")), completed);
    let setup = Setup::new(&provider);
    let error = ensure(&*setup.open(), &requests(6)).unwrap_err();
    assert!(matches!(&error, ModelError::Refused { message, .. } if message == "top_k: unknown to [key]"), "{error}");
    assert!(setup.store().is_empty());
    assert_eq!(setup.submissions(), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_the_provider_does_not_take_is_a_clear_error() {
    let failed = |_| End { error: Some(("invalid_json_line", "not a chat request")), ..End::of("failed") };
    let provider = Provider::start(|_, _| Said::Nothing, failed);
    let setup = Setup::new(&provider);
    let error = ensure(&*setup.open(), &requests(2)).unwrap_err();
    assert_eq!(error.exit_code(), 4);
    let text = error.to_string();
    assert!(text.contains("line 3: not a chat request (invalid_json_line)") && text.contains("batch_2"), "{text}");
    assert_eq!(setup.submissions(), Vec::<PathBuf>::new(), "the next run begins afresh");
}

#[test]
fn lines_that_belong_to_nothing_are_told_of_and_ignored() {
    let provider = Provider::start(echo, completed);
    let setup = Setup::new(&provider);
    provider.fail("GET /files", "/content", Fault::HangBefore);
    cancelled_at_hang(&setup, &provider, &requests(3));
    let foreign = format!(r#"{{"custom_id":"{}","response":null,"error":null}}"#, "0".repeat(64));
    provider.state().add_to_results(&format!("{foreign}\nnonsense\n"));
    let notes = Notes::default();
    ensure_with(&*setup.open(), &requests(3), &notes).unwrap();
    assert!(
        notes.has(|note| matches!(note, BatchNote::Oddity { message } if message.contains("1 lines for requests")))
    );
    assert_done(&setup, &provider, &requests(3));
}

/// Runs a pass until the provider hangs, then drops it there, as a kill would.
fn cancelled_at_hang(setup: &Setup, provider: &Provider, requests: &[Request]) {
    let (model, cancel) = (setup.open(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| model.ensure(&mut requests.iter().cloned(), &(), &cancel));
        provider.wait_for_hang();
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(pass.join().unwrap().unwrap_err().class(), ErrorClass::Cancelled);
    });
    provider.state().hanging = 0;
}

#[test]
fn a_run_that_dies_at_any_step_goes_on_without_paying_twice() {
    let steps = [
        ("POST /files", "", Fault::HangBefore),
        ("POST /files", "", Fault::HangAfter),
        ("POST /batches", "", Fault::HangBefore),
        ("POST /batches", "", Fault::HangAfter),
        ("GET /batches/", "", Fault::HangAfter),
        ("GET /files", "/content", Fault::HangBefore),
        ("DELETE /files", "", Fault::HangAfter),
    ];
    std::thread::scope(|scope| {
        for (begin, end, fault) in steps {
            scope.spawn(move || {
                let provider = Provider::start(echo, completed);
                let setup = Setup::new(&provider);
                provider.fail(begin, end, fault);
                cancelled_at_hang(&setup, &provider, &requests(5));
                let counts = ensure(&*setup.open(), &requests(5)).unwrap();
                assert_eq!(counts.asked + counts.from_store, 5, "{begin} {fault:?}");
                assert_done(&setup, &provider, &requests(5));
                assert_eq!(provider.state().batches.len(), 1, "{begin} {fault:?}");
            });
        }
    });
}

#[test]
fn cut_connections_and_5xx_are_tried_again_and_a_created_batch_is_found() {
    let provider = Provider::start(echo, |_| End { looks: 2, ..End::of("completed") });
    let setup = Setup::new(&provider);
    for (begin, end, fault) in [
        ("POST /files", "", Fault::Status(503)),
        ("POST /files", "", Fault::Status(429)),
        ("POST /files", "", Fault::CutBefore),
        ("POST /batches", "", Fault::Status(500)),
        ("POST /batches", "", Fault::CutAfter),
        ("GET /batches/", "", Fault::Status(502)),
        ("GET /batches/", "", Fault::CutBefore),
        ("GET /batches/", "", Fault::Half),
        ("GET /files", "/content", Fault::Status(500)),
        ("GET /files", "/content", Fault::Half),
        ("DELETE /files", "", Fault::Status(500)),
    ] {
        provider.fail(begin, end, fault);
    }
    let notes = Notes::default();
    let counts = ensure_with(&*setup.open(), &requests(20), &notes).unwrap();
    assert_eq!((counts.asked, counts.completion_tokens), (20, 400));
    assert_done(&setup, &provider, &requests(20));
    assert_eq!(provider.state().batches.len(), 1);
    assert!(provider.state().faults.is_empty());
    assert!(
        notes.has(|note| matches!(note, BatchNote::Oddity { message } if message.contains("stays at the provider")))
    );
}

#[test]
fn a_provider_out_of_reach_for_a_while_ends_no_run_that_waits() {
    let provider = Provider::start(echo, completed);
    let setup = Setup::new(&provider);
    for _ in 0..7 {
        provider.fail("GET /batches/", "", Fault::Status(500));
    }
    let notes = Notes::default();
    ensure_with(&*setup.open(), &requests(2), &notes).unwrap();
    assert!(notes.has(|note| matches!(note, BatchNote::Oddity { message } if message.contains("cannot be looked at"))));
    assert_done(&setup, &provider, &requests(2));
}

#[test]
fn a_refused_key_stops_at_once() {
    let provider = Provider::start(echo, completed);
    let setup = Setup::new(&provider);
    provider.fail("POST /files", "", Fault::Status(401));
    let error = ensure(&*setup.open(), &requests(2)).unwrap_err();
    assert!(matches!(error, ModelError::KeyRefused { status: 401, .. }), "{error}");
    assert_eq!(provider.state().log.len(), 1);
    ensure(&*setup.open(), &requests(2)).unwrap();
    assert_done(&setup, &provider, &requests(2));
}

#[test]
fn a_torn_last_line_of_the_journal_counts_as_not_written() {
    let provider = Provider::start(echo, completed);
    let setup = Setup::new(&provider);
    provider.fail("GET /batches/", "", Fault::HangBefore);
    cancelled_at_hang(&setup, &provider, &requests(3));
    let journal = setup.submissions()[0].join("journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    assert_eq!(whole.lines().count(), 3);
    // Torn within the line that names the batch: it is found in the provider's list.
    fs::write(&journal, &whole[..whole.len() - 9]).unwrap();
    let counts = ensure(&*setup.open(), &requests(3)).unwrap();
    assert_eq!(counts.asked + counts.from_store, 3);
    assert_done(&setup, &provider, &requests(3));
    assert_eq!(provider.state().batches.len(), 1);
}

#[test]
fn two_passes_at_once_submit_each_request_once() {
    let provider = Provider::start(echo, |_| End { looks: 2, ..End::of("completed") });
    let setup = Setup::new(&provider);
    let all = requests(30);
    let halves = [&all[..20], &all[10..]];
    std::thread::scope(|scope| {
        let passes: Vec<_> = halves.iter().map(|half| scope.spawn(|| ensure(&*setup.open(), half).unwrap())).collect();
        for pass in passes {
            let counts = pass.join().unwrap();
            assert_eq!((counts.seen(), counts.transient.len()), (20, 0));
        }
    });
    assert_done(&setup, &provider, &all);
    assert_eq!(provider.asked().len(), 30);
}

#[test]
fn a_pass_takes_over_the_batch_of_one_that_stopped() {
    let is_done = Arc::new(AtomicBool::new(false));
    let provider = Provider::start(echo, when_set(&is_done));
    let setup = Setup::new(&provider);
    let (asked, cancel) = (requests(4), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (setup, asked, cancel) = (&setup, &asked, &cancel);
        let first = scope.spawn(move || setup.open().ensure(&mut asked.iter().cloned(), &(), cancel));
        provider.wait_for_batches(1);
        let notes = Arc::new(Notes::default());
        let told = Arc::clone(&notes);
        let second = scope.spawn(move || ensure_with(&*setup.open(), asked, &told));
        while !notes.has(|note| matches!(note, BatchNote::Elsewhere { requests: 4 })) {
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(first.join().unwrap().unwrap_err().class(), ErrorClass::Cancelled);
        is_done.store(true, Ordering::SeqCst);
        let counts = second.join().unwrap().unwrap();
        assert_eq!((counts.seen(), counts.transient.len()), (4, 0));
    });
    assert_done(&setup, &provider, &asked);
    assert_eq!(provider.state().batches.len(), 1);
}

#[test]
fn cancelling_leaves_the_batch_running_and_says_how_to_go_on() {
    let is_done = Arc::new(AtomicBool::new(false));
    let provider = Provider::start(echo, when_set(&is_done));
    let setup = Setup::new(&provider);
    let (model, asked, cancel, notes) = (setup.open(), requests(3), AtomicBool::new(false), Notes::default());
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| model.ensure(&mut asked.iter().cloned(), &notes, &cancel));
        provider.wait_for_batches(1);
        while !notes.has(|note| matches!(note, BatchNote::Submitted { .. })) {
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(pass.join().unwrap().unwrap_err().class(), ErrorClass::Cancelled);
    });
    assert!(notes.has(|note| note.to_string().contains("run again to fetch")));
    is_done.store(true, Ordering::SeqCst);
    let notes = Notes::default();
    ensure_with(&*setup.open(), &asked, &notes).unwrap();
    assert!(notes.has(|note| matches!(note, BatchNote::TakenUp { requests: 3, .. })));
    assert_done(&setup, &provider, &asked);
}

#[test]
fn the_budget_keeps_batches_back_and_everything_it_paid_for() {
    let provider = Provider::start(echo, completed);
    let mut setup = Setup::new(&provider);
    // A prompt is taken for 7 or 8 tokens; an answer takes 30 in all.
    setup.budget = BudgetConfig { tokens: Some(100), money: None };
    let error = ensure(&*setup.open(), &requests(50)).unwrap_err();
    assert_eq!((error.class(), error.exit_code()), (ErrorClass::BudgetSpent, 4));
    let kept = setup.store().len();
    assert!((1..50).contains(&kept), "{kept}");
    assert_eq!(provider.asked().len(), kept);
    setup.budget = BudgetConfig::default();
    let counts = ensure(&*setup.open(), &requests(50)).unwrap();
    assert_eq!((counts.from_store, counts.asked), (kept as u64, 50 - kept as u64));
    assert_done(&setup, &provider, &requests(50));
}

#[test]
fn a_batch_that_the_provider_lost_is_named_and_not_paid_for_again() {
    let provider = Provider::start(echo, completed);
    let setup = Setup::new(&provider);
    provider.fail("GET /batches/", "", Fault::Status(404));
    let error = ensure(&*setup.open(), &requests(2)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("is not known there any more") && text.contains("remove `"), "{text}");
    assert_eq!(setup.submissions().len(), 1);
    ensure(&*setup.open(), &requests(2)).unwrap();
    assert_done(&setup, &provider, &requests(2));
}

#[test]
fn the_key_is_neither_in_the_journal_nor_told() {
    let provider = Provider::start(|_, _| Said::Refused(500, format!("bad key {KEY}")), completed);
    let setup = Setup::new(&provider);
    provider.fail("GET /batches/", "", Fault::HangBefore);
    cancelled_at_hang(&setup, &provider, &requests(2));
    let mut files = Vec::new();
    list_files(setup.folder.path(), &mut files);
    assert!(files.iter().any(|path| path.ends_with("requests.jsonl.zst")));
    for path in &files {
        let bytes = fs::read(path).unwrap();
        let bytes = if path.ends_with("requests.jsonl.zst") { decoded(&bytes) } else { bytes };
        assert!(!bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()), "{}", path.display());
    }
    let notes = Notes::default();
    let counts = ensure_with(&*setup.open(), &requests(2), &notes).unwrap();
    assert_eq!(counts.transient.len(), 2);
    let told = format!("{counts:?} {:?}", notes.0.lock().unwrap());
    assert!(told.contains("[key]") && !told.contains(KEY), "{told}");
}

/// The requests of a submission can be read with any zstd.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let text = zstd::stream::decode_all(bytes).unwrap();
    let lines: BTreeMap<usize, serde_json::Value> = std::str::from_utf8(&text)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .enumerate()
        .collect();
    assert_eq!(lines.len(), 2);
    text
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { list_files(&path, files) } else { files.push(path) }
    }
}
