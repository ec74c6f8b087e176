use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial, conformance};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::recorded;

fn entry() -> StageEntry {
    StageEntry::stage::<Verify>()
}

fn run(params: Value, rows: Vec<Value>) -> Outcome {
    Trial::new(&entry(), params).rows("rows", &traces::TABLE, rows).run(&Cut::WHOLE).unwrap()
}

/// A trace of domain `math` with label 18, changed by `change`.
#[expect(clippy::needless_pass_by_value, reason = "changes are written in place")]
fn trace(change: Value) -> Value {
    let mut row = json!({ "query_id": "q", "trace_id": "t", "domain": "math", "label": "18", "response": "\\boxed{18}", "finish_reason": "stop" });
    for (name, value) in change.as_object().unwrap() {
        row[name] = value.clone();
    }
    row
}

/// Verdict and first word of the reason for one row.
fn verdict(params: Value, change: Value) -> (Value, String) {
    let outcome = run(params, vec![trace(change)]);
    let row = &outcome.rows()[0];
    let reason = row["verdict_reason"].as_str().unwrap_or_default();
    (row["verdict"].clone(), reason.split(':').next().unwrap_or_default().to_owned())
}

#[test]
fn the_example_conforms() {
    conformance(&entry());
}

#[test]
fn a_cut_rollout_is_never_correct() {
    for reason in ["length", "max_tokens"] {
        let found = verdict(json!({}), json!({ "finish_reason": reason }));
        assert_eq!(found, (json!("no_answer"), "truncated".to_owned()));
    }
    assert_eq!(verdict(json!({}), json!({})).0, json!("correct"));
    let unreadable = verdict(json!({}), json!({ "finish_reason": "length", "label": null }));
    assert_eq!(unreadable, (json!("label_unparsable"), "no_label".to_owned()));
}

#[test]
fn only_the_answer_part_counts() {
    let thought = json!({ "reasoning": "It is \\boxed{18}.", "answer_text": "I am not sure.", "response": "<think>It is \\boxed{18}.</think>I am not sure." });
    assert_eq!(verdict(json!({}), thought).0, json!("no_answer"));
    let raw = json!({ "response": "<think>It is \\boxed{17}.</think>It is \\boxed{18}." });
    assert_eq!(verdict(json!({}), raw).0, json!("correct"));
    let unfinished = json!({ "response": "<think>It is \\boxed{18}." });
    assert_eq!(verdict(json!({}), unfinished).0, json!("no_answer"));
    let nothing = json!({ "response": null, "answer_text": "" });
    assert_eq!(verdict(json!({}), nothing).0, json!("no_answer"));
}

#[test]
fn a_missing_label_is_the_labels_fault() {
    for label in [json!(null), json!(""), json!("  ")] {
        let outcome = run(json!({}), vec![trace(json!({ "label": label }))]);
        let row = &outcome.rows()[0];
        assert_eq!((&row["verdict"], &row["verdict_reason"]), (&json!("label_unparsable"), &json!("no_label")));
        assert_eq!(row["answer"], json!("18"));
    }
}

#[test]
fn a_domain_without_verifier_is_undecided_and_chat_has_no_verdict() {
    for domain in [json!("physics"), json!(null)] {
        let rows = vec![trace(json!({ "domain": domain })), trace(json!({}))];
        let outcome = run(json!({}), rows);
        let row = &outcome.rows()[0];
        assert_eq!(row["verdict"], json!("undecided"));
        assert!(row["verdict_reason"].as_str().unwrap().starts_with("no_verifier"));
        assert_eq!(row["verifier"], json!(null));
    }
    let outcome = run(json!({}), vec![trace(json!({ "domain": "chat", "label": null }))]);
    let row = &outcome.rows()[0];
    assert_eq!((&row["verdict"], &row["verdict_reason"], &row["answer"]), (&json!(null), &json!(null), &json!(null)));
    assert_eq!(outcome.counters["verdict_none"], 1);
}

#[test]
fn a_domain_of_ones_own_gets_its_verifiers_in_turn() {
    let row = || {
        vec![trace(
            json!({ "domain": "physics", "response": "The answer is B.", "label": "B", "options": ["1 m", "2 m"] }),
        )]
    };
    let outcome = run(json!({ "verifiers": { "physics": "stem" } }), row());
    assert_eq!(outcome.rows()[0]["verdict"], json!("correct"));
    let constraint = json!([{ "id": "punctuation:no_comma", "kwargs": "{}" }]);
    let rows = vec![trace(json!({ "domain": "both", "response": "I cannot say.", "constraints": constraint }))];
    let outcome = run(json!({ "verifiers": { "both": ["math", "instruct"] } }), rows);
    assert_eq!(outcome.rows()[0]["verdict"], json!("correct"), "math finds no answer, so the next one decides");
    assert!(outcome.rows()[0]["verifier"].as_str().unwrap().starts_with("instruct@"));
}

#[test]
fn constraints_are_checked_in_the_answer_part() {
    let row = |response: &str, constraints: Value| {
        trace(json!({ "domain": "instruct", "label": null, "response": response, "constraints": constraints }))
    };
    let no_comma = || json!([{ "id": "punctuation:no_comma", "kwargs": null }]);
    let rows = vec![
        row("<think>First, I think.</think>No comma here.", no_comma()),
        row("Well, one.", no_comma()),
        row("**Well, one.", json!([{ "id": "keywords:existence", "kwargs": "{}" }])),
        row("", no_comma()),
        row("Fine.", json!(null)),
    ];
    let outcome = run(json!({}), rows);
    let found = [
        ("correct", ""),
        ("incorrect", "constraint_failed"),
        ("label_unparsable", "constraint_unreadable"),
        ("no_answer", ""),
        ("label_unparsable", "no_constraints"),
    ];
    for (row, (verdict, reason)) in outcome.rows().iter().zip(found) {
        assert_eq!(row["verdict"], json!(verdict), "{row}");
        assert!(row["verdict_reason"].as_str().unwrap().starts_with(reason), "{row}");
    }
}

#[test]
fn an_unknown_constraint_ends_the_stage_before_anything_passes() {
    let rows =
        vec![trace(json!({ "domain": "instruct", "constraints": [{ "id": "punctuation:no_coma", "kwargs": "{}" }] }))];
    let trial = Trial::new(&entry(), json!({})).rows("rows", &traces::TABLE, rows).run(&Cut::WHOLE);
    let message = trial.unwrap_err().to_string();
    assert!(message.contains("no_coma") && message.contains("no_comma"), "{message}");
}

#[test]
fn a_second_opinion_is_held_against_the_first() {
    let row = |answer: &str, extra: &str| trace(json!({ "response": format!("\\boxed{{{answer}}}"), "extra": extra }));
    let rows = vec![
        row("18", "{\"ok\": true}"),
        row("18", "{\"ok\": 0}"),
        row("17", "{\"ok\": \"correct\"}"),
        row("17", "{\"ok\": false}"),
        row("17", "{}"),
    ];
    let outcome = run(json!({ "second": "extra.ok", "keep": ["correct"] }), rows);
    assert_eq!(outcome.column("agrees"), [json!(true), json!(false)]);
    assert_eq!(outcome.output("disagreements").len(), 2, "rejected rows are among them");
    let counters = &outcome.counters;
    assert_eq!((counters["agreements"], counters["disagreements"], counters["not_comparable"]), (2, 2, 1));
    assert_eq!(counters["first_correct_second_incorrect"], 1);
    let outcome = run(json!({ "second": "stem" }), vec![trace(json!({}))]);
    assert_eq!(outcome.rows()[0]["second_verdict"], json!("correct"));
    let entry = entry();
    let nothing =
        Trial::new(&entry, json!({ "second": "nobody" })).rows("rows", &traces::TABLE, vec![trace(json!({}))]);
    assert!(matches!(nothing.run(&Cut::WHOLE), Err(StageError::Param(_))));
}

#[test]
fn keeping_rejects_the_rest_with_their_verdicts() {
    let rows = || {
        vec![
            trace(json!({})),
            trace(json!({ "response": "\\boxed{17}" })),
            trace(json!({ "response": "no idea" })),
            trace(json!({ "domain": "chat" })),
            trace(json!({ "label": null })),
        ]
    };
    let outcome = run(json!({ "keep": ["correct"] }), rows());
    assert_eq!(outcome.rows().len(), 1);
    assert_eq!(
        outcome.reasons(),
        ["verdict_incorrect", "verdict_no_answer", "verdict_none", "verdict_label_unparsable"]
    );
    let evidence: Value = serde_json::from_str(outcome.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap();
    assert_eq!(evidence["answer"], json!("17"));
    assert_eq!(outcome.rejects[0]["verdict"], json!("incorrect"));
    let outcome = run(json!({ "keep": ["correct", "none"] }), rows());
    assert_eq!(outcome.rows().len(), 2);
    assert_eq!(outcome.counters["verdict_correct"], 1);
}

#[test]
fn options_are_compared_as_letters_in_any_domain() {
    for domain in ["math", "stem"] {
        let outcome = run(
            json!({}),
            vec![trace(json!({
                "domain": domain, "label": "B", "options": ["12", "18"], "response": "The answer is B. A is not possible.",
            }))],
        );
        let row = &outcome.rows()[0];
        assert_eq!((&row["verdict"], &row["answer"]), (&json!("correct"), &json!("B")));
        assert!(row["verifier"].as_str().unwrap().starts_with("stem@"));
    }
    let outcome = run(json!({}), vec![trace(json!({}))]);
    assert!(outcome.rows()[0]["verifier"].as_str().unwrap().starts_with("math@"));
}

#[test]
fn lenient_takes_an_unmarked_number_and_counts_it() {
    let change = json!({ "response": "That makes 18" });
    assert_eq!(verdict(json!({}), change.clone()).0, json!("no_answer"));
    let outcome = run(json!({ "extraction": "lenient" }), vec![trace(change)]);
    assert_eq!(outcome.rows()[0]["verdict"], json!("correct"));
    assert_eq!(outcome.counters["answers_without_mark"], 1);
}

#[test]
fn rows_that_can_never_be_judged_are_refused_before_anything_runs() {
    let only_ids = vec![json!({ "query_id": "q", "trace_id": "t" })];
    let trial = |row: Vec<Value>, params: Value| {
        Trial::new(&entry(), params).rows("rows", &traces::TABLE, row).run(&Cut::WHOLE)
    };
    assert!(matches!(trial(only_ids, json!({})), Err(StageError::Param(_))));
    let no_domain = || vec![json!({ "query_id": "q", "trace_id": "t", "response": "\\boxed{1}", "label": "1" })];
    assert!(matches!(trial(no_domain(), json!({})), Err(StageError::Param(_))));
    let outcome = trial(no_domain(), json!({ "verifier": "math" })).unwrap();
    assert_eq!(outcome.rows()[0]["verdict"], json!("correct"));
}

#[test]
fn recorded_scores_of_eight_answers_a_problem_are_found_again() {
    let Some((rows, scores)) = recorded::eight_a_problem() else {
        return;
    };
    let outcome = run(json!({}), rows);
    let found: Vec<bool> = outcome.rows().iter().map(|row| row["verdict"] == json!("correct")).collect();
    let mut same = 0;
    for ((found, score), row) in found.iter().zip(&scores).zip(outcome.rows()) {
        same += usize::from(found == score);
        if found != score {
            println!(
                "{}: recorded {score}, {} {} answer {} label {}",
                row["trace_id"], row["verdict"], row["verdict_reason"], row["answer"], row["label"]
            );
        }
    }
    println!("{same} of {} agree; {:?}", scores.len(), outcome.counters);
    assert!(same * 100 >= scores.len() * 95);
}

#[test]
fn recorded_verdicts_of_a_small_models_rollouts_are_found_again() {
    let Some((rows, recorded)) = recorded::small_model_rollouts() else {
        return;
    };
    let count = rows.len();
    let outcome = run(json!({}), rows);
    assert_eq!(outcome.rows().len(), count);
    let (mut same, mut judged) = (0, 0);
    for (row, recorded) in outcome.rows().iter().zip(&recorded) {
        let is_cut = row["finish_reason"] == json!("length");
        assert!(
            !(is_cut && row["verdict"] == json!("correct")),
            "a cut rollout counts as correct: {}",
            row["trace_id"]
        );
        let Some(recorded) = recorded else { continue };
        judged += 1;
        let found = row["verdict"] == json!("correct");
        same += usize::from(found == *recorded);
        if found != *recorded && judged - same <= 25 {
            println!(
                "recorded {recorded}, {} {} cut {is_cut} answer {} label {}",
                row["verdict"], row["verdict_reason"], row["answer"], row["label"]
            );
        }
    }
    println!("{same} of {judged} agree; {:?}", outcome.counters);
    assert!(judged > 1000 && same * 100 >= judged * 98);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_text_makes_it_fail_and_no_cut_text_passes(texts in prop::collection::vec("(\\\\boxed\\{|\\}|18|<think>|</think>|[a-z$\\\\^{} 答案]){0,8}", 1..6)) {
        let rows: Vec<Value> = texts.iter().map(|text| trace(json!({ "response": text, "finish_reason": "length" }))).collect();
        let outcome = run(json!({}), rows);
        prop_assert_eq!(outcome.rows().len(), texts.len());
        prop_assert!(outcome.column("verdict").iter().all(|verdict| verdict == &json!("no_answer")));
    }
}
