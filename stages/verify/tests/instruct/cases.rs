//! The labelled cases and the prompts of the data set, where they lie beside the repository.

use serde_json::Value;
use stage_verify::instruct::{Constraint, kinds};
use std::{fs, path::PathBuf};

fn shared(name: &str) -> Option<Vec<Value>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "target folders outlive clones, so the path is asked for at run time"
    )]
    let root = std::env::var("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let Ok(text) = fs::read_to_string(root.join("../../../shared").join(name)) else {
        println!("skipped: shared/{name} is absent");
        return None;
    };
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn is_known(id: &str) -> bool {
    kinds().iter().any(|kind| kind.id == id)
}

#[test]
fn every_shared_case_of_a_known_kind_has_its_label() {
    let Some(cases) = shared("cases/ifeval.jsonl") else {
        return;
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    for case in cases.iter().filter(|case| is_known(case["instruction_id"].as_str().unwrap())) {
        seen += 1;
        let constraint = Constraint::parse(case["instruction_id"].as_str().unwrap(), &case["kwargs"]).unwrap();
        let found = constraint.check(case["response"].as_str().unwrap());
        if found.holds != case["expected"] {
            wrong.push(format!("{} {}: {} ({})", case["id"], constraint.id(), found.holds, found.why));
        }
    }
    println!("{seen} cases, {} at another label", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
