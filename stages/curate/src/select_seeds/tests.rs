//! Rules on small rows, counts on real data sets, and laws on rows of any shape.

use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial, conformance};
use proptest::prelude::*;
use schemas::queries;
use serde_json::{Value, json};

use super::SelectSeeds;

const ENTRY: StageEntry = StageEntry::stage::<SelectSeeds>();

fn select(params: Value, rows: Vec<Value>) -> Outcome {
    Trial::new(&ENTRY, params).rows("rows", &queries::TABLE, rows).run(&Cut::slices(500)).unwrap()
}

fn reason_of(params: Value, row: Value) -> String {
    let outcome = select(params, vec![row, kept()]);
    outcome.reasons().first().map_or_else(|| "kept".to_owned(), |reason| (*reason).to_owned())
}

/// A row that is kept whatever the parameters; it fills the columns that the port needs.
fn kept() -> Value {
    json!({"query_id": "kept", "domain": "math", "prompt": "How much is 1 + 1?", "label": "2",
        "extra": json!({"solution": "One and one are two. ".repeat(9)}).to_string()})
}

#[test]
fn it_conforms() {
    conformance(&ENTRY);
}

#[test]
fn mathematics_needs_a_label_that_reads_or_a_rationale() {
    let row = |label: Value, extra: Value| {
        json!({"query_id": "q", "domain": "math", "prompt": "How much is 3 + 4?", "label": label,
            "extra": if extra.is_null() { extra } else { json!(extra.to_string()) }})
    };
    let long = "Three and four are seven, since four follows three steps after.";
    for (label, extra, reason) in [
        (json!("7"), Value::Null, "kept"),
        (json!("\\frac{14}{2}"), Value::Null, "kept"),
        (json!("Evelyn"), Value::Null, "kept"),
        (json!("\\frac{14}{"), Value::Null, "label_unparsable"),
        (json!("\\frac{14}{"), json!({"solution": long}), "kept"),
        (json!("see solution"), Value::Null, "no_label"),
        (json!("略。"), Value::Null, "no_label"),
        (json!("  "), Value::Null, "no_label"),
        (Value::Null, json!({"solution": "7"}), "no_label"),
        (Value::Null, json!({"solution": [long, "Or count."]}), "kept"),
        (Value::Null, json!({"notes": long}), "no_label"),
    ] {
        assert_eq!(reason_of(json!({}), row(label.clone(), extra.clone())), reason, "{label} {extra}");
    }
    let own = json!({"rationale": ["notes"], "min_rationale_chars": 10});
    assert_eq!(reason_of(own, row(Value::Null, json!({"notes": long}))), "kept");
    assert_eq!(
        reason_of(json!({"require": {"math": ["label"]}}), row(Value::Null, json!({"solution": long}))),
        "no_label"
    );
    assert_eq!(reason_of(json!({"require": {"math": []}}), row(Value::Null, Value::Null)), "kept");
}

#[test]
fn the_sciences_need_a_label_among_their_options() {
    let row = |label: Value, options: Value| json!({"query_id": "q", "domain": "stem", "prompt": "Which gas is the lightest?", "label": label, "options": options});
    let gases = json!(["helium", "hydrogen", "neon"]);
    for (label, options, reason) in [
        (json!("B"), gases.clone(), "kept"),
        (json!("hydrogen"), gases.clone(), "kept"),
        (json!("E"), gases.clone(), "label_unparsable"),
        (json!("oxygen"), gases.clone(), "label_unparsable"),
        (json!("9.81 m/s^2"), Value::Null, "kept"),
        (Value::Null, gases.clone(), "no_label"),
    ] {
        assert_eq!(reason_of(json!({}), row(label.clone(), options.clone())), reason, "{label} {options}");
    }
    let options = json!({"require": {"stem": ["label", "options"]}});
    assert_eq!(reason_of(options.clone(), row(Value::Null, gases.clone())), "kept");
    assert_eq!(reason_of(options, row(json!("oxygen"), gases)), "label_unparsable");
}

#[test]
fn tests_and_constraints_must_read_and_there_must_be_one() {
    let code = |tests: Value| json!({"query_id": "q", "domain": "code", "prompt": "Add two numbers.", "tests": tests});
    for (tests, reason) in [
        (json!(r#"{"type": "stdin", "cases": [{"input": "2 3", "output": "5"}]}"#), "kept"),
        (json!(r#"["assert add(2, 3) == 5"]"#), "kept"),
        (json!(r#"{"type": "stdin", "cases": []}"#), "tests_unreadable"),
        (json!("assert"), "tests_unreadable"),
        (json!(" "), "no_tests"),
        (Value::Null, "no_tests"),
    ] {
        assert_eq!(reason_of(json!({}), code(tests.clone())), reason, "{tests}");
    }
    let instruct = |constraints: Value| json!({"query_id": "q", "domain": "instruct", "prompt": "Write a poem.", "constraints": constraints});
    for (constraints, reason) in [
        (json!([{"id": "punctuation:no_comma", "kwargs": "{}"}]), "kept"),
        (json!([{"id": "punctuation:no_comma"}, {"id": "punctuation:no_commas"}]), "constraint_unreadable"),
        (json!([{"id": "punctuation:no_comma", "kwargs": "{"}]), "constraint_unreadable"),
        (json!([]), "no_constraints"),
        (Value::Null, "no_constraints"),
    ] {
        assert_eq!(reason_of(json!({}), instruct(constraints.clone())), reason, "{constraints}");
    }
}

#[test]
fn domains_lengths_and_wording_decide_before_supervision() {
    let row = |domain: Value, prompt: &str| json!({"query_id": "q", "domain": domain, "prompt": prompt, "label": "7"});
    let reason = |params: Value, domain: Value, prompt: &str| reason_of(params, row(domain, prompt));
    assert_eq!(reason(json!({}), Value::Null, "How much is 3 + 4?"), "no_domain");
    assert_eq!(reason(json!({}), json!("poetry"), "How much is 3 + 4?"), "no_rule_for_domain");
    assert_eq!(reason(json!({"require": {"poetry": []}}), json!("poetry"), "How much is 3 + 4?"), "kept");
    assert_eq!(reason(json!({"domains": ["math"]}), json!("chat"), "Hello there."), "other_domain");
    assert_eq!(reason(json!({}), json!("chat"), "Hello there."), "kept");
    assert_eq!(reason(json!({}), json!("math"), " 三? "), "too_short");
    assert_eq!(reason(json!({"max_chars": 18}), json!("math"), "How much is 3 + 44?"), "too_long");
    assert_eq!(reason(json!({}), json!("math"), "   "), "no_prompt");
    assert_eq!(reason(json!({}), json!("math"), "如图，求阴影面积。"), "needs_figure");
    assert_eq!(reason(json!({"reject_figures": false}), json!("math"), "如图，求阴影面积。"), "kept");
    assert_eq!(reason(json!({}), json!("math"), "Prove that 7 is prime."), "only_proof");
    assert_eq!(reason(json!({"reject_proofs": false}), json!("math"), "Prove that 7 is prime."), "kept");
    assert_eq!(reason(json!({}), json!("chat"), "Prove that you are human."), "kept");
    for params in [
        json!({"domains": ["poetry"]}),
        json!({"min_chars": 9, "max_chars": 8}),
        json!({"require": {"math": ["luck"]}}),
    ] {
        assert!((ENTRY.parse)(&params).is_err(), "{params}");
    }
}

#[test]
fn the_evidence_says_what_was_tried_and_what_was_found() {
    let row = json!({"query_id": "q", "domain": "math", "prompt": "How much is 3 + 4?", "label": "\\frac{"});
    let outcome = select(json!({}), vec![row, kept()]);
    let evidence: Value = serde_json::from_str(outcome.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap();
    assert_eq!(evidence["label"], "\\frac{");
    assert_eq!(evidence["faults"][0]["reason"], "label_unparsable");
    assert_eq!(evidence["faults"][1]["reason"], "no_rationale");
}

/// Rows of a data set in the shape that `import` gives them.
fn data(name: &str, domain: &str, prompt: &str, columns: &[(&str, &str)]) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(format!("../../../shared/data/{name}"));
    let Ok(text) = text else {
        println!("skipped: the data set `{name}` is not here");
        return None;
    };
    let rows: Vec<Value> = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text).unwrap()
    } else {
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let row = |(index, row): (usize, &Value)| {
        let mut made = json!({"query_id": format!("{index}"), "domain": domain, "prompt": row[prompt]});
        for (column, key) in columns {
            made[*column] = match (*column, &row[*key]) {
                ("label", Value::String(text)) => json!(text.rsplit("####").next().unwrap().trim()),
                ("label", Value::Number(index)) => {
                    json!(char::from(b'A' + u8::try_from(index.as_u64().unwrap()).unwrap()).to_string())
                }
                ("label", Value::Array(all)) => {
                    json!(all.iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>().join(", "))
                }
                ("tests" | "extra", value) => json!(value.to_string()),
                (_, value) => value.clone(),
            };
        }
        made
    };
    Some(rows.iter().enumerate().map(row).collect())
}

/// Name, domain, the column of the prompt, other columns, rows that are kept, and reasons of the others.
type Set = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    u64,
    &'static [(&'static str, u64)],
);

#[test]
fn of_real_seeds_those_fall_out_that_point_to_a_figure() {
    let sets: [Set; 6] = [
        ("gsm8k/train.jsonl", "math", "question", &[("label", "answer")], 5978, &[]),
        // 42 problems hold drawing code, one says "as shown" without it
        ("math500/math500_test.json", "math", "problem", &[("label", "answer")], 457, &[("needs_figure", 43)]),
        ("olympiadbench/test.jsonl", "math", "question", &[("label", "final_answer")], 540, &[]),
        ("cmath/cmath_dev.jsonl", "math", "input", &[("label", "golden")], 600, &[]),
        ("mmlu_stem/test.jsonl", "stem", "question", &[("label", "answer"), ("options", "choices")], 2414, &[]),
        ("mbpp/mbpp.jsonl", "code", "text", &[("tests", "test_list")], 487, &[]),
    ];
    for (name, domain, prompt, columns, kept, reasons) in sets {
        let Some(rows) = data(name, domain, prompt, columns) else { return };
        let outcome = select(json!({}), rows);
        let expected: std::collections::BTreeMap<String, u64> =
            reasons.iter().map(|(reason, rows)| ((*reason).to_owned(), *rows)).collect();
        assert_eq!((outcome.kept, &outcome.rejected), (kept, &expected), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_vanishes_and_what_is_kept_is_kept_again(
        rows in prop::collection::vec(
            (prop::option::of("math|code|stem|chat|instruct|poetry"), prop::option::of(".{0,40}"), prop::option::of(".{0,20}"),
             prop::option::of(prop::collection::vec(".{0,8}", 0..5)), prop::option::of("[\\[\\]{}\"a-z:, ]{0,30}"), prop::option::of("[\\[\\]{}\"a-z:, ]{0,30}")),
            1..20),
    ) {
        let rows: Vec<Value> = rows.into_iter().enumerate().map(|(index, (domain, prompt, label, options, tests, extra))| {
            json!({"query_id": format!("{index}"), "domain": domain, "prompt": prompt, "label": label, "options": options, "tests": tests, "extra": extra})
        }).chain([kept()]).collect();
        let read = rows.len() as u64;
        let once = select(json!({}), rows);
        prop_assert_eq!(once.read, read);
        prop_assert_eq!(once.kept + once.rejected.values().sum::<u64>(), read);
        let again = select(json!({}), once.rows().to_vec());
        prop_assert_eq!(again.rows(), once.rows());
    }
}
