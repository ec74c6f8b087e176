//! Recorded traces: several answers in one row, reasoning apart from the answer, rollouts with token ids.

use serde_json::json;

use super::data::shared;
use super::{Project, extra, texts};

fn project() -> Option<Project> {
    let mut project = Project::new();
    project.env.base = shared()?;
    Some(project)
}

#[test]
fn lists_of_answers_become_one_trace_each() {
    let Some(project) = project() else { return };
    let params = json!({
        "files": ["traces-math-8x/math_cot_100.jsonl"], "rows": "traces", "domain": "math", "model": "recorded",
        "each": {"lists": ["code", "pred", "report", "score", "pred_score"]},
        "columns": {"prompt": "question", "label": "gt", "response": "code", "system": "system"},
    });
    let imported = project.import(&params).unwrap();
    assert_eq!((imported.rows.len(), imported.read, imported.kept), (640, 80, Some(80)));
    let row = &imported.rows[9];
    assert_eq!((&row["sample"], &row["model"]), (&json!(1), &json!("recorded")));
    assert_eq!(row["messages"][0]["role"], "system");
    let left = extra(row);
    assert!(left["score"].is_boolean() && left["pred"].is_string() && left["pred_score"][0].is_number());
    assert!(left.get("code").is_none());
    let ids: std::collections::BTreeSet<_> = texts(&imported.rows, "trace_id").into_iter().collect();
    assert_eq!(ids.len(), 640);
    let queries: std::collections::BTreeSet<_> = texts(&imported.rows, "query_id").into_iter().collect();
    assert_eq!(queries.len(), 80);
}

#[test]
fn a_verdict_of_the_users_may_be_mapped() {
    let Some(project) = project() else { return };
    let params = json!({
        "files": ["traces-math-8x/math_cot_100.jsonl"], "rows": "traces",
        "each": {"lists": ["code", "score", "pred"]},
        "columns": {"prompt": "question", "response": "code", "verdict": "score", "answer": "pred"},
    });
    let rows = project.rows(&params);
    let correct = rows.iter().filter(|row| row["verdict"] == "correct").count();
    assert_eq!(correct + rows.iter().filter(|row| row["verdict"] == "incorrect").count(), 640);
    assert!(correct > 100);
}

#[test]
fn columns_of_answers_become_one_trace_each() {
    let Some(project) = project() else { return };
    let names = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"];
    let params = json!({
        "files": ["traces-gsm8k-gpt3/example_model_solutions.jsonl"], "rows": "traces", "domain": "math",
        "each": {"columns": names},
        "columns": {"prompt": "question", "label": "ground_truth", "response": "item.solution"},
        "label_after": "A:",
    });
    let rows = project.rows(&params);
    assert_eq!(rows.len(), 4 * 1055);
    assert_eq!(texts(&rows[..4], "model"), names);
    assert_eq!(texts(&rows[..4], "label"), ["18"; 4]);
    let left = extra(&rows[0]);
    assert_eq!(left["item"], json!({"is_correct": false}));
    assert!(left["ground_truth"].as_str().unwrap().contains("A: 18"));
    assert!(names.iter().all(|name| left.get(*name).is_none()));
}

#[test]
fn reasoning_may_stand_apart_from_the_answer() {
    let Some(project) = project() else { return };
    for server in ["ollama", "openrouter"] {
        let params = json!({
            "files": [format!("traces-long-cot/sample_{server}_outputs.json")], "rows": "traces", "model": server,
            "columns": {"prompt": "problem", "label": "gtruth_answer", "reasoning": "message_thinking", "answer_text": "message_content"},
        });
        let rows = project.rows(&params);
        assert_eq!(rows.len(), 5);
        for row in &rows {
            assert!(row["extra"].is_null());
            let (reasoning, answer) = (row["reasoning"].as_str().unwrap(), row["answer_text"].as_str().unwrap());
            assert_eq!(row["response"], format!("<think>\n{reasoning}\n</think>\n\n{answer}"));
        }
    }
    let params = json!({"files": ["traces-long-cot/math_train_sample.json"], "columns": {"prompt": "problem", "label": "answer"}});
    assert_eq!(project.rows(&params).len(), 5);
}

#[test]
fn rollouts_keep_token_ids_and_log_probabilities() {
    let Some(project) = project() else { return };
    let params = json!({
        "files": ["smollm2-rollouts/rollouts.parquet"], "rows": "traces",
        "columns": {
            "prompt": "question", "label": "answer", "request_messages": "messages", "sample": "sample_index",
            "seed": "seed", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
            "max_tokens": "max_tokens", "model": "model", "response": "completion", "finish_reason": "finish_reason",
            "prompt_tokens": "prompt_tokens", "completion_tokens": "completion_tokens", "token_ids": "token_ids",
            "token_logprobs": "token_logprobs", "source": "source", "answer": "extracted",
        },
    });
    let rows = project.rows(&params);
    assert_eq!(rows.len(), 1116);
    let row = &rows[0];
    assert_eq!(row["request_messages"].as_array().unwrap().len(), 7);
    assert_eq!(row["token_ids"].as_array().unwrap().len(), 24);
    assert_eq!(row["token_logprobs"][0], json!(f64::from(-0.072_27_f32)));
    assert_eq!(row["response"], "81 + 20 = 101. The answer is \\boxed{101}.");
    assert_eq!(extra(row)["prompt_id"], "arith_add-0000");
    let ids: std::collections::BTreeSet<_> = texts(&rows, "trace_id").into_iter().collect();
    assert_eq!(ids.len(), 1116);
}

#[test]
fn tags_in_a_response_are_split() {
    let lines = concat!(
        "{\"q\": \"1+1\", \"r\": \"<think>\\none and one\\n</think>\\n\\n2\"}\n",
        "{\"q\": \"1+2\", \"r\": \"3\"}\n",
        "{\"q\": \"1+3\", \"r\": null}\n",
    );
    let project = Project::with("t.jsonl", lines);
    let params = json!({"files": ["t.jsonl"], "rows": "traces", "columns": {"prompt": "q", "response": "r"}});
    let imported = project.import(&params).unwrap();
    assert_eq!(texts(&imported.rows, "reasoning"), ["one and one", "null"]);
    assert_eq!(texts(&imported.rows, "answer_text"), ["2", "3"]);
    assert_eq!(texts(&imported.rejects, "reject_reason"), ["no_response"]);
}

#[test]
fn the_last_message_of_the_assistant_is_the_response() {
    let line = r#"{"m": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}], "k": 1}"#;
    let project = Project::with("t.jsonl", line);
    let rows = project.rows(&json!({"files": ["t.jsonl"], "rows": "traces", "columns": {"messages": "m"}}));
    assert_eq!(rows[0]["response"], "2");
    assert_eq!(rows[0]["messages"].as_array().unwrap().len(), 1);
    assert_eq!(extra(&rows[0]), json!({"k": 1}));
}

#[test]
fn a_row_without_items_falls_out_and_one_bad_item_takes_its_row_along() {
    let lines =
        "{\"q\": \"a\", \"r\": []}\n{\"q\": \"b\", \"r\": [\"x\", {}]}\n{\"q\": \"c\", \"r\": [\"x\", \"y\"]}\n";
    let project = Project::with("t.jsonl", lines).tolerating(0.5);
    let params = json!({"files": ["t.jsonl"], "rows": "traces", "each": {"lists": ["r"]}, "columns": {"prompt": "q", "response": "r"}});
    let imported = project.import(&params).unwrap();
    assert_eq!(texts(&imported.rejects, "reject_reason"), ["no_items", "bad_value"]);
    assert_eq!(imported.rows.len(), 2);
}
