use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::harness::{Cut, Given, WHOLE, check, given, run};
use pipeline_core::StageEntry;

const ENTRY: StageEntry = StageEntry::stage::<Mix>();

fn rows_of(domain: &str, ids: std::ops::Range<u32>) -> Given {
    let rows = ids.map(|id| json!({"query_id": format!("{domain}{id}"), "domain": domain, "prompt": "题"}));
    let mut given = given(ROWS, &queries::TABLE, rows.collect());
    given.rows = given.rows.fill(["domain"]);
    given
}

fn domains(outcome: &crate::harness::Outcome, domain: &str) -> usize {
    outcome.texts("domain").iter().filter(|found| *found == domain).count()
}

#[test]
fn without_weights_all_rows_come_in_the_order_of_inputs() {
    let inputs = [rows_of("math", 0..2), rows_of("code", 0..2)];
    let outcome = run(&ENTRY, &json!({}), &inputs, Cut { shard: 1, file: 1 }).unwrap();
    assert_eq!(outcome.texts("query_id"), ["math0", "math1", "code0", "code1"]);
    assert!(outcome.rejects.is_empty());
}

#[test]
fn columns_that_one_input_lacks_are_empty_and_typed() {
    let size = Field::new("size", DataType::Int64, false);
    let mut wider = rows_of("code", 0..2);
    wider.rows = wider.rows.with_column(&size).unwrap();
    wider.values.iter_mut().for_each(|row| row["size"] = json!(7));
    for inputs in [[rows_of("math", 0..1), wider.clone()], [wider, rows_of("math", 0..1)]] {
        let outcome = run(&ENTRY, &json!({}), &inputs, WHOLE).unwrap();
        let of = |domain: &str| outcome.rows.iter().find(|row| row["domain"] == domain).unwrap()["size"].clone();
        assert_eq!((of("math"), of("code")), (Value::Null, json!(7)));
        let params = json!({"weights": {"math": 1, "code": 1}});
        let outcome = run(&ENTRY, &params, &inputs, WHOLE).unwrap();
        assert_eq!(outcome.rejects[0]["size"], json!(7), "a rejected row keeps its own columns");
    }
}

#[test]
fn the_scarcest_group_decides_and_order_is_kept() {
    let inputs = [rows_of("math", 0..100), rows_of("code", 0..10), rows_of("chat", 0..3)];
    let outcome = run(&ENTRY, &json!({"weights": {"math": 0.6, "code": 0.2}}), &inputs, WHOLE).unwrap();
    assert_eq!((domains(&outcome, "math"), domains(&outcome, "code")), (30, 10));
    let reasons: BTreeSet<String> = outcome.reasons().into_iter().collect();
    assert_eq!(reasons, ["no_weight".to_owned(), "over_weight".to_owned()].into());
    let places: Vec<u32> =
        outcome.texts("query_id")[..30].iter().map(|id| id.trim_start_matches("math").parse().unwrap()).collect();
    assert!(places.is_sorted());
    assert_ne!(places, (0..30).collect::<Vec<_>>(), "drawn, not the first");
    assert_eq!(outcome.notes["groups"]["math"], json!({"available": 100, "kept": 30}));
}

#[test]
fn weights_by_stage_and_a_total() {
    let inputs = [rows_of("math", 0..10), rows_of("math", 10..20)];
    let outcome = run(&ENTRY, &json!({"weights": [3, 1], "rows": 8}), &inputs, WHOLE).unwrap();
    assert_eq!(outcome.rows.len(), 8);
    let first = outcome.texts("query_id").iter().filter(|id| id.len() == 5).count();
    assert_eq!(first, 6);
    assert_eq!(outcome.evidence(0)["group"], json!({"input": 0}));
}

#[test]
fn a_total_that_a_group_cannot_reach_is_an_error_or_shrinks() {
    let inputs = [rows_of("math", 0..10), rows_of("code", 0..2)];
    let mut params = json!({"weights": {"math": 1, "code": 1}, "rows": 10});
    let message = run(&ENTRY, &params, &inputs, WHOLE).unwrap_err().to_string();
    assert!(message.contains("domain `code` has 2 rows, its share is 5"), "{message}");
    params["short"] = json!("shrink");
    assert_eq!(run(&ENTRY, &params, &inputs, WHOLE).unwrap().rows.len(), 4);
    let message = run(&ENTRY, &json!({"weights": {"math": 1, "stem": 1}}), &inputs, WHOLE).unwrap_err().to_string();
    assert!(message.contains("no row has domain `stem`"), "{message}");
}

#[test]
fn inputs_that_do_not_go_together_are_refused() {
    let queries = rows_of("math", 0..1);
    let traces =
        given(ROWS, &schemas::traces::TABLE, vec![json!({"trace_id": "t", "query_id": "q", "domain": "math"})]);
    let refused = |params: Value, inputs: &[Given]| check(&ENTRY, &params, inputs).expect_err(&params.to_string());
    assert_eq!(refused(json!({}), &[queries.clone(), traces]).path, "inputs");
    let mut number = queries.clone();
    number.rows = number.rows.with_column(&Field::new("size", DataType::Int64, true)).unwrap();
    let mut text = queries.clone();
    text.rows = text.rows.with_column(&Field::new("size", DataType::Utf8View, true)).unwrap();
    assert!(refused(json!({}), &[number, text]).message.contains("`size`"));
    let one = [queries];
    assert_eq!(refused(json!({"weights": [1, 2]}), &one).path, "weights");
    assert_eq!(refused(json!({"weights": {"math": -1}}), &one).path, "weights");
    assert_eq!(refused(json!({"weights": {"math": 0}}), &one).path, "weights");
    assert_eq!(refused(json!({"rows": 3}), &one).path, "rows");
    assert_eq!(refused(json!({"weights": {"x": 1}, "by": "subdomain"}), &one).path, "by");
}

#[test]
fn the_example_does_what_it_says() {
    crate::harness::example(&ENTRY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_mix_is_the_same_for_any_cut_and_keeps_its_ratios(
        math in 1_u32..40, code in 1_u32..40, weights in (1_u32..5, 1_u32..5), shard in 1_usize..10, file in 1_usize..20,
    ) {
        let inputs = [rows_of("math", 0..math), rows_of("code", 0..code)];
        let params = json!({"weights": {"math": weights.0, "code": weights.1}});
        let outcome = run(&ENTRY, &params, &inputs, Cut { shard, file }).unwrap();
        let (kept_math, kept_code) = (domains(&outcome, "math"), domains(&outcome, "code"));
        prop_assert!(kept_math == math as usize || kept_code == code as usize);
        let stray = kept_math as f64 * f64::from(weights.1) - kept_code as f64 * f64::from(weights.0);
        prop_assert!(stray.abs() < f64::from(weights.0.max(weights.1)) + 1e-6);
        prop_assert_eq!(outcome, run(&ENTRY, &params, &inputs, WHOLE).unwrap());
    }
}
