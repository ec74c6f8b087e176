//! What servers can do beyond plain requests, and what the client does where they cannot: streams, JSON schemas, several
//! samples at once, counts of tokens; and how many requests go out, and when.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipeline_models::{
    Answer, Budget, CallKey, CallStore, Ensured, Message, Model, ModelConfig, ModelError, Note, OpenOptions, Progress,
    Recorded, Request, Sampling, Timing, open,
};
use scripted_server::{
    Act, Beyond, Fault, LimitHeaders, LogprobsMode, Options, ReasoningShape, SchemaMode, Script, Server, Window,
};

/// A teacher at a scripted server, with a store of its own.
struct Teacher {
    server: Server,
    folder: tempfile::TempDir,
    timing: Timing,
}

/// What a pass gave and told.
struct Outcome {
    counts: Ensured,
    notes: Vec<Note>,
}

struct Notes(Mutex<Vec<Note>>);
impl Progress for Notes {
    fn note(&self, note: &Note) {
        self.0.lock().unwrap().push(note.clone());
    }
}

impl Teacher {
    fn new(script: impl Into<Script>) -> Self {
        let timing = Timing {
            backoff: Duration::from_millis(1),
            grace: Duration::ZERO,
            idle: Duration::from_mins(1),
            per_token: Duration::ZERO,
            ..Timing::default()
        };
        Self { server: Server::start(script).unwrap(), folder: tempfile::tempdir().unwrap(), timing }
    }

    fn store(&self) -> Arc<CallStore> {
        Arc::new(CallStore::open(self.folder.path().join("calls")).unwrap())
    }

    /// Opens the model with more lines of configuration, as a run does.
    fn open(&self, lines: &str) -> Arc<dyn Model> {
        let text = format!("engine = \"openai\"\nmodel = \"m\"\nbase_url = {:?}\n{lines}", self.server.url());
        let config: ModelConfig = toml::from_str(&text).unwrap();
        let options = OpenOptions {
            offline: false,
            budget: Arc::new(Budget::default()),
            environment: &|_| None,
            timing: self.timing.clone(),
            weights: None,
        };
        open(&config, "teacher", self.folder.path(), self.store(), &options).unwrap()
    }

    fn requests(&self) -> u64 {
        self.server.stats().requests
    }
}

fn ask(model: &dyn Model, requests: &[Request]) -> Result<Outcome, ModelError> {
    let notes = Notes(Mutex::default());
    let counts = model.ensure(&mut requests.iter().cloned(), &notes, &AtomicBool::new(false))?;
    let mut notes = notes.0.into_inner().unwrap();
    notes.retain(Note::is_worth_telling);
    Ok(Outcome { counts, notes })
}

fn request(text: &str) -> Request {
    Request::new(vec![Message::new("user", text)], Sampling::full(0.8, 48), 0)
}

fn questions(count: usize) -> Vec<Request> {
    (0..count).map(|number| request(&format!("What is {number} + 4?"))).collect()
}

/// Samples of one question, each with a seed of its own.
fn samples(count: u32) -> Vec<Request> {
    let sample = |sample: u32| {
        let sampling = Sampling { seed: Some(u64::from(sample)), ..Sampling::full(0.8, 48) };
        Request::new(vec![Message::new("user", "Tell me of the sea")], sampling, sample)
    };
    (0..count).map(sample).collect()
}

fn with_logprobs(mut requests: Vec<Request>) -> Vec<Request> {
    for request in &mut requests {
        request.sampling.logprobs = true;
    }
    requests
}

fn answer(model: &dyn Model, request: &Request) -> Answer {
    match model.answer(request).unwrap() {
        Recorded::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_streamed_answer_is_stored_like_a_whole_one() {
    let mut options = Options::default();
    options.answers.words = 40;
    options.answers.reasoning = ReasoningShape::ReasoningContent;
    let mut requests = questions(5);
    for request in &mut requests {
        request.sampling.logprobs = true;
        request.sampling.max_tokens = 4000;
    }
    let whole = Teacher::new(options.clone());
    let model_whole = whole.open("stream = \"never\"");
    ask(&*model_whole, &requests).unwrap();
    let streamed = Teacher::new(options);
    let model_streamed = streamed.open("stream = \"always\"");
    let outcome = ask(&*model_streamed, &requests).unwrap();
    assert_eq!(outcome.notes, []);
    for request in &requests {
        assert_eq!(answer(&*model_streamed, request), answer(&*model_whole, request));
    }
    let answer = answer(&*model_streamed, &requests[0]);
    assert!(answer.reasoning.is_some() && answer.token_logprobs.is_some() && answer.completion_tokens.is_some());
}

#[test]
fn a_stream_that_is_cut_is_asked_for_again() {
    for fault in [Fault::CutBody, Fault::ResetBody, Fault::CutJson, Fault::ErrorIn200, Fault::WrongType] {
        let teacher =
            Teacher::new(Script::of(move |seen| if seen.attempt == 0 { Act::Fail(fault) } else { Act::Usual }));
        let model = teacher.open("stream = \"always\"");
        let requests = questions(4);
        let outcome = ask(&*model, &requests).unwrap();
        assert_eq!((outcome.counts.asked, outcome.counts.transient), (4, vec![]), "{fault:?}");
        assert_eq!(teacher.requests(), if fault == Fault::WrongType { 4 } else { 8 }, "{fault:?}");
        for request in &requests {
            assert_eq!(answer(&*model, request).finish_reason.as_deref(), Some("stop"));
        }
    }
}

#[test]
fn a_server_without_counts_in_streams_is_asked_without_and_tokens_are_estimated() {
    let teacher = Teacher::new(Script::of(|seen| {
        let is_counted = seen.body.get("stream_options").is_some();
        if is_counted { Act::error(400, "unknown field: stream_options") } else { Act::Usual }
    }));
    let model = teacher.open("stream = \"always\"");
    let outcome = ask(&*model, &questions(3)).unwrap();
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
    assert!(outcome.notes[0].to_string().contains("estimated"), "{}", outcome.notes[0]);
    assert!(outcome.counts.completion_tokens > 0);
    let requests = teacher.requests();
    assert_eq!(ask(&*model, &questions(6)).unwrap().notes, []);
    assert_eq!(teacher.requests(), requests + 3, "what is known needs no second try");
}

fn with_schema(count: usize) -> Vec<Request> {
    let mut requests = questions(count);
    for request in &mut requests {
        request.schema = Some(r#"{"type":"object","properties":{"score":{"type":"integer"}}}"#.to_owned());
    }
    requests
}

#[test]
fn a_schema_is_enforced_by_the_server_or_else_written_into_the_prompt() {
    let requests = with_schema(8);
    let able = Teacher::new(Script::of(|seen| {
        let is_sent = seen.body["response_format"]["json_schema"]["strict"] == true;
        if is_sent && !seen.text.contains("schema") { Act::Usual } else { Act::error(418, "no schema") }
    }));
    assert_eq!(ask(&*able.open(""), &requests).unwrap().notes, []);
    assert_eq!(able.requests(), 8);

    let mut options = Options::default();
    options.answers.schema = SchemaMode::Refuse;
    let unable = Teacher::new(options);
    let model = unable.open("max_in_flight = 1");
    let outcome = ask(&*model, &requests).unwrap();
    assert!(matches!(&outcome.notes[..], [Note::SchemaInPrompt { .. }]), "{:?}", outcome.notes);
    assert_eq!((outcome.counts.asked, outcome.counts.row_errors, unable.requests()), (8, 0, 9));
    let call = unable.store().get(&CallKey::of(model.id(), &requests[3])).unwrap().unwrap();
    assert_eq!(call.request, requests[3].clone().into(), "the store keeps what was asked for, not how");

    let error = ask(&*unable.open("structured_output = \"server\""), &with_schema(20)).err().unwrap();
    assert!(error.to_string().contains("structured_output"), "{error}");

    let model = able.open("structured_output = \"prompt\"\nrevision = \"2\"");
    let error = ask(&*model, &requests).err();
    assert!(error.is_some_and(|error| error.to_string().contains("no schema")), "nothing but words was sent");
}

#[test]
fn samples_that_differ_in_seed_only_go_out_together() {
    let mut options = Options::default();
    options.answers.words = 12;
    let teacher = Teacher::new(options);
    let model = teacher.open("samples_per_request = 4\nmax_in_flight = 2");
    let mut requests = samples(10);
    requests.extend(questions(3));
    let counts = ask(&*model, &requests).unwrap().counts;
    assert_eq!((counts.asked, teacher.requests()), (13, 3 + 3), "10 samples in 3 requests, 3 questions in one each");
    let answers: Vec<Answer> = requests.iter().map(|request| answer(&*model, request)).collect();
    assert_ne!(answers[0].text, answers[1].text);
    let written: u64 = answers.iter().map(|answer| answer.completion_tokens.unwrap()).sum();
    assert_eq!(counts.completion_tokens, written);
    let read = answers[0].prompt_tokens.unwrap();
    let others: u64 = answers[10..].iter().map(|answer| answer.prompt_tokens.unwrap()).sum();
    assert_eq!(counts.prompt_tokens, 3 * read + others, "a prompt is read once for all its samples");
    assert_eq!(ask(&*teacher.open(""), &requests).unwrap().counts.from_store, 13);
}

#[test]
fn tokens_are_those_of_each_sample_whatever_the_server_counts() {
    let counts = |of_one| {
        let mut options = Options::default();
        options.answers.words = 12;
        options.answers.usage_of_one = of_one;
        let teacher = Teacher::new(options);
        let model = teacher.open("samples_per_request = 8");
        let requests = with_logprobs(samples(8));
        ask(&*model, &requests).unwrap();
        let of = |request| answer(&*model, request).completion_tokens;
        requests.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(counts(true), counts(false));
}

#[test]
fn a_server_that_caps_samples_gets_them_one_by_one() {
    let mut options = Options::default();
    options.answers.most_choices = Some(2);
    let teacher = Teacher::new(options);
    let model = teacher.open("samples_per_request = 4\nmax_in_flight = 1");
    let outcome = ask(&*model, &samples(12)).unwrap();
    assert!(matches!(&outcome.notes[..], [Note::SamplesAlone { .. }]), "{:?}", outcome.notes);
    assert_eq!((outcome.counts.asked, outcome.counts.transient.len(), teacher.requests()), (12, 0, 13));
}

#[test]
fn samples_that_a_reply_lacks_are_asked_for_again() {
    let teacher = Teacher::new(Script::of(|seen| {
        if seen.body["n"] == 4 {
            let message = |text| serde_json::json!({"message": {"content": text}, "finish_reason": "stop"});
            let body = serde_json::json!({"choices": [message("a"), message("b")]});
            return Act::Send(scripted_server::Reply::json(200, body.to_string()));
        }
        Act::Usual
    }));
    let model = teacher.open("samples_per_request = 4");
    let outcome = ask(&*model, &samples(4)).unwrap();
    assert_eq!((outcome.counts.asked, teacher.requests()), (4, 2));
    assert_eq!(answer(&*model, &samples(4)[1]).text, "b");
}

#[test]
fn tokens_from_the_prompt_cache_are_counted_and_priced() {
    let mut options = Options::default();
    options.answers.cached_share = 0.5;
    let teacher = Teacher::new(options);
    let model = teacher.open("price = { input = 1000000.0, cached_input = 100000.0, output = 0.0 }");
    let counts = ask(&*model, &questions(4)).unwrap().counts;
    assert!(counts.cached_tokens > 0 && counts.cached_tokens < counts.prompt_tokens, "{counts:?}");
    let expected = (counts.prompt_tokens - counts.cached_tokens) as f64 + 0.1 * counts.cached_tokens as f64;
    assert!((counts.money - expected).abs() < 1e-6, "{counts:?}");
}

#[test]
fn missing_log_probabilities_are_seen_and_told_once() {
    let mut options = Options::default();
    options.answers.logprobs = LogprobsMode::Never;
    let teacher = Teacher::new(options);
    let requests = with_logprobs(questions(5));
    let model = teacher.open("");
    assert_eq!(ask(&*model, &requests).unwrap().notes, [Note::NoLogprobs]);
    assert_eq!(answer(&*model, &requests[0]).token_logprobs, None);
    let mut options = Options::default();
    options.answers.logprobs = LogprobsMode::NeedsTop;
    let teacher = Teacher::new(options);
    let model = teacher.open("");
    assert_eq!(ask(&*model, &requests).unwrap().notes, []);
    assert!(answer(&*model, &requests[0]).token_logprobs.is_some());
}

#[test]
fn a_request_that_fails_alone_in_run_after_run_ends_as_a_row_error() {
    // the failure takes its time, so that others are answered meanwhile
    let fail = || Act::After(Duration::from_millis(300), Box::new(Act::error(500, "no such text")));
    let mut teacher = Teacher::new(Script::of(move |seen| if seen.text.contains("2 +") { fail() } else { Act::Usual }));
    teacher.timing.attempts = 2;
    for run in 1..=3 {
        let others = (0..5).map(|number| request(&format!("question {number} of run {run}")));
        let requests: Vec<Request> = questions(3).into_iter().chain(others).collect();
        let model = teacher.open("");
        let counts = ask(&*model, &requests).unwrap().counts;
        if run < 3 {
            assert_eq!((counts.transient.len(), counts.row_errors), (1, 0), "run {run}");
            assert_eq!(model.answer(&requests[2]).unwrap(), Recorded::Missing);
        }
    }
    let model = teacher.open("");
    let Recorded::RowError { code, .. } = model.answer(&questions(3)[2]).unwrap() else { panic!() };
    assert_eq!(code, "server_error_persistent");
    let before = teacher.requests();
    assert_eq!(ask(&*model, &questions(3)).unwrap().counts.row_errors, 1);
    assert_eq!(teacher.requests(), before);
}

#[test]
fn requests_that_wait_in_the_servers_queue_do_not_time_out() {
    let mut options = Options::default();
    options.limits.concurrent = Some(1);
    options.limits.beyond_concurrent = Beyond::Queue;
    options.latency.delay = "150ms".parse().unwrap();
    for stream in ["never", "always"] {
        let mut teacher = Teacher::new(options.clone());
        // one answer takes less than this silence, six take more
        teacher.timing.idle = Duration::from_millis(600);
        teacher.timing.per_token = Duration::from_millis(500);
        let outcome = ask(&*teacher.open(&format!("stream = \"{stream}\"")), &questions(6)).unwrap();
        assert_eq!((outcome.counts.asked, outcome.counts.transient.len(), teacher.requests()), (6, 0, 6));
    }
}

#[test]
fn a_server_that_takes_a_few_at_a_time_is_not_stormed() {
    let mut options = Options::default();
    options.limits.concurrent = Some(24);
    options.limits.limit_wait = scripted_server::LimitWait::None;
    options.latency.delay = "20ms".parse().unwrap();
    let teacher = Teacher::new(options);
    let counts = ask(&*teacher.open("max_in_flight = 256"), &questions(300)).unwrap().counts;
    assert_eq!((counts.asked, counts.transient.len()), (300, 0));
    let refused = teacher.requests() - 300;
    println!("{refused} refused");
    assert!(refused <= 100, "{refused} refused");
}

#[test]
fn limits_told_in_headers_keep_requests_waiting_instead_of_refused() {
    for (window, headers) in [
        (Window::Fixed, LimitHeaders::OpenAi),
        (Window::Sliding, LimitHeaders::OpenAi),
        (Window::Fixed, LimitHeaders::Ietf),
    ] {
        let mut options = Options::default();
        options.limits.requests_per_minute = Some(60);
        options.limits.window_length = Some(Duration::from_secs(2));
        options.limits.window = window;
        options.limits.limit_headers = headers;
        let teacher = Teacher::new(options);
        let counts = ask(&*teacher.open("max_in_flight = 8"), &questions(100)).unwrap().counts;
        assert_eq!((counts.asked, counts.transient.len()), (100, 0));
        let refused = teacher.requests() - 100;
        println!("{window:?} {headers:?}: {refused} refused");
        assert!(refused <= 10, "{window:?} {headers:?}: {refused} refused");
    }
}
