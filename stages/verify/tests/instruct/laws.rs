//! What holds for any text.

use proptest::prelude::*;
use serde_json::{Value, json};
use stage_verify::instruct::{Constraint, Scoring, checks, kinds, verify};

/// One constraint of every kind of IFEval.
fn constraints() -> Vec<Constraint> {
    let value = |name: &str| match name {
        "relation" | "capital_relation" | "let_relation" => json!("at least"),
        "keywords" | "forbidden_words" => json!(["a", "İ", "σ"]),
        "language" => json!("en"),
        "letter" => json!("ß"),
        "keyword" | "first_word" | "section_spliter" | "end_phrase" | "prompt_to_repeat" => json!("a"),
        "postscript_marker" => json!("P.S."),
        _ => json!(1),
    };
    let groups = [
        "change_case:",
        "combination:",
        "detectable_",
        "keywords:",
        "language:",
        "length_",
        "punctuation:",
        "startend:",
    ];
    let of_ifeval = kinds().into_iter().filter(|kind| groups.iter().any(|group| kind.id.starts_with(group)));
    let parse = |kind: &stage_verify::instruct::KindInfo| {
        let kwargs: Value = kind.parameters.iter().map(|parameter| (parameter.name, value(parameter.name))).collect();
        Constraint::parse(kind.id, &kwargs).unwrap()
    };
    of_ifeval.map(parse).collect()
}

/// Text with the marks that kinds look for, and any character.
fn text() -> impl Strategy<Value = String> {
    let marks = prop::sample::select(vec![
        "***",
        "******",
        "**",
        "*",
        "- ",
        "\n",
        "\n\n",
        "[",
        "]",
        "<<",
        ">>",
        "\"",
        "``",
        "''",
        "'",
        "n't ",
        "'s ",
        ". ",
        "...",
        ". . .",
        "?",
        "! ",
        "Dr.",
        "U.S.",
        "e.g.",
        "P.S.",
        "P.P.S",
        "```json",
        "{}",
        "Section 1",
        "A",
        "a",
        " ",
        "\t",
        "\u{1c}",
        "ß",
        "İ",
        "ς",
        "’",
        "”",
        "中",
        "क्ष",
        "ё",
        ",",
        "--",
        "—",
        "cannot",
        "d'ye",
        "3.",
        "No. 5",
        "\u{301}",
    ])
    .prop_map(str::to_owned);
    let any = prop::char::any().prop_map(String::from);
    prop::collection::vec(prop_oneof![4 => marks, 1 => any], 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn what_holds_strictly_holds_loosely(response in text()) {
        let asked = constraints();
        let strict = checks(&asked, &response, Scoring::Strict);
        let loose = checks(&asked, &response, Scoring::Loose);
        for ((strict, loose), constraint) in strict.iter().zip(&loose).zip(&asked) {
            prop_assert!(!strict.holds || loose.holds, "{}", constraint.id());
            prop_assert!(!strict.why.is_empty() && !loose.why.is_empty());
        }
        let verdict = |scoring| verify(&asked, &response, scoring).is_correct();
        prop_assert!(!verdict(Scoring::Strict) || verdict(Scoring::Loose));
    }

    #[test]
    fn a_constraint_says_the_same_alone_and_among_others(response in text()) {
        let asked = constraints();
        let together = checks(&asked, &response, Scoring::Strict);
        // Blank is what Python's `str.strip` empties: also four control characters that Rust does not count as space.
        let is_blank = response.chars().all(|letter| letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter));
        for (constraint, check) in asked.iter().zip(together) {
            if is_blank {
                prop_assert!(!check.holds && check.why == "the response is empty", "{:?}", check);
            } else {
                prop_assert_eq!(&constraint.check(&response), &check);
            }
        }
    }

    #[test]
    fn counts_compare_as_their_relation_says(response in text(), number in 0_u32..40) {
        for (id, name) in [("length_constraints:number_words", "num_words"), ("length_constraints:number_sentences", "num_sentences")] {
            let holds = |relation: &str| {
                Constraint::parse(id, &json!({(name): number, "relation": relation})).unwrap().check(&response).holds
            };
            prop_assert!(holds("at least") != holds("less than"));
        }
    }

    #[test]
    fn json_that_serde_reads_is_json(response in text()) {
        let quoted = serde_json::to_string(&json!({"text": response, "list": [response, 1.5, null, {}]})).unwrap();
        let constraint = Constraint::parse("detectable_format:json_format", &json!({})).unwrap();
        prop_assert!(constraint.check(&quoted).holds);
    }

    #[test]
    fn any_parameters_are_read_or_refused(id in prop::sample::select(kinds().iter().map(|kind| kind.id).collect::<Vec<_>>()), number in any::<i64>(), word in text()) {
        for value in [json!(number), json!(word), json!([word]), json!(null), json!(1.5)] {
            let kind = kinds().into_iter().find(|kind| kind.id == id).unwrap();
            let kwargs: Value = kind.parameters.iter().map(|parameter| (parameter.name, value.clone())).collect();
            if let Ok(constraint) = Constraint::parse(id, &kwargs) {
                prop_assert!(!constraint.check(&word).why.is_empty());
            }
        }
    }
}
