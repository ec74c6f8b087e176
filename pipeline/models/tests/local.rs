//! Engine `local` over weights that need no net: nothing is worked out twice, and what was told is kept.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use pipeline_models::{
    Asked, Budget, BudgetConfig, CallKey, CallStore, Desk, Ensured, ErrorClass, Generation, Message, Model,
    ModelConfig, ModelError, ModelId, OpenOptions, Progress, Prune, Recorded, Refusal, Reply, Request, Sampling, Score,
    ScoreRequest, StoredCall, Timing, Weights, WeightsError, open,
};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const TOKENS: u32 = 10;

/// What the weights do beside answering.
#[derive(Default)]
struct Script {
    /// Requests that were taken.
    taken: AtomicUsize,
    /// How often weights were opened.
    opened: AtomicUsize,
    /// After this many answers the pass fails.
    fail_after: Option<usize>,
    /// After this many answers the pass is cancelled and the rest given up.
    cancel_after: Option<(usize, Arc<AtomicBool>)>,
    /// Waited for before the first answer.
    begin: Option<Barrier>,
    /// How long an answer takes.
    pause: Duration,
}

/// Text from a hash of the request; four threads.
struct Hashes(Arc<Script>);

fn hashed(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Hashes {
    fn work<Q, A>(
        &self,
        desk: &dyn Desk<Q, A>,
        answer: impl Fn(&Q) -> Result<A, Refusal> + Sync,
    ) -> Result<(), WeightsError> {
        let script = &self.0;
        if let Some(begin) = &script.begin {
            begin.wait();
        }
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some((key, request)) = desk.next() {
                        let taken = script.taken.fetch_add(1, Ordering::SeqCst) + 1;
                        if script.fail_after.is_some_and(|most| taken > most) {
                            *failed.lock().unwrap() = Some(WeightsError::new("no memory for 12 MiB of cache"));
                            return;
                        }
                        if let Some((most, cancel)) = &script.cancel_after
                            && taken > *most
                        {
                            cancel.store(true, Ordering::SeqCst);
                            while !desk.is_cancelled() {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            return;
                        }
                        std::thread::sleep(script.pause);
                        desk.done(key, answer(&request));
                    }
                });
            }
        });
        failed.into_inner().unwrap().map_or(Ok(()), Err)
    }
}

impl Weights for Hashes {
    fn generate(&self, desk: &dyn Desk<Request, Generation>) -> Result<(), WeightsError> {
        self.work(desk, |request| {
            let text = &request.messages[0].content;
            if text == "too long" {
                return Err(Refusal { code: "context_exceeded".to_owned(), message: "9 of 8 tokens".to_owned() });
            }
            Ok(Generation {
                text: format!("{:x}", hashed(text)),
                is_complete: true,
                prompt_tokens: TOKENS - 2,
                token_ids: vec![7, 2],
                token_logprobs: request.sampling.logprobs.then(|| vec![-0.1, -1e-7]),
                tokenizer: "sha256:t".to_owned(),
                template: "sha256:c".to_owned(),
            })
        })
    }

    fn score(&self, desk: &dyn Desk<ScoreRequest, Score>) -> Result<(), WeightsError> {
        self.work(desk, |request| {
            let hash = hashed(&request.response);
            Ok(Score { log_prob: -(hash as f64) / 3e19, tokens: TOKENS })
        })
    }
}

struct Setup {
    folder: tempfile::TempDir,
    script: Arc<Script>,
    budget: Arc<Budget>,
    offline: bool,
    more: String,
}

impl Setup {
    fn new(script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w.gguf"), "weights").unwrap();
        let budget = Arc::new(Budget::new(BudgetConfig::default()));
        Self { folder, script: Arc::new(script), budget, offline: false, more: String::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn store(&self) -> Arc<CallStore> {
        Arc::new(CallStore::open(self.path().join("calls")).unwrap())
    }

    fn open(&self) -> Arc<dyn Model> {
        let text = format!("engine = \"local\"\npath = \"w.gguf\"\ndigest = \"{DIGEST}\"\n{}", self.more);
        let config: ModelConfig = toml::from_str(&text).unwrap();
        let script = Arc::clone(&self.script);
        let options = OpenOptions {
            offline: self.offline,
            budget: Arc::clone(&self.budget),
            environment: &|_| None,
            timing: Timing::default(),
            weights: Some(Arc::new(move |path, _| {
                assert!(path.ends_with("w.gguf"));
                script.opened.fetch_add(1, Ordering::SeqCst);
                Ok(Arc::new(Hashes(Arc::clone(&script))))
            })),
        };
        open(&config, "student", self.path(), self.store(), &options).unwrap()
    }

    fn taken(&self) -> usize {
        self.script.taken.load(Ordering::SeqCst)
    }

    fn opened(&self) -> usize {
        self.script.opened.load(Ordering::SeqCst)
    }
}

fn request(text: &str) -> Request {
    let sampling = Sampling { seed: Some(3), ..Sampling::full(0.8, 48) };
    Request::new(vec![Message::new("user", text)], sampling, 0)
}

fn requests(count: usize) -> Vec<Request> {
    (0..count).map(|number| request(&format!("question {number}"))).collect()
}

fn text(response: &str) -> ScoreRequest {
    ScoreRequest {
        messages: vec![Message::new("user", "q")],
        response: response.to_owned(),
        is_complete: true,
        token_ids: None,
        tokenizer: None,
    }
}

fn ensure(model: &dyn Model, requests: &[Request]) -> Result<Ensured, ModelError> {
    model.ensure(&mut requests.iter().cloned(), &(), &AtomicBool::new(false))
}

fn text_of(model: &dyn Model, request: &Request) -> Option<String> {
    match model.answer(request).unwrap() {
        Recorded::Answer(answer) => Some(answer.text),
        _ => None,
    }
}

fn short(counts: &Ensured) -> (u64, u64, u64, u64) {
    (counts.asked, counts.from_store, counts.row_errors, counts.prompt_tokens + counts.completion_tokens)
}

#[test]
fn a_text_is_written_once_and_read_ever_after_without_weights() {
    let setup = Setup::new(Script::default());
    let wanted = requests(600);
    let model = setup.open();
    assert_eq!(setup.opened(), 0, "opening the model opens no weights");
    let counts = ensure(&*model, &wanted).unwrap();
    assert_eq!(short(&counts), (600, 0, 0, 6000));
    assert_eq!(setup.budget.used().tokens, 6000);
    assert_eq!((setup.taken(), setup.opened()), (600, 1));
    let first = text_of(&*model, &wanted[599]).unwrap();
    drop(model);
    std::fs::remove_file(setup.path().join("w.gguf")).unwrap();
    let again = setup.open();
    assert_eq!(short(&ensure(&*again, &wanted).unwrap()), (0, 600, 0, 0));
    assert_eq!(text_of(&*again, &wanted[599]).unwrap(), first);
    assert_eq!((setup.taken(), setup.opened()), (600, 1));
}

#[test]
fn an_answer_brings_its_token_ids_and_the_digests_behind_them() {
    let setup = Setup::new(Script::default());
    let model = setup.open();
    let wanted = Request { sampling: Sampling { logprobs: true, ..Sampling::full(0.0, 8) }, ..request("a") };
    ensure(&*model, std::slice::from_ref(&wanted)).unwrap();
    let Recorded::Answer(answer) = model.answer(&wanted).unwrap() else { panic!() };
    assert_eq!(answer.token_ids, Some(vec![7, 2]));
    assert_eq!(answer.token_logprobs, Some(vec![-0.1, -1e-7]));
    assert_eq!((answer.tokenizer.as_deref(), answer.template.as_deref()), (Some("sha256:t"), Some("sha256:c")));
    assert_eq!(answer.finish_reason.as_deref(), Some("stop"));
    assert_eq!(model.id(), &ModelId::weights(DIGEST, "f32"));
}

#[test]
fn a_score_is_worked_out_once_and_keeps_every_bit() {
    let setup = Setup::new(Script::default());
    let model = setup.open();
    let texts: Vec<ScoreRequest> = (0..400).map(|number| text(&format!("text {number}"))).collect();
    let pass =
        |model: &dyn Model| model.ensure_scores(&mut texts.iter().cloned(), &(), &AtomicBool::new(false)).unwrap();
    assert_eq!(short(&pass(&*model)), (400, 0, 0, 4000));
    for text in &texts {
        let Recorded::Answer(score) = model.score_of(text).unwrap() else { panic!() };
        let exact = -(hashed(&text.response) as f64) / 3e19;
        assert_eq!((score.log_prob.to_bits(), score.tokens), (exact.to_bits(), TOKENS));
    }
    assert_eq!(short(&pass(&*setup.open())), (0, 400, 0, 0));
    assert_eq!(setup.taken(), 400);
    let offline = Setup { offline: true, ..setup };
    let model = offline.open();
    assert_eq!(short(&pass(&*model)), (0, 400, 0, 0));
    let missing = model.ensure_scores(&mut [text("other")].into_iter(), &(), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(missing.class(), ErrorClass::NotRecorded);
    assert!(missing.to_string().contains("score of \"other\" after \"q\""), "{missing}");
}

#[test]
fn a_request_that_can_never_be_answered_is_a_row_error_kept_for_good() {
    let setup = Setup::new(Script::default());
    let model = setup.open();
    let wanted = [request("too long"), request("a")];
    assert_eq!(short(&ensure(&*model, &wanted).unwrap()), (2, 0, 1, 10));
    assert_eq!(short(&ensure(&*model, &wanted).unwrap()), (0, 2, 1, 0));
    let expected = Recorded::RowError { code: "context_exceeded".to_owned(), message: "9 of 8 tokens".to_owned() };
    assert_eq!(model.answer(&wanted[0]).unwrap(), expected);
}

#[test]
fn what_was_told_before_a_failure_is_kept() {
    let setup = Setup::new(Script { fail_after: Some(20), ..Script::default() });
    let wanted = requests(100);
    let error = ensure(&*setup.open(), &wanted).unwrap_err();
    assert_eq!((error.class(), error.exit_code()), (ErrorClass::Unreachable, 4));
    assert!(error.to_string().contains("w.gguf`: no memory for 12 MiB of cache"), "{error}");
    assert_eq!(setup.store().len(), 20);
    let second = Setup { script: Arc::default(), ..setup };
    assert_eq!(short(&ensure(&*second.open(), &wanted).unwrap()), (80, 20, 0, 800));
}

#[test]
fn a_cancelled_pass_gives_up_what_is_in_work_and_keeps_the_rest() {
    let cancel = Arc::new(AtomicBool::new(false));
    let setup = Setup::new(Script { cancel_after: Some((30, Arc::clone(&cancel))), ..Script::default() });
    let error = setup.open().ensure(&mut requests(1000).into_iter(), &(), &cancel).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Cancelled);
    assert_eq!(setup.store().len(), 30);
    let second = Setup { script: Arc::default(), ..setup };
    let counts = ensure(&*second.open(), &requests(50)).unwrap();
    assert_eq!(counts.asked + counts.from_store, 50);
    assert_eq!(counts.asked, second.taken() as u64);
}

#[test]
fn two_passes_that_want_the_same_work_it_out_once() {
    let script = Script { begin: Some(Barrier::new(1)), pause: Duration::from_millis(1), ..Script::default() };
    let setup = Setup::new(script);
    let model = setup.open();
    let (wanted, backwards) = (requests(120), requests(120).into_iter().rev().collect::<Vec<_>>());
    let counts = std::thread::scope(|scope| {
        let passes = [&wanted, &backwards, &wanted].map(|wanted| scope.spawn(|| ensure(&*model, wanted).unwrap()));
        passes.map(|pass| pass.join().unwrap())
    });
    assert_eq!(counts.iter().map(|counts| counts.asked).sum::<u64>(), 120);
    assert_eq!(counts.iter().map(|counts| counts.asked + counts.from_store).sum::<u64>(), 360);
    assert_eq!((setup.taken(), setup.opened()), (120, 1));
}

#[test]
fn the_same_request_twice_in_a_pass_is_worked_out_once() {
    let setup = Setup::new(Script::default());
    let wanted: Vec<Request> = requests(40).into_iter().chain(requests(40)).collect();
    assert_eq!(short(&ensure(&*setup.open(), &wanted).unwrap()), (40, 40, 0, 400));
    assert_eq!(setup.taken(), 40);
}

#[test]
fn the_budget_ends_a_pass_and_what_is_in_work_is_kept() {
    let budget = Arc::new(Budget::new(BudgetConfig { tokens: Some(205), money: None }));
    let setup = Setup { budget, ..Setup::new(Script::default()) };
    let error = ensure(&*setup.open(), &requests(100)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::BudgetSpent);
    assert_eq!((setup.store().len(), setup.budget.used().tokens), (21, 210));
    assert_eq!(ensure(&*setup.open(), &requests(100)).unwrap_err().class(), ErrorClass::BudgetSpent);
    assert_eq!(setup.opened(), 1, "a spent budget opens no weights");
}

#[test]
fn missing_weights_are_named_when_something_needs_them() {
    let setup = Setup::new(Script::default());
    std::fs::remove_file(setup.path().join("w.gguf")).unwrap();
    let error = ensure(&*setup.open(), &requests(1)).unwrap_err();
    assert_eq!(error.exit_code(), 4);
    assert!(error.to_string().contains("w.gguf") && error.to_string().contains("--offline"), "{error}");
}

#[test]
fn recordings_stand_in_for_weights_offline_and_only_there() {
    let more = "recordings = [\"a.jsonl\"]".to_owned();
    let setup = Setup { more, offline: true, ..Setup::new(Script::default()) };
    let log_prob = -(0.1 + 0.2);
    let line = serde_json::json!({
        "model": DIGEST, "revision": "f32", "messages": [{"role": "user", "content": "q"}], "response": "b",
        "is_complete": true, "score": {"log_prob": log_prob, "tokens": 3},
    });
    std::fs::write(setup.path().join("a.jsonl"), line.to_string()).unwrap();
    let model = setup.open();
    let counts = model.ensure_scores(&mut [text("b")].into_iter(), &(), &AtomicBool::new(false)).unwrap();
    assert_eq!((counts.from_recordings, setup.opened()), (1, 0));
    assert_eq!(model.score_of(&text("b")).unwrap(), Recorded::Answer(Score { log_prob, tokens: 3 }));
    let live = Setup { offline: false, ..setup };
    let counts = live.open().ensure_scores(&mut [text("b")].into_iter(), &(), &AtomicBool::new(false)).unwrap();
    assert_eq!((counts.asked, counts.from_recordings), (1, 0), "weights at hand answer themselves");
}

/// The stage of this name.
struct Named(&'static str);
impl Progress for Named {
    fn stage(&self) -> &str {
        self.0
    }
}

#[test]
fn the_store_counts_and_prunes_scores_beside_answers() {
    let setup = Setup::new(Script::default());
    let model = setup.open();
    ensure(&*model, &requests(3)).unwrap();
    model.ensure_scores(&mut [text("a"), text("b")].into_iter(), &Named("potential"), &AtomicBool::new(false)).unwrap();
    drop(model);
    let store = setup.store();
    let summary = store.summary().unwrap();
    let short: Vec<_> = summary
        .iter()
        .map(|part| (part.stage.as_str(), part.calls, part.scores, part.prompt_tokens, part.completion_tokens))
        .collect();
    assert_eq!(short, [("", 3, 0, 24, 6), ("potential", 2, 2, 20, 0)]);
    let pruned = store.prune(&Prune { model: Some(DIGEST), ..Prune::default() }).unwrap();
    assert_eq!((pruned.calls, pruned.kept), (5, 0));
}

#[test]
fn a_stored_call_of_the_first_format_is_still_read() {
    let old = r#"{"model":{"model":"m","revision":null},"request":{"messages":[{"role":"user","content":"a"}],
        "sampling":{"temperature":0.8,"top_p":1.0,"top_k":0,"min_p":0.0,"max_tokens":48},"sample":0},
        "reply":{"answer":"{\"choices\":[]}"},"stage":"paths","host":"http://h","time_ms":5,"latency_ms":6}"#;
    let call: StoredCall = serde_json::from_str(old).unwrap();
    let Asked::Answer(asked) = &call.request else { panic!("{call:?}") };
    assert_eq!((asked.messages[0].content.as_str(), asked.sampling.max_tokens), ("a", 48));
    let again = serde_json::to_value(&call).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(old).unwrap(), "and is still written like that");
    let id = ModelId::named("m", None);
    let score = StoredCall {
        request: text("b").into(),
        reply: Reply::Score(Score { log_prob: -1.5, tokens: 2 }),
        ..call.clone()
    };
    let folder = tempfile::tempdir().unwrap();
    let store = CallStore::open(folder.path()).unwrap();
    let keys = [CallKey::of(&id, asked), CallKey::of_score(&id, &text("b"))];
    store.append(&keys[0], &call).unwrap();
    store.append(&keys[1], &score).unwrap();
    drop(store);
    let store = CallStore::open(folder.path()).unwrap();
    assert_eq!(keys.map(|key| store.get(&key).unwrap()), [Some(call), Some(score)]);
}
