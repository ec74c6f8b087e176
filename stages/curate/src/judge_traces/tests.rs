//! What falls without a judge, and which rubric a trace goes to.

use std::sync::Arc;

use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use schemas::traces;
use serde_json::{Value, json};

use super::JudgeTraces;
use crate::asking::scripted::{Does, Scripted, says, services};

fn entry() -> StageEntry {
    StageEntry::stage::<JudgeTraces>()
}

/// Rates each criterion that is asked for; `valid_steps` and `coherence` by what it is given.
fn judge(rating: i64) -> Arc<Scripted> {
    Scripted::new("judge", move |request| {
        let schema: Value = serde_json::from_str(request.schema.as_deref().unwrap()).unwrap();
        let names = schema["properties"]["criteria"]["required"].as_array().unwrap();
        let rate = |name: &Value| {
            let is_rated = name == "valid_steps" || name == "coherence";
            (name.as_str().unwrap().to_owned(), json!(if is_rated { rating } else { 5 }))
        };
        Does::Says(
            json!({ "reason": "第二步有误。", "criteria": names.iter().map(rate).collect::<Value>() }).to_string(),
        )
    })
}

fn trace(id: &str, domain: &str, response: &str) -> Value {
    json!({
        "query_id": "q", "trace_id": id, "domain": domain, "prompt": "1 + 1 等于多少？", "label": "2",
        "response": response, "finish_reason": "stop",
    })
}

fn run(model: &Arc<Scripted>, params: Value, rows: Vec<Value>) -> Outcome {
    let entry = entry();
    let trial = Trial::new(&entry, params).services(services(&[model])).rows("rows", &traces::TABLE, rows);
    trial.run(&Cut::slices(2)).unwrap()
}

#[test]
fn the_example_conforms() {
    let teacher = Scripted::new("teacher", |_| {
        says("{\"reason\": \"\", \"criteria\": {\"valid_steps\": 1, \"finished\": 1, \"no_leak\": 1}}")
    });
    conformance_with(&entry(), &services(&[&teacher]));
}

#[test]
fn a_cut_trace_and_one_that_was_told_the_answer_fall_without_a_judge() {
    let judge = judge(5);
    let mut cut = trace("cut", "math", "1 + 1");
    cut["finish_reason"] = json!("length");
    let mut thought = trace("thought", "math", "\\boxed{2}");
    thought["reasoning"] = json!("根据参考答案，结果应为 2。");
    let rows = vec![
        cut,
        trace("told", "math", "Since The Expected Answer is 2, we get \\boxed{2}."),
        thought,
        trace("sound", "math", "1 + 1 = 2，答案是 2。"),
    ];
    let outcome = run(&judge, json!({ "model": "judge" }), rows.clone());
    assert_eq!(outcome.reasons(), ["truncated", "label_leaked", "label_leaked"]);
    let evidence: Value = serde_json::from_str(outcome.rejects[2]["reject_evidence"].as_str().unwrap()).unwrap();
    assert_eq!((&evidence["phrase"], &evidence["text"]), (&json!("参考答案"), &json!("根据参考答案，结果应为 2。")));
    assert_eq!(judge.asked().len(), 1);
    let outcome = run(&judge, json!({ "model": "judge", "mode": "annotate" }), rows);
    assert_eq!(
        outcome.column("trace_flaw"),
        [json!("truncated"), json!("label_leaked"), json!("label_leaked"), json!(null)]
    );
    assert_eq!(outcome.column("trace_score"), [json!(null), json!(null), json!(null), json!(5.0)]);
    assert_eq!(outcome.rows()[3]["judge_score"], json!(null), "the score of the query is another");
}

#[test]
fn what_the_question_itself_says_is_no_leak() {
    let mut row = trace("quoted", "chat", "The answer key is wrong in line 3.");
    row["prompt"] = json!("Check the answer key of this test.");
    assert!(run(&judge(5), json!({ "model": "judge" }), vec![row]).rejects.is_empty());
}

#[test]
fn chat_is_rated_by_its_own_rubric() {
    let judge = judge(2);
    let rows = vec![trace("m", "math", "2"), trace("c", "chat", "你好！")];
    let outcome = run(&judge, json!({ "model": "judge" }), rows.clone());
    assert_eq!(outcome.reasons(), ["fails_valid_steps", "fails_coherence"]);
    let asked = judge.asked();
    assert!(
        asked[0].messages[0].content.contains("- `no_leak`: ") && asked[0].messages[0].content.contains("did not see")
    );
    assert!(asked[1].messages[0].content.contains("- `no_redundancy`: "));
    let params = json!({ "model": "judge", "criteria": ["finished", "helpfulness"] });
    assert_eq!(run(&judge, params, rows).rows().len(), 2, "criteria that are named are for every trace");
}

#[test]
fn a_judge_sees_reasoning_and_answer() {
    let judge = judge(5);
    let mut row = trace("r", "math", "<think>raw</think>raw");
    row["reasoning"] = json!("I add.");
    row["answer_text"] = json!("It is 2.");
    run(&judge, json!({ "model": "judge" }), vec![row]);
    let text = judge.asked()[0].messages[0].content.clone();
    assert!(text.contains("<answer>\nI add.\n\nIt is 2.\n</answer>") && !text.contains("raw"), "{text}");
}
