//! Bad input: the right exit code, one clear message with its place, and earlier results as they were.

use std::process::Command;
use std::time::Duration;

use crate::sums;
use crate::support::{Ended, Project, ended, program};

/// A project of three stages that needs no server.
fn project() -> Project {
    let project = Project::new(
        r#"
[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", label = "answer" }

[stages.unique]
kind = "dedup"
inputs = "problems"

[stages.chosen]
kind = "select"
inputs = "unique"
where = "domain = 'math'"
"#,
    );
    project.write("problems.jsonl", sums::problems(0, 1200));
    project
}

/// Runs with a mistake in place and checks what must hold for every mistake.
#[track_caller]
fn fails(project: &Project, code: i32, pieces: &[&str]) -> Ended {
    let before = project.digests();
    let run = project.run(&[]);
    assert_eq!(run.code, code, "{run:#?}");
    for piece in pieces {
        assert!(run.err.contains(piece), "no `{piece}` in\n{}", run.err);
    }
    assert_eq!(project.digests(), before, "earlier results changed");
    run
}

fn ran_once() -> Project {
    let project = project();
    project.run(&[]).ok();
    project
}

#[test]
fn a_misspelt_key_is_shown_in_place_with_the_nearest_one() {
    let project = ran_once();
    project.edit("inputs = \"problems\"", "inputs = \"problems\"\ntreshold = 0.9");
    fails(&project, 2, &["unknown parameter `treshold` of kind `dedup`", "dag.toml:12:1", "did you mean `threshold`?"]);
}

#[test]
fn a_misspelt_kind_is_shown_in_place_with_the_nearest_one() {
    let project = ran_once();
    project.edit("\"dedup\"", "\"dedupe\"");
    fails(&project, 2, &["unknown kind `dedupe`", "dag.toml:10", "did you mean `dedup`?"]);
}

#[test]
fn a_misspelt_column_names_the_file_and_the_columns_there_are() {
    let project = ran_once();
    project.edit("\"question\"", "\"qestion\"");
    fails(&project, 2, &["dag.toml:7:22", "problems.jsonl", "qestion", "did you mean `question`?"]);
}

#[test]
fn a_condition_on_an_unknown_column_is_a_mistake_of_the_dag_file() {
    let project = ran_once();
    project.edit("domain = 'math'", "domian = 'math'");
    fails(&project, 2, &["domian", "dag.toml"]);
}

#[test]
fn a_table_or_column_that_nobody_fills_is_a_mistake_of_the_dag_file() {
    let project = ran_once();
    let dag = project.read("dag.toml");
    project.write("dag.toml", format!("{dag}\n[stages.hard]\nkind = \"difficulty\"\ninputs = \"unique\"\n"));
    fails(&project, 2, &["dag.toml:20:10", "port `rows` takes traces, and `unique` gives queries"]);

    let (project, _server) = sums::project(3, Duration::ZERO);
    project.edit("inputs = \"verified\"", "inputs = \"fluent\"");
    let run = project.run(&[]);
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(
        run.err.contains("column `verdict` is needed here") && run.err.contains("`verify` fills it"),
        "{}",
        run.err
    );
}

#[test]
fn a_cycle_is_shown_with_its_whole_path() {
    let project = ran_once();
    project.edit("inputs = \"problems\"", "inputs = \"chosen\"");
    fails(&project, 2, &["chosen", "unique", "->"]);
}

#[test]
fn all_mistakes_come_at_once() {
    let project = ran_once();
    project.edit("\"dedup\"", "\"dedupe\"");
    project.edit("kind = \"select\"", "kind = \"select\"\nwher = 1");
    fails(&project, 2, &["dedupe", "wher"]);
}

#[test]
fn a_missing_file_is_named() {
    let project = ran_once();
    std::fs::remove_file(project.path().join("problems.jsonl")).unwrap();
    fails(&project, 2, &["dag.toml:4", "`problems.jsonl` does not exist"]);
}

#[test]
fn a_parquet_file_cut_in_half_is_named() {
    let project = ran_once();
    let whole = std::fs::read_dir(project.path().join("out/unique/data")).unwrap().next().unwrap().unwrap();
    let bytes = std::fs::read(whole.path()).unwrap();
    project.write("half.parquet", &bytes[..bytes.len() / 2]);
    project.edit("\"problems.jsonl\"", "\"half.parquet\"");
    project.edit("\"question\"", "\"prompt\"");
    project.edit("\"answer\"", "\"label\"");
    fails(&project, 3, &["half.parquet"]);
}

#[test]
fn a_broken_line_is_named_and_with_max_errors_becomes_a_reject() {
    let project = ran_once();
    let mut lines: Vec<String> = project.read("problems.jsonl").lines().map(str::to_owned).collect();
    lines[999] = "{\"question\": \"broken".to_owned();
    project.write("problems.jsonl", lines.join("\n"));
    fails(&project, 3, &["problems.jsonl", "line 1000", "max_errors"]);

    project.edit("rows = \"queries\"", "rows = \"queries\"\nmax_errors = 0.01");
    let run = project.run(&[]).ok();
    let counts = &run.json()["stages"][0]["counts"];
    assert_eq!((counts["read"].as_u64(), counts["kept"].as_u64()), (Some(1200), Some(1199)));
    let rejects = project.rows("problems", &["--rejects"]);
    assert_eq!(rejects.len(), 1);
    assert!(rejects[0]["reject_evidence"].as_str().unwrap().contains("1000"), "{:?}", rejects[0]);
}

#[test]
fn a_label_column_of_texts_and_integers_keeps_each_as_written() {
    let project = project();
    project.write(
        "problems.jsonl",
        "{\"question\": \"a b c\", \"answer\": \"1.0\"}\n{\"question\": \"d e f\", \"answer\": 18}\n{\"question\": \"g h i\", \"answer\": 2.50}\n",
    );
    project.run(&[]).ok();
    let labels: Vec<String> =
        project.rows("problems", &[]).iter().map(|row| row["label"].as_str().unwrap().to_owned()).collect();
    assert_eq!(labels, ["1.0", "18", "2.50"]);
}

#[test]
fn a_column_of_nulls_alone_stays_typed() {
    let project = project();
    project.write(
        "problems.jsonl",
        "{\"question\": \"one two three\", \"answer\": null}\n{\"question\": \"four five six\", \"answer\": null}\n",
    );
    project.run(&[]).ok();
    let rows = project.rows("chosen", &[]);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["label"].is_null()));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let project = ran_once();
    let before = project.digests();
    // not even root may create a folder there
    let run = project.run(&["--out", "/proc/pipeline-out"]);
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.err.contains("/proc/pipeline-out"), "{}", run.err);
    assert_eq!(project.digests(), before);
}

#[test]
fn a_full_disk_ends_the_run_and_leaves_what_was_there() {
    let project = ran_once();
    let before = project.digests();
    let folder = project.path().join("small");
    std::fs::create_dir(&folder).unwrap();
    let binary = program().get_program().to_owned();
    let script = "mount -t tmpfs -o size=96k tmpfs small && \"$0\" run dag.toml --out small/out; code=$?; ls -a small/out/.store/*/tmp; exit $code";
    let mounted = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(binary)
        .current_dir(project.path())
        .output();
    let run = match mounted {
        Ok(output) => ended(output),
        Err(error) => return println!("skipped: `unshare` cannot be run: {error}"),
    };
    if run.err.contains("unshare") || run.err.contains("mount:") {
        return println!("skipped: no private mounts here: {}", run.err);
    }
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.err.contains("No space left on device"), "{}", run.err);
    assert_eq!(project.digests(), before);
}

#[test]
fn a_result_without_rows_is_an_alarm_unless_it_is_meant() {
    let project = ran_once();
    project.edit("domain = 'math'", "domain = 'code'");
    let run = project.run(&[]);
    assert_eq!(run.code, 3);
    assert!(run.err.contains("kept none of 1200 rows") && run.err.contains("allow_empty"), "{}", run.err);
    project.edit("where = ", "allow_empty = true\nwhere = ");
    project.run(&[]).ok();
}

#[test]
fn a_damaged_file_of_the_store_is_refused_and_made_anew() {
    let (project, _server) = sums::project(30, Duration::ZERO);
    project.run(&["--shard-rows", "10"]).ok();
    let before = project.digests();
    let file = std::fs::read_dir(project.path().join("out/unique/data")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    project.edit("n = 3", "n = 2");
    let run = project.run(&["--shard-rows", "10"]);
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.err.contains("is damaged") && run.err.contains("unique"), "{}", run.err);
    project.edit("n = 2", "n = 3");
    let run = project.run(&["--shard-rows", "10"]).ok();
    assert_eq!(run.ran(), ["unique"], "{}", run.err);
    assert_eq!(project.digests(), before);
}

#[test]
fn a_key_in_the_dag_file_is_refused_and_not_repeated() {
    let (project, _server) = sums::project(3, Duration::ZERO);
    project.edit("model = \"adder\"", "model = \"adder\"\napi_key = \"sk-secret\"");
    let run = project.run(&[]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("api_key_env"), "{}", run.err);
}

#[test]
fn an_unreachable_model_has_its_own_exit_code() {
    let (project, server) = sums::project(3, Duration::ZERO);
    let url = server.url();
    drop(server);
    let run = project.run(&["--offline"]);
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.err.contains("not recorded"), "{}", run.err);
    assert!(project.read("dag.toml").contains(&url));
}

#[test]
fn a_flipped_byte_is_refused_by_show_and_the_next_run_mends_it() {
    let project = ran_once();
    let before = project.digests();
    let file = std::fs::read_dir(project.path().join("out/chosen/data")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let shown = project.call("show", &["chosen"]);
    assert_eq!(shown.code, 3, "{shown:#?}");
    assert!(shown.err.contains("is damaged"), "{}", shown.err);
    let run = project.run(&[]).ok();
    assert_eq!(run.ran(), ["chosen"]);
    assert_eq!(project.digests(), before);
    project.call("show", &["chosen"]).ok();
}

#[test]
fn a_damaged_recipe_is_written_anew_and_reruns_nothing() {
    let project = ran_once();
    let recipe = std::fs::read(project.path().join("out/chosen/recipe.json")).unwrap();
    project.write("out/chosen/recipe.json", "{\"a\":[");
    assert!(project.run(&[]).ok().ran().is_empty());
    assert_eq!(std::fs::read(project.path().join("out/chosen/recipe.json")).unwrap(), recipe);
}

#[test]
fn a_budget_in_money_needs_prices() {
    let (project, server) = sums::project(3, Duration::ZERO);
    let dag = project.read("dag.toml");
    project.write("dag.toml", format!("{dag}\n[budget]\nmoney = 0.5\n"));
    let run = project.run(&[]);
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(run.err.contains("price of model `teacher`"), "{}", run.err);
    assert_eq!(server.calls(), 0);
}

#[test]
fn a_condition_of_too_many_terms_is_refused_with_the_way_out() {
    let project = ran_once();
    let terms: Vec<String> = (0..500).map(|number| format!("query_id = '{number}'")).collect();
    project.edit("domain = 'math'", &terms.join(" or "));
    fails(&project, 2, &["IN ('a', 'b', 'c')"]);
}

#[test]
fn options_that_the_model_would_not_see_are_refused() {
    let (project, server) = sums::project(3, Duration::ZERO);
    project.write(
        "problems.jsonl",
        "{\"question\": \"Which is 2 + 3?\", \"answer\": \"A\", \"choices\": [\"five\", \"six\"]}\n",
    );
    project.edit("label = \"answer\" }", "label = \"answer\", options = \"choices\" }");
    let run = project.run(&[]);
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(run.err.contains("the model would not see them"), "{}", run.err);
    assert_eq!(server.calls(), 0);
}

#[test]
fn a_dag_file_named_like_a_link_is_refused() {
    let project = ran_once();
    project.write("unique.toml", project.read("dag.toml"));
    let mut command = program();
    let run = ended(command.arg("run").arg(project.path().join("unique.toml")).output().unwrap());
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(run.err.contains("give the file another name"), "{}", run.err);
}
