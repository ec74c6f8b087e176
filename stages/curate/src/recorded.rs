//! Recorded traces of real models, for tests. They lie beside the repository; a test without them says so and ends.

use std::path::PathBuf;

use pipeline_core::json_rows;
use pipeline_core::table_io::TableFile;
use serde_json::{Value, json};

fn path(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from("../../../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: the recorded traces `{name}` are not here");
    None
}

/// Rows of a file of JSON lines.
pub fn json_lines(name: &str) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(path(name)?).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Rows of a Parquet file.
pub fn parquet(name: &str) -> Option<Vec<Value>> {
    let file = TableFile::open(&path(name)?).unwrap();
    let batches = file.read(0, file.rows(), None).unwrap();
    Some(batches.flat_map(|batch| json_rows::to_json(&batch.unwrap())).map(Value::Object).collect())
}

/// Ten competition problems with eight recorded answers each, as traces, and the scores recorded beside them.
pub fn eight_a_problem() -> Option<(Vec<Value>, Vec<bool>)> {
    let (mut traces, mut scores) = (Vec::new(), Vec::new());
    for row in json_lines("traces-math-8x/math_cot_100.jsonl")? {
        let answers = row["code"].as_array().unwrap().iter().zip(row["score"].as_array().unwrap());
        for (sample, (response, score)) in answers.enumerate() {
            let query = format!("math-{}", row["idx"]);
            traces.push(json!({
                "query_id": query, "trace_id": format!("{query}-{sample}"), "sample": sample, "domain": "math",
                "prompt": row["question"], "label": row["gt"], "response": response, "finish_reason": "stop",
            }));
            scores.push(score.as_bool().unwrap());
        }
    }
    Some((traces, scores))
}

/// Rollouts of a small model, several a problem, as traces; beside each the verdict recorded with it, where there is
/// one.
pub fn small_model_rollouts() -> Option<(Vec<Value>, Vec<Option<bool>>)> {
    let rows = parquet("smollm2-rollouts/rollouts.parquet")?;
    let traces = rows.iter().enumerate().map(|(index, row)| {
        json!({
            "query_id": row["prompt_id"].to_string(), "trace_id": format!("rollout-{index}"), "domain": "math",
            "subdomain": row["task"], "source": row["source"], "prompt": row["question"], "label": row["answer"],
            "sample": row["sample_index"].to_string().trim_matches('"').parse::<i64>().unwrap(), "response": row["completion"], "finish_reason": row["finish_reason"],
        })
    });
    let recorded = rows.iter().map(|row| row["reference_correct"].as_bool()).collect();
    Some((traces.collect(), recorded))
}
