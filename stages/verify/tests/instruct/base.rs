//! Parsing fails closed, loose scoring reads eight ways, verdicts name what failed.

use crate::{check, complaint, holds};
use serde_json::json;
use stage_verify::{
    Verdict,
    instruct::{Constraint, Scoring, checks, kinds, verify},
};

const WORDS: &str = "length_constraints:number_words";

fn words(number: u64, relation: &str) -> Constraint {
    Constraint::parse(WORDS, &json!({"num_words": number, "relation": relation})).unwrap()
}

#[test]
fn an_unknown_kind_is_named_with_the_nearest_known() {
    let message = complaint("length_constraint:number_words", &json!({}));
    assert!(
        message.contains("`length_constraint:number_words`") && message.contains(&format!("`{WORDS}`")),
        "{message}"
    );
    assert!(complaint("", &json!({})).contains("unknown"));
}

#[test]
fn an_unknown_parameter_is_named_with_the_nearest_known() {
    let message = complaint(WORDS, &json!({"num_word": 3, "relation": "at least"}));
    assert!(message.contains("`num_word` of `length_constraints:number_words`"), "{message}");
    assert!(message.contains("did you mean `num_words`?"), "{message}");
}

#[test]
fn a_missing_parameter_is_named() {
    let message = complaint(WORDS, &json!({"num_words": 3}));
    assert!(message.contains("`length_constraints:number_words` needs the parameter `relation`"), "{message}");
    assert!(complaint(WORDS, &json!({"num_words": 3, "relation": null})).contains("needs the parameter `relation`"));
    assert!(complaint(WORDS, &json!(null)).contains("needs the parameter `num_words`"));
}

#[test]
fn an_ill_typed_parameter_is_named_with_what_was_found() {
    let message = complaint(WORDS, &json!({"num_words": "3", "relation": "at least"}));
    assert!(message.contains("`num_words`") && message.contains("a text (\"3\"), not a whole number"), "{message}");
    assert!(complaint(WORDS, &json!({"num_words": 3, "relation": 1})).contains("not `at least` or `less than`"));
    assert!(complaint(WORDS, &json!([3])).contains("a list, not an object"));
}

#[test]
fn a_parameter_out_of_range_is_named_with_its_range() {
    for number in [json!(-1), json!(2.5), json!(1e300)] {
        let message = complaint(WORDS, &json!({"num_words": number, "relation": "at least"}));
        assert!(message.contains("`num_words`") && message.contains("from 0 to"), "{message}");
    }
    let message = complaint(WORDS, &json!({"num_words": 3, "relation": "more than"}));
    assert!(message.contains("`relation`") && message.contains("\"more than\""), "{message}");
}

#[test]
fn null_parameters_of_other_kinds_are_absent() {
    let row = json!({"num_words": 2, "relation": "at least", "num_bullets": null, "keywords": null});
    assert!(holds(WORDS, &row, "two words"));
}

#[test]
fn a_float_without_fraction_is_a_whole_number() {
    assert!(holds(WORDS, &json!({"num_words": 2.0, "relation": "at least"}), "two words"));
}

#[test]
fn a_check_says_what_was_found() {
    let found = check(WORDS, &json!({"num_words": 5, "relation": "at least"}), "just three words");
    assert_eq!((found.holds, found.why.as_ref()), (false, "3 words, at least 5 asked"));
}

#[test]
fn all_constraints_must_hold() {
    let both = [words(2, "at least"), words(4, "less than")];
    assert_eq!(verify(&both, "just three words", Scoring::Strict).verdict, Verdict::Correct);
    let failed = verify(&both, "here are four words", Scoring::Strict);
    assert_eq!(failed.verdict, Verdict::Incorrect);
    assert_eq!(failed.reason, "constraint_failed: length_constraints:number_words: 4 words, less than 4 asked");
    let each: Vec<bool> =
        checks(&both, "here are four words", Scoring::Strict).into_iter().map(|check| check.holds).collect();
    assert_eq!(each, [true, false]);
}

#[test]
fn nothing_asked_is_a_fault_of_the_label() {
    let judged = verify(&[], "text", Scoring::Strict);
    assert_eq!((judged.verdict, judged.reason.as_ref()), (Verdict::LabelUnparsable, "no_constraints"));
}

#[test]
fn an_empty_response_is_no_answer_and_holds_nothing() {
    for empty in ["", " \n\t", "\u{1f}"] {
        for scoring in [Scoring::Strict, Scoring::Loose] {
            assert_eq!(verify(&[words(9, "less than")], empty, scoring).verdict, Verdict::NoAnswer, "{empty:?}");
        }
        assert!(!checks(&[words(9, "less than")], empty, Scoring::Strict)[0].holds);
    }
}

#[test]
fn loose_scoring_drops_the_first_the_last_or_both_lines() {
    let one = words(2, "less than");
    let one = [one];
    let judge = |response: &str, scoring| checks(&one, response, scoring)[0].holds;
    for response in ["Sure, here you go:\nword", "word\nHope this helps!", "Here it is:\nword\nHope this helps!"] {
        assert!(!judge(response, Scoring::Strict) && judge(response, Scoring::Loose), "{response}");
    }
    assert!(!judge("two words", Scoring::Loose));
    assert!(!judge("two words\ntwo words\nmore words", Scoring::Loose));
}

#[test]
fn loose_scoring_never_holds_for_a_blank_reading() {
    let none = [words(1, "less than")];
    for response in ["one line", "first\n \nlast", "a\n\n**b"] {
        assert!(!checks(&none, response, Scoring::Loose)[0].holds, "{response:?}");
    }
}

#[test]
fn each_constraint_has_its_own_reading_in_loose_scoring() {
    let asked = [words(2, "less than"), words(3, "at least")];
    assert!(verify(&asked, "word\ntwo words", Scoring::Loose).is_correct());
}

#[test]
fn kinds_have_distinct_ids_and_say_what_they_are() {
    let mut ids: Vec<&str> = kinds().iter().map(|kind| kind.id).collect();
    assert!(kinds().iter().all(|kind| !kind.summary.is_empty() && kind.id.contains(':')));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
