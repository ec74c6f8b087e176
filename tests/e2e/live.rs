//! A real model in the process: the live run gives what was recorded, kills cost only what was in flight, and weights
//! that cannot be used are named before any work.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Project, model};

/// Problems of the sample project that the model is asked in these tests.
const PROBLEMS: &str = "24";
/// Samples of each problem in the sample project.
const SAMPLES: u64 = 4;

/// The sample project with the model in its place.
fn quickstart(model: &Path) -> Project {
    let project = Project::quickstart();
    std::fs::create_dir_all(project.path().join("models")).unwrap();
    symlink(model, project.path().join("models/smollm2-135m-instruct-q4_1.gguf")).unwrap();
    project
}

/// Number of calls in the store of a project.
fn stored(project: &Project) -> u64 {
    let folder = project.path().join("out/calls");
    if !folder.is_dir() {
        return 0;
    }
    let mut program = crate::support::program();
    let listed = crate::support::ended(program.arg("calls").arg(&folder).arg("--json").output().unwrap()).ok().json();
    listed["calls"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["stage"] == "paths")
        .map(|part| part["calls"].as_u64().unwrap())
        .sum()
}

/// Digest of each stage below `out/try`.
fn digests(project: &Project) -> Vec<(String, String)> {
    let links = project.path().join("out/try");
    let mut digests = Vec::new();
    for entry in std::fs::read_dir(links).unwrap().map(Result::unwrap) {
        if let Ok(text) = std::fs::read_to_string(entry.path().join("_SUCCESS.json")) {
            let record: serde_json::Value = serde_json::from_str(&text).unwrap();
            digests.push((entry.file_name().into_string().unwrap(), record["digest"].as_str().unwrap().to_owned()));
        }
    }
    digests.sort();
    digests
}

const UNTIL_PATHS: [&str; 5] = ["--json", "--limit", PROBLEMS, "--until", "verified"];

#[test]
fn a_live_run_gives_the_bytes_of_the_recorded_one_for_any_number_of_threads() {
    let Some(model) = model() else { return };
    let recorded = Project::quickstart();
    recorded.run(&["--offline", "--limit", PROBLEMS]).ok();
    assert_eq!(stored(&recorded), 0);
    for jobs in ["1", "2"] {
        let live = quickstart(&model);
        live.run(&["--limit", PROBLEMS, "--jobs", jobs]).ok();
        assert!(stored(&live) >= 20 * SAMPLES, "{} calls", stored(&live));
        assert_eq!(digests(&live), digests(&recorded), "{jobs} threads");
    }
}

#[test]
fn a_kill_during_live_sampling_costs_only_what_was_in_flight() {
    let Some(model) = model() else { return };
    let whole = quickstart(&model);
    whole.call("run", &UNTIL_PATHS).ok();
    let (expected, all) = (digests(&whole), stored(&whole));
    for kill_after in [1, all / 3, all * 2 / 3] {
        let project = quickstart(&model);
        let mut child = project.start("run", &UNTIL_PATHS);
        let deadline = Instant::now() + Duration::from_mins(5);
        while stored(&project) < kill_after && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let before = stored(&project);
        assert!(before >= kill_after);
        project.call("run", &UNTIL_PATHS).ok();
        // a call that was stored before the kill is not there twice
        assert_eq!(stored(&project), all, "{before} calls before the kill");
        assert_eq!(digests(&project), expected);
    }
}

#[test]
fn weights_of_another_digest_are_refused_before_any_work() {
    let Some(model) = model() else { return };
    let project = quickstart(&model);
    project.edit("sha256:b179c9523d0e6a0f", "sha256:0000000000000000");
    let refused = project.run(&[]);
    assert_ne!(refused.code, 0);
    for piece in ["sha256:b179c9523d0e6a0f", "sha256:0000000000000000", "smollm2-135m-instruct-q4_1.gguf"] {
        assert!(refused.err.contains(piece), "no `{piece}` in {}", refused.err);
    }
    assert!(!project.path().join("out/problems").exists(), "work was done before the refusal");
}

#[test]
fn missing_weights_are_named_with_the_way_out_before_any_work() {
    let project = Project::quickstart();
    let refused = project.run(&[]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("smollm2-135m-instruct-q4_1.gguf"), "{}", refused.err);
    assert!(refused.err.contains("--offline"), "{}", refused.err);
    assert!(!project.path().join("out/problems").exists(), "work was done before the refusal");
}

#[test]
fn a_cut_model_file_is_refused_with_what_is_missing() {
    let Some(model) = model() else { return };
    let project = Project::quickstart();
    let bytes = std::fs::read(model).unwrap();
    for (length, name) in [(0, "empty"), (20, "header"), (1_000_000, "metadata"), (50_000_000, "tensors")] {
        let path = format!("models/{name}.gguf");
        project.write(&path, &bytes[..length]);
        let text = project.read("dag.toml");
        let without_digest: Vec<&str> = text.lines().filter(|line| !line.starts_with("digest =")).collect();
        let without_digest = without_digest.join("\n");
        project.write("cut.toml", without_digest.replace("models/smollm2-135m-instruct-q4_1.gguf", &path));
        let mut program = crate::support::program();
        let refused = crate::support::ended(
            program.arg("run").arg(project.path().join("cut.toml")).args(["--limit", "3"]).output().unwrap(),
        );
        assert!(refused.code == 3 || refused.code == 2 || refused.code == 4, "{name}: {refused:?}");
        assert!(refused.err.contains(&format!("{name}.gguf")), "{name}: {}", refused.err);
        assert!(!refused.err.contains("panicked"), "{name}: {}", refused.err);
    }
}

#[test]
fn a_question_longer_than_the_context_is_a_reject_with_numbers() {
    let Some(model) = model() else { return };
    let project = quickstart(&model);
    let long = "word ".repeat(9_000);
    project.write(
        "problems.jsonl",
        format!(
            "{}\n{}\n",
            serde_json::json!({"id": "a", "question": "What is 2 + 3?", "answer": "5", "family": "f"}),
            serde_json::json!({"id": "b", "question": long, "answer": "5", "family": "f"})
        ),
    );
    project.run(&["--until", "paths"]).ok();
    let rejects = project.rows("paths", &["--rejects"]);
    assert!(!rejects.is_empty() && rejects.iter().all(|row| row["reject_reason"] == "context_exceeded"), "{rejects:?}");
    let evidence = rejects[0]["reject_evidence"].to_string();
    assert!(evidence.contains("8192"), "{evidence}");
    assert_eq!(project.rows("paths", &[]).len() as u64, SAMPLES);
}
