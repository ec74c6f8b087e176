//! Real data sets, read only: every row arrives, and mapped columns and `extra` together are the user's row.

use serde_json::{Value, json};

use super::{Project, Row, extra, read, texts};

/// Folder of the data sets, where the checkout has one.
pub fn shared() -> Option<std::path::PathBuf> {
    let folder = std::path::PathBuf::from("../../../shared/data");
    if folder.is_dir() {
        return folder.canonicalize().ok();
    }
    println!("skipped: the folder of data sets is absent");
    None
}

/// Rows of a data set by another way than the readers under test.
fn plain_rows(path: &std::path::Path) -> Vec<Value> {
    if path.extension().is_some_and(|ending| ending == "parquet") {
        return read(path).into_iter().map(Value::Object).collect();
    }
    let text = if path.extension().is_some_and(|ending| ending == "gz") {
        let file = std::fs::File::open(path).unwrap();
        std::io::read_to_string(flate2::read::MultiGzDecoder::new(file)).unwrap()
    } else {
        std::fs::read_to_string(path).unwrap()
    };
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(&text).unwrap();
    }
    text.split('\n').filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn without_empty_objects_and_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), without_empty_objects_and_nulls(value)));
            Value::Object(kept.filter(|(_, value)| !value.is_null() && *value != json!({})).collect())
        }
        Value::Array(items) => items.iter().map(without_empty_objects_and_nulls).collect(),
        other => other.clone(),
    }
}

fn same(cell: &Value, found: &Value) -> bool {
    match (cell, found) {
        (Value::String(text), Value::Number(number)) => *text == number.to_string(),
        (Value::Number(one), Value::Number(two)) => one.as_f64() == two.as_f64(),
        (Value::Array(cells), Value::Array(items)) => {
            cells.len() == items.len() && cells.iter().zip(items).all(|(cell, item)| same(cell, item))
        }
        (Value::Object(_), Value::Object(_)) => {
            without_empty_objects_and_nulls(cell) == without_empty_objects_and_nulls(found)
        }
        _ => cell == found,
    }
}

fn look_up<'a>(row: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(row, |value, key| value.get(key))
}

/// Every value of the user's row is in `extra`, or in the column that a plain path maps it to.
fn assert_whole(row: &Row, original: &Value, columns: &Value) {
    let left = extra(row);
    let mut rest = original.clone();
    for (column, path) in columns.as_object().unwrap() {
        let Some(path) = path.as_str().filter(|path| !path.contains('[')) else {
            continue;
        };
        let Some(value) = look_up(original, path) else {
            continue;
        };
        if look_up(&left, path) == Some(value) {
            continue;
        }
        let parsed = row[column].as_str().filter(|_| column == "tests");
        let parsed = parsed.map(|text| serde_json::from_str::<Value>(text).unwrap());
        let cell = match (&parsed, column.as_str()) {
            (Some(parsed), _) => parsed,
            (None, "prompt" | "system") => value,
            (None, _) => &row[column],
        };
        assert!(same(cell, value), "`{column}` = {cell} is not `{path}` = {value}");
        if column == "prompt" {
            assert_eq!(row["prompt"], *value);
        }
        let (parent, key) = path.rsplit_once('.').map_or(("", path), |(parent, key)| (parent, key));
        let parent = if parent.is_empty() {
            Some(&mut rest)
        } else {
            rest.pointer_mut(&format!("/{}", parent.replace('.', "/")))
        };
        if let Some(parent) = parent.and_then(Value::as_object_mut) {
            parent.remove(key);
        }
    }
    let (left, rest) = (without_empty_objects_and_nulls(&left), without_empty_objects_and_nulls(&rest));
    assert_eq!(left, rest);
}

/// Imports a data set and checks each row against the original.
fn check(file: &str, rows: usize, mut params: Value) -> Vec<Row> {
    let Some(shared) = shared() else {
        return Vec::new();
    };
    let path = shared.join(file);
    let mut project = Project::new();
    project.env.base = shared;
    project.env.shard_rows = 700;
    params["files"] = json!([file]);
    let imported = project.import(&params).unwrap();
    assert_eq!((imported.rows.len(), imported.rejects.len()), (rows, 0), "{file}");
    let originals = plain_rows(&path);
    assert_eq!(originals.len(), rows, "{file}");
    for (row, original) in imported.rows.iter().zip(&originals) {
        assert_whole(row, original, &params["columns"]);
        assert_eq!(row["source"], file);
    }
    imported.rows
}

#[test]
fn grade_school_problems_have_their_number_as_label() {
    let params = json!({"columns": {"prompt": "question", "label": "answer"}, "label_after": "####", "domain": "math"});
    let rows = check("gsm8k/train.jsonl", 5978, params.clone());
    assert!(texts(&rows, "label").iter().all(|label| label.chars().all(|digit| "-0123456789,.".contains(digit))));
    check("gsm8k/test.jsonl", 1055, params);
}

#[test]
fn competition_problems_have_their_last_box_as_label() {
    let params =
        json!({"columns": {"prompt": "problem", "label": "solution", "subdomain": "type"}, "label_boxed": true});
    let rows = check("math/test.jsonl", 4000, params);
    assert!(rows.iter().all(|row| row["label"].is_string()));
    check("math500/math500_test.json", 500, json!({"columns": {"prompt": "problem", "label": "answer"}}));
    check(
        "math-answer-pairs/math500_qwen3_answers.json",
        500,
        json!({"columns": {"prompt": "prediction", "label": "answer"}}),
    );
}

#[test]
fn options_and_labels_of_both_shapes_become_letters() {
    let columns = json!({"prompt": "question", "options": "options", "label": "correct"});
    let rows = check("aqua/dev.json", 254, json!({"columns": columns, "options_strip": true, "label_index": true}));
    if let Some(row) = rows.first() {
        assert_eq!(row["options"], json!(["32400", "6000", "600", "60000", "10"]));
        assert_eq!(row["label"], "A");
    }
    let columns = json!({"prompt": "question", "options": "choices", "label": "answer", "subdomain": "type"});
    let rows = check("mmlu_stem/test.jsonl", 2414, json!({"columns": columns, "label_index": true}));
    if let Some(row) = rows.first() {
        assert_eq!(row["label"], "C");
    }
}

#[test]
fn numbers_as_labels_keep_their_digits() {
    for (file, count) in [("addsub", 395), ("multiarith", 600), ("singleeq", 508), ("singleop", 562)] {
        let columns = json!({"prompt": "input", "label": "target"});
        let rows = check(&format!("mawps/{file}.jsonl"), count, json!({"columns": columns}));
        if let Some(row) = rows.first() {
            assert_eq!(row["label"].as_str().unwrap().contains('.'), file != "multiarith");
        }
    }
    check("cmath/cmath_dev.jsonl", 600, json!({"columns": {"prompt": "input", "label": "golden"}}));
    let columns = json!({"prompt": ["Body", "Question"], "label": "Answer", "subdomain": "Type"});
    let rows = check("svamp/SVAMP.json", 1000, json!({"columns": columns}));
    if let Some(row) = rows.first() {
        assert_eq!(row["label"], "51.0");
        assert!(
            row["prompt"].as_str().unwrap().ends_with("on each pack How much do you have to pay to buy each pack?")
        );
    }
}

#[test]
fn code_and_instruction_sets_keep_what_has_no_place() {
    check("humaneval/HumanEval.jsonl.gz", 164, json!({"columns": {"prompt": "prompt"}, "domain": "code"}));
    let rows = check("mbpp/mbpp.jsonl", 487, json!({"columns": {"prompt": "text", "tests": "test_list"}}));
    assert!(rows.iter().filter(|row| row["extra"].as_str().unwrap().contains("\\r\\n")).count() >= rows.len().min(486));
    let columns = json!({"prompt": "prompt", "constraints": ["instruction_id_list", "kwargs"]});
    let Some(shared) = shared() else { return };
    let mut project = Project::new();
    project.env.base = shared;
    let rows = project.rows(&json!({"files": ["ifeval/input_data.jsonl"], "columns": columns}));
    assert_eq!(rows.len(), 432);
    assert_eq!(
        rows[0]["constraints"][1],
        json!({"id": "detectable_format:number_highlighted_sections", "kwargs": "{\"num_highlights\": 3}"})
    );
    assert_eq!(extra(&rows[0]), json!({"key": 1000}));
}

#[test]
fn lists_nulls_and_missing_keys_survive() {
    let columns = json!({"prompt": "question", "label": "final_answer[0]", "subdomain": "subfield"});
    check("olympiadbench/test.jsonl", 540, json!({"columns": columns}));
    check(
        "reasoning-gym/tasks.jsonl",
        2000,
        json!({"columns": {"prompt": "question", "label": "answer", "subdomain": "dataset"}}),
    );
    check("mt_bench/question.jsonl", 80, json!({"columns": {"prompt": "turns[0]", "subdomain": "category"}}));
    check("mt_bench/reference_answer_gpt-4.jsonl", 30, json!({"columns": {"prompt": "choices[0].turns[0]"}}));
    check(
        "self-instruct/seed_tasks.jsonl",
        175,
        json!({"columns": {"prompt": "instruction", "label": "instances[0].output"}}),
    );
    for (part, count) in [
        ("atkins", 105),
        ("atkins_sol", 16),
        ("calculus", 42),
        ("calculus_sol", 10),
        ("chemmc", 38),
        ("chemmc_sol", 9),
        ("diff", 50),
        ("diff_sol", 5),
        ("fund", 71),
        ("fund_sol", 10),
        ("matter", 47),
        ("matter_sol", 10),
        ("stat", 72),
        ("stat_sol", 20),
        ("thermo", 66),
        ("thermo_sol", 17),
    ] {
        let columns = json!({"prompt": "problem_text", "label": "answer_number"});
        check(&format!("scibench/{part}.json"), count, json!({"columns": columns}));
    }
}

#[test]
fn nested_parquet_with_other_types_in_each_file_imports_alike() {
    let columns = json!({"messages": "prompt", "label": "reward_model.ground_truth", "domain": "ability"});
    for file in ["aime", "aime25", "hmmt25"] {
        let rows = check(&format!("vibethinker-eval/{file}.parquet"), 30, json!({"columns": columns}));
        if let Some(row) = rows.first() {
            assert_eq!(extra(row)["reward_model"], json!({"style": "rule"}));
            assert_eq!(
                row["label"],
                match file {
                    "aime" => "204",
                    "aime25" => "70",
                    _ => "103",
                }
            );
        }
    }
}

#[test]
fn one_glob_may_mean_files_with_different_columns() {
    let Some(shared) = shared() else { return };
    let mut project = Project::new();
    project.env.base = shared;
    let rows = project.rows(&json!({"files": ["scibench/*.json"], "columns": {"prompt": "problem_text"}}));
    assert_eq!(rows.len(), 588);
    let names: std::collections::BTreeSet<_> = texts(&rows, "source").into_iter().collect();
    assert_eq!(names.len(), 16);
}
