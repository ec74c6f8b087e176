use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use pipeline_core::testing::{Cut, Outcome, Trial, conformance};
use pipeline_core::{StageEntry, TableType};
use proptest::prelude::*;
use schemas::{queries, traces};
use serde_json::Value;

use super::*;

const ENTRY: StageEntry = StageEntry::stage::<Dedup>();

const TEXT: &str = "Tom has 5 pens and buys 7 more pens in the shop near the school. How many pens does he have now?";

fn query(id: &str, prompt: &str, label: Option<&str>) -> Value {
    json!({ "query_id": id, "prompt": prompt, "label": label })
}

fn run(params: Value, rows: Vec<Value>) -> Result<Outcome, StageError> {
    Trial::new(&ENTRY, params).rows("rows", &queries::TABLE, rows).run(&Cut::slices(3))
}

fn run_traces(params: Value, rows: Vec<Value>) -> Outcome {
    Trial::new(&ENTRY, params).rows("rows", &traces::TABLE, rows).run(&Cut::slices(2)).unwrap()
}

fn kept(outcome: &Outcome) -> Vec<String> {
    outcome.column("query_id").iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

fn evidence(row: &Value) -> Value {
    serde_json::from_str(row["reject_evidence"].as_str().unwrap()).unwrap()
}

#[test]
fn it_conforms() {
    conformance(&ENTRY);
}

#[test]
fn short_texts_are_duplicates_only_when_they_say_the_same() {
    let rows =
        vec![query("1", "cat", None), query("2", "dog", None), query("3", "cat", None), query("4", "Cat!", None)];
    let outcome = run(json!({}), rows).unwrap();
    assert_eq!(kept(&outcome), ["1", "2"]);
    assert_eq!(outcome.reasons(), ["exact_duplicate", "near_duplicate"]);
}

#[test]
fn texts_of_other_scripts_are_told_apart() {
    let rows = vec![
        query("1", "كم عدد الكتب التي اشتراها أحمد من المكتبة يوم الاثنين الماضي", None),
        query("2", "ما هي عاصمة البلاد التي يسكن فيها أكثر الناس في هذه القارة", None),
        query("3", "小明有三只羊和五只鸡，他一共有多少只动物？", None),
        query("4", "一列火车从北京开往上海，中途停靠几个车站？", None),
        query("5", "请问：小明有三只羊和五只鸡，他一共有多少只动物？", None),
    ];
    let outcome = run(json!({}), rows).unwrap();
    assert_eq!(kept(&outcome), ["1", "2", "3", "4"]);
    assert_eq!(evidence(&outcome.rejects[0])["of"], "3");
}

#[test]
fn missing_and_blank_texts_are_no_duplicates() {
    let rows = vec![
        query("1", "", None),
        query("2", "  \n", None),
        query("3", "", None),
        json!({ "query_id": "4" }),
        json!({ "query_id": "5" }),
        query("6", "cat", None),
    ];
    assert_eq!(run(json!({}), rows).unwrap().kept, 6);
}

#[test]
fn number_twins_stay_unless_they_have_one_label_or_are_unwanted() {
    let twin = TEXT.replace('5', "6");
    let with = |one: Option<&str>, two: Option<&str>| vec![query("1", TEXT, one), query("2", &twin, two)];
    let kept = |params: Value, rows| run(params, rows).unwrap().kept;
    // 0.5: one changed number costs five shingles of each short text
    assert_eq!(kept(json!({ "threshold": 0.5 }), with(Some("12"), Some("13"))), 2);
    assert_eq!(kept(json!({ "threshold": 0.5 }), with(None, None)), 2);
    assert_eq!(kept(json!({ "threshold": 0.5 }), with(Some("12"), Some("12"))), 1);
    assert_eq!(kept(json!({ "number_twins": "drop" }), with(Some("12"), Some("13"))), 1);
}

#[test]
fn other_operators_are_other_problems() {
    let long = |operator: &str| {
        format!("Work out the value of the following expression and write only the number: 12 {operator} 7")
    };
    let rows = vec![query("1", &long("+"), Some("19")), query("2", &long("-"), Some("5"))];
    assert_eq!(run(json!({ "threshold": 0.9 }), rows).unwrap().kept, 2);
}

#[test]
fn options_belong_to_the_text() {
    let row = |id: &str, options: &[&str]| json!({ "query_id": id, "prompt": "Which is right?", "options": options });
    let rows = vec![
        row("1", &["a whale is a fish", "a bat is a bird"]),
        row("2", &["iron floats", "wood floats"]),
        row("3", &["iron floats", "wood floats"]),
    ];
    assert_eq!(kept(&run(json!({}), rows).unwrap()), ["1", "2"]);
}

#[test]
fn the_smallest_id_or_the_best_value_stays() {
    let row = |id: &str, rate: Option<f64>| json!({ "query_id": id, "prompt": TEXT, "pass_rate": rate });
    let rows = vec![row("c", Some(0.2)), row("b", Some(0.9)), row("a", None), row("d", Some(0.9))];
    assert_eq!(kept(&run(json!({}), rows.clone()).unwrap()), ["a"]);
    let outcome = run(json!({ "best": "pass_rate" }), rows).unwrap();
    assert_eq!(kept(&outcome), ["b"]);
    assert!(outcome.rejects.iter().all(|row| evidence(row)["of"] == "b"));
}

#[test]
fn one_id_with_two_labels_falls_out_whole_and_takes_nothing_with_it() {
    let rows = vec![
        query("1", TEXT, Some("12")),
        query("1", TEXT, Some("13")),
        query("1", TEXT, None),
        query("2", TEXT, Some("12")),
    ];
    let outcome = run(json!({}), rows).unwrap();
    assert_eq!(kept(&outcome), ["2"]);
    assert_eq!(outcome.rejected["label_conflict"], 3);
    assert_eq!(evidence(&outcome.rejects[0])["labels"], json!(["12", "13"]));
}

#[test]
fn within_compares_rows_of_one_value_only() {
    let row = |id: &str, domain: &str| json!({ "query_id": id, "prompt": TEXT, "domain": domain });
    let rows = vec![row("1", "math"), row("2", "stem"), row("3", "math")];
    assert_eq!(kept(&run(json!({ "within": "domain" }), rows.clone()).unwrap()), ["1", "2"]);
    assert_eq!(kept(&run(json!({}), rows).unwrap()), ["1"]);
}

#[test]
fn traces_of_a_query_stay_or_go_together() {
    let trace = |query: &str, id: &str, prompt: &str| json!({ "query_id": query, "trace_id": id, "prompt": prompt, "response": "The answer is 12." });
    let near = format!("Please solve: {TEXT}");
    let rows = vec![
        trace("b", "1", &near),
        trace("a", "2", TEXT),
        trace("b", "3", &near),
        trace("a", "4", TEXT),
        trace("b", "5", &near),
        trace("a", "6", TEXT),
    ];
    let outcome = run_traces(json!({}), rows);
    assert_eq!(outcome.column("trace_id"), ["2", "4", "6"]);
    assert_eq!(outcome.rejected["near_duplicate"], 3);
}

#[test]
fn responses_are_compared_within_their_query() {
    let trace = |query: &str, id: &str, response: &str| json!({ "query_id": query, "trace_id": id, "prompt": "How many?", "label": "12", "response": response });
    let rows = vec![
        trace("a", "2", TEXT),
        trace("a", "1", TEXT),
        trace("b", "3", TEXT),
        trace("b", "4", &TEXT.replace('5', "6")),
    ];
    let params = json!({ "column": "response", "threshold": 0.5 });
    assert_eq!(run_traces(params, rows.clone()).column("trace_id"), ["1", "3", "4"]);
    let params = json!({ "column": "response", "threshold": 0.5, "across": true });
    assert_eq!(run_traces(params, rows).column("trace_id"), ["1", "4"]);
}

#[test]
fn only_verified_pairs_are_joined() {
    // one component a band: almost any two texts that share a shingle become candidates
    let start = "In a small town by the sea there lived a";
    let rows: Vec<Value> =
        ["tall baker who sold bread", "young sailor with a red boat", "teacher of nine lively pupils"]
            .iter()
            .enumerate()
            .map(|(row, end)| query(&format!("{row}"), &format!("{start} {end} and hoped for a mild winter"), None))
            .collect();
    assert_eq!(run(json!({ "components": 2, "threshold": 0.8 }), rows.clone()).unwrap().kept, 3);
    assert_eq!(run(json!({ "threshold": 0.2 }), rows).unwrap().kept, 1);
}

#[test]
fn a_cluster_that_swallows_the_data_is_an_alarm() {
    let rows: Vec<Value> = (0..120)
        .map(|row| query(&format!("{row:03}"), &if row < 70 { TEXT.to_owned() } else { format!("word{row}") }, None))
        .collect();
    let error = run(json!({}), rows.clone()).unwrap_err();
    assert!(matches!(&error, StageError::Alarm(message) if message.contains("70 of 120") && message.contains("`000`")));
    let outcome = run(json!({ "max_cluster_share": 0.6 }), rows).unwrap();
    assert_eq!(outcome.kept, 51);
    let among = json!(["001", "002", "003", "004", "005"]);
    assert_eq!(outcome.notes["clusters"]["largest"], json!([{ "of": "000", "size": 70, "among_them": among }]));
}

#[test]
fn without_near_only_equal_texts_fall_out() {
    let rows = vec![query("1", TEXT, None), query("2", &TEXT.to_uppercase(), None), query("3", TEXT, None)];
    let outcome = run(json!({ "near": false }), rows).unwrap();
    assert_eq!(kept(&outcome), ["1", "2"]);
}

#[test]
fn parameters_that_cannot_be_used_are_refused() {
    for params in [
        json!({ "threshold": 1.0 }),
        json!({ "components": 0 }),
        json!({ "max_cluster_share": 2 }),
        json!({ "across": true, "within": "domain" }),
        json!({ "shingle": { "size": 0 } }),
    ] {
        assert!((ENTRY.parse)(&params).is_err(), "{params}");
    }
    for params in [json!({ "column": "x" }), json!({ "best": "domain" }), json!({ "within": "pass_rate" })] {
        assert!(run(params.clone(), vec![query("1", TEXT, None)]).is_err(), "{params}");
    }
}

#[test]
fn pairs_at_the_threshold_are_found_almost_surely() {
    for threshold in [0.3, 0.5, 0.8, 0.9, 0.97] {
        let dedup: Dedup = serde_json::from_value(json!({ "threshold": threshold })).unwrap();
        let bands = dedup.bands().unwrap();
        assert!(bands.probability(threshold) >= FOUND_AT_THRESHOLD, "{threshold} {bands:?}");
        assert!(bands.probability(f64::midpoint(threshold, 1.0)) >= 0.998, "{threshold} {bands:?}");
        assert!(bands.bands * bands.rows <= 128);
    }
}

/// Rows with many near-duplicates among them: few words, short texts.
fn rows() -> impl Strategy<Value = Vec<Value>> {
    let words = prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "7", "羊"]), 0..9);
    let row = (words, 0..4_u8, prop::option::of(0..2_u8));
    prop::collection::vec(row, 1..24).prop_map(|rows| {
        let row = |(words, id, label): (Vec<&str>, u8, Option<u8>)| {
            let text = words.join(" ");
            query(&format!("{text}-{id}"), &text, label.map(|label| format!("{label}")).as_deref())
        };
        rows.into_iter().map(row).collect()
    })
}

fn trial(rows: &[Value], cut: &Cut) -> Outcome {
    let params = json!({ "threshold": 0.4, "shingle": { "size": 2 } });
    Trial::new(&ENTRY, params).rows("rows", &queries::TABLE, rows.to_vec()).run(cut).unwrap()
}

/// Ids that stay, and reason and evidence of those that fall out.
fn story(outcome: &Outcome) -> (Vec<String>, Vec<String>) {
    let mut ids = kept(outcome);
    ids.sort();
    let reject = |row: &Value| format!("{} {} {}", row["query_id"], row["reject_reason"], row["reject_evidence"]);
    let mut rejects: Vec<String> = outcome.rejects.iter().map(reject).collect();
    rejects.sort();
    (ids, rejects)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_second_pass_drops_nothing(rows in rows()) {
        let once = trial(&rows, &Cut::WHOLE);
        let twice = trial(once.rows(), &Cut::WHOLE);
        prop_assert_eq!(twice.rows(), once.rows());
    }

    #[test]
    fn neither_order_nor_cut_changes_the_story(rows in rows(), slice in 1_u64..5, file in 1_usize..9, partitions in 1_u32..5) {
        let whole = trial(&rows, &Cut::WHOLE);
        let cut = trial(&rows, &Cut::slices(slice).files(file).partitions(partitions).backwards());
        prop_assert_eq!(whole.rows(), cut.rows());
        prop_assert_eq!(whole.output("clusters"), cut.output("clusters"));
        prop_assert_eq!(&whole.rejects, &cut.rejects);
        prop_assert_eq!(&whole.notes, &cut.notes);
        let mut backwards = rows.clone();
        backwards.reverse();
        prop_assert_eq!(story(&whole), story(&trial(&backwards, &Cut::WHOLE)));
    }

    #[test]
    fn every_duplicate_names_a_row_that_stays(rows in rows()) {
        let outcome = trial(&rows, &Cut::WHOLE);
        let kept: BTreeSet<String> = kept(&outcome).into_iter().collect();
        for row in outcome.rejects.iter().filter(|row| row["reject_reason"] != "label_conflict") {
            let evidence = evidence(row);
            prop_assert!(kept.contains(evidence["of"].as_str().unwrap()));
        }
    }
}

fn batch_of(texts: &[&str]) -> RecordBatch {
    let schema = queries::TABLE.schema();
    let ids: StringViewArray = (0..texts.len()).map(|row| Some(format!("{row:08}"))).collect();
    let prompts: StringViewArray = texts.iter().map(|text| Some(*text)).collect();
    let empty = RecordBatch::new_empty(Arc::clone(&schema));
    let rows = arrow::array::RecordBatchOptions::new().with_row_count(Some(texts.len()));
    let columns: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            queries::QUERY_ID => Arc::new(ids.clone()) as ArrayRef,
            queries::PROMPT => Arc::new(prompts.clone()),
            _ => arrow::array::new_null_array(field.data_type(), texts.len()),
        })
        .collect();
    RecordBatch::try_new_with_options(empty.schema(), columns, &rows).unwrap()
}

/// Runs over texts without making JSON of them.
fn run_texts(params: Value, texts: &[&str], cut: &Cut) -> Result<Outcome, StageError> {
    let rows = TableType::of(&queries::TABLE, [queries::QUERY_ID, queries::PROMPT]);
    Trial::new(&ENTRY, params).batches("rows", rows, vec![batch_of(texts)]).run(cut)
}

#[test]
fn many_identical_rows_are_one_cluster() {
    let texts = vec![TEXT; 30_000];
    let error = run_texts(json!({}), &texts, &Cut::slices(5_000).partitions(4)).unwrap_err();
    assert!(error.to_string().contains("30000 of 30000 texts would become one"), "{error}");
    let outcome = run_texts(json!({ "max_cluster_share": 1.0 }), &texts, &Cut::slices(5_000).partitions(4)).unwrap();
    assert_eq!((outcome.kept, outcome.rejected["exact_duplicate"]), (1, 29_999));
}

#[test]
fn many_texts_that_differ_in_case_and_layout_only_are_one_cluster() {
    let texts: Vec<String> = (0..6_000_usize)
        .map(|row| {
            let upper = |at: usize, word: &str| if row >> at & 1 == 1 { word.to_uppercase() } else { word.to_owned() };
            TEXT.split(' ').enumerate().map(|(at, word)| upper(at, word)).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let outcome = run_texts(json!({ "max_cluster_share": 1.0 }), &texts, &Cut::slices(1_000).partitions(3)).unwrap();
    assert_eq!((outcome.kept, outcome.notes["clusters"]["clusters"].as_u64()), (1, Some(1)));
}

#[test]
fn many_twins_of_one_template_stay() {
    let texts: Vec<String> = (0..4_000).map(|row| TEXT.replace('5', &(row + 10).to_string())).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let outcome = run_texts(json!({ "threshold": 0.5 }), &texts, &Cut::slices(1_000).partitions(2)).unwrap();
    assert_eq!((outcome.kept, outcome.notes["clusters"]["number_twins_kept"].as_u64()), (4_000, Some(4_000)));
    let dropped = json!({ "number_twins": "drop", "max_cluster_share": 1.0 });
    assert_eq!(run_texts(dropped, &texts, &Cut::slices(1_000)).unwrap().kept, 1);
}

#[test]
fn strange_texts_are_no_trouble() {
    let (long, single, han) = ("word and number 12 ".repeat(60_000), "a".repeat(300_000), "一".repeat(100_000));
    let (long_copy, wide) = (long.to_uppercase(), "\u{301}\u{200b}\u{feff}".repeat(1_000));
    let texts = ["", &long, &single, &han, &long_copy, &wide, " ", "?!", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "Unicode", "\u{0}"];
    let outcome = run_texts(json!({}), &texts, &Cut::slices(2).partitions(3)).unwrap();
    let rejects: Vec<(&str, Value)> =
        outcome.rejects.iter().map(|row| (row["query_id"].as_str().unwrap(), evidence(row)["of"].clone())).collect();
    assert_eq!(rejects, [("00000004", json!("00000001")), ("00000009", json!("00000008"))]);
}

#[test]
fn partitions_that_exceed_memory_are_compared_in_shares() {
    // twenty texts of other words, each in three spellings
    let spelling = |row: usize| {
        let ending = &"abcdefghijklmnopqrst"[row / 3..=row / 3];
        let text: String = TEXT.split(' ').flat_map(|word| [word, ending, " "]).collect();
        vec![text.to_uppercase(), text.replace(' ', "\n"), text].swap_remove(row % 3)
    };
    let rows: Vec<Value> = (0..60).map(|row| query(&format!("{row:03}"), &spelling(row), None)).collect();
    let whole = run(json!({}), rows.clone()).unwrap();
    let parts = verified::with_memory(2_000, || run(json!({}), rows).unwrap());
    assert_eq!((whole.rows(), &whole.rejects, &whole.notes), (parts.rows(), &parts.rejects, &parts.notes));
    assert_eq!(whole.kept, 20);
}

#[test]
fn clusters_are_written_out_for_reading() {
    let rows = vec![query("b", TEXT, None), query("a", TEXT, None), query("c", "other", None)];
    let outcome = run(json!({}), rows).unwrap();
    let clusters: Vec<(&Value, &Value, &Value)> =
        outcome.output("clusters").iter().map(|row| (&row["cluster"], &row["query_id"], &row["kept"])).collect();
    assert_eq!(clusters, [(&json!("a"), &json!("b"), &json!(false)), (&json!("a"), &json!("a"), &json!(true))]);
    assert_eq!(
        (&outcome.output("clusters")[0]["size"], &outcome.output("clusters")[0]["text"]),
        (&json!(2), &json!(TEXT))
    );
}

#[test]
fn both_sketchers_find_the_same_planted_pairs() {
    let rows: Vec<Value> = (0..30)
        .flat_map(|row| {
            let text = format!("{TEXT} The shop number {row} has {} kinds of paper and ink in all its rooms.", row * 7);
            [
                query(&format!("{row:02}"), &text, None),
                query(&format!("{row:02}x"), &format!("Please solve: {text}"), None),
            ]
        })
        .collect();
    let kept = |sketch: &str| kept(&run(json!({ "sketch": sketch }), rows.clone()).unwrap());
    assert_eq!(kept("one_permutation"), kept("super_min_hash"));
    assert_eq!(kept("one_permutation").len(), 30);
}

/// Rows of shared data as queries; `None` with a printed reason where the folder is absent.
fn shared(path: &str) -> Option<Vec<Value>> {
    let path = std::path::PathBuf::from("../../../shared/data").join(path);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: no `{}`", path.display());
        return None;
    };
    let rows = text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap());
    Some(rows.collect())
}

#[test]
fn of_word_problems_exact_duplicates_merge_and_number_changed_twins_stay() {
    let Some(problems) = shared("mawps/multiarith.jsonl") else {
        return;
    };
    let rows: Vec<Value> = problems
        .iter()
        .enumerate()
        .map(|(row, problem)| {
            let label = problem["target"].as_str().map_or_else(|| problem["target"].to_string(), str::to_owned);
            query(&format!("{row:04}"), problem["input"].as_str().unwrap(), Some(&label))
        })
        .collect();
    let outcome = run(json!({}), rows.clone()).unwrap();
    let text = |id: &str| rows[id.parse::<usize>().unwrap()]["prompt"].as_str().unwrap();
    let distinct: BTreeSet<&str> = rows.iter().map(|row| row["prompt"].as_str().unwrap()).collect();
    println!("{:?} {}", outcome.rejected, outcome.notes["clusters"]);
    for row in outcome.rejects.iter().filter(|row| row["reject_reason"] == "near_duplicate") {
        let of = evidence(row)["of"].as_str().unwrap().to_owned();
        println!("NEAR {} {}\n  {}\n  {}", evidence(row), row["label"], row["prompt"], text(&of));
    }
    assert_eq!(outcome.rejected["exact_duplicate"], 20);
    assert_eq!(rows.len() - distinct.len(), 20);
    // what falls out besides has the numbers or the label of what stays
    for row in outcome.rejects.iter().filter(|row| row["reject_reason"] == "near_duplicate") {
        let of = evidence(row)["of"].as_str().unwrap().parse::<usize>().unwrap();
        let numbers = |text: &Value| -> Vec<String> {
            let digits = |character: char| !character.is_ascii_digit();
            text.as_str().unwrap().split(digits).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let is_same_label = row["label"] == rows[of]["label"];
        assert!(is_same_label || numbers(&row["prompt"]) == numbers(&rows[of]["prompt"]), "{row}");
    }
}
