//! Fine-tuning of tiny models.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use pipeline_core::{Services, StageEntry, StageError};
use pipeline_models::{ModelError, ModelSet};
use schemas::traces;
use serde_json::{Value, json};

use super::Sft;
use crate::NewModel;

fn model(folder: &Path) -> std::path::PathBuf {
    let weights = folder.join("model");
    let tiny = json!({ "hidden": 32, "layers": 2, "heads": 2, "kv_heads": 1, "context": 128 });
    serde_json::from_value::<NewModel>(tiny).unwrap().write(3, &weights).unwrap();
    weights
}

fn services(weights: &Path) -> Services {
    let weights = weights.to_owned();
    let set = ModelSet::new(|name| Err(ModelError::config(name, "is not asked")));
    let mut services = Services::default();
    services.insert(Arc::new(set.locating(move |_| Ok(weights.clone()))));
    services
}

fn trace(id: usize, prompt: &str, response: &str) -> Value {
    json!({
        "query_id": format!("q{id}"), "trace_id": format!("t{id}"), "domain": "math", "response": response,
        "messages": [{"role": "user", "content": prompt}], "finish_reason": "stop",
    })
}

fn sums(count: usize) -> Vec<Value> {
    (0..count)
        .map(|id| trace(id, &format!("{}+{}?", id % 5, id % 3), &format!("\\boxed{{{}}}", id % 5 + id % 3)))
        .collect()
}

fn train(weights: &Path, params: Value, rows: Vec<Value>, validation: Vec<Value>) -> Result<Outcome, StageError> {
    let entry = StageEntry::stage::<Sft>();
    let trial = Trial::new(&entry, params).services(services(weights)).rows("rows", &traces::TABLE, rows);
    let trial = if validation.is_empty() { trial } else { trial.rows("validation", &traces::TABLE, validation) };
    trial.run(&Cut::WHOLE)
}

fn figures(outcome: &Outcome, metric: &str) -> Vec<f64> {
    let rows = outcome.output("metrics").iter().filter(|row| row["metric"] == metric);
    rows.map(|row| row["value"].as_f64().unwrap()).collect()
}

#[test]
fn the_kind_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conformance_with(&StageEntry::stage::<Sft>(), &services(&model(folder.path())));
}

#[test]
fn the_loss_falls_and_every_checkpoint_has_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let params = json!({
        "model": "m", "epochs": 12, "batch": 2, "window": 128, "learning_rate": 5e-3, "checkpoint_every": 10,
    });
    let outcome = train(&model(folder.path()), params, sums(30), sums(6)).unwrap();
    let losses = figures(&outcome, "loss");
    assert!(losses[0] > 4.0 && *losses.last().unwrap() < 0.6 * losses[0], "{losses:?}");
    let steps: Vec<i64> = outcome.rows().iter().map(|row| row["step"].as_i64().unwrap()).collect();
    assert_eq!(steps.last().copied(), i64::try_from(losses.len()).ok());
    assert!(steps[0] == 10 && steps.len() == losses.len().div_ceil(10));
    assert_eq!(figures(&outcome, "validation_loss").len(), steps.len());
    let supervised = outcome.rows().last().unwrap()["tokens"].as_i64().unwrap();
    // each response has 9 bytes and an end
    assert_eq!(supervised, 12 * 30 * 10);
    assert_eq!((outcome.read, outcome.kept), (30, 30));
}

#[test]
fn rows_that_cannot_be_trained_on_fall_out_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = sums(30);
    rows.push(trace(90, "long", &"x".repeat(200)));
    rows.push(trace(91, "nothing", ""));
    let mut silent = trace(92, "", "4");
    silent["messages"] = json!([]);
    rows.push(silent);
    let params = json!({ "model": "m", "epochs": 1, "batch": 64 });
    let outcome = train(&model(folder.path()), params, rows, Vec::new()).unwrap();
    assert_eq!(outcome.reasons(), ["too_long", "no_response", "no_messages"]);
    assert_eq!((outcome.read, outcome.kept), (33, 30));
}

#[test]
fn every_response_that_was_not_cut_teaches_to_stop_once() {
    let folder = tempfile::tempdir().unwrap();
    let weights = model(folder.path());
    let tokens = |finish_reason: Value| {
        let mut row = trace(1, "2+2?", "4");
        row["finish_reason"] = finish_reason;
        let outcome = train(&weights, json!({ "model": "m", "epochs": 1 }), vec![row], Vec::new()).unwrap();
        outcome.rows()[0]["tokens"].as_i64().unwrap()
    };
    assert_eq!([json!("stop"), Value::Null, json!("eos"), json!("length")].map(tokens), [2, 2, 2, 1]);
}

#[test]
fn data_that_is_mostly_unusable_stops_the_stage() {
    let folder = tempfile::tempdir().unwrap();
    let weights = model(folder.path());
    let template = weights.join("chat_template.jinja");
    fs::write(&template, "{{ raise_exception('no conversations here') }}").unwrap();
    let error = train(&weights, json!({ "model": "m" }), sums(3), Vec::new()).err().unwrap().to_string();
    assert!(error.contains("none of 3 rows") && error.contains("no conversations here"), "{error}");
}

#[test]
fn a_tokenizer_that_does_not_fit_and_weights_that_are_not_finite_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let weights = model(folder.path());
    let config = weights.join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"vocab_size\": 320", "\"vocab_size\": 100")).unwrap();
    let error = train(&weights, json!({ "model": "m" }), sums(3), Vec::new()).err().unwrap().to_string();
    assert!(error.contains("they are not of one model"), "{error}");
    fs::write(&config, text).unwrap();
    let path = weights.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = train(&weights, json!({ "model": "m" }), sums(3), Vec::new()).err().unwrap().to_string();
    assert!(error.contains("NaN"), "{error}");
}

#[test]
fn parameters_that_make_no_training_are_refused() {
    let entry = StageEntry::stage::<Sft>();
    for (params, part) in [
        (json!({ "model": "m", "epochs": 0 }), "`epochs` must be at least 1"),
        (json!({ "model": "m", "learning_rate": 0.0 }), "above 0"),
        (json!({ "model": "m", "min_learning_rate": 1.0 }), "between 0 and `learning_rate`"),
        (json!({ "model": "m", "beta2": 1.0 }), "without 1"),
        (json!({ "model": "m", "window": 0 }), "`window` must be at least 1"),
    ] {
        let error = (entry.parse)(&params).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}
