//! What the parameters mean, and what they refuse.

use pipeline_core::{Ports, StageEntry};
use serde_json::{Value, json};

use super::super::Import;
use super::{Project, extra, numbered, simple, texts};

fn refused(params: &Value) -> (String, String) {
    let error = (StageEntry::stage::<Import>().parse)(params).map(|_| ()).unwrap_err();
    (error.path.clone(), format!("{} {}", error.message, error.hint.unwrap_or_default()))
}

#[test]
fn parameters_that_make_no_sense_are_refused_in_place() {
    let cases = [
        (json!({"files": ["a"], "columns": {"promt": "q"}}), "columns.promt", "did you mean `prompt`?"),
        (json!({"files": ["a"], "columns": {"label": "q"}}), "columns", "neither `prompt` nor `messages`"),
        (json!({"files": ["a"], "columns": {"prompt": "q", "response": "r"}}), "columns.response", "rows = \"traces\""),
        (json!({"files": ["a"], "columns": {"prompt": "q", "extra": "r"}}), "columns.extra", "is computed"),
        (json!({"files": ["a"], "columns": {"prompt": "q[x]"}}), "columns.prompt", "is no position"),
        (json!({"files": ["a"], "columns": {"prompt": []}}), "columns.prompt", "names no column"),
        (
            json!({"files": ["a"], "columns": {"prompt": "q", "messages": ["a", "b"]}}),
            "columns.messages",
            "takes one path",
        ),
        (json!({"files": [], "columns": {"prompt": "q"}}), "files", "empty"),
        (json!({"files": ["a"], "columns": {"prompt": "q"}, "limit": 0}), "limit", "at least 1"),
        (
            json!({"files": ["a"], "columns": {"prompt": "q"}, "label_after": "####"}),
            "label_after",
            "needs `columns.label`",
        ),
        (
            json!({"files": ["a"], "columns": {"prompt": "q"}, "options_strip": true}),
            "options_strip",
            "needs `columns.options`",
        ),
        (
            json!({"files": ["a"], "columns": {"prompt": "q", "domain": "d"}, "domain": "math"}),
            "domain",
            "exclude each other",
        ),
        (json!({"files": ["a"], "columns": {"prompt": "q"}, "model": "m"}), "model", "belongs to traces"),
        (json!({"files": ["a"], "columns": {"prompt": "q"}, "each": {"lists": ["q"]}}), "each", "rows = \"traces\""),
        (json!({"files": ["a"], "rows": "traces", "columns": {"prompt": "q"}}), "columns", "neither `response`"),
        (
            json!({"files": ["a"], "rows": "traces", "columns": {"prompt": "q", "response": "r"}, "each": {}}),
            "each",
            "either",
        ),
        (json!({"files": ["a"], "columns": {"prompt": "q"}, "lable_after": "x"}), "lable_after", "unknown field"),
    ];
    for (params, path, message) in cases {
        let (at, text) = refused(&params);
        assert!(at == path || path == "lable_after", "{at} is not {path}");
        assert!(text.contains(message), "{text}");
    }
}

#[test]
fn a_column_that_no_row_has_ends_the_import() {
    let mut project = Project::with("p.jsonl", numbered(50));
    project.env.shard_rows = 10;
    let params = json!({"files": ["p.jsonl"], "columns": {"prompt": "q", "label": "aa"}});
    let error = project.error(&params);
    assert!(error.contains("columns.label") && error.contains("no row of `p.jsonl` has `aa`"), "{error}");
    assert!(error.contains("a, n, q") && error.contains("did you mean `a`?"), "{error}");
    let error = project.error(&json!({"files": ["p.jsonl"], "rows": "traces", "columns": {"prompt": "q", "response": "a"}, "each": {"lists": ["q", "zz"]}}));
    assert!(error.contains("zz") || error.contains("is no list"), "{error}");
}

#[test]
fn a_column_that_few_rows_have_is_null_in_the_others() {
    let lines = format!("{}{{\"q\": \"last\", \"rare\": \"x\"}}\n", numbered(50));
    let mut project = Project::with("p.jsonl", lines);
    project.env.shard_rows = 10;
    let rows = project.rows(&json!({"files": ["p.jsonl"], "columns": {"prompt": "q", "label": "rare"}}));
    assert_eq!(rows.iter().filter(|row| row["label"] == "x").count(), 1);
    assert_eq!(rows.len(), 51);
}

#[test]
fn missing_files_and_globs_without_matches_are_named() {
    let project = Project::with("data/p.jsonl", numbered(1));
    assert!(project.error(&simple("x.jsonl")).contains("file `x.jsonl` does not exist"));
    assert!(project.error(&simple("data")).contains("is a folder"));
    assert!(project.error(&simple("*.csv")).contains("`*.csv` matches no file"));
    let params = json!({"files": ["data/p.jsonl", "data/*.jsonl"], "columns": {"prompt": "q"}});
    assert_eq!(project.rows(&params).len(), 1);
}

#[test]
fn values_become_text_as_they_were_written() {
    let lines = concat!(
        r#"{"q": "a", "a": 18}"#,
        "\n",
        r#"{"q": "b", "a": 1.0}"#,
        "\n",
        r#"{"q": "c", "a": "1,080"}"#,
        "\n",
        r#"{"q": "d", "a": 123456789012345678901234567890.10e-2}"#,
        "\n",
        r#"{"q": "e", "a": true}"#,
        "\n",
        r#"{"q": "f", "a": null}"#,
        "\n",
        r#"{"q": "g"}"#,
        "\n",
    );
    let rows = Project::with("p.jsonl", lines).rows(&simple("p.jsonl"));
    let labels = ["18", "1.0", "1,080", "123456789012345678901234567890.10e-2", "true", "null", "null"];
    assert_eq!(texts(&rows, "label"), labels);
}

#[test]
fn a_value_of_the_wrong_type_ends_the_import_or_falls_out() {
    let lines = format!("{}{{\"q\": \"x\", \"a\": {{\"value\": 1}}}}\n", numbered(9));
    let project = Project::with("p.jsonl", lines);
    let error = project.error(&simple("p.jsonl"));
    assert!(error.contains("line 10: column `label`: `a` is {\"value\": 1} where text is needed"), "{error}");
    let imported = project.tolerating(0.1).import(&simple("p.jsonl")).unwrap();
    assert_eq!(texts(&imported.rejects, "reject_reason"), ["bad_value"]);
    let evidence: Value = serde_json::from_str(imported.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&evidence["line"], &evidence["column"], &evidence["file"]),
        (&json!(10), &json!("label"), &json!("p.jsonl"))
    );
    assert_eq!(extra(&imported.rejects[0]), json!({"q": "x", "a": {"value": 1}}));
}

#[test]
fn rows_without_prompt_or_label_mark_fall_out() {
    let lines = "{\"q\": \"a\", \"a\": \"x #### 1\"}\n{\"q\": \" \", \"a\": \"#### 2\"}\n{\"a\": \"#### 3\"}\n{\"q\": \"d\", \"a\": \"4\"}\n{\"q\": \"e\", \"a\": null}\n";
    let imported = Project::with("p.jsonl", lines)
        .import(&json!({"files": ["p.jsonl"], "columns": {"prompt": "q", "label": "a"}, "label_after": "####"}))
        .unwrap();
    assert_eq!(texts(&imported.rejects, "reject_reason"), ["no_prompt", "no_prompt", "no_label"]);
    assert_eq!(texts(&imported.rows, "label"), ["1", "null"]);
}

#[test]
fn conversations_keep_their_turns_and_what_has_no_place() {
    let lines = concat!(
        r#"{"m": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "s": "be brief"}"#,
        "\n",
        r#"{"m": [{"role": "system", "content": "own"}, {"role": "user", "content": "d", "name": "eve"}], "s": "be brief"}"#,
        "\n",
        r#"{"m": [{"role": "user", "content": "e"}, {"role": "assistant", "content": null, "tool_calls": [{"f": 1.50}]}, {"role": "tool", "content": "f"}]}"#,
        "\n",
    );
    let rows = Project::with("p.jsonl", lines).rows(
        &json!({"files": ["p.jsonl"], "columns": {"messages": "m", "system": "s"}, "source": "mine", "license": "MIT"}),
    );
    assert_eq!(texts(&rows, "prompt"), ["c", "d", "e"]);
    assert_eq!(rows[0]["messages"].as_array().unwrap().len(), 4);
    assert_eq!(rows[0]["messages"][0], json!({"role": "system", "content": "be brief", "tool_calls": null}));
    assert!(rows[0]["extra"].is_null());
    assert_eq!(rows[1]["messages"].as_array().unwrap().len(), 2);
    assert_eq!(extra(&rows[1])["m"][1]["name"], "eve");
    assert_eq!(extra(&rows[1])["s"], "be brief");
    assert_eq!(rows[2]["messages"][1]["tool_calls"], "[{\"f\": 1.50}]");
    assert_eq!((texts(&rows, "source"), texts(&rows, "license")), (vec!["mine"; 3], vec!["MIT"; 3]));
}

#[test]
fn several_columns_make_one_prompt_or_one_list() {
    let line = r#"{"c": "Tom has 3.", "q": "How many?", "A": "1", "B": 3, "C": "none", "y": 1, "d": "math"}"#;
    let params = json!({
        "files": ["p.jsonl"], "join": "\n", "label_index": true,
        "columns": {"prompt": ["c", "q"], "options": ["A", "B", "C"], "label": "y", "domain": "d"},
    });
    let rows = Project::with("p.jsonl", line).rows(&params);
    assert_eq!(
        (&rows[0]["prompt"], &rows[0]["options"], &rows[0]["label"]),
        (&json!("Tom has 3.\nHow many?"), &json!(["1", "3", "none"]), &json!("B"))
    );
    assert_eq!(rows[0]["domain"], "math");
    assert_eq!(extra(&rows[0]), json!({"c": "Tom has 3.", "q": "How many?", "y": 1}));
}

#[test]
fn an_id_depends_on_content_and_not_on_the_file() {
    let one = Project::with("p.jsonl", numbered(3)).rows(&simple("p.jsonl"));
    let two =
        Project::with("q.json", format!("[{}]", numbered(3).trim_end().replace('\n', ","))).rows(&simple("q.json"));
    assert_eq!(texts(&one, "query_id"), texts(&two, "query_id"));
    let mut params = simple("p.jsonl");
    params["domain"] = "math".into();
    let three = Project::with("p.jsonl", numbered(3)).rows(&params);
    assert_ne!(texts(&one, "query_id"), texts(&three, "query_id"));
}

#[test]
fn a_limit_takes_the_first_rows_of_all_files() {
    let project = Project::with("a.jsonl", numbered(5));
    project.write("b.json", format!("[{}]", numbered(5).trim_end().replace('\n', ",")));
    project.write("c.csv", "q,a\nx,1\n");
    for limit in [1, 5, 7, 11, 20] {
        let params = json!({"files": ["a.jsonl", "b.json", "c.csv"], "columns": {"prompt": "q"}, "limit": limit});
        let rows = project.rows(&params);
        assert_eq!(rows.len(), limit.min(11));
        assert_eq!(
            rows[rows.len() - 1]["source"],
            if limit > 10 {
                "c.csv"
            } else if limit > 5 {
                "b.json"
            } else {
                "a.jsonl"
            }
        );
    }
}

#[test]
fn appended_rows_leave_the_pieces_before_them_as_they_were() {
    let mut project = Project::with("p.jsonl", numbered(25));
    project.env.shard_rows = 10;
    let before = project.sources(&simple("p.jsonl")).unwrap();
    project.write("p.jsonl", numbered(47));
    let after = project.sources(&simple("p.jsonl")).unwrap();
    assert_eq!((before.len(), after.len()), (3, 5));
    assert_eq!(before[..2], after[..2]);
    assert_ne!(before[2].digest, after[2].digest);
    project.env.shard_bytes = 100;
    assert!(project.sources(&simple("p.jsonl")).unwrap().len() > 15);
    project.write("p.jsonl", numbered(47).replacen("problem 3", "problem X", 1));
    let changed = project.sources(&simple("p.jsonl")).unwrap();
    assert_eq!(changed.len(), project.sources(&simple("p.jsonl")).unwrap().len());
}

#[test]
fn externals_name_each_file_and_its_content() {
    let project = Project::with("data/p.jsonl", numbered(2));
    let stage = (StageEntry::stage::<Import>().parse)(&simple("data/*.jsonl")).unwrap();
    let externals = stage.externals(&project.env, &Ports::default()).unwrap();
    assert_eq!(externals.len(), 1);
    assert_eq!((externals[0].name.as_str(), externals[0].sliced), ("file data/p.jsonl", true));
    project.write("data/p.jsonl", numbered(3));
    assert_ne!(stage.externals(&project.env, &Ports::default()).unwrap()[0].digest, externals[0].digest);
}

#[test]
fn constraints_that_nobody_can_check_end_the_import_with_their_place() {
    let line = |id: &str, kwargs: &str| format!("{{\"q\": \"x\", \"ids\": [\"{id}\"], \"kwargs\": [{kwargs}]}}\n");
    let good = line("keywords:existence", r#"{"keywords": ["sun"], "num_words": null}"#);
    let params = json!({"files": ["p.jsonl"], "columns": {"prompt": "q", "constraints": ["ids", "kwargs"]}});
    for (id, kwargs, wrong) in [
        ("keywords:existance", r#"{"keywords": ["sun"]}"#, "keywords:existance"),
        ("keywords:existence", "{}", "keywords"),
        ("keywords:existence", r#"{"keywords": 3}"#, "keywords"),
    ] {
        let project = Project::with("p.jsonl", format!("{good}{}", line(id, kwargs)));
        let error = project.error(&params);
        assert!(error.contains("line 2") && error.contains(wrong), "{error}");
    }
    let imported = Project::with("p.jsonl", good).import(&params).unwrap();
    assert_eq!(imported.rows.len(), 1);
}

#[test]
fn several_paths_of_tests_are_the_fields_of_one_object() {
    let line = r#"{"q": "x", "setup": "import math", "list": ["assert f(1) == 2", "assert f(2) == 3"]}"#;
    let columns = json!({"prompt": "q", "tests": ["setup", "list"]});
    let rows = Project::with("p.jsonl", line).rows(&json!({"files": ["p.jsonl"], "columns": columns}));
    let tests: Value = serde_json::from_str(rows[0]["tests"].as_str().unwrap()).unwrap();
    assert_eq!(tests, json!({"setup": "import math", "list": ["assert f(1) == 2", "assert f(2) == 3"]}));
    assert_eq!(extra(&rows[0]), json!({}));
}
