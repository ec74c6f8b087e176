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

#[test]
fn every_prompt_of_the_data_set_is_read() {
    let Some(prompts) = shared("data/ifeval/input_data.jsonl") else {
        return;
    };
    let mut asked = 0;
    let mut refused = Vec::new();
    for prompt in &prompts {
        let ids = prompt["instruction_id_list"].as_array().unwrap();
        for (id, kwargs) in ids.iter().zip(prompt["kwargs"].as_array().unwrap()) {
            asked += 1;
            if let Err(error) = Constraint::parse(id.as_str().unwrap(), kwargs) {
                refused.push(format!("{}: {error}", prompt["key"]));
            }
        }
    }
    println!("{} prompts, {asked} constraints, {} refused", prompts.len(), refused.len());
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
