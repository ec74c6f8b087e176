//! What every kind must do, shown on its own example: parameters round-trip, unknown keys are refused, declared columns
//! are written, rows balance, and neither slices nor partitions matter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pipeline_core::Services;
use pipeline_core::testing::conformance_with;
use pipeline_models::{
    Answer, Ensured, Model, ModelError, ModelId, ModelSet, Progress, Recorded, Request, Score, ScoreRequest,
};
use serde_json::{Value, json};
use stage_phases::NewModel;

/// Answers every request with its last message, or with the least that its JSON schema allows, and finds every text
/// likely.
struct Echo(ModelId);

impl Model for Echo {
    fn id(&self) -> &ModelId {
        &self.0
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        _progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        Ok(Ensured { asked: requests.count() as u64, ..Ensured::default() })
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        let text = match &request.schema {
            Some(schema) => least(&serde_json::from_str(schema).unwrap()).to_string(),
            None => request.messages.last().map(|message| message.content.clone()).unwrap_or_default(),
        };
        Ok(Recorded::Answer(Answer {
            answer_text: text.clone(),
            text,
            reasoning: None,
            finish_reason: Some("stop".to_owned()),
            prompt_tokens: Some(1),
            cached_tokens: None,
            completion_tokens: Some(1),
            token_ids: None,
            token_logprobs: None,
            tokens_incomplete: false,
            tool_calls: None,
            model: None,
            tokenizer: None,
            template: None,
        }))
    }

    fn ensure_scores(
        &self,
        requests: &mut dyn Iterator<Item = ScoreRequest>,
        _progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        Ok(Ensured { asked: requests.count() as u64, ..Ensured::default() })
    }

    fn score_of(&self, request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        let tokens = u32::try_from(request.response.len()).unwrap();
        Ok(Recorded::Answer(Score { log_prob: -0.25 * f64::from(tokens), tokens }))
    }
}

/// The least value that a plain JSON schema allows: every property, one item of a list, the least of a range.
fn least(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties.map(|(name, schema)| (name.clone(), least(schema))).collect()
        }
        Some("array") => Value::Array(vec![least(&schema["items"])]),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(Value::from(1)),
        Some("boolean") => Value::Bool(true),
        _ => schema["enum"].get(0).cloned().unwrap_or_else(|| Value::from("What is 3 + 4?")),
    }
}

#[test]
fn every_kind_does_on_its_example_what_kinds_must_do() {
    let mut services = Services::default();
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("model");
    let tiny = json!({ "hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "context": 128 });
    serde_json::from_value::<NewModel>(tiny).unwrap().write(1, &weights).unwrap();
    let set = ModelSet::new(|name| Ok(Arc::new(Echo(ModelId::named(name, None))) as Arc<dyn Model>))
        .opening_folders(|_, digest| Ok(Arc::new(Echo(ModelId::weights(digest, "f32"))) as Arc<dyn Model>))
        .locating(move |_| Ok(weights.clone()));
    services.insert(Arc::new(set));
    let registry = pipeline_cli::registry();
    assert!(registry.0.len() >= 13);
    for entry in &registry.0 {
        println!("{}", entry.kind);
        conformance_with(entry, &services);
    }
}

#[test]
fn kinds_have_names_of_their_own_and_say_what_they_do() {
    let registry = pipeline_cli::registry();
    let names: BTreeSet<&str> = registry.0.iter().map(|entry| entry.kind).collect();
    assert_eq!(names.len(), registry.0.len());
    for entry in &registry.0 {
        let schema = serde_json::to_value((entry.schema)()).unwrap();
        assert!(schema["description"].is_string(), "`{}` has no documentation", entry.kind);
        for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
            assert!(parameter.to_string().contains("\"description\""), "`{}.{name}` has no documentation", entry.kind);
        }
    }
}
