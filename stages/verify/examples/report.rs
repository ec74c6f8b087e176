//! Judges the case sets of mathematics and prints confusion tables, misses and speeds as JSON.
//!
//! ```text
//! cargo run --release -p stage-verify --example report -- ../shared/cases [ROUNDS]
//! ```
//!
//! One line of JSON a set: `set`, `n`, `true_positive`, `false_positive`, `false_negative`,
//! `true_negative`, `per_cpu_second`, `p50_ms`, `p99_ms`, `max_ms`, and `misses`. The times are those of
//! the fastest of the rounds for each case, so that a neighbour on the machine is not measured; the
//! rate is that of the fastest whole round. `tests/tools/verification_report.py` runs this beside
//! math-verify.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a program for people")]

use serde_json::{Value, json};
use stage_verify::{Extraction, Judgement, math, stem};
use std::{fs, hint::black_box, path::PathBuf, time::Instant};

fn field<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or("")
}

/// The tolerance a case states.
fn tolerance(case: &Value) -> math::Tolerance {
    let stated = &case["opts"]["tolerance"];
    let absolute = stated.as_f64().or_else(|| stated.as_str().and_then(|text| text.parse().ok()));
    match (absolute, case["opts"]["precision"].as_u64()) {
        (Some(absolute), _) => math::Tolerance { absolute, relative: 0.0 },
        (None, Some(decimals)) => math::Tolerance::decimals(u32::try_from(decimals).unwrap_or(u32::MAX)),
        (None, None) => math::Tolerance::EXACT,
    }
}

fn judge(case: &Value, tolerance: math::Tolerance) -> Judgement {
    let (gold, answer) = (field(case, "gold"), field(case, "pred"));
    match field(case, "mode") {
        "answer" => math::equivalent_within(gold, answer, tolerance),
        "response" => math::verify_within(gold, answer, Extraction::Strict, tolerance),
        "option_letter" => stem::verify(gold, &["", "", "", "", ""], answer, Extraction::Lenient),
        _ => math::texts(gold, answer, tolerance),
    }
}

/// Processor time of this thread where the system tells it, else the time of day.
fn processor_seconds() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds
        .map_or_else(|| START.get_or_init(Instant::now).elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

fn report(set: &str, cases: &[Value], rounds: usize) -> Value {
    let tolerances: Vec<math::Tolerance> = cases.iter().map(tolerance).collect();
    let mut counts = [0usize; 4];
    let mut misses = Vec::new();
    for (case, tolerance) in cases.iter().zip(&tolerances) {
        let judgement = judge(case, *tolerance);
        let expected = case["expected"].as_bool().expect("a label");
        counts[usize::from(expected) * 2 + usize::from(judgement.is_correct())] += 1;
        if expected != judgement.is_correct() {
            misses.push(json!({
                "id": case["id"], "kind": case["kind"], "gold": case["gold"], "pred": case["pred"], "expected": expected,
                "verdict": judgement.verdict.as_str(), "reason": judgement.reason, "tier": judgement.tier,
            }));
        }
    }
    let mut best = vec![f64::INFINITY; cases.len()];
    let mut fastest = f64::INFINITY;
    for _ in 0..rounds {
        let start = processor_seconds();
        for ((case, tolerance), best) in cases.iter().zip(&tolerances).zip(&mut best) {
            let begin = Instant::now();
            black_box(judge(black_box(case), *tolerance));
            *best = best.min(begin.elapsed().as_secs_f64() * 1e3);
        }
        fastest = fastest.min(processor_seconds() - start);
    }
    best.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a short list")]
        let at = (share * best.len() as f64) as usize;
        best[at.min(best.len() - 1)]
    };
    json!({
        "set": set, "n": cases.len(), "true_negative": counts[0], "false_positive": counts[1], "false_negative": counts[2],
        "true_positive": counts[3], "per_cpu_second": cases.len() as f64 / fastest, "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99), "max_ms": quantile(1.0), "misses": misses,
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "../shared/cases".into()));
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let mut all = Vec::new();
    for set in ["math_variants", "math_equivalence"] {
        let text = fs::read_to_string(folder.join(format!("{set}.jsonl"))).expect("the folder of cases");
        let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a case a line")).collect();
        println!("{}", report(set, &cases, rounds));
        all.extend(cases);
    }
    println!("{}", report("both", &all, rounds));
}
