use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial, conformance};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::recorded;
use crate::verify::Verify;

fn entry() -> StageEntry {
    StageEntry::stage::<Difficulty>()
}

fn run_cut(params: Value, rows: Vec<Value>, cut: &Cut) -> Outcome {
    Trial::new(&entry(), params).rows("rows", &traces::TABLE, rows).run(cut).unwrap()
}

fn run(params: Value, rows: Vec<Value>) -> Outcome {
    run_cut(params, rows, &Cut::WHOLE)
}

fn rollout(query: &str, sample: usize, verdict: Option<&str>) -> Value {
    json!({ "query_id": query, "trace_id": format!("{query}-{sample}"), "sample": sample, "label": "5", "response": "r", "verdict": verdict })
}

fn verified(rows: Vec<Value>) -> Vec<Value> {
    let verify = StageEntry::stage::<Verify>();
    Trial::new(&verify, json!({})).rows("rows", &traces::TABLE, rows).run(&Cut::WHOLE).unwrap().rows().to_vec()
}

#[test]
fn the_example_conforms() {
    conformance(&entry());
}

#[test]
fn rollouts_that_say_nothing_about_the_model_do_not_count() {
    let verdicts = [
        Some("correct"),
        Some("no_answer"),
        Some("undecided"),
        Some("label_unparsable"),
        None,
        Some("incorrect"),
        Some("correct"),
    ];
    let rows = verdicts.iter().enumerate().map(|(sample, verdict)| rollout("q", sample, *verdict)).collect();
    let outcome = run(json!({}), rows);
    assert_eq!(outcome.column("pass_rate"), [json!(0.5)]);
    assert_eq!(outcome.column("rollouts"), [json!(4)]);
    assert_eq!((outcome.read, outcome.kept), (7, 7));
}

#[test]
fn queries_come_once_in_the_order_of_their_first_traces_without_columns_of_traces() {
    let order = ["b", "a", "b", "c", "a"];
    let rows = order.iter().enumerate().map(|(sample, query)| rollout(query, sample, Some("correct"))).collect();
    let outcome = run_cut(json!({}), rows, &Cut::slices(1).partitions(4).backwards());
    assert_eq!(outcome.column("query_id"), [json!("b"), json!("a"), json!("c")]);
    let names: Vec<&str> = outcome.rows()[0].as_object().unwrap().keys().map(String::as_str).collect();
    let declared: Vec<&str> = queries::TABLE.columns().map(|column| column.name).collect();
    assert_eq!(names, declared);
    assert_eq!((outcome.read, outcome.kept), (5, 5));
}

#[test]
fn every_trace_may_be_kept_instead() {
    let rows = vec![rollout("b", 0, Some("correct")), rollout("a", 1, None), rollout("b", 2, Some("incorrect"))];
    let outcome = run(json!({ "rows": "traces" }), rows);
    assert_eq!(outcome.column("trace_id"), [json!("b-0"), json!("b-2")]);
    assert_eq!(outcome.column("pass_rate"), [json!(0.5), json!(0.5)]);
    assert_eq!(outcome.rejected, BTreeMap::from([("no_verdict".to_owned(), 1)]));
}

#[test]
fn two_labels_of_one_query_are_a_conflict() {
    let mut other = rollout("q", 1, Some("correct"));
    other["label"] = json!("6");
    let mut unlabelled = rollout("p", 1, Some("label_unparsable"));
    unlabelled["label"] = json!(null);
    let rows = vec![rollout("q", 0, Some("correct")), other, rollout("p", 0, Some("correct")), unlabelled];
    let outcome = run_cut(json!({}), rows, &Cut::slices(1));
    assert_eq!(outcome.reasons(), ["label_conflict", "label_conflict"]);
    assert_eq!(outcome.column("query_id"), [json!("p")]);
}

#[test]
fn a_word_that_is_no_verdict_is_an_error() {
    let trial_entry = entry();
    let trial =
        Trial::new(&trial_entry, json!({})).rows("rows", &traces::TABLE, vec![rollout("q", 0, Some("Correct"))]);
    assert!(matches!(trial.run(&Cut::WHOLE), Err(StageError::Column { .. })));
    assert!((trial_entry.parse)(&json!({ "min_rollouts": 0 })).is_err());
}

#[test]
fn no_rows_give_no_rows() {
    let outcome = run(json!({}), Vec::new());
    assert_eq!((outcome.rows().len(), outcome.read), (0, 0));
}

#[test]
fn pass_rates_of_eight_answers_a_problem_are_the_means_of_their_scores() {
    let Some((rows, scores)) = recorded::eight_a_problem() else {
        return;
    };
    let rows = verified(rows);
    let outcome = run_cut(json!({ "min_rollouts": 8 }), rows.clone(), &Cut::slices(7).partitions(3));
    let (mut wanted, mut differing) = (BTreeMap::<String, (u64, u64)>::new(), 0);
    for (row, score) in rows.iter().zip(&scores) {
        let entry = wanted.entry(row["query_id"].as_str().unwrap().to_owned()).or_default();
        *entry = (entry.0 + u64::from(*score), entry.1 + 1);
    }
    for row in outcome.rows() {
        let (correct, count) = wanted[row["query_id"].as_str().unwrap()];
        assert_eq!(row["rollouts"], json!(count));
        let found = row["pass_rate"].as_f64().unwrap();
        if (found - correct as f64 / count as f64).abs() > 1e-12 {
            println!("{}: {found} instead of {correct} of {count}", row["query_id"]);
            differing += 1;
        }
    }
    println!(
        "{} queries, {differing} differ; {:?}; rejected {:?}",
        outcome.rows().len(),
        outcome.notes,
        outcome.rejected
    );
    assert!(outcome.rows().len() + 2 >= wanted.len());
    assert!(differing * 10 <= wanted.len());
}

#[test]
fn rollouts_of_a_small_model_give_rates_whatever_the_cut() {
    let Some((rows, _)) = recorded::small_model_rollouts() else {
        return;
    };
    let rows = verified(rows);
    let whole = run(json!({}), rows.clone());
    let cut = run_cut(json!({}), rows, &Cut::slices(50).files(300).partitions(3).backwards());
    assert_eq!((whole.rows(), &whole.rejects, &whole.notes), (cut.rows(), &cut.rejects, &cut.notes));
    println!(
        "{} queries of {} rollouts; {:?}; rejected {:?}",
        whole.rows().len(),
        whole.read,
        whole.notes,
        whole.rejected
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn neither_order_nor_cut_changes_a_rate(picks in prop::collection::vec((0_usize..4, 0_usize..6), 1..24), shift in 0_usize..24, slice in 1_u64..6) {
        const VERDICTS: [Option<&str>; 6] =
            [Some("correct"), Some("incorrect"), Some("no_answer"), Some("undecided"), Some("label_unparsable"), None];
        let rows: Vec<Value> = picks.iter().enumerate().map(|(sample, (query, verdict))| rollout(&format!("q{query}"), sample, VERDICTS[*verdict])).collect();
        let mut moved = rows.clone();
        moved.rotate_left(shift % rows.len());
        let rates = |outcome: &Outcome| {
            let rates = outcome.rows().iter().map(|row| (row["query_id"].to_string(), row["pass_rate"].to_string() + &row["rollouts"].to_string()));
            rates.collect::<BTreeMap<_, _>>()
        };
        let one = run(json!({}), rows);
        let two = run_cut(json!({}), moved, &Cut::slices(slice).partitions(2));
        prop_assert_eq!(rates(&one), rates(&two));
        prop_assert_eq!(&one.rejected, &two.rejected);
        prop_assert_eq!(one.kept + one.rejected.values().sum::<u64>(), one.read);
    }
}
