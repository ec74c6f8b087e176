use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial, conformance};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::recorded;

fn entry() -> StageEntry {
    StageEntry::stage::<Vote>()
}

fn run_cut(params: Value, rows: Vec<Value>, cut: &Cut) -> Outcome {
    Trial::new(&entry(), params).rows("rows", &traces::TABLE, rows).run(cut).unwrap()
}

fn run(params: Value, rows: Vec<Value>) -> Outcome {
    run_cut(params, rows, &Cut::WHOLE)
}

/// Traces of one query with these final answers; an empty one states none.
fn traces_of(query: &str, label: Option<&str>, answers: &[&str]) -> Vec<Value> {
    let trace = |(sample, answer): (usize, &&str)| {
        let text =
            if answer.is_empty() { "I cannot tell.".to_owned() } else { format!("So it is \\boxed{{{answer}}}.") };
        json!({ "query_id": query, "trace_id": format!("{query}-{sample}"), "sample": sample, "domain": "math", "label": label, "response": text })
    };
    answers.iter().enumerate().map(trace).collect()
}

#[test]
fn the_example_conforms() {
    conformance(&entry());
}

#[test]
fn equal_answers_vote_together_and_the_commonest_spelling_is_the_label() {
    let outcome = run(json!({}), traces_of("q", None, &["0.5", "\\frac{1}{2}", "3", "3", "\\frac{1}{2}"]));
    assert_eq!(outcome.column("label"), [json!("\\frac{1}{2}")]);
    assert_eq!(outcome.column("vote_share"), [json!(0.6)]);
    let outcome = run(json!({}), traces_of("q", None, &["\\frac{1}{2}", "0.5"]));
    assert_eq!(outcome.column("label"), [json!("0.5")]);
}

#[test]
fn a_missing_answer_never_wins_and_takes_no_share() {
    let outcome = run(json!({}), traces_of("q", None, &["", "", "", "7", "7", "8"]));
    assert_eq!(outcome.column("label"), [json!("7")]);
    assert_eq!(outcome.column("vote_share"), [json!(2.0 / 3.0)]);
    assert_eq!(outcome.counters["traces_without_answer"], 3);
}

#[test]
fn a_query_whose_traces_are_all_unanswered_has_no_label() {
    let mut cut = traces_of("cut", None, &["7", "7"]);
    for row in &mut cut {
        row["finish_reason"] = json!("length");
    }
    let mut code = traces_of("code", None, &["7"]);
    code[0]["domain"] = json!("code");
    let rows = [traces_of("silent", None, &["", ""]), cut, code].concat();
    let outcome = run(json!({}), rows);
    assert!(outcome.rows().is_empty());
    assert_eq!(outcome.rejected, BTreeMap::from([("no_answers".to_owned(), 5)]));
}

#[test]
fn a_tie_is_rejected_or_goes_to_the_smallest_never_to_the_first() {
    for answers in [["9", "8", "8", "9"], ["8", "9", "9", "8"]] {
        let outcome = run(json!({}), traces_of("q", None, &answers));
        assert_eq!(outcome.rejected, BTreeMap::from([("tie".to_owned(), 4)]));
        let evidence: Value = serde_json::from_str(outcome.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap();
        assert_eq!(evidence, json!({ "votes": 4, "without_answer": 0, "leading": [["8", 2], ["9", 2]] }));
        let outcome = run(json!({ "tie": "smallest" }), traces_of("q", None, &answers));
        assert_eq!((outcome.column("label"), outcome.column("vote_share")), (vec![json!("8")], vec![json!(0.5)]));
        assert_eq!(outcome.counters["ties_resolved"], 1);
    }
}

#[test]
fn few_votes_and_low_shares_fall_out() {
    let rows = || {
        [
            traces_of("few", None, &["1", "", ""]),
            traces_of("low", None, &["1", "1", "2", "3"]),
            traces_of("good", None, &["1", "1", "1", "2"]),
        ]
        .concat()
    };
    let outcome = run(json!({ "min_votes": 2, "min_share": 0.75 }), rows());
    assert_eq!(outcome.column("query_id"), [json!("good")]);
    assert_eq!(outcome.rejected, BTreeMap::from([("low_share".to_owned(), 4), ("too_few_votes".to_owned(), 3)]));
    assert!((entry().parse)(&json!({ "min_share": 1.5 })).is_err());
    assert!((entry().parse)(&json!({ "min_votes": 0 })).is_err());
}

#[test]
fn a_label_that_is_there_is_replaced_or_kept_as_asked() {
    let rows =
        || [traces_of("differs", Some("1"), &["2", "2", "1"]), traces_of("agrees", Some("4"), &["4", "4.0"])].concat();
    let outcome = run(json!({}), rows());
    assert_eq!(outcome.column("label"), [json!("2"), json!("4")]);
    assert_eq!((outcome.counters["gold_agrees"], outcome.counters["gold_differs"]), (1, 1));
    let outcome = run(json!({ "overwrite": false }), rows());
    assert_eq!(outcome.column("label"), [json!("1"), json!("4")]);
    assert_eq!(outcome.column("vote_share"), [json!(1.0 / 3.0), json!(1.0)]);
    let outcome = run(json!({ "overwrite": false, "min_share": 0.5 }), rows());
    assert_eq!(outcome.rejected, BTreeMap::from([("low_share".to_owned(), 3)]));
}

#[test]
fn one_query_with_two_labels_gets_the_voted_one_or_falls_out() {
    let rows = || [traces_of("q", Some("1"), &["1", "1"]), traces_of("q", Some("2"), &["1"])].concat();
    let outcome = run(json!({ "rows": "traces" }), rows());
    assert_eq!(outcome.column("label"), [json!("1"), json!("1"), json!("1")]);
    assert_eq!(outcome.counters["label_conflicts"], 1);
    let outcome = run(json!({ "overwrite": false }), rows());
    assert_eq!(outcome.rejected, BTreeMap::from([("label_conflict".to_owned(), 3)]));
}

#[test]
fn letters_and_texts_of_options_vote_for_the_same_option() {
    let answers = ["The answer is B.", "So it is \\boxed{18}.", "(B)", "The answer is A or B.", "The answer is A."];
    let rows = answers.iter().enumerate().map(|(sample, text)| {
        json!({ "query_id": "q", "trace_id": format!("{sample}"), "domain": "stem", "options": ["12", "18"], "response": text })
    });
    let outcome = run(json!({}), rows.collect());
    assert_eq!(outcome.column("label"), [json!("B")]);
    assert_eq!(outcome.column("vote_share"), [json!(0.75)]);
}

#[test]
fn the_majority_of_eight_answers_is_the_recorded_label_wherever_most_were_right() {
    let Some((rows, scores)) = recorded::eight_a_problem() else {
        return;
    };
    let mut right: BTreeMap<String, (u64, Value)> = BTreeMap::new();
    for (row, score) in rows.iter().zip(&scores) {
        let entry = right.entry(row["query_id"].as_str().unwrap().to_owned()).or_insert((0, row["label"].clone()));
        entry.0 += u64::from(*score);
    }
    let unlabelled: Vec<Value> = rows
        .iter()
        .cloned()
        .map(|mut row| {
            row["label"] = json!(null);
            row
        })
        .collect();
    let outcome = run_cut(json!({ "tie": "smallest" }), unlabelled, &Cut::slices(9).partitions(3));
    let (mut clear, mut agree) = (0, 0);
    for row in outcome.rows() {
        let (count, label) = &right[row["query_id"].as_str().unwrap()];
        if *count >= 5 {
            clear += 1;
            let same =
                stage_verify::math::equivalent(label.as_str().unwrap(), row["label"].as_str().unwrap()).is_correct();
            agree += u64::from(same);
            if !same {
                println!(
                    "{}: {} instead of {label}, {count} of 8 right, share {}",
                    row["query_id"], row["label"], row["vote_share"]
                );
            }
        }
    }
    println!(
        "{} queries labelled of {}, {agree} of {clear} clear ones agree; {:?} {:?}; rejected {:?}",
        outcome.rows().len(),
        right.len(),
        outcome.counters,
        outcome.notes,
        outcome.rejected
    );
    assert!(clear >= 40 && agree * 100 >= clear * 97);
}

#[test]
fn rollouts_of_a_small_model_vote_the_same_whatever_the_cut() {
    let Some((rows, _)) = recorded::small_model_rollouts() else {
        return;
    };
    let params = || json!({ "extraction": "lenient", "tie": "smallest" });
    let whole = run(params(), rows.clone());
    let cut = run_cut(params(), rows, &Cut::slices(64).files(300).partitions(3).backwards());
    assert_eq!(
        (whole.rows(), &whole.rejects, &whole.notes, &whole.counters),
        (cut.rows(), &cut.rejects, &cut.notes, &cut.counters)
    );
    println!("{} queries; {:?} {:?}; rejected {:?}", whole.rows().len(), whole.counters, whole.notes, whole.rejected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn neither_order_nor_cut_changes_a_label(picks in prop::collection::vec((0_usize..3, 0_usize..7), 1..24), shift in 0_usize..24, slice in 1_u64..6, smallest: bool) {
        const ANSWERS: [&str; 7] = ["", "0.5", "\\frac{1}{2}", "3", "3.0", "x+1", "1+x"];
        let mut rows: Vec<Value> = Vec::new();
        for (sample, (query, answer)) in picks.iter().enumerate() {
            let mut trace = traces_of(&format!("q{query}"), None, &[ANSWERS[*answer]]);
            trace[0]["trace_id"] = json!(format!("{sample}"));
            rows.append(&mut trace);
        }
        let mut moved = rows.clone();
        moved.rotate_left(shift % rows.len());
        let params = || json!({ "tie": if smallest { "smallest" } else { "reject" } });
        let labels = |outcome: &Outcome| {
            let labels = outcome.rows().iter().map(|row| (row["query_id"].to_string(), row["label"].to_string() + &row["vote_share"].to_string()));
            labels.collect::<BTreeMap<_, _>>()
        };
        let one = run(params(), rows);
        let two = run_cut(params(), moved, &Cut::slices(slice).partitions(2));
        prop_assert_eq!(labels(&one), labels(&two));
        prop_assert_eq!(&one.rejected, &two.rejected);
        prop_assert_eq!(one.kept + one.rejected.values().sum::<u64>(), one.read);
    }
}
