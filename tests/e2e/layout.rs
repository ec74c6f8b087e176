//! Which crate may depend on which: the list of ARCHITECTURE.md, held against `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::support::repository;

const ALLOWED: [(&str, &[&str]); 15] = [
    ("schemas", &[]),
    ("pipeline-core", &["schemas"]),
    ("pipeline-engine", &["pipeline-core", "schemas"]),
    ("pipeline-models", &[]),
    ("pipeline-hub", &["pipeline-core", "schemas"]),
    ("pipeline-serve", &["pipeline-models", "stage-candle", "stage-tokens"]),
    ("scripted-server", &[]),
    ("stage-tokens", &[]),
    ("stage-candle", &["pipeline-models", "stage-tokens"]),
    ("stage-train", &["stage-candle", "stage-tokens"]),
    ("stage-phases", &["pipeline-core", "pipeline-models", "schemas", "stage-candle", "stage-tokens", "stage-train"]),
    ("stage-text", &[]),
    ("stage-verify", &[]),
    ("stage-curate", &["pipeline-core", "pipeline-models", "schemas", "stage-text", "stage-verify"]),
    ("stage-relational", &["pipeline-core", "schemas", "stage-tokens"]),
];

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    for package in packages {
        let this = name(package);
        if this == "pipeline-cli" {
            continue;
        }
        let may = allowed.get(this.as_str()).unwrap_or_else(|| panic!("`{this}` is not in the list"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = name(dependency);
            let is_for_tests = dependency["kind"] == "dev";
            assert!(
                !ours.contains(&other) || is_for_tests || may.contains(&other.as_str()),
                "`{this}` must not depend on `{other}`"
            );
        }
    }
}

#[test]
fn the_page_of_kinds_is_what_the_program_prints() {
    let printed = crate::support::ended(crate::support::program().args(["kinds", "--markdown"]).output().unwrap()).ok();
    let page = std::fs::read_to_string(repository().join("docs/kinds.md")).unwrap();
    assert!(printed.out == page, "docs/kinds.md is out of date: pipeline kinds --markdown > docs/kinds.md");
}

#[test]
fn the_page_of_a_kind_lists_every_parameter_that_its_example_fills_in() {
    for entry in &pipeline_cli::registry().0 {
        let page = crate::support::ended(crate::support::program().args(["kinds", entry.kind]).output().unwrap()).ok();
        let filled = (entry.parse)(&(entry.example)().params).unwrap().params();
        for name in filled.as_object().into_iter().flatten().map(|(name, _)| name) {
            assert!(page.out.contains(&format!("`{name}`")), "{}: {name}\n{}", entry.kind, page.out);
        }
    }
}
