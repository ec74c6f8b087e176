//! Scores of given texts and weights in the process: from recordings, without the weights, and what is refused.

use serde_json::{Value, json};

use crate::sums;
use crate::support::{Project, ended, program};

/// SHA-256 of `abc`.
const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

const STAGES: &str = r#"
[stages.traces]
kind = "import"
files = ["traces.jsonl"]
rows = "traces"
domain = "math"
columns = { prompt = "question", label = "answer", response = "solution", finish_reason = "end" }

[stages.potential]
kind = "learning_potential"
inputs = "traces"
model = "student"
"#;

const REPLAY: &str = "engine = \"replay\"\nmodel = \"student\"\nrecordings = [\"scores.jsonl\"]\n";

fn local(more: &str) -> String {
    format!("engine = \"local\"\npath = \"w.gguf\"\n{more}\n")
}

/// Three traces to be scored, and recorded scores of them.
fn project(model: &str, identity: (&str, Option<&str>)) -> Project {
    let project = Project::new(&format!("[models.student]\n{model}{STAGES}"));
    let solutions = [("2 + 2 = 4", "stop", -4.5, 9), ("", "stop", -1.0, 1), ("等于", "length", -0.1, 3)];
    let mut traces = String::new();
    let mut scores = String::new();
    for (solution, end, log_prob, tokens) in solutions {
        let trace = json!({"question": "What is 2 + 2?", "answer": "4", "solution": solution, "end": end});
        traces += &format!("{trace}\n");
        let score = json!({
            "model": identity.0, "revision": identity.1,
            "messages": [{"role": "user", "content": "What is 2 + 2?"}], "response": solution,
            "is_complete": end == "stop", "score": {"log_prob": log_prob, "tokens": tokens},
        });
        scores += &format!("{score}\n");
    }
    project.write("traces.jsonl", traces);
    project.write("scores.jsonl", scores);
    project
}

fn potentials(project: &Project) -> Vec<Value> {
    project.rows("potential", &[]).iter().map(|row| row["learning_potential"].clone()).collect()
}

#[test]
fn recorded_scores_become_learning_potentials() {
    let project = project(REPLAY, ("student", None));
    let run = project.run(&[]).ok();
    assert_eq!(run.ran(), ["potential", "traces"]);
    assert_eq!(potentials(&project), [json!(0.5), json!(0.1 / 3.0)]);
    assert_eq!(project.success("potential")["counts"]["rejected"], json!({"no_response": 1}));
    assert!(project.run(&["--offline"]).ok().ran().is_empty());
}

#[test]
fn a_score_that_is_not_recorded_is_counted_and_named() {
    let project = project(REPLAY, ("student", None));
    project.write("scores.jsonl", project.read("scores.jsonl").replace("等于", "不"));
    let run = project.run(&[]);
    assert_eq!(run.code, 3, "{run:#?}");
    for piece in ["1 answers of model `student` are not recorded", "score of \"等于\" after \"What is 2 + 2?\""] {
        assert!(run.err.contains(piece), "no `{piece}` in\n{}", run.err);
    }
}

#[test]
fn a_server_that_is_to_score_is_a_mistake_found_before_anything_runs() {
    let server = "engine = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    let project = project(server, ("m", None));
    for command in ["check", "run"] {
        let ended = project.call(command, &[]);
        assert_eq!(ended.code, 2, "{ended:#?}");
        let pieces = [
            "kind `learning_potential`: model `student` has engine `openai`, and servers do not score given texts",
            "only engine `local` can",
            "dag.toml:16:9",
        ];
        for piece in pieces {
            assert!(ended.err.contains(piece), "no `{piece}` in\n{}", ended.err);
        }
    }
    assert!(!project.path().join("out").exists());
}

#[test]
fn a_digest_stands_for_weights_that_are_not_there() {
    let model = local(&format!("digest = \"{ABC}\"\nrecordings = [\"scores.jsonl\"]"));
    let project = project(&model, (ABC, Some("f32")));
    project.call("check", &[]).ok();
    let plan = project.call("plan", &[]).ok();
    assert!(plan.out.contains("potential"), "{plan:#?}");
    let run = project.run(&[]);
    assert_eq!(run.code, 4, "{run:#?}");
    for piece in ["stage `potential` needs model `student`", "no weights at", "w.gguf", "--offline"] {
        assert!(run.err.contains(piece), "no `{piece}` in\n{}", run.err);
    }
    assert!(!project.path().join("out/traces").exists(), "nothing ran");
    project.run(&["--offline"]).ok();
    assert_eq!(potentials(&project).len(), 2);
    let stale = project.call("plan", &["--force", "potential"]);
    assert!(stale.out.contains("about 2 calls, 12 tokens in, 0 out") && !stale.out.contains("USD"), "{stale:#?}");
    // all is there: a live run needs no weights any more
    assert!(project.run(&[]).ok().ran().is_empty());
}

#[test]
fn weights_that_are_there_are_known_by_their_digest() {
    let project = project(&local("recordings = [\"scores.jsonl\"]"), (ABC, Some("f32")));
    project.write("w.gguf", "abc");
    project.run(&["--offline"]).ok();
    let recipe: Value = serde_json::from_str(&project.read("out/potential/recipe.json")).unwrap();
    assert_eq!(recipe["models"]["model"], format!("{ABC}@f32"));
    // naming the digest, or taking the weights away then, changes nothing
    project.edit("path = \"w.gguf\"", &format!("path = \"w.gguf\"\ndigest = \"{ABC}\""));
    assert!(project.run(&[]).ok().ran().is_empty());
    std::fs::remove_file(project.path().join("w.gguf")).unwrap();
    assert!(project.run(&[]).ok().ran().is_empty());
}

#[test]
fn other_weights_than_those_of_the_digest_are_refused() {
    let project = project(&local(&format!("digest = \"{ABC}\"")), (ABC, Some("f32")));
    project.write("w.gguf", "abd");
    let check = project.call("check", &[]);
    assert_eq!(check.code, 2, "{check:#?}");
    let found = "found sha256:a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9";
    for piece in ["w.gguf", &format!("expected {ABC}"), found, "dag.toml:4:1"] {
        assert!(check.err.contains(piece), "no `{piece}` in\n{}", check.err);
    }
}

#[test]
fn weights_without_digest_and_without_file_are_a_mistake_with_a_way_out() {
    let project = project(&local(""), (ABC, Some("f32")));
    let pieces = ["model `student`: there are no weights at", "w.gguf", "dag.toml:3:1", "put them there", "--offline"];
    let check = project.call("check", &[]);
    assert_eq!(check.code, 2, "{check:#?}");
    for piece in pieces {
        assert!(check.err.contains(piece), "no `{piece}` in\n{}", check.err);
    }
    project.write("fetch_model.sh", "");
    let check = project.call("check", &[]);
    assert!(check.err.contains("fetch them with `bash ") && check.err.contains("fetch_model.sh`"), "{check:#?}");
}

#[test]
fn a_stage_that_makes_no_weights_is_refused_with_its_place() {
    let project = project("engine = \"local\"\nstage = \"traces\"\n", (ABC, Some("f32")));
    let check = project.call("check", &[]);
    assert_eq!(check.code, 2, "{check:#?}");
    assert!(check.err.contains("takes checkpoints, and `traces` gives traces"), "{check:#?}");
}

const LIVE: &str = r#"
[models.student]
engine = "local"
path = "w.gguf"
digest = "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", label = "answer" }

[stages.paths]
kind = "sample"
inputs = "problems"
model = "student"
n = 2
max_tokens = 12
logprobs = true

[stages.potential]
kind = "learning_potential"
inputs = "paths"
model = "student"
"#;

#[test]
fn a_text_is_as_likely_when_it_is_scored_as_when_it_was_written_and_needs_no_weights_any_more() {
    let Some(weights) = crate::support::model() else { return };
    let project = Project::new(LIVE);
    project.write("problems.jsonl", sums::problems(0, 3));
    std::os::unix::fs::symlink(weights, project.path().join("w.gguf")).unwrap();
    project.run(&[]).ok();
    let rows = project.rows("potential", &[]);
    assert_eq!(rows.len(), 6);
    for row in &rows {
        let written: Vec<f64> =
            row["token_logprobs"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let mean = -written.iter().sum::<f64>() / written.len() as f64;
        let potential = row["learning_potential"].as_f64().unwrap();
        assert!((mean - potential).abs() < 1e-5, "written {mean}, scored {potential}: {row}");
        assert_eq!(row["token_ids"].as_array().unwrap().len(), written.len());
        assert_eq!(row["completion_tokens"], json!(written.len()));
        for column in ["tokenizer", "template"] {
            assert!(row[column].as_str().unwrap().starts_with("sha256:"), "{row}");
        }
    }
    let calls = ended(program().arg("calls").arg(project.path().join("out/calls")).arg("--json").output().unwrap());
    let counts: Vec<Value> = calls.ok().json()["calls"].as_array().unwrap().clone();
    let of = |stage: &str| counts.iter().find(|part| part["stage"] == stage).unwrap().clone();
    assert_eq!((&of("paths")["calls"], &of("paths")["scores"]), (&json!(6), &json!(0)));
    assert_eq!((&of("potential")["calls"], &of("potential")["scores"]), (&json!(6), &json!(6)));
    let before = project.digests();
    std::fs::remove_file(project.path().join("w.gguf")).unwrap();
    project.run(&["--offline", "--force", "paths", "--force", "potential"]).ok();
    assert_eq!(project.digests(), before);
}
