//! What the judge model is asked, and what becomes of its answers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use pipeline_core::{Services, StageEntry, StageError};
use pipeline_models::{
    Answer, Ensured, Model, ModelError, ModelId, ModelSet, Progress, Recorded, Request, parse_answer,
};
use schemas::traces;
use serde_json::{Value, json};

use super::Verify;

/// Says what it was told to; keeps what it was asked.
struct Scripted {
    says: fn(&Request) -> Option<String>,
    asked: Mutex<Vec<Request>>,
}

impl Model for Scripted {
    fn id(&self) -> &ModelId {
        static ID: std::sync::OnceLock<ModelId> = std::sync::OnceLock::new();
        ID.get_or_init(|| ModelId::named("judge-1", None))
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        _: &dyn Progress,
        _: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.asked.lock().unwrap().extend(requests);
        Ok(Ensured::default())
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        assert!(self.asked.lock().unwrap().contains(request), "an answer is read that was never asked for");
        Ok((self.says)(request).map_or(Recorded::Missing, |text| Recorded::Answer(answer(&text))))
    }
}

fn answer(text: &str) -> Answer {
    let body = json!({ "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }] });
    parse_answer(&body.to_string()).unwrap()
}

fn judge(says: fn(&Request) -> Option<String>) -> Arc<Scripted> {
    Arc::new(Scripted { says, asked: Mutex::default() })
}

fn services(model: &Arc<Scripted>) -> Services {
    let model = Arc::clone(model);
    let mut services = Services::default();
    services.insert(Arc::new(ModelSet::new(move |_| Ok(Arc::clone(&model) as Arc<dyn Model>))));
    services
}

/// A question that no rule settles, one that rules settle, and one of a domain without verifier.
fn rows() -> Vec<Value> {
    let row = |id: &str, domain: &str, label: &str, response: &str| {
        json!({
            "query_id": id, "trace_id": id, "domain": domain, "label": label, "prompt": "Which?", "response": response,
            "finish_reason": "stop",
        })
    };
    vec![
        row("settled", "math", "18", "\\boxed{18}"),
        row("history", "history", "the year of the fall of Rome, 476", "It fell in 476."),
        row("cut", "history", "476", "It fell in"),
    ]
}

fn outcome(model: &Arc<Scripted>, params: Value, max_errors: f64) -> Result<Outcome, StageError> {
    let entry = StageEntry::stage::<Verify>();
    let mut rows = rows();
    rows[2]["finish_reason"] = json!("length");
    let trial = Trial::new(&entry, params).services(services(model)).rows("rows", &traces::TABLE, rows);
    Trial { max_errors, ..trial }.run(&Cut::slices(2))
}

#[test]
fn the_kind_conforms_with_a_judge_at_hand() {
    conformance_with(&StageEntry::stage::<Verify>(), &services(&judge(|_| None)));
}

#[test]
fn only_what_rules_leave_open_is_asked_and_the_judge_is_named() {
    let model = judge(|_| Some("The same year.\nVERDICT: CORRECT".to_owned()));
    let outcome = outcome(&model, json!({ "judge": "teacher" }), 0.0).unwrap();
    let row = &outcome.rows()[1];
    assert_eq!((&row["verdict"], &row["verifier"]), (&json!("correct"), &json!("judge@1 judge-1")));
    assert_eq!(row["verdict_reason"], json!("judged_equal: 1 of 1 votes"));
    assert_eq!(outcome.rows()[2]["verdict"], json!("undecided"), "a cut trace is not even asked about");
    let asked = model.asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    let text = &asked[0].messages[0].content;
    assert!(
        text.contains("Which?") && text.contains("fall of Rome, 476") && text.contains("It fell in 476."),
        "{text}"
    );
    assert_eq!(outcome.counters["asked_the_judge"], 1);
}

#[test]
fn what_cannot_be_read_never_becomes_a_verdict() {
    for (says, reason) in [
        ((|_| Some("I like it.".to_owned())) as fn(&Request) -> Option<String>, "judge_unreadable"),
        (|_| Some("VERDICT: UNSURE".to_owned()), "judge_unsure"),
        (|_| Some(String::new()), "judge_unreadable"),
    ] {
        let outcome = outcome(&judge(says), json!({ "judge": "teacher" }), 0.0).unwrap();
        let row = &outcome.rows()[1];
        assert_eq!(row["verdict"], json!("undecided"));
        assert!(row["verdict_reason"].as_str().unwrap().starts_with(reason), "{row}");
    }
}

#[test]
fn votes_are_counted_and_a_tie_stays_open() {
    let split = |request: &Request| {
        Some(if request.sample.is_multiple_of(2) { "VERDICT: CORRECT" } else { "VERDICT: INCORRECT" }.to_owned())
    };
    let params = |votes: u32| json!({ "judge": "teacher", "judge_votes": votes, "judge_temperature": 0.7 });
    let verdict = |votes| outcome(&judge(split), params(votes), 0.0).unwrap().rows()[1]["verdict"].clone();
    assert_eq!(verdict(3), json!("correct"));
    assert_eq!(verdict(4), json!("undecided"));
    let alone = json!({ "judge": "teacher", "judge_votes": 3 });
    assert!(matches!(outcome(&judge(split), alone, 0.0), Err(StageError::Param(_))), "three equal votes are one");
}

#[test]
fn a_silent_judge_leaves_the_row_for_the_next_run() {
    let silent = judge(|_| None);
    assert!(matches!(outcome(&silent, json!({ "judge": "teacher" }), 0.0), Err(StageError::Transient { .. })));
    let outcome = outcome(&silent, json!({ "judge": "teacher" }), 0.5).unwrap();
    assert_eq!((outcome.rows().len(), outcome.transient), (2, 1));
}

#[test]
fn a_judge_can_be_the_second_opinion_on_every_answer() {
    let model = judge(|_| Some("VERDICT: INCORRECT".to_owned()));
    let outcome = outcome(&model, json!({ "judge": "teacher", "second": "judge" }), 0.0).unwrap();
    assert_eq!(outcome.rows()[0]["second_verdict"], json!("incorrect"));
    assert_eq!(outcome.rows()[0]["agrees"], json!(false));
    assert_eq!(outcome.output("disagreements").len(), 1);
}
