use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::harness::{Cut, Given, WHOLE, check, given, run};
use pipeline_core::StageEntry;

const ENTRY: StageEntry = StageEntry::stage::<Attach>();

fn rows_of(queries: &[&str]) -> Given {
    let rows = queries.iter().enumerate().map(|(index, query)| {
        json!({"trace_id": format!("t{index}"), "query_id": query, "response": "四", "pass_rate": 0.125})
    });
    given(ROWS, &traces::TABLE, rows.collect())
}

fn other(rows: &[(&str, Option<f64>, &str)]) -> Given {
    let rows = rows.iter().map(|(query, rate, label)| json!({"query_id": query, "pass_rate": rate, "label": label}));
    let mut other = given(OTHER, &queries::TABLE, rows.collect());
    other.rows = other.rows.fill(["query_id", "pass_rate", "label"]);
    other
}

const LONG: &str = "一个比十二个字节更长的标签";

#[test]
fn columns_come_by_key_and_replace_what_was_there() {
    let inputs = [rows_of(&["b", "a", "x", "b"]), other(&[("a", Some(0.5), "1"), ("b", None, LONG)])];
    let outcome = run(&ENTRY, &json!({"columns": ["pass_rate", "label"]}), &inputs, WHOLE).unwrap();
    assert_eq!(outcome.column("pass_rate"), [Value::Null, json!(0.5), Value::Null, Value::Null]);
    assert_eq!(outcome.texts("label"), [LONG, "1", "-", LONG]);
    assert_eq!(outcome.counters["unmatched"], 1);
}

#[test]
fn a_column_may_get_a_new_name() {
    let inputs = [rows_of(&["a"]), other(&[("a", Some(0.5), "1")])];
    let outcome = run(&ENTRY, &json!({"columns": {"reference": "pass_rate"}}), &inputs, WHOLE).unwrap();
    assert_eq!(outcome.column("reference"), [json!(0.5)]);
    assert_eq!(outcome.column("pass_rate"), [json!(0.125)]);
}

#[test]
fn a_row_without_a_partner_may_fall_out() {
    let inputs = [rows_of(&["a", "x"]), other(&[("a", None, "1")])];
    let params = json!({"columns": ["pass_rate"], "missing": "reject"});
    let outcome = run(&ENTRY, &params, &inputs, WHOLE).unwrap();
    assert_eq!(outcome.texts("trace_id"), ["t0"], "a partner whose value is empty is a partner");
    assert_eq!(outcome.reasons(), ["no_match"]);
    assert_eq!(outcome.evidence(0), json!({"on": "query_id", "key": "x"}));
    assert_eq!(outcome.rejects[0]["pass_rate"], json!(0.125), "the row as it was read");
}

#[test]
fn partners_may_repeat_only_while_they_agree() {
    let agreeing = [rows_of(&["a"]), other(&[("a", Some(0.5), "1"), ("a", Some(0.5), "2")])];
    let outcome = run(&ENTRY, &json!({"columns": ["pass_rate"]}), &agreeing, Cut { shard: 1, file: 1 }).unwrap();
    assert_eq!(outcome.column("pass_rate"), [json!(0.5)]);
    let error = run(&ENTRY, &json!({"columns": ["pass_rate", "label"]}), &agreeing, Cut { shard: 1, file: 1 });
    let message = error.unwrap_err().to_string();
    assert!(message.contains("`query_id` = \"a\""), "{message}");
    assert!(message.contains("`pass_rate`, `label`"), "{message}");
}

#[test]
fn lists_can_be_attached_too() {
    let mut rows = other(&[("a", None, "1")]);
    rows.values[0]["options"] = json!(["x", "y"]);
    rows.rows = rows.rows.fill(["options"]);
    let outcome = run(&ENTRY, &json!({"columns": ["options"]}), &[rows_of(&["a", "z"]), rows], WHOLE).unwrap();
    assert_eq!(outcome.column("options"), [json!(["x", "y"]), Value::Null]);
}

#[test]
fn parameters_that_cannot_work_are_refused() {
    let inputs = [rows_of(&["a"]), other(&[("a", Some(0.5), "1")])];
    let refused = |params: Value| check(&ENTRY, &params, &inputs).expect_err(&params.to_string());
    assert_eq!(refused(json!({"columns": []})).path, "columns");
    assert_eq!(refused(json!({"columns": ["nothing"]})).path, "columns");
    assert_eq!(refused(json!({"columns": ["vote_share"]})).path, "columns");
    assert_eq!(refused(json!({"columns": ["query_id"]})).path, "columns");
    assert_eq!(refused(json!({"columns": {"response": "pass_rate"}})).path, "columns");
    assert_eq!(refused(json!({"columns": ["label"], "on": "domain"})).path, "on");
}

#[test]
fn the_example_does_what_it_says() {
    crate::harness::example(&ENTRY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn it_joins_like_two_plain_loops_for_any_cut(
        queries in prop::collection::vec("[abcd]", 1..30),
        partners in prop::collection::btree_map("[abcd]", prop::option::of(0_u8..8), 0..4),
        shard in 1_usize..10, file in 1_usize..10,
    ) {
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        let partners: Vec<(&str, Option<f64>, &str)> =
            partners.iter().map(|(query, rate)| (query.as_str(), rate.map(|rate| f64::from(rate) / 8.0), "")).collect();
        let inputs = [rows_of(&queries), other(&partners)];
        let outcome = run(&ENTRY, &json!({"columns": ["pass_rate"]}), &inputs, Cut { shard, file }).unwrap();
        let naive: Vec<Value> = queries
            .iter()
            .map(|query| partners.iter().find(|partner| partner.0 == *query).map_or(Value::Null, |found| json!(found.1)))
            .collect();
        prop_assert_eq!(outcome.column("pass_rate"), naive);
    }
}
