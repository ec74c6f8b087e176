//! Rounds of asking, seen through the kind that adds least to them.

use std::sync::Arc;

use pipeline_core::testing::{Cut, Outcome, Trial};
use pipeline_core::{StageEntry, StageError};
use schemas::queries;
use serde_json::{Value, json};

use super::scripted::{Does, Scripted, says, services};
use crate::prompt::Prompt;

fn params() -> Value {
    json!({
        "model": "teacher", "template": "Rate: {{ prompt }}", "max_tokens": 16, "temperature": 0.5,
        "schema": {
            "type": "object", "required": ["score"],
            "properties": { "score": { "type": "integer", "minimum": 1, "maximum": 5 } },
        },
    })
}

fn run_with(model: &Arc<Scripted>, params: Value, max_errors: f64, cut: &Cut) -> Result<Outcome, StageError> {
    let entry = StageEntry::stage::<Prompt>();
    let row = |id: &str, prompt: &str| json!({ "query_id": id, "prompt": prompt });
    let rows = vec![row("a", "plain"), row("b", "odd"), row("c", "又一题")];
    let trial = Trial::new(&entry, params).services(services(&[model])).rows("rows", &queries::TABLE, rows);
    Trial { max_errors, ..trial }.run(cut)
}

fn run(model: &Arc<Scripted>) -> Outcome {
    run_with(model, params(), 0.0, &Cut::WHOLE).unwrap()
}

/// A model that does `odd` to the odd row, by the number of the asking, and rates the others 4.
fn odd(does: impl Fn(u32) -> Does + Send + Sync + 'static) -> Arc<Scripted> {
    Scripted::new("teacher", move |request| {
        let is_odd = request.messages[0].content.contains("odd");
        if is_odd { does(request.attempt) } else { says("{\"score\": 4}") }
    })
}

fn evidence(outcome: &Outcome) -> Value {
    serde_json::from_str(outcome.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap()
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_again_with_schema_and_complaint() {
    let model = odd(|attempt| says(if attempt == 0 { "评分：{\"score\": 9}" } else { "{\"score\": \"5\"}" }));
    let outcome = run(&model);
    assert_eq!(outcome.column("score"), [json!(4), json!(5), json!(4)]);
    assert!(outcome.rejects.is_empty());
    let asked = model.asked();
    assert_eq!(asked.len(), 4, "only the odd row is asked twice");
    let (first, second) = (&asked[1], &asked[3]);
    let text = &second.messages[0].content;
    assert!(text.starts_with("Rate: odd\n"), "{text}");
    assert!(text.contains("at `$.score`: 9 is out of range, it must be at most 5"), "{text}");
    assert!(text.contains(first.schema.as_deref().unwrap()), "{text}");
    assert_eq!((first.attempt, second.attempt), (0, 1));
    assert_ne!(first.sampling.seed, second.sampling.seed);
    assert_eq!(first.sampling.max_tokens, second.sampling.max_tokens);
    let counters = &outcome.counters;
    assert_eq!((counters["calls"], counters["asked_again"], counters["unusable_answers"]), (4, 1, 1));
    assert_eq!((counters["prompt_tokens"], counters["completion_tokens"]), (40, 12));
}

#[test]
fn an_answer_that_was_cut_is_asked_for_again_with_twice_the_tokens() {
    let model = odd(|attempt| if attempt < 2 { Does::IsCut("{\"sco".to_owned()) } else { says("{\"score\": 1}") });
    assert_eq!(run(&model).column("score"), [json!(4), json!(1), json!(4)]);
    let tokens: Vec<u32> = model.asked().iter().map(|request| request.sampling.max_tokens).collect();
    assert_eq!(tokens, [16, 16, 16, 32, 64]);
    assert_eq!(model.asked()[4].messages, model.asked()[1].messages, "the question stays as it was");
}

#[test]
fn what_stays_unusable_is_a_reject_and_never_a_row() {
    let outcome = run(&odd(|_| says("I would rather not.")));
    assert_eq!(outcome.reasons(), ["answer_unusable"]);
    assert_eq!(outcome.column("query_id"), [json!("a"), json!("c")]);
    let found = evidence(&outcome);
    assert_eq!(found["why"], json!("the answer holds no complete JSON value"));
    assert_eq!((&found["attempts"], &found["answer"]), (&json!(3), &json!("I would rather not.")));
    let outcome = run(&odd(|_| Does::IsCut("{\"score".to_owned())));
    assert_eq!(outcome.reasons(), ["truncated"]);
    assert_eq!(evidence(&outcome)["max_tokens"], json!(64));
}

#[test]
fn a_refusal_of_the_server_is_the_reason() {
    let outcome = run(&odd(|_| Does::Refuses("context_exceeded")));
    assert_eq!(outcome.reasons(), ["context_exceeded"]);
    let model = odd(|attempt| match attempt {
        0 => Does::IsCut("{".to_owned()),
        _ => Does::Refuses("context_exceeded"),
    });
    let outcome = run(&model);
    assert_eq!(outcome.reasons(), ["truncated"], "twice the tokens had no room: the answer was cut all the same");
    assert_eq!(evidence(&outcome)["then"], json!("context_exceeded: no"));
}

#[test]
fn a_passing_failure_waits_for_the_next_run_in_any_round() {
    for failing in [0, 1] {
        let does = move |attempt| if attempt == failing { Does::Fails } else { says("no") };
        let error = run_with(&odd(does), params(), 0.0, &Cut::WHOLE).unwrap_err();
        assert!(matches!(error, StageError::Transient { .. }), "{error}");
        let outcome = run_with(&odd(does), params(), 0.5, &Cut::WHOLE).unwrap();
        assert_eq!((outcome.rows().len(), outcome.transient, outcome.rejects.len()), (2, 1, 0));
    }
}

#[test]
fn what_was_answered_usably_is_never_asked_again() {
    let model = odd(|attempt| says(if attempt == 0 { "hm" } else { "{\"score\": 2}" }));
    let first = run(&model);
    let asked = model.asked();
    let second = run_with(&model, params(), 0.0, &Cut::slices(1)).unwrap();
    assert_eq!(model.asked(), asked, "the second run finds everything");
    assert_eq!(first.rows(), second.rows());
    let renamed = json!({ "score": "rating" });
    let mut params = params();
    params["columns"] = renamed;
    let third = run_with(&model, params, 0.0, &Cut::WHOLE).unwrap();
    assert_eq!(model.asked(), asked, "where answers go asks nothing");
    assert_eq!(third.column("rating"), [json!(4), json!(2), json!(4)]);
}

#[test]
fn one_attempt_asks_once() {
    let mut params = params();
    params["max_attempts"] = json!(1);
    let model = odd(|_| says("no"));
    let outcome = run_with(&model, params, 0.0, &Cut::WHOLE).unwrap();
    assert_eq!((outcome.reasons(), model.asked().len()), (vec!["answer_unusable"], 3));
}

#[test]
fn more_attempts_go_on_where_an_earlier_run_ended() {
    let with = |attempts: u32| {
        let mut params = params();
        params["max_attempts"] = json!(attempts);
        params
    };
    let model = odd(|attempt| says(if attempt < 2 { "hm" } else { "{\"score\": 2}" }));
    assert_eq!(run_with(&model, with(2), 0.0, &Cut::WHOLE).unwrap().reasons(), ["answer_unusable"]);
    let asked = model.asked().len();
    let outcome = run_with(&model, with(3), 0.0, &Cut::WHOLE).unwrap();
    assert_eq!((outcome.column("score"), model.asked().len()), (vec![json!(4), json!(2), json!(4)], asked + 1));
}
