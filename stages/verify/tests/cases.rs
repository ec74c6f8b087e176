//! Levels reached on the shared cases: precision first, then recall.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "levels are printed, and a broken case file must stop the test"
)]

mod beside;

use serde_json::Value;
use stage_verify::{Extraction, Judgement, math, stem};
use std::collections::BTreeMap;

fn cases(name: &str) -> Option<Vec<Value>> {
    beside::lines(&format!("cases/{name}"))
}

fn field<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or("")
}

/// The tolerance a case states.
fn tolerance(case: &Value) -> math::Tolerance {
    let stated = &case["opts"]["tolerance"];
    let absolute = stated.as_f64().or_else(|| stated.as_str().and_then(|text| text.parse().ok()));
    match (absolute, case["opts"]["precision"].as_u64()) {
        (Some(absolute), _) => math::Tolerance { absolute, relative: 0.0 },
        (None, Some(decimals)) => math::Tolerance::decimals(u32::try_from(decimals).expect("few decimals")),
        (None, None) => math::Tolerance::EXACT,
    }
}

fn judge(case: &Value) -> Judgement {
    let (gold, pred) = (field(case, "gold"), field(case, "pred"));
    match field(case, "mode") {
        "answer" => math::equivalent_within(gold, pred, tolerance(case)),
        "response" => math::verify_within(gold, pred, Extraction::Strict, tolerance(case)),
        "option_letter" => stem::verify(gold, &["", "", "", "", ""], pred, Extraction::Lenient),
        _ => math::texts(gold, pred, tolerance(case)),
    }
}

#[derive(Default)]
struct Level {
    true_positive: usize,
    false_positive: usize,
    false_negative: usize,
    true_negative: usize,
}

impl Level {
    fn accuracy(&self) -> f64 {
        (self.true_positive + self.true_negative) as f64 / self.total() as f64
    }
    fn precision(&self) -> f64 {
        self.true_positive as f64 / (self.true_positive + self.false_positive).max(1) as f64
    }
    fn recall(&self) -> f64 {
        self.true_positive as f64 / (self.true_positive + self.false_negative).max(1) as f64
    }
    fn total(&self) -> usize {
        self.true_positive + self.false_positive + self.false_negative + self.true_negative
    }
}

fn level(cases: &[Value]) -> Level {
    let mut level = Level::default();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases {
        let judgement = judge(case);
        let expected = case["expected"].as_bool().expect("a label");
        let slot = match (expected, judgement.is_correct()) {
            (true, true) => &mut level.true_positive,
            (false, true) => &mut level.false_positive,
            (true, false) => &mut level.false_negative,
            (false, false) => &mut level.true_negative,
        };
        *slot += 1;
        if expected != judgement.is_correct() {
            *kinds.entry(field(case, "kind").to_string()).or_default() += 1;
            let pred: String = field(case, "pred").chars().rev().take(110).collect::<String>().chars().rev().collect();
            println!(
                "{} {expected} {} {:?} [{} {} {}] {:?} | {:?} -> {:?}",
                field(case, "id"),
                field(case, "kind"),
                field(case, "mode"),
                judgement.verdict.as_str(),
                judgement.reason,
                judgement.tier,
                field(case, "gold").chars().take(90).collect::<String>(),
                pred,
                judgement.answer
            );
        }
    }
    println!(
        "accuracy {:.4} precision {:.4} recall {:.4} of {} (misses {kinds:?})",
        level.accuracy(),
        level.precision(),
        level.recall(),
        level.total()
    );
    level
}

#[test]
fn mechanical_variants_are_told_apart() {
    let Some(cases) = cases("math_variants.jsonl") else {
        return;
    };
    let level = level(&cases);
    assert!(level.precision() >= 0.998, "precision {:.4}", level.precision());
    assert!(level.recall() >= 0.99, "recall {:.4}", level.recall());
}

#[test]
fn reported_equivalences_are_met() {
    let Some(cases) = cases("math_equivalence.jsonl") else {
        return;
    };
    let level = level(&cases);
    assert!(level.accuracy() >= 0.99, "accuracy {:.4}", level.accuracy());
    assert!(level.false_positive == 0, "{} false positives", level.false_positive);
}

#[test]
fn the_comparison_is_symmetric_on_every_case() {
    for name in ["math_variants.jsonl", "math_equivalence.jsonl"] {
        let Some(cases) = cases(name) else { return };
        for case in cases.iter().filter(|case| field(case, "mode") == "answer") {
            let (gold, pred) = (field(case, "gold"), field(case, "pred"));
            let (there, back) = (math::equivalent(gold, pred), math::equivalent(pred, gold));
            assert_eq!(there.is_correct(), back.is_correct(), "{gold} | {pred}: {there:?} {back:?}");
        }
    }
}
