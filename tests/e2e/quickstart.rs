//! The sample project: what the README promises, on the files that are in the repository.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::support::{Project, ended, repository};

fn ids(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// The file's own id of a row.
fn own_id(row: &Value) -> String {
    let extra: Value = serde_json::from_str(row["extra"].as_str().unwrap()).unwrap();
    extra["id"].as_str().unwrap().to_owned()
}

#[test]
fn every_stage_accounts_for_every_row_and_finds_what_is_planted() {
    let project = Project::quickstart();
    let ended = project.run(&["--offline"]).ok();
    for stage in ended.json()["stages"].as_array().unwrap() {
        let counts = &stage["counts"];
        let number = |value: &Value| value.as_u64().unwrap();
        let rejected: u64 = counts["rejected"].as_object().unwrap().values().map(number).sum();
        assert_eq!(number(&counts["read"]), number(&counts["kept"]) + rejected, "{stage}");
        assert!(number(&counts["written"]) > 0, "{stage}");
        let name = stage["stage"].as_str().unwrap();
        assert_eq!(project.rows(name, &[]).len() as u64, number(&counts["written"]), "{name}");
        if rejected > 0 {
            assert_eq!(project.rows(name, &["--rejects"]).len() as u64, rejected, "{name}");
        }
    }
    let planted: Value = serde_json::from_str(&project.read("planted.json")).unwrap();
    let contaminated: BTreeSet<String> = project.rows("clean", &["--rejects"]).iter().map(own_id).collect();
    assert_eq!(contaminated, ids(&planted["contaminated"]));

    // one row of each planted pair falls out, and nothing else does
    let fallen: BTreeSet<String> = project.rows("unique", &["--rejects"]).iter().map(own_id).collect();
    let mut expected = 0;
    for kind in ["exact_duplicates", "near_duplicates"] {
        for pair in planted[kind].as_array().unwrap() {
            let pair = ids(pair);
            assert_eq!(pair.intersection(&fallen).count(), 1, "{kind} {pair:?}: {fallen:?}");
            expected += 1;
        }
    }
    assert_eq!(fallen.len(), expected);
}

#[test]
fn a_second_run_reuses_every_stage_and_says_so() {
    let project = Project::quickstart();
    project.run(&["--offline"]).ok();
    let second = project.run(&["--offline"]).ok();
    assert!(second.ran().is_empty(), "{}", second.err);
    for stage in second.states().keys() {
        assert!(second.reason(stage).contains("unchanged"), "{}", second.err);
    }
    assert_eq!(project.call("plan", &["--check"]).code, 0);
}

#[test]
fn plain_output_ends_with_a_table_a_histogram_and_places() {
    let project = Project::quickstart();
    let run = project.call("run", &["--offline"]).ok();
    for piece in ["stage", "rejected because of", "pass rates of `hardness`", "results", "record"] {
        assert!(run.out.contains(piece), "no `{piece}` in\n{}", run.out);
    }
}

#[test]
fn an_export_loads_in_python_with_the_rows_of_the_manifest() {
    let project = Project::quickstart();
    project.run(&["--offline"]).ok();
    for format in ["messages", "prompt-completion", "parquet"] {
        let folder = project.path().join(format!("export-{format}"));
        let to = folder.to_str().unwrap();
        let report = project.call("export", &["chosen", "--to", to, "--format", format, "--json"]).ok().json();
        let rows = project.success("chosen")["counts"]["written"].as_u64().unwrap();
        assert_eq!(report["rows"].as_u64(), Some(rows));
        assert!(std::fs::read_to_string(folder.join("README.md")).unwrap().contains("quickstart"));
        let Some(python) = python() else { continue };
        let script = repository().join("tests/python/check_export.py");
        let checked = ended(Command::new(python).arg(script).arg(&folder).arg(rows.to_string()).output().unwrap()).ok();
        assert!(checked.out.contains(&format!("{rows} rows ok")), "{checked:?}");
    }
}

/// The Python that `make test` prepares; without it the files are only looked at from Rust.
pub fn python() -> Option<String> {
    let python = std::env::var("PIPELINE_PYTHON").ok();
    if python.is_none() {
        println!("skipped in part: PIPELINE_PYTHON is not set, `make test` sets it");
    }
    python
}
