//! Programs of the shell for what a process may do, and Python programs with pyarrow for what they write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pipeline_core::env::{SecretNames, Services};
use pipeline_core::testing::{Cut, Outcome, Trial, conformance};
use pipeline_core::{Env, Ports, StageEntry, StageError, TableType};
use proptest::prelude::*;
use schemas::queries;
use serde_json::{Value, json};

use super::Command;
use super::program::{Call, Paths};

const ENTRY: StageEntry = StageEntry::stage::<Command>();

fn rows() -> Vec<Value> {
    (0..7).map(|row| json!({"query_id": format!("q{row}"), "prompt": format!("How much is {row} + 4?"), "label": (row + 4).to_string()})).collect()
}

fn trial<'a>(params: Value) -> Trial<'a> {
    Trial::new(&ENTRY, params).rows("rows", &queries::TABLE, rows())
}

fn shell(script: &str) -> Value {
    json!({ "run": ["sh", "-c", script, "name", "{input}", "{output}"] })
}

fn message(params: Value) -> String {
    trial(params).run(&Cut::WHOLE).unwrap_err().to_string()
}

#[test]
fn it_conforms() {
    conformance(&ENTRY);
}

#[test]
fn parameters_that_cannot_work_are_refused_with_a_way_out() {
    for (params, path) in [
        (json!({"run": []}), "run"),
        (json!({"run": ["{input}", "{output}"]}), "run[0]"),
        (json!({"run": ["cp", "{input}"]}), "run"),
        (json!({"run": ["cp", "{inptu}", "{input}", "{output}"]}), "run[1]"),
        (json!({"run": ["cp", "{input}", "{output}"], "params": {"a": 1}}), "params"),
        (json!({"run": ["cp", "{input}", "{output}"], "env": ["A=b"]}), "env[0]"),
        (json!({"run": ["cp", "{input}", "{output}"], "columns": {"_row": "text"}}), "columns._row"),
        (json!({"run": ["cp", "{input}", "{output}"], "timeout_seconds": 0}), "timeout_seconds"),
    ] {
        let error = (ENTRY.parse)(&params).err().unwrap();
        assert_eq!(error.path, path, "{params}: {error}");
    }
    // a column of the table keeps its type
    let stage = (ENTRY.parse)(&json!({"run": ["cp", "{input}", "{output}"], "columns": {"label": "number"}})).unwrap();
    let ports = Ports(BTreeMap::from([("rows".to_owned(), vec![TableType::of(&queries::TABLE, [])])]));
    assert_eq!(stage.outputs(&ports).unwrap_err().path, "columns.label");
}

#[test]
fn a_program_that_fails_fails_the_stage_with_its_last_words() {
    let said = message(shell("echo first >&2; echo 'no such model: 模型' >&2; exit 7"));
    assert!(said.contains("`sh` ended with code 7") && said.contains("no such model: 模型"), "{said}");
    let said = message(shell("kill -9 $$"));
    assert!(said.contains("was ended by signal 9 and printed nothing"), "{said}");
    let said = message(shell("exit 0"));
    assert!(said.contains("`output.parquet`: the program ended without writing it"), "{said}");
    let said = message(shell("echo no parquet > \"$2\""));
    assert!(said.contains("is no Parquet that can be read"), "{said}");
    let said = message(json!({"run": ["no-such-program-anywhere", "{input}", "{output}"]}));
    assert!(said.contains("cannot start `no-such-program-anywhere`"), "{said}");
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    let mut params = shell("echo working >&2; sleep 1000");
    params["timeout_seconds"] = json!(1);
    let begun = Instant::now();
    let said = message(params);
    assert!(said.contains("ran longer than 1 s") && said.contains("working"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(500));
}

#[test]
fn the_output_must_hold_the_rows_of_the_input_by_their_positions() {
    // the users' rows themselves, without the column `_row`
    let scratch = tempfile::tempdir().unwrap();
    let plain = scratch.path().join("plain.parquet");
    let batch = pipeline_core::json_rows::from_json(&queries::TABLE.schema(), &rows()).unwrap();
    let mut writer = pipeline_core::table_io::TableWriter::create(&plain, &queries::TABLE.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let said = message(json!({"run": ["sh", "-c", "cp \"$3\" \"$2\"", "name", "{input}", "{output}", plain]}));
    assert!(said.contains("`output.parquet`, column `_row`: is missing"), "{said}");
}

#[test]
fn a_program_sees_a_bare_environment_and_starts_in_the_folder_of_the_dag_file() {
    let script = "env > seen.txt; pwd > where.txt; cp \"$1\" \"$2\"";
    let folder = tempfile::tempdir().unwrap();
    trial(shell(script)).base(folder.path()).run(&Cut::WHOLE).unwrap();
    let seen = std::fs::read_to_string(folder.path().join("seen.txt")).unwrap();
    let names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    // a shell sets the last three itself
    assert!(names.iter().all(|name| ["PATH", "PWD", "SHLVL", "_"].contains(name)), "{seen}");
    let place = std::fs::read_to_string(folder.path().join("where.txt")).unwrap();
    assert_eq!(Path::new(place.trim()).canonicalize().unwrap(), folder.path().canonicalize().unwrap());
}

fn env(folder: &Path) -> Env {
    let mut env = Env::new(folder);
    env.variables = Arc::new(|name| match name {
        "TOKEN" => Some("hush-hush".to_owned()),
        "TEACHER_API_KEY" => Some("sk-1".to_owned()),
        _ => None,
    });
    env
}

#[test]
fn variables_are_given_by_name_and_keys_of_models_never() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = env(folder.path());
    let command = |names: Value| -> Command {
        serde_json::from_value(json!({"run": ["cp", "{input}", "{output}"], "env": names})).unwrap()
    };
    assert_eq!(command(json!(["TOKEN"])).variables(&env).unwrap()["TOKEN"], "hush-hush");
    let said = command(json!(["ABSENT"])).variables(&env).unwrap_err().to_string();
    assert!(said.contains("`ABSENT` is not set"), "{said}");
    let mut services = Services::default();
    services.insert(Arc::new(SecretNames(["TEACHER_API_KEY".to_owned()].into())));
    env.services = services;
    let stage = (ENTRY.parse)(&json!({"run": ["cp", "{input}", "{output}"], "env": ["TEACHER_API_KEY"]})).unwrap();
    let said = stage.externals(&env, &Ports::default()).unwrap_err().to_string();
    assert!(said.contains("`TEACHER_API_KEY` holds the key of a model") && !said.contains("sk-1"), "{said}");
}

#[test]
fn scripts_and_files_decide_by_their_content_and_interpreters_do_not() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("clean.py"), "print(1)").unwrap();
    std::fs::write(folder.path().join("words.txt"), "a").unwrap();
    let env = env(folder.path());
    let externals = |params: Value| (ENTRY.parse)(&params).unwrap().externals(&env, &Ports::default());
    let params = json!({"run": ["python3", "clean.py", "{input}", "{output}"], "files": ["words.txt"]});
    let before = externals(params.clone()).unwrap();
    let names: Vec<&str> = before.iter().map(|external| external.name.as_str()).collect();
    assert_eq!(names, ["file clean.py", "file words.txt"]);
    std::fs::write(folder.path().join("clean.py"), "print(2)").unwrap();
    let after = externals(params).unwrap();
    assert_ne!(before[0].digest, after[0].digest);
    assert_eq!(before[1].digest, after[1].digest);
    for missing in [
        json!({"run": ["python3", "missing.py", "{input}", "{output}"]}),
        json!({"run": ["./missing", "{input}", "{output}"]}),
        json!({"run": ["cp", "{input}", "{output}"], "files": ["missing.txt"]}),
    ] {
        assert!(externals(missing.clone()).unwrap_err().to_string().contains("missing"), "{missing}");
    }
}

/// Whether a process is there and not yet dead.
fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn an_interrupted_run_ends_the_program_and_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started.txt");
    let script = "trap '' TERM; sleep 1000 & echo $! > begun.txt; mv begun.txt started.txt; wait; wait; wait";
    let (cancel, secrets) = (AtomicBool::new(false), Vec::new());
    let call = Call {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        folder: folder.path().to_owned(),
        variables: BTreeMap::from([("PATH".to_owned(), super::USUAL_PATH.to_owned())]),
        secrets: &secrets,
        timeout: Duration::from_mins(15),
        cancel: &cancel,
    };
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !started.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            cancel.store(true, Ordering::Relaxed);
        });
        call.run(&Paths::below(folder.path()))
    });
    assert!(matches!(outcome, Err(StageError::Cancelled)), "{outcome:?}");
    let child = std::fs::read_to_string(&started).unwrap();
    while is_alive(child.trim()) {
        std::thread::sleep(Duration::from_millis(5)); // the system takes a moment to clear away what was killed
    }
}

#[test]
fn values_of_variables_do_not_show_in_what_a_program_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (cancel, secrets) = (AtomicBool::new(false), vec!["TOKEN".to_owned()]);
    let call = |script: &str| Call {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        folder: folder.path().to_owned(),
        variables: BTreeMap::from([
            ("PATH".to_owned(), super::USUAL_PATH.to_owned()),
            ("TOKEN".to_owned(), "hush-hush".to_owned()),
        ]),
        secrets: &secrets,
        timeout: Duration::from_mins(15),
        cancel: &cancel,
    };
    let paths = Paths::below(folder.path());
    let said = call("echo using $TOKEN >&2; exit 1").run(&paths).unwrap_err().to_string();
    assert!(said.contains("using [TOKEN]") && !said.contains("hush"), "{said}");
    assert_eq!(call("seq 100; echo $TOKEN >&2").run(&paths).unwrap().lines().last(), Some("[TOKEN]"));
}

/// An interpreter that has pyarrow, as `make test` sets it up.
#[expect(clippy::disallowed_methods, reason = "the test is told by the environment where Python lies")]
fn python() -> Option<PathBuf> {
    let python = std::env::var("PIPELINE_PYTHON").ok().map(PathBuf::from);
    if python.is_none() {
        println!("skipped: PIPELINE_PYTHON is not set, `make test` sets it");
    }
    python.map(|python| std::path::absolute(python).unwrap())
}

/// Runs a Python program whose body works on the table `t`, with `params` as `p`, and may set `r`, the rejects.
fn run_python(body: &str, more: &Value, cut: &Cut) -> Option<Result<Outcome, StageError>> {
    let python = python()?;
    let program = format!(
        "import json, sys\nimport pyarrow as pa, pyarrow.parquet as pq, pyarrow.compute as pc\n\
         i, o, rejects, params = sys.argv[1:5]\nt = pq.read_table(i)\np = json.load(open(params))\nr = None\n{body}\n\
         pq.write_table(t, o)\nif r is not None: pq.write_table(pa.table(r), rejects)\n"
    );
    let mut params = json!({"run": [python, "program.py", "{input}", "{output}", "{rejects}", "{params}"]});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Some(trial(params).file("program.py", program.as_bytes()).run(cut))
}

fn failure(body: &str, more: &Value) -> Option<String> {
    Some(run_python(body, more, &Cut::WHOLE)?.unwrap_err().to_string())
}

#[test]
fn every_row_that_a_program_leaves_out_falls_out_with_a_reason() {
    let body = "keep = [n % 7 not in (1, 3) for n in t['_row'].to_pylist()]\n\
        r = {'_row': [3], 'reject_reason': ['too_easy'], 'reject_evidence': ['{\"least\": %d}' % p['least']]} if t.num_rows > 3 else None\n\
        t = t.filter(pa.array(keep)).append_column('score', pa.array([0.5] * sum(keep)))";
    let more = json!({"columns": {"score": "number"}, "params": {"least": 5}});
    let Some(outcome) = run_python(body, &more, &Cut::WHOLE) else { return };
    let outcome = outcome.unwrap();
    assert_eq!((outcome.read, outcome.kept), (7, 5));
    assert_eq!(outcome.reasons(), ["dropped_by_command", "too_easy"]);
    assert_eq!(outcome.rejects[1]["query_id"], "q3");
    assert_eq!(outcome.rejects[1]["reject_evidence"], r#"{"least":5}"#);
    assert_eq!(outcome.rows()[0]["score"], 0.5);
    assert!(outcome.rows().iter().all(|row| row.get("_row").is_none()));
}

#[test]
fn slices_are_worked_on_alone_unless_the_program_wants_the_whole() {
    let body = "t = t.append_column('count', pa.array([t.num_rows] * t.num_rows, pa.int32()))";
    let columns = json!({"columns": {"count": "integer"}});
    let Some(sliced) = run_python(body, &columns, &Cut::slices(3)) else { return };
    assert_eq!(sliced.unwrap().column("count"), [3, 3, 3, 3, 3, 3, 1].map(Value::from));
    let mut whole = columns;
    whole["whole"] = json!(true);
    let outcome = run_python(body, &whole, &Cut::slices(3).files(2)).unwrap().unwrap();
    assert_eq!(outcome.column("count"), [7; 7].map(Value::from));
    assert_eq!((outcome.read, outcome.kept), (7, 7));
}

#[test]
fn rows_are_multiplied_and_made_only_where_that_was_said() {
    let body = "new = t.slice(0, 1).set_column(t.schema.get_field_index('_row'), '_row', pa.array([None], pa.int64()))\n\
        t = pa.concat_tables([t.slice(0, 2), t.slice(0, 1), new.cast(new.schema)], promote_options='permissive')";
    let Some(outcome) = run_python(body, &json!({"adds_rows": true}), &Cut::WHOLE) else { return };
    let outcome = outcome.unwrap();
    assert_eq!((outcome.rows().len(), outcome.read, outcome.kept), (4, 7, 2));
    assert_eq!(outcome.reasons(), ["dropped_by_command"; 5]);
    let said = failure(body, &json!({})).unwrap();
    assert!(said.contains("`adds_rows = true`"), "{said}");
    let said = failure("t = pa.concat_tables([t, t.slice(2, 1)])", &json!({})).unwrap();
    assert!(said.contains("column `_row`: holds 2 twice"), "{said}");
}

#[test]
fn columns_other_than_those_declared_are_told_by_name() {
    for (body, more, expected) in [
        (
            "pass",
            json!({"columns": {"score": "number"}}),
            "`output.parquet`, column `score`: is missing; it is declared in `columns`",
        ),
        ("t = t.drop_columns(['label'])", json!({}), "column `label`: is missing; it is of the table"),
        ("t = t.append_column('other', pa.array([1] * 7))", json!({}), "column `other`: is not declared"),
        (
            "t = t.append_column('n', pa.array(['a'] * 7))",
            json!({"columns": {"n": "integer"}}),
            "column `n`: is text, an integer is needed",
        ),
        (
            "t = t.append_column('n', pa.array([1.5] * 7))",
            json!({"columns": {"n": "integer"}}),
            "column `n`: holds 1.5",
        ),
        (
            "t = t.set_column(t.schema.get_field_index('source'), 'source', pa.array(['me'] * 7))",
            json!({}),
            "column `source`: has values and is not declared",
        ),
        (
            "t = t.set_column(0, 'query_id', pa.array([None] * 7, pa.string()))",
            json!({}),
            "column `query_id`: has rows without a value",
        ),
        (
            "t = t.set_column(t.schema.get_field_index('_row'), '_row', pa.array([9] * 7))",
            json!({}),
            "column `_row`: holds 9, and the input has rows 0 to 6",
        ),
        (
            "r = {'_row': [1], 'reject_reason': ['Too easy!']}; t = t.slice(2)",
            json!({}),
            "column `reject_reason`: holds `Too easy!`",
        ),
        (
            "r = {'_row': [1], 'reject_reason': ['easy']}",
            json!({}),
            "column `_row`: holds 1, which is also in the output",
        ),
        ("r = {'_row': [1]}; t = t.slice(2)", json!({}), "column `reject_reason`: is missing"),
    ] {
        let Some(said) = failure(body, &more) else { return };
        assert!(said.contains(expected), "{body}: {said}");
    }
}

#[test]
fn what_data_frames_make_of_columns_is_read_back() {
    // integers beside nulls as floats, columns without a type, lists whose items have another name, text of another width
    let body = "t = t.set_column(t.schema.get_field_index('source'), 'source', pa.array([None] * 7))\n\
        t = t.append_column('n', pa.array([1.0, None] * 3 + [2.0])).append_column('tags', pa.array([['a'], []] * 3 + [None], pa.large_list(pa.large_string())))\n\
        t = t.set_column(t.schema.get_field_index('messages'), 'messages', pa.array([[{'content': 'hi', 'role': 'user'}]] * 7))";
    let more = json!({"columns": {"n": "integer", "tags": "texts", "messages": "messages"}});
    let Some(outcome) = run_python(body, &more, &Cut::WHOLE) else { return };
    let outcome = outcome.unwrap();
    assert_eq!(outcome.rows()[0]["n"], 1);
    assert_eq!(outcome.rows()[1]["n"], Value::Null);
    assert_eq!(outcome.rows()[0]["tags"], json!(["a"]));
    assert_eq!(outcome.rows()[0]["messages"], json!([{"role": "user", "content": "hi", "tool_calls": null}]));
}

#[test]
fn another_table_comes_out_where_that_is_said() {
    let body = "t = pa.table({'query_id': t['query_id'], 'trace_id': t['query_id'], 'response': t['label'], '_row': t['_row'],\n  \
        **{name: pa.array([None] * t.num_rows) for name in p['names']}})";
    let names: Vec<&str> = schemas::traces::TABLE
        .columns()
        .map(|column| column.name)
        .filter(|name| !["query_id", "trace_id", "response"].contains(name))
        .collect();
    let more = json!({"table": "traces", "columns": {"response": "text"}, "params": {"names": names}});
    let Some(outcome) = run_python(body, &more, &Cut::slices(4)) else { return };
    assert_eq!(outcome.unwrap().column("response")[6], "10");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_filled_in_argument_names_no_place_and_keeps_the_rest(before in "[^{}]{0,9}", after in "[^{}]{0,9}") {
        let paths = Paths::below(Path::new("/folder"));
        prop_assert_eq!(paths.fill_in(&format!("{before}{{input}}{after}")), format!("{before}/folder/input.parquet{after}"));
        prop_assert_eq!(paths.fill_in(&before), before);
    }
}
