//! Templates over columns, and answers in typed columns.

use std::sync::Arc;

use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use pipeline_core::{StageEntry, StageError};
use schemas::{queries, traces};
use serde_json::{Value, json};

use super::Prompt;
use crate::asking::scripted::{Does, Scripted, says, services};

fn entry() -> StageEntry {
    StageEntry::stage::<Prompt>()
}

fn teacher(text: &'static str) -> Arc<Scripted> {
    Scripted::new("teacher", move |_| says(text))
}

fn rows() -> Vec<Value> {
    vec![json!({ "query_id": "a", "prompt": "求 \\frac{1}{2} 的倒数", "extra": "{\"level\": 3}", "label": "2" })]
}

fn run(model: &Arc<Scripted>, params: Value) -> Result<Outcome, StageError> {
    let entry = entry();
    Trial::new(&entry, params).services(services(&[model])).rows("rows", &queries::TABLE, rows()).run(&Cut::WHOLE)
}

fn message(error: &StageError) -> String {
    match error {
        StageError::Param(error) => {
            format!("{}: {} {}", error.path, error.message, error.hint.as_deref().unwrap_or(""))
        }
        other => other.to_string(),
    }
}

#[test]
fn the_example_conforms() {
    conformance_with(&entry(), &services(&[&teacher("{\"topic\": \"算术\"}")]));
}

#[test]
fn every_column_is_a_variable_and_extra_is_an_object() {
    let model = teacher("好");
    let template = "{{ prompt }} ({{ extra.level }}, {{ label }}){% if options %} {{ options | join('/') }}{% endif %}";
    let outcome = run(&model, json!({ "model": "teacher", "template": template, "system": "Be brief." })).unwrap();
    assert_eq!(outcome.column("answer"), [json!("好")]);
    let asked = &model.asked()[0];
    assert_eq!((asked.messages[0].role.as_str(), asked.messages[0].content.as_str()), ("system", "Be brief."));
    assert_eq!(asked.messages[1].content, "求 \\frac{1}{2} 的倒数 (3, 2)");
    assert_eq!((asked.schema.as_deref(), asked.sampling.seed), (None, None), "greedy answers need no seed");
}

#[test]
fn properties_become_typed_columns() {
    let schema = json!({
        "type": "object", "required": ["topic"],
        "properties": {
            "topic": { "type": "string" }, "level": { "type": "integer" }, "share": { "type": "number" },
            "hard": { "type": ["boolean", "null"] }, "steps": { "type": "array", "items": { "type": "string" } },
        },
    });
    let full =
        "```json\n{\"topic\": \"分数\", \"level\": \"3\", \"share\": 1, \"hard\": null, \"steps\": [\"取倒数\"]}\n```";
    let params = |schema: Value| json!({ "model": "teacher", "template": "{{ prompt }}", "schema": schema });
    let outcome = run(&teacher(full), params(schema.clone())).unwrap();
    let row = &outcome.rows()[0];
    assert_eq!((&row["topic"], &row["level"], &row["share"]), (&json!("分数"), &json!(3), &json!(1.0)));
    assert_eq!((&row["hard"], &row["steps"]), (&json!(null), &json!("[\"取倒数\"]")));
    let outcome = run(&teacher("{\"topic\": \"分数\"}"), params(json!(schema.to_string()))).unwrap();
    assert_eq!((&outcome.rows()[0]["topic"], &outcome.rows()[0]["steps"]), (&json!("分数"), &json!(null)));
}

#[test]
fn an_empty_text_is_no_answer_and_a_cut_one_is_asked_for_again() {
    let params = || json!({ "model": "teacher", "template": "{{ prompt }}" });
    assert_eq!(run(&teacher("  \n"), params()).unwrap().reasons(), ["answer_unusable"]);
    let model = Scripted::new("teacher", |request| match request.attempt {
        0 => Does::IsCut("It is".to_owned()),
        _ => says("It is 2."),
    });
    assert_eq!(run(&model, params()).unwrap().column("answer"), [json!("It is 2.")]);
}

#[test]
fn mistakes_are_found_before_anything_is_asked() {
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    for (change, place, word) in [
        (json!({ "template": "{{ promt }}" }), "template", "`prompt`"),
        (json!({ "template": "{% if %}" }), "template", "wrong"),
        (json!({ "template": null }), "template", "nothing to ask"),
        (json!({ "template_file": "x" }), "template_file", "not both"),
        (json!({ "schema": { "type": "string" } }), "schema", "properties"),
        (json!({ "schema": "{" }), "schema", "no JSON"),
        (json!({ "schema": object(json!({ "a": { "type": "int" } })) }), "schema", "#/properties/a/type"),
        (json!({ "schema": object(json!({ "label": {} })) }), "columns", "label"),
        (json!({ "schema": object(json!({ "pass_rate": { "type": "string" } })) }), "columns", "pass_rate"),
        (json!({ "columns": { "topic": "x" } }), "columns.topic", "`answer`"),
        (json!({ "columns": { "answer": "prompt" } }), "columns", "not overwritten"),
        (json!({ "max_attempts": 0 }), "max_attempts", "between"),
        (json!({ "top_p": 0.0 }), "top_p", "above 0"),
    ] {
        let mut params = json!({ "model": "teacher", "template": "{{ prompt }}" });
        for (name, value) in change.as_object().unwrap() {
            params[name] = value.clone();
        }
        let model = teacher("x");
        let found = message(&run(&model, params).unwrap_err());
        assert!(found.starts_with(&format!("{place}: ")) && found.contains(word), "{change}: {found}");
        assert!(model.asked().is_empty(), "{change}");
    }
}

#[test]
fn an_unfilled_column_of_the_table_may_be_filled() {
    let entry = entry();
    let rows = vec![json!({ "query_id": "q", "trace_id": "t", "prompt": "1+1?", "response": "2" })];
    let params = json!({ "model": "teacher", "template": "{{ response }}" });
    let trial = Trial::new(&entry, params).services(services(&[&teacher("two")]));
    let outcome = trial.rows("rows", &traces::TABLE, rows).run(&Cut::WHOLE).unwrap();
    assert_eq!(outcome.column("answer"), [json!("two")]);
}
