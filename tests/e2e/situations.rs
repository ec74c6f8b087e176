//! Situations that broke other tools, for the graph, the cache and the data format. Those that other files cover
//! (templates, thresholds, early cut-off, comments, added stages, kills) are not repeated here.

use std::process::Command;
use std::time::Duration;

use crate::quickstart::python;
use crate::sums;
use crate::support::{Project, ended, repository};

#[test]
fn a_variable_counts_by_its_value_and_the_changed_key_is_named() {
    let (project, _server) = sums::project(10, Duration::ZERO);
    project.edit("pass_rate > 0.2", "pass_rate > ${LEAST:-0.2}");
    project.run(&[]).ok();
    let same = project.command("run", &["--json"]).env("LEAST", "0.2").output().unwrap();
    assert!(ended(same).ok().ran().is_empty());
    let other = ended(project.command("run", &["--json"]).env("LEAST", "0.4").output().unwrap()).ok();
    assert_eq!(other.ran(), ["chosen"]);
    assert!(other.reason("chosen").contains("parameter `where` changed"), "{}", other.err);
}

#[test]
fn a_column_that_begins_with_nulls_keeps_its_type_for_later_texts() {
    let project = Project::new(
        "[stages.all]\nkind = \"import\"\nfiles = [\"a.jsonl\"]\nrows = \"queries\"\ndomain = \"math\"\ncolumns = { prompt = \"q\", subdomain = \"topic\" }\n",
    );
    let mut text = String::new();
    for number in 0..3000 {
        let topic = if number < 2990 { "null".to_owned() } else { "\"几何\"".to_owned() };
        text += &format!("{{\"q\": \"question {number}\", \"topic\": {topic}}}\n");
    }
    project.write("a.jsonl", text);
    project.run(&["--shard-rows", "500"]).ok();
    let rows = project.rows("all", &["--where", "subdomain = '几何'"]);
    assert_eq!(rows.len(), 10);
}

#[test]
fn rows_without_a_nested_column_join_those_that_have_it() {
    let project = Project::new(
        r#"
[stages.one]
kind = "import"
files = ["one.jsonl"]
rows = "queries"
domain = "chat"
columns = { messages = "turns" }

[stages.two]
kind = "import"
files = ["two.jsonl"]
rows = "queries"
domain = "stem"
columns = { prompt = "q", options = "choices", label = "a" }

[stages.both]
kind = "mix"
inputs = { rows = ["one", "two"] }
"#,
    );
    project.write(
        "one.jsonl",
        "{\"turns\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"你好\"}]}\n",
    );
    project.write("two.jsonl", "{\"q\": \"Which?\", \"choices\": [\"x\", \"y\"], \"a\": \"A\"}\n{\"q\": \"What?\", \"choices\": null, \"a\": \"B\"}\n");
    project.run(&[]).ok();
    let rows = project.rows("both", &[]);
    assert_eq!(rows.len(), 3);
    assert!(rows[0]["options"].is_null() && rows[2]["options"].is_null());
    assert_eq!(rows[1]["options"], serde_json::json!(["x", "y"]));
    assert_eq!(rows[0]["messages"][0]["role"], "system");
}

#[test]
fn text_is_byte_exact_through_every_stage_and_export() {
    let texts = [
        "全角ＡＢＣ　空格",
        "é as one, e\u{301} as two",
        "line\u{2028}separator",
        "tab\tand \"quotes\" \\frac{1}{2}",
        "表情 🧮",
    ];
    let project = Project::new(
        "[stages.all]\nkind = \"import\"\nfiles = [\"a.jsonl\"]\nrows = \"queries\"\ndomain = \"math\"\nlicense = \"MIT\"\ncolumns = { prompt = \"q\", label = \"a\" }\n\n[stages.same]\nkind = \"dedup\"\ninputs = \"all\"\nallow_empty = false\n",
    );
    let lines = texts.iter().map(|text| serde_json::json!({"q": text, "a": text}).to_string());
    project.write("a.jsonl", lines.collect::<Vec<_>>().join("\n"));
    project.run(&[]).ok();
    let rows = project.rows("same", &[]);
    let prompts: Vec<&str> = rows.iter().map(|row| row["prompt"].as_str().unwrap()).collect();
    assert_eq!(prompts, texts);
    let folder = project.path().join("export");
    project.call("export", &["same", "--to", folder.to_str().unwrap(), "--format", "parquet"]).ok();
    let Some(python) = python() else { return };
    let script = "import polars, sys, json; rows = polars.read_parquet(sys.argv[1] + '/data/*.parquet'); print(json.dumps(rows['prompt'].to_list()))";
    let read = ended(Command::new(python).args(["-c", script]).arg(&folder).output().unwrap()).ok();
    assert_eq!(serde_json::from_str::<Vec<String>>(&read.out).unwrap(), texts);
}

#[test]
fn a_condition_over_a_file_with_nested_lists_reads_whole_rows() {
    let (project, _server) = sums::project(20, Duration::ZERO);
    project.run(&[]).ok();
    let rows = project.rows("verified", &["--where", "verdict = 'correct' and sample = 0"]);
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row["verdict"] == "correct" && row["request_messages"][0]["role"] == "user"));
}

#[test]
fn counts_equal_the_footers_that_a_second_reader_sees() {
    let project = Project::quickstart();
    project.run(&["--offline"]).ok();
    let Some(python) = python() else { return };
    let script = repository().join("tests/python/check_store.py");
    let out = project.path().join("out");
    let checked = ended(Command::new(python).arg(script).arg(&out).output().unwrap()).ok();
    assert!(checked.out.contains("stages agree"), "{checked:?}");
}

#[test]
fn rejected_rows_carry_the_whole_schema() {
    let project = Project::new(
        "[stages.all]\nkind = \"import\"\nfiles = [\"a.jsonl\"]\nrows = \"queries\"\ndomain = \"math\"\nmax_errors = 0.5\ncolumns = { prompt = \"q\", label = \"a\" }\n",
    );
    project.write("a.jsonl", "{\"q\": \"one two\", \"a\": \"1\"}\nnot json\n{\"q\": \"three four\", \"a\": \"2\"}\n");
    project.run(&[]).ok();
    let rejects = project.rows("all", &["--rejects"]);
    let rows = project.rows("all", &[]);
    assert_eq!((rejects.len(), rows.len()), (1, 2));
    let columns = |row: &serde_json::Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut expected = columns(&rows[0]);
    expected.extend(["reject_reason".to_owned(), "reject_evidence".to_owned()]);
    assert_eq!(columns(&rejects[0]), expected);
}

#[test]
fn another_dag_file_of_the_folder_has_links_of_its_own_and_shares_the_work() {
    let (project, server) = sums::project(10, Duration::ZERO);
    project.run(&[]).ok();
    let calls = server.calls();
    project.write("ablation.toml", project.read("dag.toml").replace("pass_rate > 0.2", "pass_rate > 0.4"));
    let mut program = crate::support::program();
    let run = ended(program.arg("run").arg(project.path().join("ablation.toml")).arg("--json").output().unwrap()).ok();
    assert_eq!(run.ran(), ["chosen"]);
    assert_eq!(server.calls(), calls);
    assert!(project.path().join("out/ablation/chosen/_SUCCESS.json").exists());
    let listed = project.call("clean", &[]).ok();
    assert!(listed.out.contains("nothing to remove"), "{}", listed.out);
}

#[test]
fn a_limited_run_tries_the_first_rows_beside_the_real_results() {
    let project = Project::quickstart();
    project.run(&["--offline", "--limit", "20"]).ok();
    let problems: serde_json::Value = serde_json::from_str(&project.read("out/try/problems/_SUCCESS.json")).unwrap();
    let eval: serde_json::Value = serde_json::from_str(&project.read("out/try/eval_set/_SUCCESS.json")).unwrap();
    assert_eq!(problems["counts"]["written"], 20);
    assert_eq!(eval["counts"]["written"], 63);
    assert!(!project.path().join("out/problems").exists());
}
