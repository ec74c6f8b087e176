//! What a change reruns: exactly what it must, for the right reason, and nothing more.

use std::fs;
use std::time::Duration;

use crate::sums;
use crate::support::server::Server;
use crate::support::{Ended, Project, ended, program};

/// Rows of a slice, so that thirty problems are three slices.
const SLICES: [&str; 2] = ["--shard-rows", "10"];

/// A project that has run once.
fn fresh() -> (Project, Server) {
    let (project, server) = sums::project(30, Duration::ZERO);
    project.run(&SLICES).ok();
    assert_eq!(server.calls(), 90);
    (project, server)
}

#[track_caller]
fn assert_ran(run: &Ended, expected: &[&str]) {
    let mut expected: Vec<String> = expected.iter().map(|stage| (*stage).to_owned()).collect();
    expected.sort();
    assert_eq!(run.ran(), expected, "{}", run.err);
}

const ALL: [&str; 8] = ["problems", "unique", "paths", "fluent", "verified", "hardness", "graded", "chosen"];

#[test]
fn a_first_run_says_that_there_is_no_earlier_output() {
    let (project, server) = sums::project(30, Duration::ZERO);
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &ALL);
    for stage in ALL {
        assert!(run.reason(stage).contains("no earlier output"), "{}", run.err);
    }
    let again = project.run(&SLICES).ok();
    assert_ran(&again, &[]);
    assert_eq!(server.calls(), 90);
}

#[test]
fn a_changed_threshold_reruns_its_stage_alone_and_names_both_values() {
    let (project, _server) = fresh();
    project.edit("pass_rate > 0.2", "pass_rate > 0.5");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &["chosen"]);
    let reason = run.reason("chosen");
    assert!(
        reason.contains("parameter `where` changed") && reason.contains("0.2") && reason.contains("0.5"),
        "{reason}"
    );
}

#[test]
fn a_comment_and_reordered_keys_rerun_nothing() {
    let (project, _server) = fresh();
    project
        .edit("n = 3\nmax_tokens = 64\ntemperature = 0.7", "temperature = 0.70  # a comment\nmax_tokens = 64\nn = 3");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &[]);
}

#[test]
fn a_moved_folder_reruns_nothing() {
    let (mut project, server) = fresh();
    project.move_to("elsewhere");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &[]);
    assert_eq!(server.calls(), 90);
}

#[test]
fn a_touched_input_reruns_nothing() {
    let (project, _server) = fresh();
    let text = project.read("problems.jsonl");
    fs::remove_file(project.path().join("problems.jsonl")).unwrap();
    project.write("problems.jsonl", text);
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &[]);
}

#[test]
fn an_appended_row_asks_for_itself_alone_and_reuses_earlier_tasks() {
    let (project, server) = fresh();
    let mut text = project.read("problems.jsonl");
    text += &sums::problems(30, 1);
    project.write("problems.jsonl", text);
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &ALL);
    assert_eq!(server.calls(), 93);
    assert!(run.reason("problems").contains("problems.jsonl has other content"), "{}", run.err);
    assert!(run.reason("problems").contains("tasks reused"), "{}", run.err);
    for stage in ["paths", "fluent", "verified", "chosen"] {
        let reason = run.reason(stage);
        assert!(reason.contains("input `rows` has other content (from `"), "{reason}");
        assert!(reason.contains("tasks reused"), "{reason}");
    }
}

#[test]
fn a_parameter_deleted_to_its_default_reruns_only_if_the_value_changes() {
    let (project, server) = fresh();
    project.edit("threshold = 0.8\n", "");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &[]);
    project.edit("temperature = 0.7\n", "");
    let run = project.run(&SLICES).ok();
    assert!(run.reason("paths").contains("parameter `temperature` changed: 0.7 -> 1.0"), "{}", run.err);
    assert_eq!(server.calls(), 180);
}

#[test]
fn a_changed_prompt_template_reruns_the_sampling_and_what_depends_on_it() {
    let (project, server) = sums::project(30, Duration::ZERO);
    project.edit("temperature = 0.7", "temperature = 0.7\ntemplate_file = \"ask.j2\"");
    project.write("ask.j2", "{{ prompt }}");
    project.run(&SLICES).ok();
    project.write("ask.j2", "Think first. {{ prompt }}");
    let run = project.run(&SLICES).ok();
    assert!(run.reason("paths").contains("template has other content"), "{}", run.err);
    assert_eq!(run.states()["unique"], "reused");
    assert_eq!(run.states()["paths"], "ran");
    assert_eq!(server.calls(), 180);
    assert!(project.rows("paths", &[])[0]["request_messages"].to_string().contains("Think first."));
    assert!(!project.rows("paths", &[])[0]["messages"].to_string().contains("Think first."));
}

#[test]
fn a_renamed_stage_reruns_nothing() {
    let (project, server) = fresh();
    project.edit("verified", "judged");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &[]);
    assert!(run.reason("judged").contains("stage `verified` has the same recipe"), "{}", run.err);
    assert_eq!(server.calls(), 90);
}

#[test]
fn a_raised_kind_version_reruns_its_stages_and_asks_no_model() {
    let (project, server) = fresh();
    let this = program().get_program().to_owned();
    let next = std::path::Path::new(&this).with_file_name("examples").join("next_version");
    let output = std::process::Command::new(next)
        .env("NEXT_VERSION_OF", "sample")
        .arg("run")
        .arg(project.path().join("dag.toml"))
        .args(["--json", "--shard-rows", "10"])
        .output()
        .unwrap();
    let run = ended(output).ok();
    // the answers are the same, so nothing after the sampling runs
    assert_ran(&run, &["paths"]);
    assert!(run.reason("paths").contains("kind version raised: 1 -> 2"), "{}", run.err);
    assert_eq!(server.calls(), 90);
}

#[test]
fn going_back_to_the_old_value_finds_the_old_version() {
    let (project, server) = fresh();
    let before = project.digests();
    project.edit("n = 3", "n = 4");
    project.run(&SLICES).ok();
    assert_eq!(server.calls(), 120);
    assert_ne!(project.digests(), before);
    project.edit("n = 4", "n = 3");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &[]);
    let reason = run.reason("paths");
    assert!(reason.contains("parameter `n` changed: 4 -> 3; an earlier version has this recipe"), "{reason}");
    assert_eq!(project.digests(), before);
    assert_eq!(server.calls(), 120);
}

#[test]
fn an_input_rebuilt_to_the_same_bytes_stops_the_cascade() {
    let (project, server) = fresh();
    project.edit("threshold = 0.8", "threshold = 0.81");
    let run = project.run(&SLICES).ok();
    assert_ran(&run, &["unique"]);
    assert_eq!(server.calls(), 90);
}

#[test]
fn a_later_stage_added_or_removed_leaves_earlier_ones_alone() {
    let (project, _server) = fresh();
    let dag = project.read("dag.toml");
    project.write(
        "dag.toml",
        format!("{dag}\n[stages.few]\nkind = \"select\"\ninputs = \"chosen\"\nwhere = \"sample = 0\"\n"),
    );
    assert_ran(&project.run(&SLICES).ok(), &["few"]);
    project.write("dag.toml", dag);
    assert_ran(&project.run(&SLICES).ok(), &[]);
}

#[test]
fn a_moved_server_reuses_every_answer() {
    let (project, server) = fresh();
    let other = Server::start(Duration::ZERO);
    project.edit(&server.url(), &other.url());
    project.edit("n = 3", "n = 2");
    project.run(&SLICES).ok();
    assert_eq!(other.calls(), 0);
}

#[test]
fn only_from_and_force_choose_what_runs() {
    let (project, _server) = fresh();
    project.edit("pass_rate > 0.2", "pass_rate > 0.4");
    assert_ran(&project.run(&["--only", "verified"]).ok(), &[]);
    assert_ran(&project.run(&["--force", "fluent", "fluent"]).ok(), &["fluent"]);
    let run = project.run(&["--from", "graded"]).ok();
    assert_ran(&run, &["chosen"]);
    assert_eq!(run.states()["problems"], "not asked");
}
