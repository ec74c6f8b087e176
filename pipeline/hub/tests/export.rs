//! Exports to a folder: what is read back, what stays, and that the same rows give the same bytes.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use pipeline_core::json_rows;
use pipeline_core::table_io::{TableFile, TableWriter};
use pipeline_core::task::InputFile;
use pipeline_hub::{
    CardFacts, DEFAULT_SHARD_BYTES, ExportError, ExportReport, ExportRequest, Format, ModelFact, StageFact, export,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn query(number: usize, text: &str) -> Value {
    json!({
        "query_id": format!("{number:024x}"),
        "domain": "math",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
        "prompt": text,
        "label": "2",
        "source": if number.is_multiple_of(3) { "school|中文" } else { "cmath" },
        "license": if number.is_multiple_of(2) { Value::from("MIT") } else { Value::Null },
    })
}

fn trace(number: usize, text: &str, reasoning: Option<&str>, answer: &str) -> Value {
    let mut row = query(number, text);
    let more = json!({
        "trace_id": format!("{:024x}", number + 1_000_000), "model": "teacher@q4", "sample": 0, "reasoning": reasoning,
        "answer_text": answer, "response": answer, "finish_reason": "stop", "verdict": "correct",
    });
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    row
}

fn traces(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| {
            let text = if number % 4 == 0 { "求一加一的和。" } else { "What is one and one?" };
            let reasoning = (number % 5 != 0).then_some("One and one.\n\n$1+1=2$");
            trace(number, text, reasoning, "The answer is \\boxed{2}.\u{2028}完")
        })
        .collect()
}

/// Writes rows as files of the given numbers of rows, in turn.
fn write(folder: &Path, schema: &SchemaRef, rows: &[Value], cuts: &[usize]) -> Vec<InputFile> {
    let (mut files, mut rest, mut cuts) = (Vec::new(), rows, cuts.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*cuts.next().unwrap()).clamp(1, rest.len()));
        rest = later;
        let mut writer = TableWriter::create(&folder.join(format!("{}.parquet", files.len())), schema).unwrap();
        writer.write(&json_rows::from_json(schema, now).unwrap()).unwrap();
        let written = writer.finish().unwrap();
        files.push(InputFile { path: written.path, rows: written.rows, digest: written.digest, partitions: vec![] });
    }
    files
}

fn facts() -> CardFacts {
    CardFacts {
        pipeline: "math-small".into(),
        program: "pipeline 0.1.0".into(),
        recipe: vec!["kind = \"verify\"".into(), "keep = [\"correct\"]".into()],
        stages: vec![StageFact {
            name: "checked".into(),
            kind: "verify".into(),
            read: 1_200,
            kept: 1_000,
            rows: 1_000,
            rejected: BTreeMap::from([("incorrect".into(), 150), ("no_answer".into(), 50)]),
            transient: 0,
        }],
        models: vec![ModelFact {
            id: "teacher@q4".into(),
            stages: vec!["paths".into()],
            output_terms: Some("Apache-2.0".into()),
        }],
    }
}

fn request(table: &str, files: Vec<InputFile>, to: &Path) -> ExportRequest {
    ExportRequest {
        stage: "checked".into(),
        table: table.into(),
        files,
        to: to.to_owned(),
        format: Format::Messages,
        columns: None,
        shard_bytes: DEFAULT_SHARD_BYTES,
        card: facts(),
    }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("stage")).unwrap();
        Self { folder }
    }

    fn to(&self) -> PathBuf {
        self.folder.path().join("dataset")
    }

    fn traces(&self, rows: &[Value]) -> ExportRequest {
        let files = write(&self.folder.path().join("stage"), &schemas::traces::TABLE.schema(), rows, &[7]);
        request("traces", files, &self.to())
    }

    fn queries(&self, rows: &[Value]) -> ExportRequest {
        let files = write(&self.folder.path().join("stage"), &schemas::queries::TABLE.schema(), rows, &[7]);
        request("queries", files, &self.to())
    }

    fn readme(&self) -> String {
        fs::read_to_string(self.to().join("README.md")).unwrap()
    }
}

fn read_back(report: &ExportReport) -> Vec<Value> {
    let shards = report.files.iter().filter(|file| file.extension().is_some_and(|end| end == "parquet"));
    let mut rows = Vec::new();
    for shard in shards {
        let file = TableFile::open(&report.to.join(shard)).unwrap();
        for batch in file.read(0, u64::MAX, None).unwrap() {
            rows.extend(json_rows::to_json(&batch.unwrap()).into_iter().map(Value::Object));
        }
    }
    rows
}

/// Every file below a folder with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_trace_becomes_a_conversation_with_its_reasoning_in_a_think_block() {
    let place = Place::new();
    let rows = [
        trace(0, "一加一？", Some("一加一等于二。"), "答案：\\boxed{2}"),
        trace(1, "1+1?", None, "2"),
        trace(2, "1+1?", Some("One and"), ""),
    ];
    let report = export(&place.traces(&rows)).unwrap();
    let back = read_back(&report);
    assert_eq!(report.rows, 3);
    assert_eq!(
        back[0]["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "一加一？"},
            {"role": "assistant", "content": "<think>\n一加一等于二。\n</think>\n\n答案：\\boxed{2}"},
        ])
    );
    assert_eq!(back[1]["messages"][2]["content"], "2");
    assert_eq!(back[2]["messages"][2]["content"], "<think>\nOne and");
    assert_eq!(report.unfinished, 1);
    let columns: Vec<&String> = back[0].as_object().unwrap().keys().collect();
    let wanted = ["messages", "trace_id", "query_id", "domain", "label", "model", "verdict", "source", "license"];
    assert_eq!(columns, wanted);
}

#[test]
fn prompt_and_completion_are_lists_of_messages() {
    let place = Place::new();
    let mut request = place.traces(&traces(20));
    request.format = Format::PromptCompletion;
    request.columns = Some(vec!["label".into(), "reasoning".into()]);
    let back = read_back(&export(&request).unwrap());
    assert_eq!(back.len(), 20);
    assert_eq!(
        back[1],
        json!({
            "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is one and one?"}],
            "completion": [{
                "role": "assistant",
                "content": "<think>\nOne and one.\n\n$1+1=2$\n</think>\n\nThe answer is \\boxed{2}.\u{2028}完",
            }],
            "label": "2",
            "reasoning": "One and one.\n\n$1+1=2$",
        })
    );
}

#[test]
fn parquet_is_the_table_as_it_is() {
    let place = Place::new();
    let rows = traces(20);
    let mut request = place.traces(&rows);
    request.format = Format::Parquet;
    let back = read_back(&export(&request).unwrap());
    let schema = schemas::traces::TABLE.schema();
    let wanted = json_rows::to_json(&json_rows::from_json(&schema, &rows).unwrap());
    assert_eq!(back, wanted.into_iter().map(Value::Object).collect::<Vec<_>>());
    request.columns = Some(vec!["label".into(), "query_id".into()]);
    let back = read_back(&export(&request).unwrap());
    assert_eq!(back[3], json!({"label": "2", "query_id": format!("{:024x}", 3)}));
}

#[test]
fn tool_calls_are_written_only_when_a_message_has_some() {
    let place = Place::new();
    let mut rows = traces(300);
    let report = export(&place.traces(&rows)).unwrap();
    assert_eq!(read_back(&report)[0]["messages"][0].as_object().unwrap().len(), 2);
    let calls = "[{\"type\":\"function\",\"function\":{\"name\":\"加\",\"arguments\":{}}}]";
    rows[299]["messages"][1]["tool_calls"] = calls.into();
    let back = read_back(&export(&place.traces(&rows)).unwrap());
    assert_eq!(back.len(), 300);
    assert_eq!(back[299]["messages"][1]["tool_calls"], calls);
    assert_eq!(back[0]["messages"][1]["tool_calls"], Value::Null);
}

#[test]
fn shards_are_bounded_and_hold_every_row_in_order() {
    let place = Place::new();
    let mut request = place.traces(&traces(500));
    request.shard_bytes = 10_000;
    let report = export(&request).unwrap();
    let shards = report.files.len() - 1;
    assert!(shards > 3, "{shards}");
    assert_eq!(report.files[0], Path::new("data").join(format!("train-00000-of-{shards:05}.parquet")));
    let ids: Vec<Value> = read_back(&report).iter().map(|row| row["query_id"].clone()).collect();
    let wanted: Vec<Value> = (0..500).map(|number| format!("{number:024x}").into()).collect();
    assert_eq!(ids, wanted);
    // a bound below one row still takes one row a shard
    request.shard_bytes = 0;
    assert_eq!(export(&request).unwrap().files.len(), 501);
}

#[test]
fn a_second_export_gives_the_same_bytes_and_a_smaller_one_leaves_no_old_shard() {
    let place = Place::new();
    let mut request = place.traces(&traces(300));
    request.shard_bytes = 10_000;
    let first = export(&request).unwrap();
    let before = contents(&place.to());
    let second = export(&request).unwrap();
    assert!(contents(&place.to()) == before);
    assert_eq!(first, second);
    fs::write(place.to().join("data/test-00000-of-00001.parquet"), "of a person").unwrap();
    request.shard_bytes = DEFAULT_SHARD_BYTES;
    let third = export(&request).unwrap();
    assert_eq!(third.removed.len(), first.files.len() - 1);
    let left: Vec<PathBuf> = contents(&place.to()).into_keys().collect();
    let wanted = ["README.md", "data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"];
    assert_eq!(left, wanted.map(|name| place.to().join(name)));
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 2);
}

#[test]
fn the_card_shows_licences_counts_models_and_what_is_unknown() {
    let place = Place::new();
    let report = export(&place.traces(&traces(1_000))).unwrap();
    assert_eq!((report.licenses["MIT"], report.unknown_license), (500, 500));
    assert_eq!(report.languages, BTreeMap::from([("en".into(), 1_000), ("zh".into(), 250)]));
    let card = place.readme();
    for wanted in [
        "---\nlicense:\n- apache-2.0\n- mit\n- unknown\n",
        "language:\n- en\n- zh\n",
        "size_categories:\n- 1K<n<10K\n",
        "# math-small\n",
        "The licence of 500 rows is unknown.",
        "| checked | verify | 1,200 | 1,000 | incorrect 150, no_answer 50 | 1,000 |",
        "| teacher@q4 | paths | 1,000 | Apache-2.0 |",
        "| school\\|中文 | MIT | 167 |",
        "    keep = [\"correct\"]",
        "| messages | list of {role, content} |",
    ] {
        assert!(card.contains(wanted), "{wanted}\n{card}");
    }
    assert!(!card.contains(place.folder.path().to_str().unwrap()));
}

#[test]
fn what_a_person_wrote_in_the_readme_stays() {
    let place = Place::new();
    fs::create_dir(place.to()).unwrap();
    let hand = "---\npretty_name: 小学\nlicense: cc-by-4.0\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: data/test-*\n---\n# Mine\n\nMy words.\n";
    fs::write(place.to().join("README.md"), hand).unwrap();
    export(&place.traces(&traces(10))).unwrap();
    let merged = place.readme();
    for wanted in [
        "pretty_name: 小学\n",
        "license:\n- cc-by-4.0\n- apache-2.0\n- mit\n",
        "split: test",
        "split: train",
        "# Mine\n\nMy words.\n",
    ] {
        assert!(merged.contains(wanted), "{wanted}\n{merged}");
    }
    fs::write(place.to().join("README.md"), merged.clone() + "\n## Citation\n").unwrap();
    export(&place.traces(&traces(10))).unwrap();
    assert_eq!(place.readme(), merged + "\n## Citation\n");
}

#[test]
fn a_failed_export_leaves_everything_as_it_was() {
    let place = Place::new();
    let good = place.traces(&traces(10));
    export(&good).unwrap();
    let before = contents(place.folder.path());

    let mut request = good.clone();
    request.files[1].digest = request.files[0].digest;
    assert!(matches!(export(&request), Err(ExportError::Stage(_))));
    assert!(contents(place.folder.path()) == before);

    // a row without an answer is found after shards were begun
    let mut rows = traces(300);
    rows[290]["answer_text"] = Value::Null;
    rows[290]["response"] = Value::Null;
    rows[290]["reasoning"] = Value::Null;
    fs::create_dir(place.folder.path().join("other")).unwrap();
    let other = write(&place.folder.path().join("other"), &schemas::traces::TABLE.schema(), &rows, &[7]);
    let mut request = request.clone();
    request.files = other;
    request.shard_bytes = 1_000;
    let error = export(&request).unwrap_err();
    assert!(error.to_string().contains("row 3 of"), "{error}");
    fs::remove_dir_all(place.folder.path().join("other")).unwrap();
    assert!(contents(place.folder.path()) == before);

    // a file of another program under a shard's name
    fs::write(place.to().join("data/train-00007-of-00009.parquet"), "x").unwrap();
    assert!(matches!(export(&good), Err(ExportError::Foreign { .. })));
    fs::remove_file(place.to().join("data/train-00007-of-00009.parquet")).unwrap();
    assert!(contents(place.folder.path()) == before);
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_and_left_alone() {
    let place = Place::new();
    let mut request = place.traces(&traces(10));
    fs::write(place.to(), "a file").unwrap();
    assert!(matches!(export(&request), Err(ExportError::Io { .. })));
    request.to = place.to().join("below");
    assert!(matches!(export(&request), Err(ExportError::Io { .. })));
    assert_eq!(fs::read_to_string(place.to()).unwrap(), "a file");
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 2);
    // the place of the shards is taken
    request.to = place.folder.path().join("third");
    fs::create_dir(&request.to).unwrap();
    fs::write(request.to.join("data"), "a file").unwrap();
    assert!(matches!(export(&request), Err(ExportError::Io { .. })));
    assert_eq!(fs::read_dir(&request.to).unwrap().count(), 1);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 3);
}

#[test]
fn what_cannot_be_exported_is_said() {
    let place = Place::new();
    let queries = place.queries(&[query(1, "1+1?")]);
    let refused = |request: &ExportRequest| export(request).unwrap_err().to_string();
    let with = |change: &dyn Fn(&mut ExportRequest)| {
        let mut request = queries.clone();
        change(&mut request);
        refused(&request)
    };
    assert!(with(&|request| request.files.clear()).contains("has no rows"));
    assert!(with(&|request| request.table = "metrics".into()).contains("only `queries` and `traces`"));
    assert!(with(&|request| request.format = Format::PromptCompletion).contains("needs answers"));
    assert!(with(&|request| request.columns = Some(vec!["none".into()])).contains("`none` is not in the output"));
    assert!(with(&|request| request.columns = Some(vec!["prompt".into()])).contains("use `parquet`"));
    assert!(with(&|request| request.columns = Some(vec!["messages".into()])).contains("twice"));
    assert!(!place.to().exists());
    assert_eq!(export(&queries).unwrap().rows, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_depend_on_the_rows_and_not_on_the_files_they_came_in(
        count in 1_usize..300,
        cuts in proptest::collection::vec(1_usize..150, 1..4),
        shard_bytes in 2_000_u64..60_000,
        parquet in any::<bool>(),
    ) {
        let place = Place::new();
        let mut request = place.traces(&traces(count));
        request.shard_bytes = shard_bytes;
        request.format = if parquet { Format::Parquet } else { Format::Messages };
        export(&request).unwrap();
        let before = contents(&place.to());
        request.files = write(&place.folder.path().join("stage"), &schemas::traces::TABLE.schema(), &traces(count), &cuts);
        export(&request).unwrap();
        let after = contents(&place.to());
        prop_assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        for (path, bytes) in &after {
            prop_assert!(bytes == &before[path], "{} differs", path.display());
        }
    }
}
