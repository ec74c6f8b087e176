//! One judge and several, what they rate, and what becomes of the queries.

use std::sync::Arc;

use pipeline_core::testing::{Cut, Outcome, Trial, conformance_with};
use pipeline_core::{StageEntry, StageError};
use schemas::queries;
use serde_json::{Value, json};

use super::JudgeQueries;
use crate::asking::scripted::{Does, Scripted, says, services};

const FOUR: [&str; 4] = ["complete", "reasonable", "logically_valid", "tests_knowledge_point"];

fn entry() -> StageEntry {
    StageEntry::stage::<JudgeQueries>()
}

/// A judge's answer with these ratings of the four criteria.
fn rated(ratings: [i64; 4], reason: &str) -> Does {
    let criteria: Value = FOUR.iter().zip(ratings).map(|(name, rating)| ((*name).to_owned(), json!(rating))).collect();
    says(json!({ "reason": reason, "criteria": criteria }).to_string())
}

/// A judge that rates the bad problem so and all others with 5.
fn judge(name: &str, bad: [i64; 4], reason: &'static str) -> Arc<Scripted> {
    Scripted::new(name, move |request| {
        let is_bad = request.messages[0].content.contains("若干");
        if is_bad { rated(bad, reason) } else { rated([5; 4], "No flaw.") }
    })
}

fn rows() -> Vec<Value> {
    vec![
        json!({ "query_id": "a", "prompt": "What is 2 + 3?", "subdomain": "arithmetic" }),
        json!({ "query_id": "b", "prompt": "小明有若干苹果，还剩几个？", "extra": "{\"knowledge_point\": \"减法\"}" }),
    ]
}

fn run(models: &[&Arc<Scripted>], params: Value) -> Result<Outcome, StageError> {
    let entry = entry();
    Trial::new(&entry, params).services(services(models)).rows("rows", &queries::TABLE, rows()).run(&Cut::slices(1))
}

fn evidence(outcome: &Outcome) -> Value {
    serde_json::from_str(outcome.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap()
}

#[test]
fn the_example_conforms() {
    let teacher = Scripted::new("teacher", |_| rated([1; 4], "?"));
    conformance_with(&entry(), &services(&[&teacher]));
}

#[test]
fn a_query_falls_for_its_worst_criterion_with_the_judges_words() {
    let judge = judge("judge", [2, 4, 1, 5], "题目没有给出苹果的数量。");
    let outcome = run(&[&judge], json!({ "model": "judge" })).unwrap();
    assert_eq!(outcome.reasons(), ["fails_logically_valid"]);
    let found = evidence(&outcome);
    assert_eq!((&found["criterion"], &found["min_score"]), (&json!("logically_valid"), &json!(3)));
    assert_eq!(found["judges"][0]["reason"], json!("题目没有给出苹果的数量。"));
    assert_eq!(outcome.rejects[0]["judge_score"], json!(3.0));
    let kept = &outcome.rows()[0];
    assert_eq!((&kept["judge_score"], &kept["judge_reason"]), (&json!(5.0), &json!("No flaw.")));
    assert_eq!((&kept["judge_flaw"], &kept["judge_agreement"]), (&json!(null), &json!(1.0)));
    let scores: Value = serde_json::from_str(kept["judge_scores"].as_str().unwrap()).unwrap();
    assert_eq!(scores[0]["criteria"]["complete"], json!(5));
    assert_eq!(scores[0]["judge"], json!("judge"));
}

#[test]
fn what_is_asked_names_criteria_and_the_point_that_a_query_tests() {
    let judge = judge("judge", [5; 4], "");
    run(&[&judge], json!({ "model": "judge" })).unwrap();
    let asked: Vec<String> = judge.asked().iter().map(|request| request.messages[0].content.clone()).collect();
    assert!(asked[0].contains("It is filed under: arithmetic") && asked[0].contains("What is 2 + 3?"), "{}", asked[0]);
    assert!(asked[1].contains("It claims to test: 减法"), "{}", asked[1]);
    for name in FOUR {
        assert!(asked.iter().all(|text| text.contains(&format!("- `{name}`: "))), "{name}");
    }
    assert!(asked[0].contains("\"criteria\": {\"complete\": <1-5>, \"reasonable\": <1-5>, "), "{}", asked[0]);
    let schema: Value = serde_json::from_str(judge.asked()[0].schema.as_deref().unwrap()).unwrap();
    assert_eq!(schema["properties"]["criteria"]["required"], json!(FOUR));
    assert_eq!(schema["properties"].as_object().unwrap().keys().next().unwrap(), "reason", "the reason comes first");
}

#[test]
fn the_majority_of_several_judges_decides_and_an_even_split_falls() {
    let (strict, mild) = (judge("strict", [1, 5, 5, 5], "缺少条件"), judge("mild", [3; 4], "Fine."));
    let other = judge("other", [3, 3, 3, 3], "Fine, too.");
    let names = |names: &[&str]| json!({ "model": names, "mode": "annotate" });
    let outcome = run(&[&strict, &mild, &other], names(&["strict", "mild", "other"])).unwrap();
    let row = &outcome.rows()[1];
    assert_eq!(row["judge_flaw"], json!(null));
    assert_eq!((&row["judge_reason"], &row["judge_agreement"]), (&json!("Fine."), &json!(2.0 / 3.0)));
    assert_eq!(row["judge_score"], json!(10.0 / 3.0));
    assert_eq!((outcome.counters["votes"], outcome.counters["votes_with_the_majority"]), (6, 5));
    let outcome = run(&[&strict, &mild], names(&["strict", "mild"])).unwrap();
    let row = &outcome.rows()[1];
    assert_eq!((&row["judge_flaw"], &row["judge_agreement"]), (&json!("fails_complete"), &json!(0.5)));
    assert_eq!(row["judge_reason"], json!("缺少条件"), "the words of the judge that failed it");
}

#[test]
fn a_rating_out_of_range_is_asked_for_again_and_never_moved() {
    let drifting = |first: &'static str| {
        Scripted::new("judge", move |request| match request.attempt {
            0 => says(first),
            _ => rated([4; 4], "Good."),
        })
    };
    let with = |rating: &str| {
        format!(
            "{{\"reason\": \"\", \"criteria\": {{\"complete\": {rating}, \"reasonable\": 4, \"logically_valid\": 4, \
             \"tests_knowledge_point\": 4}}, \"score\": 4}}"
        )
    };
    for rating in ["6", "0", "true", "\"4/5\"", "4.5", "null"] {
        let judge = drifting(with(rating).leak());
        let outcome = run(&[&judge], json!({ "model": "judge" })).unwrap();
        assert_eq!(outcome.column("judge_score"), [json!(4.0), json!(4.0)], "{rating}");
        assert_eq!(outcome.counters["asked_again"], 2, "{rating}");
    }
    for rating in ["4", "\"4\"", "4.0"] {
        let judge = drifting(with(rating).leak());
        let outcome = run(&[&judge], json!({ "model": "judge" })).unwrap();
        assert_eq!(outcome.counters["asked_again"], 0, "{rating} is taken, and so is a total that nobody asked for");
    }
}

#[test]
fn a_judge_without_a_usable_answer_has_no_vote_and_without_any_the_query_falls() {
    let silent = Scripted::new("silent", |_| says("I cannot judge this."));
    let judge = judge("judge", [5; 4], "");
    let outcome = run(&[&silent, &judge], json!({ "model": ["silent", "judge"] })).unwrap();
    assert_eq!((outcome.rows().len(), outcome.counters["rows_with_fewer_judges"]), (2, 2));
    for mode in ["reject", "annotate"] {
        let outcome = run(&[&silent], json!({ "model": "silent", "mode": mode })).unwrap();
        assert_eq!(outcome.reasons(), ["answer_unusable"; 2]);
    }
}

#[test]
fn a_judge_that_fails_for_a_passing_reason_leaves_the_query_for_the_next_run() {
    let failing = Scripted::new("failing", |_| Does::Fails);
    let judge = judge("judge", [5; 4], "");
    let outcome = run(&[&failing, &judge], json!({ "model": ["judge", "failing"] }));
    assert!(matches!(outcome, Err(StageError::Transient { .. })));
}

#[test]
fn criteria_of_ones_own_are_rated_instead() {
    let own = json!([{ "name": "is_short", "description": "at most one sentence" }, "complete"]);
    let judge = Scripted::new("judge", |request| {
        assert!(request.messages[0].content.contains("- `is_short`: at most one sentence"));
        says("{\"reason\": \"Too long.\", \"criteria\": {\"is_short\": 2, \"complete\": 5}}")
    });
    let outcome = run(&[&judge], json!({ "model": "judge", "criteria": own })).unwrap();
    assert_eq!(outcome.reasons(), ["fails_is_short"; 2]);
}

#[test]
fn mistakes_are_found_before_anything_is_asked() {
    for (change, place) in [
        (json!({ "model": [] }), "model"),
        (json!({ "model": ["judge", "judge"] }), "model"),
        (json!({ "min_score": 6 }), "min_score"),
        (json!({ "criteria": ["completeness"] }), "criteria"),
        (json!({ "criteria": ["complete", "complete"] }), "criteria"),
        (json!({ "criteria": [{ "name": "Is short", "description": "x" }] }), "criteria"),
        (json!({ "criteria": [{ "name": "short", "description": " " }] }), "criteria"),
        (json!({ "template": "{{ criterion }}" }), "template"),
    ] {
        let mut params = json!({ "model": "judge" });
        for (name, value) in change.as_object().unwrap() {
            params[name] = value.clone();
        }
        let model = judge("judge", [5; 4], "");
        match run(&[&model], params).unwrap_err() {
            StageError::Param(error) => assert_eq!(error.path, place, "{change}: {error}"),
            other => panic!("{change}: {other}"),
        }
    }
}
