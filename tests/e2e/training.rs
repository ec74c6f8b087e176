//! Models as outputs of stages: training, probing, merging, and using what was made, through the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Project, ended};

const DAG: &str = r#"
[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "traces"
domain = "math"
columns = { prompt = "question", label = "answer", response = "solution" }

[stages.probe_set]
kind = "import"
files = ["probe.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", label = "answer" }

[stages.blank]
kind = "new_model"
hidden = 32
layers = 2
heads = 2
kv_heads = 1
context = 128

[models.blank]
engine = "local"
stage = "blank"

[models.after]
engine = "local"
stage = "phase1"
checkpoint = "step-6"

[stages.phase1]
kind = "sft"
inputs = "problems"
model = "blank"
epochs = 3
batch = 2
window = 128
learning_rate = 3e-3
checkpoint_every = 3

[stages.phase2]
kind = "sft"
inputs = "problems"
model = "after"
epochs = 1
batch = 2
window = 128
learning_rate = 1e-3

[stages.report]
kind = "probe"
inputs = { rows = "probe_set", checkpoints = ["phase1", "phase2"] }
n = 2
k = 2
max_tokens = 16

[stages.merged]
kind = "merge"
inputs = { checkpoints = ["phase1", "phase2"], report = "report" }

[models.merged]
engine = "local"
stage = "merged"

[stages.answers]
kind = "sample"
inputs = "probe_set"
model = "merged"
max_tokens = 16
"#;

fn project() -> Project {
    let project = Project::new(DAG);
    let row = |index: usize| {
        let (one, other) = (index % 7, index % 5);
        json!({ "question": format!("{one}+{other}"), "answer": (one + other).to_string(), "solution": format!("\\boxed{{{}}}", one + other) })
    };
    let lines = |rows: std::ops::Range<usize>| rows.map(|index| row(index).to_string()).collect::<Vec<_>>().join("\n");
    project.write("problems.jsonl", lines(0..24));
    project.write("probe.jsonl", lines(24..28));
    project
}

/// All files that a stage leaves, tables and weights, by path below its folder.
fn left(project: &Project, stage: &str) -> BTreeMap<String, Vec<u8>> {
    let success = project.success(stage);
    let folder = project.path().join("out").join(stage);
    let tables =
        success["outputs"].as_object().unwrap().values().flat_map(|output| output["files"].as_array().unwrap());
    let kept = success["kept_files"].as_array().into_iter().flatten();
    let names = tables.chain(kept).map(|file| file["file"].as_str().unwrap().to_owned());
    names.map(|name| (name.clone(), fs::read(folder.join(&name)).unwrap())).collect()
}

fn figures(project: &Project, stage: &str, metric: &str) -> Vec<f64> {
    let rows = project.rows(stage, &[]).into_iter().filter(|row| row["metric"] == metric);
    rows.map(|row| row["value"].as_f64().unwrap()).collect()
}

#[test]
fn models_are_made_measured_merged_and_used_in_one_graph() {
    let project = project();
    let run = project.run(&[]).ok();
    assert!(run.states().values().all(|state| state == "ran"), "{:?}", run.states());
    let names = |stage: &str| -> Vec<String> {
        project.rows(stage, &[]).iter().map(|row| row["checkpoint"].as_str().unwrap().to_owned()).collect()
    };
    let steps = figures(&project, "phase1.metrics", "loss");
    assert!(steps.last().unwrap() < &steps[0], "{steps:?}");
    assert_eq!(names("phase1"), ["step-3", "step-6", "step-9", "step-12"].map(str::to_owned)[..names("phase1").len()]);
    assert_eq!(names("merged"), ["merged"]);
    // every file of a checkpoint is in the record, and nothing of the work is left
    for name in ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"] {
        assert!(left(&project, "phase1").contains_key(&format!("checkpoints/step-6/{name}")), "{name}");
    }
    assert!(!project.path().join("out/phase1/state").exists());
    // figures of every checkpoint, and answers of the merged model
    let probed = project.rows("report", &[]);
    let subjects: std::collections::BTreeSet<&str> =
        probed.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    assert!(subjects.len() > names("phase1").len(), "{subjects:?}");
    assert_eq!(project.rows("answers", &[]).len(), 4);
    // nothing runs again; another place on the disk changes nothing
    let again = project.run(&[]).ok();
    assert!(again.states().values().all(|state| state == "reused"), "{:?}", again.states());
}

#[test]
fn a_model_of_a_stage_is_an_edge_of_the_graph() {
    let project = project();
    project.run(&["--until", "phase2"]).ok();
    // more of phase 1 is another input of phase 2, and the blank model stays
    project.edit("learning_rate = 3e-3", "learning_rate = 2e-3");
    let run = project.run(&["--until", "phase2"]).ok();
    assert_eq!(run.ran(), ["phase1", "phase2"]);
    assert!(run.reason("phase2").contains("weights of model"), "{}", run.reason("phase2"));
    project.edit("checkpoint = \"step-6\"", "checkpoint = \"step-7\"");
    let refused = project.run(&["--until", "phase2"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("has no checkpoint `step-7`; there are: step-3, step-6"), "{}", refused.err);
}

#[test]
fn mistakes_about_models_of_stages_are_told_before_anything_runs() {
    for (from, to, expected) in [
        ("stage = \"blank\"", "stage = \"problems\"", "takes checkpoints, and `problems` gives traces"),
        ("stage = \"blank\"", "stage = \"blink\"", "unknown stage `blink`"),
        ("stage = \"blank\"", "stage = \"phase1\"", "stages feed each other"),
        ("stage = \"blank\"", "stage = \"blank\"\npath = \"x\"", "leave out `path`"),
        (
            "[models.blank]\nengine = \"local\"\nstage = \"blank\"",
            "[models.blank]\nengine = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"",
            "works on weights",
        ),
    ] {
        let project = project();
        project.edit(from, to);
        let refused = project.call("check", &[]);
        assert!(refused.code == 2 && refused.err.contains(expected), "{expected}: {}", refused.err);
    }
}

#[test]
fn weights_that_changed_on_disk_are_not_used() {
    let project = project();
    project.run(&["--until", "phase1"]).ok();
    let path = project.path().join("out/phase1/checkpoints/step-6/model.safetensors");
    let path = fs::canonicalize(path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    // a new file, as any program would leave it
    fs::remove_file(&path).unwrap();
    fs::write(&path, &bytes).unwrap();
    let refused = project.run(&["--until", "phase2"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("make it anew with `--force phase1`"), "{}", refused.err);
    project.run(&["--until", "phase2", "--force", "phase1"]).ok();
}

/// Numbers below a bound, the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A longer phase, with many checkpoints.
fn long() -> Project {
    let project = project();
    project.edit("epochs = 3", "epochs = 24");
    project.edit("checkpoint_every = 3", "checkpoint_every = 4");
    project
}

#[test]
fn a_kill_during_training_changes_no_bit_of_what_is_trained() {
    let undisturbed = long();
    undisturbed.run(&["--until", "phase1"]).ok();
    let expected = left(&undisturbed, "phase1");
    assert!(expected.len() > 40, "{}", expected.len());
    let mut draws = Draws(7);
    let mut interrupted = 0;
    for _ in 0..8 {
        let project = long();
        for _ in 0..6 {
            let mut child = project.start("run", &["--json", "--until", "phase1"]);
            std::thread::sleep(Duration::from_millis(20 + draws.below(220)));
            interrupted += u32::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        project.run(&["--until", "phase1"]).ok();
        let found = left(&project, "phase1");
        let other: Vec<&String> = expected.keys().filter(|name| found.get(*name) != expected.get(*name)).collect();
        assert!(found.len() == expected.len() && other.is_empty(), "other bytes: {other:?}");
    }
    println!("{interrupted} of 48 runs were killed before their end");
    assert!(interrupted >= 8, "only {interrupted} runs were killed before their end");
}

#[test]
fn an_interrupted_training_goes_on_where_it_stopped() {
    let project = long();
    let mut child = project.start("run", &["--json", "--until", "phase1"]);
    let state = || -> Option<PathBuf> {
        let versions = fs::read_dir(project.path().join("out/.store")).ok()?;
        let resume = versions.filter_map(Result::ok).map(|version| version.path().join("state/resume"));
        resume.filter(|folder| folder.read_dir().is_ok_and(|mut entries| entries.next().is_some())).last()
    };
    while state().is_none() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let interrupted = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let stopped = ended(child.wait_with_output().unwrap());
    let rerun = project.call("run", &["--until", "phase1"]).ok();
    if stopped.code == 130 {
        assert!(rerun.err.contains("goes on after step"), "{}", rerun.err);
    }
}

#[test]
fn a_disk_that_refuses_a_checkpoint_costs_nothing_but_time() {
    let undisturbed = long();
    undisturbed.run(&["--until", "phase1"]).ok();
    let project = long();
    // files of at most so many blocks of 512 bytes: tables and weights fit, the optimizer's state does not
    let weights = left(&undisturbed, "phase1")["checkpoints/step-4/model.safetensors"].len();
    let blocks = (weights + weights / 2) / 512;
    let program = env!("CARGO_BIN_EXE_pipeline");
    let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec {program} run dag.toml --until phase1");
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &line]).current_dir(project.path()).stdin(Stdio::null());
    let refused = ended(limited.output().unwrap());
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("cannot write") && refused.err.contains("optimizer.safetensors"), "{}", refused.err);
    project.run(&["--until", "phase1"]).ok();
    assert!(left(&project, "phase1") == left(&undisturbed, "phase1"));
}

#[test]
fn merging_equal_models_gives_their_bytes() {
    let project = project();
    project.edit(
        "checkpoints = [\"phase1\", \"phase2\"], report = \"report\" }",
        "checkpoints = [\"blank\", \"blank\"] }",
    );
    project.run(&["--until", "merged"]).ok();
    let weights =
        |stage: &str, name: &str| left(&project, stage)[&format!("checkpoints/{name}/model.safetensors")].clone();
    assert!(weights("blank", "step-0") == weights("merged", "merged"));
    let merged: Value = project.success("merged")["notes"]["merged"].clone();
    assert_eq!(merged.as_array().unwrap().len(), 2);
    assert_eq!(merged[0]["weight"], 0.5);
}

#[test]
fn the_tiny_reasoner_is_a_project_without_mistakes_and_its_files_are_those_of_its_generator() {
    let folder = crate::support::repository().join("datasets/tiny-reasoner");
    let checked = ended(crate::support::program().arg("check").arg(folder.join("dag.toml")).output().unwrap()).ok();
    assert!(checked.out.contains("no mistakes") || checked.err.contains("no mistakes"));
    let python = std::env::var("PIPELINE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let generated = std::process::Command::new(python).arg(folder.join("generate.py")).arg("--check").output().unwrap();
    ended(generated).ok();
}
