//! The quickstart's problems through `decontaminate` and `dedup`: all that was planted is found, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial};
use schemas::ids::{MessageRef, query_id};
use schemas::queries;
use serde_json::{Value, json};

use crate::decontaminate::Decontaminate;
use crate::dedup::Dedup;

fn file(name: &str) -> String {
    let path = PathBuf::from("../../datasets/quickstart").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Rows of a file as `import` makes them; `extra` holds the file's own id.
fn queries(name: &str) -> Vec<Value> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let prompt = row["question"].as_str().unwrap();
        let message = MessageRef { role: "user", content: prompt, tool_calls: None };
        json!({
            "query_id": query_id(Some("math"), [message].into_iter(), None),
            "domain": "math",
            "prompt": prompt,
            "label": row["answer"],
            "extra": row["id"],
        })
    };
    file(name).lines().map(row).collect()
}

fn ids(rows: &[Value]) -> BTreeSet<String> {
    rows.iter().map(|row| row["extra"].as_str().unwrap().to_owned()).collect()
}

fn rejected(outcome: &Outcome, reason: &str) -> BTreeSet<String> {
    let rows = outcome.rejects.iter().filter(|row| row["reject_reason"] == reason);
    rows.map(|row| row["extra"].as_str().unwrap().to_owned()).collect()
}

fn pairs(planted: &Value, name: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    planted[name].as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn cleaned(cut: &Cut) -> Outcome {
    let entry = StageEntry::stage::<Decontaminate>();
    Trial::new(&entry, json!({}))
        .rows("rows", &queries::TABLE, queries("problems.jsonl"))
        .rows("eval", &queries::TABLE, queries("eval.jsonl"))
        .run(cut)
        .unwrap()
}

fn deduplicated(rows: &[Value], cut: &Cut) -> Outcome {
    let entry = StageEntry::stage::<Dedup>();
    Trial::new(&entry, json!({})).rows("rows", &queries::TABLE, rows.to_vec()).run(cut).unwrap()
}

#[test]
fn every_planted_contamination_is_found_and_nothing_else() {
    let planted: Value = serde_json::from_str(&file("planted.json")).unwrap();
    let outcome = cleaned(&Cut::WHOLE);
    let items: BTreeMap<String, String> = queries("eval.jsonl")
        .iter()
        .map(|row| (row["query_id"].as_str().unwrap().to_owned(), row["extra"].as_str().unwrap().to_owned()))
        .collect();
    let found: BTreeSet<(String, String)> = outcome
        .rejects
        .iter()
        .map(|row| {
            let evidence: Value = serde_json::from_str(row["reject_evidence"].as_str().unwrap()).unwrap();
            (row["extra"].as_str().unwrap().to_owned(), items[evidence["item"].as_str().unwrap()].clone())
        })
        .collect();
    let expected: BTreeSet<(String, String)> = pairs(&planted, "contamination").into_iter().collect();
    assert_eq!(found, expected);
    assert_eq!(outcome.rejected, [("contaminated".to_owned(), 14)].into());
    assert_eq!(cleaned(&Cut::slices(7).files(50)).rejects, outcome.rejects);
}

#[test]
fn one_of_each_planted_pair_of_duplicates_falls_out_and_nothing_else() {
    let planted: Value = serde_json::from_str(&file("planted.json")).unwrap();
    let rows = cleaned(&Cut::WHOLE).rows().to_vec();
    let outcome = deduplicated(&rows, &Cut::WHOLE);
    for (reason, name) in [("exact_duplicate", "exact_duplicates"), ("near_duplicate", "near_duplicates")] {
        let mut fallen = rejected(&outcome, reason);
        for (one, two) in pairs(&planted, name) {
            assert!(fallen.remove(&one) != fallen.remove(&two), "{reason} {one} {two}");
        }
        assert_eq!(fallen, BTreeSet::new(), "{reason}");
    }
    assert_eq!(outcome.rejected.keys().collect::<Vec<_>>(), ["exact_duplicate", "near_duplicate"]);
    let kept = ids(outcome.rows());
    for (one, two) in pairs(&planted, "number_twins") {
        assert!(kept.contains(&one) && kept.contains(&two), "{one} {two}");
    }
    assert_eq!(outcome.notes["clusters"]["clusters"], 20);
    let again = deduplicated(outcome.rows(), &Cut::WHOLE);
    assert_eq!((again.read, again.kept), (231, 231));
}

#[test]
fn neither_order_nor_cut_changes_which_problems_stay() {
    let rows = cleaned(&Cut::WHOLE).rows().to_vec();
    let problems = |outcome: &Outcome| -> BTreeSet<String> {
        outcome.rows().iter().map(|row| row["query_id"].as_str().unwrap().to_owned()).collect()
    };
    let whole = deduplicated(&rows, &Cut::WHOLE);
    let cut = deduplicated(&rows, &Cut::slices(11).files(40).backwards());
    assert_eq!((cut.rows(), &cut.rejects, &cut.notes), (whole.rows(), &whole.rejects, &whole.notes));
    let mut backwards = rows.clone();
    backwards.reverse();
    assert_eq!(problems(&deduplicated(&backwards, &Cut::WHOLE)), problems(&whole));
}
