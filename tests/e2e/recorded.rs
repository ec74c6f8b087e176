//! Real traces with recorded verdicts, through one dag: imported, judged, counted. Read from beside the repository.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::support::{Project, shared};

const DAG: &str = r#"
[stages.eight]
kind = "import"
files = ["eight.jsonl"]
rows = "traces"
domain = "math"
model = "recorded"
each = { lists = ["code", "score", "pred"] }
columns = { prompt = "question", label = "answer", response = "code" }

[stages.grade_school]
kind = "import"
files = ["grade_school.jsonl"]
rows = "traces"
domain = "math"
each = { columns = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"] }
columns = { prompt = "question", label = "ground_truth", response = "item.solution" }
label_after = "A:"

[stages.rollouts]
kind = "import"
files = ["rollouts.parquet"]
rows = "traces"
domain = "math"
columns = { prompt = "question", label = "answer", subdomain = "task", response = "completion", finish_reason = "finish_reason", sample = "sample_index", model = "model", source = "source" }

[stages.small]
kind = "select"
inputs = "rollouts"
where = "subdomain <> 'mbpp' and subdomain <> 'mmlu_stem'"

[stages.all]
kind = "mix"
inputs = { rows = ["eight", "grade_school", "small"] }

[stages.fluent]
kind = "filter_repetition"
inputs = "all"

[stages.judged]
kind = "verify"
inputs = "all"

[stages.hardness]
kind = "difficulty"
inputs = "judged"
"#;

/// The verdict that came with a trace.
fn recorded(row: &Value) -> Option<bool> {
    let extra: Value = serde_json::from_str(row["extra"].as_str()?).ok()?;
    let places = [&extra["score"], &extra["item"]["is_correct"], &extra["reference_correct"]];
    places.into_iter().find_map(Value::as_bool)
}

fn set_of(row: &Value) -> String {
    row["source"].as_str().unwrap_or_default().split('.').next().unwrap_or_default().to_owned()
}

#[test]
fn verdicts_agree_with_the_recorded_ones() {
    let Some(shared) = shared() else { return };
    let project = Project::new(DAG);
    let place = |from: &str, to: &str| {
        std::fs::copy(shared.join("data").join(from), project.path().join(to)).unwrap();
    };
    place("traces-math-8x/math_cot_100.jsonl", "eight.jsonl");
    place("traces-gsm8k-gpt3/example_model_solutions.jsonl", "grade_school.jsonl");
    place("smollm2-rollouts/rollouts.parquet", "rollouts.parquet");
    assert!(Path::new(&project.path().join("rollouts.parquet")).exists());
    project.run(&[]).ok();

    let mut sets: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut differences: BTreeMap<String, u64> = BTreeMap::new();
    for row in project.rows("judged", &[]) {
        let Some(expected) = recorded(&row) else { continue };
        let verdict = row["verdict"].as_str().unwrap();
        let reason = row["verdict_reason"].as_str().unwrap_or_default().split(':').next().unwrap_or_default();
        let name = if row["subdomain"].is_null() { set_of(&row) } else { "rollouts".to_owned() };
        let agrees = (verdict == "correct") == expected;
        let counts = sets.entry(name.clone()).or_default();
        counts.0 += u64::from(agrees);
        counts.1 += 1;
        if !agrees {
            let task = row["subdomain"].as_str().unwrap_or_default();
            *differences.entry(format!("{name} {task}: recorded {expected}, {verdict} ({reason})")).or_default() += 1;
        }
    }
    println!("{sets:#?}\n{differences:#?}");
    assert_eq!(sets.len(), 3, "{sets:?}");
    for (name, (agreed, rows)) in &sets {
        assert!(agreed * 100 >= rows * 95, "{name}: {agreed} of {rows} agree\n{differences:#?}");
    }
    assert_eq!(sets["eight"].1, 640);
    assert_eq!(sets["grade_school"].1, 4220);
    let counts = project.success("fluent")["counts"].clone();
    let rejected: u64 = counts["rejected"].as_object().unwrap().values().map(|rows| rows.as_u64().unwrap()).sum();
    assert_eq!(counts["read"].as_u64().unwrap(), counts["kept"].as_u64().unwrap() + rejected);
}
