use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use pipeline_core::{Services, StageEntry};
use pipeline_models::{Ensured, ModelError, ModelId, ModelSet, Progress, Request};
use serde_json::Value;

use super::*;

/// Scores a text by its length; keeps what it was asked.
#[derive(Default)]
struct Student {
    asked: Mutex<Vec<ScoreRequest>>,
    cannot: bool,
}

/// A text that the student answers for a passing reason only the next time.
const LATER: &str = "later";

impl Model for Student {
    fn id(&self) -> &ModelId {
        static ID: std::sync::OnceLock<ModelId> = std::sync::OnceLock::new();
        ID.get_or_init(|| ModelId::weights("sha256:00", "f32"))
    }

    fn ensure(
        &self,
        _: &mut dyn Iterator<Item = Request>,
        _: &dyn Progress,
        _: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        Ok(Ensured::default())
    }

    fn answer(&self, _: &Request) -> Result<Recorded, ModelError> {
        Ok(Recorded::Missing)
    }

    fn ensure_scores(
        &self,
        requests: &mut dyn Iterator<Item = ScoreRequest>,
        _: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        if self.cannot {
            return Err(ModelError::Unsupported { model: "m".to_owned(), what: "score a given text".to_owned() });
        }
        assert!(!cancel.load(Ordering::Relaxed));
        let asked: Vec<ScoreRequest> = requests.collect();
        let counts = Ensured { asked: asked.len() as u64, ..Ensured::default() };
        self.asked.lock().unwrap().extend(asked);
        Ok(counts)
    }

    fn score_of(&self, request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        let tokens = u32::try_from(request.response.chars().count()).unwrap() + u32::from(request.is_complete);
        if request.response == LATER {
            return Ok(Recorded::Missing);
        }
        if tokens > 100 {
            let message = format!("{tokens} tokens, the context holds 100");
            return Ok(Recorded::RowError { code: "context_exceeded".to_owned(), message });
        }
        Ok(Recorded::Answer(Score { log_prob: -0.5 * f64::from(tokens), tokens }))
    }
}

fn services(student: &Arc<Student>) -> Services {
    let student = Arc::clone(student);
    let mut services = Services::default();
    services.insert(Arc::new(ModelSet::new(move |_| Ok(Arc::clone(&student) as Arc<dyn Model>))));
    services
}

fn entry() -> StageEntry {
    StageEntry::stage::<LearningPotential>()
}

fn trace(id: &str, response: &Value, more: &Value) -> Value {
    let mut row = json!({
        "query_id": id, "trace_id": id, "messages": [{"role": "user", "content": "q"}],
        "request_messages": [{"role": "user", "content": "with shots"}], "response": response, "finish_reason": "stop",
    });
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    row
}

fn outcome(student: &Arc<Student>, rows: Vec<Value>, max_errors: f64) -> Result<Outcome, StageError> {
    let entry = entry();
    let trial = Trial::new(&entry, json!({"model": "student"})).services(services(student));
    let trial = trial.rows("rows", &traces::TABLE, rows);
    Trial { max_errors, ..trial }.run(&Cut::slices(3))
}

#[test]
fn the_kind_conforms() {
    conformance_with(&entry(), &services(&Arc::default()));
}

#[test]
fn the_potential_is_the_mean_negative_log_likelihood_of_a_token() {
    let student = Arc::default();
    let rows =
        vec![trace("a", &json!("abc"), &json!({})), trace("b", &json!("七"), &json!({"finish_reason": "length"}))];
    let outcome = outcome(&student, rows, 0.0).unwrap();
    assert_eq!(outcome.column("learning_potential"), [json!(0.5), json!(0.5)]);
    assert!(potential(Score { log_prob: 0.0, tokens: 3 }).is_sign_positive());
    let asked = student.asked.lock().unwrap();
    assert_eq!(asked.iter().map(|request| request.is_complete).collect::<Vec<_>>(), [true, false]);
    assert_eq!(asked[0].messages, [Message::new("user", "q")], "what the teacher saw is not scored");
}

#[test]
fn token_ids_go_along_only_with_their_tokenizer() {
    let student = Arc::default();
    let rows = vec![
        trace("a", &json!("x"), &json!({"token_ids": [5, 2], "tokenizer": "sha256:t"})),
        trace("b", &json!("y"), &json!({"token_ids": [5, 2]})),
        trace("c", &json!("z"), &json!({"tokenizer": "sha256:t"})),
    ];
    outcome(&student, rows, 0.0).unwrap();
    let asked = student.asked.lock().unwrap();
    let given: Vec<_> = asked.iter().map(|request| (request.token_ids.clone(), request.tokenizer.as_deref())).collect();
    assert_eq!(given, [(Some(vec![5, 2]), Some("sha256:t")), (None, None), (None, None)]);
}

#[test]
fn what_cannot_be_scored_falls_out_with_its_reason() {
    let rows = vec![
        trace("a", &json!("fine"), &json!({})),
        trace("b", &Value::Null, &json!({})),
        trace("c", &json!(""), &json!({})),
        trace("d", &json!("x"), &json!({"messages": []})),
        trace("e", &json!("x"), &json!({"messages": null})),
        trace("f", &json!("long".repeat(50)), &json!({})),
    ];
    let outcome = outcome(&Arc::default(), rows, 0.0).unwrap();
    let expected = [("context_exceeded", 1), ("no_messages", 2), ("no_response", 2)];
    assert_eq!(outcome.rejected, expected.map(|(reason, rows)| (reason.to_owned(), rows)).into());
    let long = outcome.rejects.iter().find(|row| row["reject_reason"] == "context_exceeded").unwrap();
    assert!(long["reject_evidence"].as_str().unwrap().contains("201 tokens, the context holds 100"));
}

#[test]
fn rows_without_a_score_for_passing_reasons_end_the_stage_unless_they_may_be_left_out() {
    let rows = || vec![trace("a", &json!("x"), &json!({})), trace("b", &json!(LATER), &json!({}))];
    let error = outcome(&Arc::default(), rows(), 0.0).err().unwrap();
    assert!(error.to_string().starts_with("1 of 2 traces have no score"), "{error}");
    let outcome = outcome(&Arc::default(), rows(), 0.5).unwrap();
    assert_eq!((outcome.read, outcome.kept, outcome.transient), (2, 1, 1));
}

#[test]
fn a_model_that_cannot_score_is_a_mistake_at_the_parameter() {
    let student = Arc::new(Student { cannot: true, ..Student::default() });
    let error = outcome(&student, vec![trace("a", &json!("x"), &json!({}))], 0.0).err().unwrap();
    assert!(matches!(&error, StageError::Param(error) if error.path == "model"), "{error}");
}
