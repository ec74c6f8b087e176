//! `sample` with models that live in the test.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipeline_core::testing::{Cut, Outcome, Trial};
use pipeline_core::{Services, StageEntry, StageError};
use pipeline_models::{Answer, CallKey, Ensured, Model, ModelError, ModelId, ModelSet, Progress, Recorded, Request};
use schemas::queries;
use serde_json::{Value, json};

use super::Sample;

/// A model that says what a function gives it to say.
struct Scripted {
    id: ModelId,
    said: Mutex<HashMap<CallKey, Recorded>>,
    asked: Mutex<Vec<Request>>,
    says: fn(&Request) -> Recorded,
}

impl Scripted {
    fn new(name: &str, says: fn(&Request) -> Recorded) -> Arc<Self> {
        let id = ModelId::named(name, None);
        Arc::new(Self { id, said: Mutex::default(), asked: Mutex::default(), says })
    }

    fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

impl Model for Scripted {
    fn id(&self) -> &ModelId {
        &self.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        _progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        for request in requests {
            let key = CallKey::of(&self.id, &request);
            if !self.said.lock().unwrap().contains_key(&key) {
                let said = (self.says)(&request);
                self.said.lock().unwrap().insert(key, said);
                self.asked.lock().unwrap().push(request);
            }
        }
        Ok(Ensured::default())
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        let said = self.said.lock().unwrap().get(&CallKey::of(&self.id, request)).cloned();
        Ok(said.unwrap_or(Recorded::Missing))
    }
}

fn answer(text: &str, finish_reason: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        reasoning: None,
        answer_text: text.to_owned(),
        finish_reason: Some(finish_reason.to_owned()),
        prompt_tokens: Some(10),
        cached_tokens: Some(4),
        completion_tokens: Some(3),
        token_ids: None,
        token_logprobs: None,
        tokens_incomplete: false,
        tool_calls: None,
        model: None,
        tokenizer: None,
        template: None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "tests write the parameters in place")]
fn run(models: &[Arc<dyn Model>], params: Value, rows: usize) -> Result<Outcome, StageError> {
    let entry = StageEntry::stage::<Sample>();
    let by_name: BTreeMap<String, Arc<dyn Model>> =
        models.iter().map(|model| (model.id().to_string(), Arc::clone(model))).collect();
    let set = ModelSet::new(move |name| {
        by_name.get(name).cloned().ok_or_else(|| ModelError::config(name, "is none of the test's"))
    });
    let mut services = Services::default();
    services.insert(Arc::new(set));
    let rows = (0..rows).map(|row| {
        let prompt = format!("What is {row} + 1?");
        json!({"query_id": format!("q{row}"), "prompt": prompt, "messages": [{"role": "user", "content": prompt}]})
    });
    let mut given = json!({"model": models.iter().map(|model| model.id().to_string()).collect::<Vec<_>>()});
    given.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    Trial::new(&entry, given).rows("rows", &queries::TABLE, rows.collect()).services(services).run(&Cut::WHOLE)
}

fn cut_below_100(request: &Request) -> Recorded {
    let is_whole = request.sampling.max_tokens >= 100 && request.sample == 0;
    Recorded::Answer(if is_whole { answer("whole", "stop") } else { answer("cut", "length") })
}

#[test]
fn a_cut_answer_is_asked_for_once_more_with_the_larger_cap() {
    let model = Scripted::new("m", cut_below_100);
    let models: [Arc<dyn Model>; 1] = [model.clone()];
    let params = json!({"n": 2, "max_tokens": 60, "truncated": "retry"});
    let outcome = run(&models, params.clone(), 3).unwrap();
    let asked: Vec<(u32, u32, u32)> =
        model.asked().iter().map(|request| (request.sample, request.attempt, request.sampling.max_tokens)).collect();
    assert_eq!(asked[..6], [(0, 0, 60), (1, 0, 60), (0, 0, 60), (1, 0, 60), (0, 0, 60), (1, 0, 60)]);
    assert_eq!(asked[6..], [(0, 1, 120), (1, 1, 120), (0, 1, 120), (1, 1, 120), (0, 1, 120), (1, 1, 120)]);
    let seeds = |attempt: u32| -> Vec<Option<u64>> {
        let asked = model.asked();
        asked.iter().filter(|request| request.attempt == attempt).map(|request| request.sampling.seed).collect()
    };
    assert_eq!(seeds(0), seeds(1), "the same sample is drawn further");
    let of = |name: &str| outcome.column(name);
    assert_eq!(of("response"), ["whole", "cut", "whole", "cut", "whole", "cut"], "what is cut again stays");
    assert_eq!(of("max_tokens"), [120, 120, 120, 120, 120, 120]);
    assert_eq!(of("finish_reason")[..2], [json!("stop"), json!("length")]);
    let counters = &outcome.counters;
    let expected = [("calls", 12), ("prompt_tokens", 120), ("cached_tokens", 48), ("completion_tokens", 36)];
    for (name, amount) in expected.into_iter().chain([("truncated_retried", 6)]) {
        assert_eq!(counters.get(name), Some(&amount), "{name}");
    }
    // a second run finds everything
    let before = model.asked().len();
    assert_eq!(run(&models, params, 3).unwrap().rows(), outcome.rows());
    assert_eq!(model.asked().len(), before);
    // other caps and policies are other traces, as far as they decide what is asked
    let ids = |params: Value| run(&models, params, 1).unwrap().column("trace_id");
    let kept = ids(json!({"n": 1, "max_tokens": 60}));
    assert_eq!(kept, ids(json!({"n": 1, "max_tokens": 60, "truncated": "keep"})));
    assert_ne!(kept, ids(json!({"n": 1, "max_tokens": 60, "truncated": "retry"})));
    assert_ne!(
        ids(json!({"n": 1, "max_tokens": 60, "truncated": "retry"})),
        ids(json!({"n": 1, "max_tokens": 60, "truncated": "retry", "retry_max_tokens": 90}))
    );
}

#[test]
fn an_answer_stays_cut_where_the_server_refuses_the_larger_cap() {
    let model = Scripted::new("m", |request| {
        if request.attempt == 0 {
            return Recorded::Answer(answer("cut", "length"));
        }
        Recorded::RowError { code: "context_exceeded".to_owned(), message: "9 of 8".to_owned() }
    });
    let outcome = run(&[model], json!({"max_tokens": 60, "truncated": "retry"}), 2).unwrap();
    assert_eq!(outcome.column("response"), ["cut", "cut"]);
    assert_eq!(outcome.column("max_tokens"), [60, 60]);
    assert_eq!(outcome.counters.get("refused_answers"), None);
}

#[test]
fn a_larger_cap_belongs_to_retry_and_is_larger() {
    let model: Arc<dyn Model> = Scripted::new("m", cut_below_100);
    for (params, part) in [
        (json!({"retry_max_tokens": 90}), "needs `truncated = \"retry\"`"),
        (json!({"max_tokens": 60, "truncated": "retry", "retry_max_tokens": 60}), "must be larger"),
    ] {
        let error = run(std::slice::from_ref(&model), params, 1).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_server_that_gives_no_log_probabilities_is_found_out_with_one_call() {
    let model = Scripted::new("m", |_| Recorded::Answer(answer("7", "stop")));
    let models: [Arc<dyn Model>; 1] = [model.clone()];
    let error = run(&models, json!({"n": 4, "logprobs": true}), 5).unwrap_err();
    assert!(matches!(&error, StageError::Param(error) if error.path == "logprobs"), "{error}");
    assert!(error.to_string().contains("`logprobs = \"if_given\"`") && error.to_string().contains("`m`"), "{error}");
    assert_eq!(model.asked().len(), 1);
    assert!(model.asked()[0].sampling.logprobs);
    let outcome = run(&models, json!({"n": 4, "logprobs": "if_given"}), 5).unwrap();
    assert_eq!(outcome.column("token_logprobs"), vec![Value::Null; 20]);
    let giving = Scripted::new("m", |_| {
        let given =
            Answer { token_ids: Some(vec![7, 2]), token_logprobs: Some(vec![-0.5, -0.25]), ..answer("7", "stop") };
        Recorded::Answer(given)
    });
    let outcome = run(&[giving], json!({"logprobs": true}), 2).unwrap();
    assert_eq!(outcome.column("token_logprobs"), vec![json!([-0.5, -0.25]); 2]);
    assert!(run(&models, json!({"logprobs": "perhaps"}), 1).is_err());
    // gaps are no reason to end the stage
    let gaps = |_: &Request| Recorded::Answer(Answer { tokens_incomplete: true, ..answer("七", "stop") });
    let outcome = run(&[Scripted::new("m", gaps)], json!({"logprobs": true}), 2).unwrap();
    assert_eq!(outcome.column("token_logprobs"), vec![Value::Null; 2]);
    assert_eq!(outcome.counters.get("tokens_incomplete"), Some(&2));
}

/// Says nothing before the other has been asked.
struct Waiting {
    inner: Arc<Scripted>,
    came: Mutex<std::sync::mpsc::Sender<()>>,
    other: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Model for Waiting {
    fn id(&self) -> &ModelId {
        self.inner.id()
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.came.lock().unwrap().send(()).unwrap();
        self.other.lock().unwrap().recv_timeout(Duration::from_mins(5)).expect("the other was asked meanwhile");
        self.inner.ensure(requests, progress, cancel)
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        self.inner.answer(request)
    }
}

#[test]
fn several_teachers_are_asked_at_the_same_time_and_stay_in_order() {
    let (to_two, from_one) = std::sync::mpsc::channel();
    let (to_one, from_two) = std::sync::mpsc::channel();
    let one = Waiting {
        inner: Scripted::new("one", |_| Recorded::Answer(answer("first", "stop"))),
        came: Mutex::new(to_two),
        other: Mutex::new(from_two),
    };
    let two = Waiting {
        inner: Scripted::new("two", |_| Recorded::Answer(answer("second", "stop"))),
        came: Mutex::new(to_one),
        other: Mutex::new(from_one),
    };
    let outcome = run(&[Arc::new(one), Arc::new(two)], json!({"n": 2}), 2).unwrap();
    let said = ["first", "first", "second", "second"];
    assert_eq!(outcome.column("response"), [said, said].concat());
}

/// Gives up at once.
struct Broken(ModelId, Arc<AtomicBool>);

impl Model for Broken {
    fn id(&self) -> &ModelId {
        &self.0
    }

    fn ensure(
        &self,
        _requests: &mut dyn Iterator<Item = Request>,
        _progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.1.store(true, Ordering::SeqCst);
        Err(ModelError::config("broken", "is out of order"))
    }

    fn answer(&self, _request: &Request) -> Result<Recorded, ModelError> {
        Ok(Recorded::Missing)
    }
}

/// Takes its time, once the other has given up.
struct Slow(ModelId, Arc<AtomicBool>, Mutex<usize>);

impl Model for Slow {
    fn id(&self) -> &ModelId {
        &self.0
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        _progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        while !self.1.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in requests {
            *self.2.lock().unwrap() += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Ensured::default())
    }

    fn answer(&self, _request: &Request) -> Result<Recorded, ModelError> {
        Ok(Recorded::Missing)
    }
}

#[test]
fn a_teacher_that_gives_up_ends_the_asking_of_the_others() {
    let gave_up = Arc::new(AtomicBool::new(false));
    let slow = Arc::new(Slow(ModelId::named("slow", None), Arc::clone(&gave_up), Mutex::new(0)));
    let broken = Arc::new(Broken(ModelId::named("broken", None), gave_up));
    let models: [Arc<dyn Model>; 2] = [slow.clone(), broken];
    let error = run(&models, json!({"n": 4096}), 4).unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
    assert!(*slow.2.lock().unwrap() < 4 * 4096);
}
