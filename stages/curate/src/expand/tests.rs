//! What counts as a new query, and what it has from its seed.

use std::sync::Arc;

use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use pipeline_core::{StageEntry, StageError};
use schemas::queries;
use serde_json::{Value, json};

use super::Expand;
use crate::asking::scripted::{Does, Scripted, says, services};

fn entry() -> StageEntry {
    StageEntry::stage::<Expand>()
}

fn seeds() -> Vec<Value> {
    vec![
        json!({
            "query_id": "a", "domain": "math", "subdomain": "arithmetic", "prompt": "What is 2 + 3?", "label": "5",
            "source": "mine", "license": "MIT", "pass_rate": 0.5,
            "messages": [{ "role": "system", "content": "Think." }, { "role": "user", "content": "What is 2 + 3?" }],
        }),
        json!({ "query_id": "b", "domain": "math", "prompt": "一个长方形的长是 4，宽是 3，面积是多少？", "label": "12" }),
    ]
}

/// A teacher that gives these prompts for the English seed, and these for the Chinese one.
fn teacher(english: &'static [&'static str], chinese: &'static [&'static str]) -> Arc<Scripted> {
    Scripted::new("teacher", move |request| {
        let is_chinese = request.messages[0].content.contains("长方形");
        let prompts = if is_chinese { chinese } else { english };
        let query = |prompt: &&str| json!({ "knowledge_point": "sums", "prompt": prompt, "answer": "7" });
        let queries: Vec<Value> = prompts.iter().map(query).collect();
        says(json!({ "queries": queries }).to_string())
    })
}

fn run(model: &Arc<Scripted>, params: Value) -> Result<Outcome, StageError> {
    let entry = entry();
    let trial = Trial::new(&entry, params).services(services(&[model])).rows("rows", &queries::TABLE, seeds());
    trial.run(&Cut::slices(1))
}

fn one_dimension(k: u32) -> Value {
    json!({ "model": "teacher", "dimensions": ["constraints"], "k": k })
}

#[test]
fn the_example_conforms() {
    let model = Scripted::new("teacher", |_| says("{\"queries\": [{\"prompt\": \"What is 3 + 4?\"}]}"));
    conformance_with(&entry(), &services(&[&model]));
}

#[test]
fn a_new_query_keeps_its_parent_and_inherits_what_is_its_seeds() {
    let model = teacher(&["What is 3 + 4?"], &["一个正方形的面积是 9，边长是多少？"]);
    let outcome = run(&model, one_dimension(1)).unwrap();
    let row = &outcome.rows()[0];
    assert_eq!((&row["parents"], &row["dimension"]), (&json!(["a"]), &json!("constraints")));
    assert_eq!((&row["domain"], &row["subdomain"]), (&json!("math"), &json!("arithmetic")));
    assert_eq!((&row["source"], &row["license"]), (&json!("mine"), &json!("MIT")));
    assert_eq!((&row["label"], &row["pass_rate"]), (&json!(null), &json!(null)));
    assert_eq!(row["prompt"], json!("What is 3 + 4?"));
    assert_eq!(row["messages"][0]["content"], json!("Think."));
    assert_eq!(row["messages"][1]["content"], json!("What is 3 + 4?"));
    let extra: Value = serde_json::from_str(row["extra"].as_str().unwrap()).unwrap();
    assert_eq!(extra, json!({ "knowledge_point": "sums", "expanded_by": "teacher" }));
    assert_eq!(row["query_id"].as_str().unwrap().len(), 24);
    assert_eq!(outcome.rows()[1]["parents"], json!(["b"]));
    assert_eq!((outcome.counters["queries_wanted"], outcome.counters["queries_written"]), (2, 2));
}

#[test]
fn each_dimension_is_a_call_and_what_is_asked_says_so() {
    let model = Scripted::new("teacher", |request| {
        let dimension = request.messages[0].content.split("The dimension is `").nth(1).unwrap();
        let dimension = dimension.split('`').next().unwrap();
        let language = if request.messages[0].content.contains("长方形") { "新的题目" } else { "Problem of" };
        says(
            json!({ "queries": [{ "knowledge_point": "", "prompt": format!("{language} {dimension}?") }] }).to_string(),
        )
    });
    let outcome = run(&model, json!({ "model": "teacher" })).unwrap();
    let dimensions = ["concept_composition", "solving_skeleton", "constraints", "evaluation_objective"];
    assert_eq!(outcome.column("dimension")[..4], dimensions.map(Value::from));
    assert_eq!(outcome.rows().len(), 8);
    let own = json!([{ "name": "daily_life", "description": "Put it into daily life." }]);
    let outcome = run(&model, json!({ "model": "teacher", "dimensions": own, "k": 2 })).unwrap();
    assert_eq!(outcome.column("dimension"), [json!("daily_life"), json!("daily_life")]);
    let last = model.asked().pop().unwrap();
    let text = &last.messages[0].content;
    assert!(text.contains("Write 2 new problems") && text.contains("Put it into daily life."), "{text}");
    let schema: Value = serde_json::from_str(last.schema.as_deref().unwrap()).unwrap();
    assert_eq!(schema["properties"]["queries"]["maxItems"], json!(2));
    assert_eq!(schema["properties"]["queries"]["items"]["required"], json!(["knowledge_point", "prompt"]));
}

#[test]
fn what_is_no_new_query_is_dropped_and_counted() {
    let model = teacher(
        &[
            "  ...",
            "What is 2+3 ?",
            "What is 2 - 3?",
            "what is 2 - 3",
            "2 加 3 等于多少？把结果写出来。",
            "Like the original problem, what is 5 + 3?",
            "What is 1 + 1? The answer is 2.",
            "What is 9 - 3?",
        ],
        &["What is the area of a rectangle?"],
    );
    let outcome = run(&model, one_dimension(4)).unwrap();
    assert_eq!(outcome.column("prompt"), [json!("What is 2 - 3?"), json!("What is 9 - 3?")]);
    assert_eq!(outcome.reasons(), ["no_usable_query"]);
    let evidence: Value = serde_json::from_str(outcome.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap();
    assert_eq!(evidence, json!({ "dropped": { "other_language": 1 } }));
    for (reason, count) in [
        ("empty", 1),
        ("copy_of_seed", 1),
        ("copy", 1),
        ("other_language", 2),
        ("speaks_of_the_seed", 1),
        ("tells_its_answer", 1),
    ] {
        assert_eq!(outcome.counters[&format!("dropped_{reason}")], count, "{reason}");
    }
    assert_eq!((outcome.counters["queries_wanted"], outcome.counters["queries_written"]), (8, 2));
}

#[test]
fn more_than_was_asked_for_is_left_and_asks_nothing_again() {
    let model = teacher(&["What is 1 + 1?", "What is 1 + 2?"], &["三角形有几条边？", "正方形有几条边？"]);
    let outcome = run(&model, one_dimension(1)).unwrap();
    assert_eq!(outcome.column("prompt"), [json!("What is 1 + 1?"), json!("三角形有几条边？")]);
    assert_eq!((outcome.counters["dropped_surplus"], outcome.counters["asked_again"]), (2, 0));
}

#[test]
fn seeds_come_before_their_new_queries_if_they_are_kept() {
    let model = teacher(&["What is 3 + 4?"], &["..."]);
    let mut params = one_dimension(1);
    params["keep_seeds"] = json!(true);
    let outcome = run(&model, params).unwrap();
    assert_eq!(outcome.column("dimension"), [json!(null), json!("constraints"), json!(null)]);
    assert_eq!(outcome.rows()[0]["label"], json!("5"));
    assert_eq!(outcome.rows()[0]["pass_rate"], json!(0.5));
    assert_eq!((outcome.rejects.len(), outcome.counters["seeds_without_new_queries"]), (0, 1));
}

#[test]
fn the_teachers_answer_becomes_the_label_only_if_asked() {
    let model = teacher(&["What is 3 + 4?"], &["四加三等于多少？"]);
    let mut params = one_dimension(1);
    params["keep_answers"] = json!(true);
    let outcome = run(&model, params).unwrap();
    assert_eq!(outcome.column("label"), [json!("7"), json!("7")]);
    let asked = model.asked();
    assert!(asked[0].messages[0].content.contains("`answer` is its final answer alone"));
    assert!(asked[0].schema.as_deref().unwrap().contains("\"answer\""));
}

#[test]
fn a_seed_whose_calls_all_fail_falls_with_their_reason_and_one_failing_dimension_is_borne() {
    let model = Scripted::new("teacher", |request| {
        let text = &request.messages[0].content;
        match (text.contains("长方形"), text.contains("`constraints`")) {
            (true, _) => says("对不起，我不能。"),
            (false, true) => Does::Refuses("content_filter"),
            (false, false) => says("{\"queries\": [{\"prompt\": \"What is 3 + 4?\"}]}"),
        }
    });
    let outcome =
        run(&model, json!({ "model": "teacher", "dimensions": ["constraints", "solving_skeleton"] })).unwrap();
    assert_eq!(outcome.column("dimension"), [json!("solving_skeleton")]);
    assert_eq!(outcome.reasons(), ["answer_unusable"]);
}

#[test]
fn a_passing_failure_leaves_the_whole_seed_for_the_next_run() {
    let model = Scripted::new("teacher", |request| {
        let fails = request.messages[0].content.contains("`constraints`");
        if fails { Does::Fails } else { says("{\"queries\": [{\"prompt\": \"What is 3 + 4?\"}]}") }
    });
    let outcome = run(&model, json!({ "model": "teacher", "dimensions": ["constraints", "solving_skeleton"] }));
    assert!(matches!(outcome, Err(StageError::Transient { .. })));
}

#[test]
fn mistakes_are_found_before_anything_is_asked() {
    for (change, place) in [
        (json!({ "k": 0 }), "k"),
        (json!({ "k": 17 }), "k"),
        (json!({ "dimensions": ["constraint"] }), "dimensions"),
        (json!({ "template": "{{ seed }}" }), "template"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
    ] {
        let mut params = json!({ "model": "teacher" });
        for (name, value) in change.as_object().unwrap() {
            params[name] = value.clone();
        }
        match run(&teacher(&[], &[]), params).unwrap_err() {
            StageError::Param(error) => assert_eq!(error.path, place, "{change}: {error}"),
            other => panic!("{change}: {other}"),
        }
    }
}
