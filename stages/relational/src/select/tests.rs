use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::harness::{Cut, Given, WHOLE, check, given, run};
use pipeline_core::StageEntry;

const ENTRY: StageEntry = StageEntry::stage::<Select>();

fn traces(rows: &[(&str, &str, Option<f64>)]) -> Given {
    let rows = rows.iter().map(|(id, domain, score)| {
        json!({"trace_id": id, "query_id": format!("q{id}"), "domain": domain, "learning_potential": score,
               "response": format!("{id} 的长长的回答 with more than twelve bytes")})
    });
    given(ROWS, &schemas::traces::TABLE, rows.collect())
}

fn kept(params: &Value, input: &Given, cut: Cut) -> Vec<String> {
    run(&ENTRY, params, std::slice::from_ref(input), cut).unwrap().texts("trace_id")
}

#[test]
fn a_condition_keeps_rows_and_says_what_it_saw() {
    let input = traces(&[("a", "math", Some(0.5)), ("b", "code", None), ("c", "math", Some(0.1))]);
    let outcome = run(&ENTRY, &json!({"where": "learning_potential > 0.3"}), &[input], WHOLE).unwrap();
    assert_eq!(outcome.texts("trace_id"), ["a"]);
    assert_eq!(outcome.reasons(), ["where", "where"]);
    assert_eq!(outcome.evidence(0), json!({"learning_potential": null}));
    assert_eq!(outcome.evidence(1), json!({"learning_potential": 0.1}));
}

#[test]
fn a_condition_alone_has_one_step_and_a_rank_has_three() {
    let steps = |params: &Value| {
        let stage = (ENTRY.parse)(params).unwrap();
        stage.steps(&Ports::default()).iter().map(|step| step.kind).collect::<Vec<_>>()
    };
    assert_eq!(steps(&json!({"where": "1 = 1"})), [StepKind::Map]);
    assert_eq!(steps(&json!({"where": "1 = 1", "sample": 3})), [StepKind::Map, StepKind::Gather, StepKind::Map]);
}

#[test]
fn the_best_of_each_group_stay_and_ties_go_to_the_smaller_id() {
    let input = traces(&[
        ("d", "math", Some(0.5)),
        ("c", "math", Some(0.9)),
        ("b", "math", Some(0.5)),
        ("a", "code", Some(0.1)),
    ]);
    let params = json!({"by": "learning_potential", "group": ["domain"], "top": 2});
    let outcome = run(&ENTRY, &params, std::slice::from_ref(&input), WHOLE).unwrap();
    assert_eq!(outcome.texts("trace_id"), ["c", "b", "a"]);
    assert_eq!(outcome.reasons(), ["below_top"]);
    assert_eq!(outcome.evidence(0), json!({"score": 0.5, "rank": 3, "of": 3}));
    let params = json!({"by": "learning_potential", "order": "ascending", "top": 1});
    assert_eq!(kept(&params, &input, WHOLE), ["a"]);
}

#[test]
fn percentiles_are_taken_inside_the_group_and_include_their_edges() {
    let ids: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let rows: Vec<_> = (0_u32..200)
        .map(|number| {
            let (domain, offset) = if number < 100 { ("math", 0) } else { ("code", 1000) };
            (ids[number as usize].as_str(), domain, Some(f64::from(number % 100 + 1 + offset)))
        })
        .collect();
    let params = json!({"by": "learning_potential", "group": ["domain"], "percentile": [50, 99]});
    let outcome = run(&ENTRY, &params, &[traces(&rows)], Cut { shard: 7, file: 31 }).unwrap();
    assert_eq!(outcome.rows.len(), 100);
    assert_eq!(outcome.rows[0]["learning_potential"], json!(50.0));
    assert_eq!(outcome.rows[49]["learning_potential"], json!(99.0));
    assert_eq!(outcome.evidence(0), json!({"score": 1.0, "low": 50.0, "high": 99.0}));
    assert!(outcome.reasons().iter().all(|reason| reason == "outside_percentile"));
}

#[test]
fn quotas_cap_values_and_leave_others_alone_unless_told() {
    let input = traces(&[
        ("a", "math", Some(0.1)),
        ("b", "math", Some(0.2)),
        ("c", "math", Some(0.3)),
        ("d", "code", Some(0.4)),
    ]);
    let mut params = json!({"by": "learning_potential", "quota": {"column": "domain", "rows": {"math": 2}}});
    let outcome = run(&ENTRY, &params, std::slice::from_ref(&input), WHOLE).unwrap();
    assert_eq!(outcome.texts("trace_id"), ["b", "c", "d"]);
    assert_eq!(outcome.evidence(0), json!({"value": "math", "rank": 3, "quota": 2}));
    params["quota"]["others"] = json!(0);
    assert_eq!(kept(&params, &input, WHOLE), ["b", "c"]);
}

#[test]
fn parts_work_one_after_the_other() {
    let input = traces(&[
        ("a", "chat", Some(0.9)),
        ("b", "math", None),
        ("c", "math", Some(0.8)),
        ("d", "math", Some(0.7)),
        ("e", "math", Some(0.6)),
        ("f", "math", Some(0.5)),
    ]);
    let params = json!({"where": "domain = 'math'", "by": "learning_potential", "percentile": [25, 75], "top": 1});
    let outcome = run(&ENTRY, &params, &[input], WHOLE).unwrap();
    assert_eq!(outcome.texts("trace_id"), ["d"]);
    assert_eq!(outcome.reasons(), ["where", "null_score", "outside_percentile", "below_top", "below_top"]);
}

#[test]
fn chance_depends_on_ids_not_on_order_or_cut() {
    let ids: Vec<String> = (0..60).map(|number| format!("{number:02}")).collect();
    let rows: Vec<_> = ids.iter().map(|id| (id.as_str(), "math", Some(1.0))).collect();
    let params = json!({"sample": 10});
    let mut forward = kept(&params, &traces(&rows), WHOLE);
    let reversed: Vec<_> = rows.iter().rev().copied().collect();
    let mut backward = kept(&params, &traces(&reversed), Cut { shard: 5, file: 11 });
    forward.sort();
    backward.sort();
    assert_eq!(forward, backward);
    assert_eq!(forward.len(), 10);
    let mut other = kept(&json!({"sample": 10, "salt": "b"}), &traces(&rows), WHOLE);
    other.sort();
    assert_ne!(forward, other);
}

#[test]
fn a_null_group_is_a_group() {
    let rows = [("a", Some("x")), ("b", None), ("c", None)]
        .map(|(id, topic)| json!({"query_id": id, "subdomain": topic, "pass_rate": 0.5}));
    let input = given(ROWS, &schemas::queries::TABLE, rows.to_vec());
    let params = json!({"by": "pass_rate", "group": ["subdomain"], "top": 1});
    let outcome = run(&ENTRY, &params, &[input], WHOLE).unwrap();
    assert_eq!(outcome.texts("query_id"), ["a", "b"]);
}

#[test]
fn an_empty_table_stays_empty() {
    let mut input = traces(&[("a", "math", Some(1.0))]);
    input.values.clear();
    let params = json!({"by": "learning_potential", "group": ["domain"], "top": 1, "percentile": [0, 50]});
    assert!(run(&ENTRY, &params, &[input], WHOLE).unwrap().rows.is_empty());
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    let input = [traces(&[("a", "math", Some(1.0))])];
    let refused = |params: Value| check(&ENTRY, &params, &input).expect_err(&params.to_string());
    assert!(refused(json!({})).message.contains("nothing to select by"));
    assert_eq!(refused(json!({"top": 3})).path, "top");
    assert_eq!(refused(json!({"by": "learning_potential", "where": "1=1"})).path, "by");
    assert_eq!(refused(json!({"group": ["domain"], "where": "1=1"})).path, "group");
    assert_eq!(refused(json!({"by": "learning_potential", "percentile": [90, 10]})).path, "percentile");
    assert_eq!(refused(json!({"by": "learning_potential", "top": 1, "sample": 1})).path, "sample");
    assert_eq!(refused(json!({"by": "domain", "top": 1})).path, "by");
    assert_eq!(refused(json!({"by": "tokens", "top": 1})).path, "by");
    assert_eq!(refused(json!({"sample": 1, "group": ["messages"]})).path, "group[0]");
    assert_eq!(refused(json!({"where": "no_such = 1"})).path, "where");
    assert!(refused(json!({"tops": 1})).message.contains("unknown field"));
}

#[test]
fn the_example_does_what_it_says() {
    crate::harness::example(&ENTRY);
}

/// `top` by group, the plain way.
fn naive_top(rows: &[(String, String, Option<f64>)], most: usize) -> Vec<String> {
    let mut kept = Vec::new();
    for (index, (id, domain, score)) in rows.iter().enumerate() {
        let Some(score) = score else { continue };
        let before = rows.iter().enumerate().filter(|(other, row)| {
            row.1 == *domain
                && row.2.is_some_and(|found| score.total_cmp(&found).then((&row.0, *other).cmp(&(id, index))).is_lt())
        });
        if before.count() < most {
            kept.push(id.clone());
        }
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn top_by_group_is_that_of_a_plain_count_for_any_cut(
        rows in prop::collection::vec(("[ab]{1,3}", "math|code", prop::option::of(0_u32..4)), 0..40),
        most in 0_usize..4, shard in 1_usize..10, file in 1_usize..20,
    ) {
        let rows: Vec<_> = rows.into_iter().map(|row| (row.0, row.1, row.2.map(f64::from))).collect();
        let borrowed: Vec<_> = rows.iter().map(|row| (row.0.as_str(), row.1.as_str(), row.2)).collect();
        let mut input = traces(&borrowed);
        input.rows = input.rows.fill(["domain", "learning_potential"]);
        let params = json!({"by": "learning_potential", "group": ["domain"], "top": most});
        prop_assert_eq!(kept(&params, &input, Cut { shard, file }), naive_top(&rows, most));
    }

    #[test]
    fn the_whole_outcome_is_the_same_for_any_cut(
        rows in prop::collection::vec(("[abc]{1,2}", "math|code|chat", prop::option::of(-3_i32..4)), 1..40),
        shard in 1_usize..10, file in 1_usize..20,
    ) {
        let borrowed: Vec<_> =
            rows.iter().map(|row| (row.0.as_str(), row.1.as_str(), row.2.map(f64::from))).collect();
        let mut input = traces(&borrowed);
        input.rows = input.rows.fill(["domain", "learning_potential"]);
        let params = json!({
            "where": "domain <> 'chat' AND length(response) > 3", "by": "learning_potential", "group": ["domain"],
            "percentile": [20, 90], "sample": 3, "quota": {"column": "domain", "rows": {"math": 2}},
        });
        let input = [input];
        let cut = run(&ENTRY, &params, &input, Cut { shard, file }).unwrap();
        prop_assert_eq!(cut, run(&ENTRY, &params, &input, WHOLE).unwrap());
    }
}
