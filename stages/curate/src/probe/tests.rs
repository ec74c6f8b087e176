//! Probing with scripted checkpoints.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pipeline_core::testing::{Cut, Trial, conformance_with};
use pipeline_core::{Services, StageEntry};
use pipeline_models::{Ensured, Model, ModelError, ModelId, ModelSet, Progress, Recorded, Request, parse_answer};
use schemas::{checkpoints, queries};
use serde_json::{Value, json};

use super::Probe;

/// Answers `4` to even samples and `5` to others; one that is `better` always answers `4`.
struct Scripted {
    id: ModelId,
    is_better: bool,
}

impl Model for Scripted {
    fn id(&self) -> &ModelId {
        &self.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        _: &dyn Progress,
        _: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        Ok(Ensured { from_store: requests.count() as u64, ..Ensured::default() })
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        let number = if self.is_better || request.sample.is_multiple_of(2) { 4 } else { 5 };
        let text = format!("It is \\boxed{{{number}}}.");
        let body = json!({
            "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 5, "completion_tokens": 6 },
        });
        Ok(Recorded::Answer(parse_answer(&body.to_string()).unwrap()))
    }
}

fn services() -> Services {
    let set = ModelSet::new(|name| Err(ModelError::config(name, "is not there"))).opening_folders(|folder, digest| {
        let is_better = folder.ends_with("checkpoints/step-20");
        Ok(Arc::new(Scripted { id: ModelId::weights(digest, "f32"), is_better }) as Arc<dyn Model>)
    });
    let mut services = Services::default();
    services.insert(Arc::new(set));
    services
}

fn query(id: &str, domain: &str, label: Option<&str>) -> Value {
    let messages = json!([{"role": "user", "content": "2 + 2?"}]);
    json!({ "query_id": id, "domain": domain, "prompt": "2 + 2?", "label": label, "messages": messages })
}

fn checkpoint(name: &str, step: i64) -> Value {
    json!({ "checkpoint": name, "step": step, "digest": format!("sha256:{step:08x}{:056x}", 0) })
}

#[test]
fn the_kind_conforms() {
    conformance_with(&StageEntry::stage::<Probe>(), &services());
}

#[test]
fn each_checkpoint_has_its_figures_and_its_answers() {
    let entry = StageEntry::stage::<Probe>();
    let trial = Trial::new(&entry, json!({ "n": 4, "k": 2, "max_tokens": 32 })).services(services());
    let rows = vec![query("a", "math", Some("4")), query("b", "stem", Some("5")), query("c", "chat", None)];
    let trial = trial.rows("rows", &queries::TABLE, rows);
    let found = vec![checkpoint("step-10", 10), checkpoint("step-20", 20)];
    let outcome = trial.rows("checkpoints", &checkpoints::TABLE, found).run(&Cut::slices(2)).unwrap();
    let figure = |subject: &str, domain: Value, metric: &str| {
        let is_it = |row: &&Value| row["subject"] == subject && row["domain"] == domain && row["metric"] == metric;
        outcome.rows().iter().find(is_it).unwrap()["value"].as_f64().unwrap()
    };
    let is = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    is(figure("step-10", json!("math"), "pass@1"), 0.5);
    is(figure("step-10", json!("math"), "pass@2"), 1.0 - 1.0 / 6.0);
    is(figure("step-20", json!("math"), "pass@1"), 1.0);
    is(figure("step-20", json!("stem"), "pass@2"), 0.0);
    is(figure("step-20", Value::Null, "pass@1"), 0.5);
    is(figure("step-20", Value::Null, "mean_tokens"), 6.0);
    assert_eq!((outcome.read, outcome.kept), (3, 2));
    assert_eq!(outcome.rejects.len(), 1);
    assert_eq!(outcome.rejects[0]["reject_reason"], "not_judgeable");
}

#[test]
fn checkpoints_of_one_name_are_told_apart_by_their_digests() {
    let entry = StageEntry::stage::<Probe>();
    let trial = Trial::new(&entry, json!({ "n": 1, "k": 1 })).services(services());
    let trial = trial.rows("rows", &queries::TABLE, vec![query("a", "math", Some("4"))]);
    let trial = trial.rows("checkpoints", &checkpoints::TABLE, vec![checkpoint("step-10", 10)]);
    let trial = trial.rows("checkpoints", &checkpoints::TABLE, vec![checkpoint("step-10", 11)]);
    let outcome = trial.run(&Cut::slices(2)).unwrap();
    let subjects: std::collections::BTreeSet<&str> =
        outcome.rows().iter().map(|row| row["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects.into_iter().collect::<Vec<_>>(), ["step-10 (0000000a)", "step-10 (0000000b)"]);
}

#[test]
fn a_probe_set_that_nobody_can_judge_is_an_alarm() {
    let entry = StageEntry::stage::<Probe>();
    let trial = Trial::new(&entry, json!({ "n": 1, "k": 1 })).services(services());
    let trial = trial.rows("rows", &queries::TABLE, vec![query("c", "chat", None)]);
    let trial = trial.rows("checkpoints", &checkpoints::TABLE, vec![checkpoint("step-10", 10)]);
    let error = trial.run(&Cut::slices(2)).err().unwrap().to_string();
    assert!(error.contains("no query of the probe set can be judged"), "{error}");
}

#[test]
fn fewer_answers_than_k_are_refused() {
    let entry = StageEntry::stage::<Probe>();
    let error = (entry.parse)(&json!({ "n": 4, "k": 8 })).err().unwrap().to_string();
    assert!(error.contains("`n` must be at least `k`"), "{error}");
}
