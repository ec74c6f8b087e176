//! Judges the case sets of mathematics, instructions and programs and prints confusion tables, misses and speeds as JSON.
//!
//! ```text
//! cargo run --release -p stage-verify --example report -- ../shared/cases [ROUNDS]
//! ```
//!
//! One line of JSON a set: `set`, `n`, `true_positive`, `false_positive`, `false_negative`,
//! `true_negative`, `per_cpu_second`, `p50_ms`, `p99_ms`, `max_ms`, and `misses`. The times are those of
//! the fastest of the rounds for each case, so that a neighbour on the machine is not measured; the
//! rate is that of the fastest whole round, or of all rounds where they are short. Programs are run once, in the sandbox, whose processes are not
//! among the processor time. `tests/tools/verification_report.py` runs this beside math-verify.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a program for people")]

use serde_json::{Value, json};
use stage_verify::code::{Judge, Ran, Tests, Toolchains};
use stage_verify::instruct::Constraint;
use stage_verify::sandbox::{Cgroups, Isolation, Launch, Sandbox, Settings, supervise_if_asked};
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

/// What was found of one case.
struct Found {
    /// Whether the answer is accepted.
    accepted: bool,
    /// Whether that is what the case expects.
    right: bool,
    /// What `misses` says of it.
    why: Value,
}

fn mathematics(case: &Value) -> Found {
    let judgement = judge(case, tolerance(case));
    let (accepted, expected) = (judgement.is_correct(), case["expected"].as_bool().expect("a label"));
    let why = json!({
        "id": case["id"], "kind": case["kind"], "gold": case["gold"], "pred": case["pred"], "expected": expected,
        "verdict": judgement.verdict.as_str(), "reason": judgement.reason, "tier": judgement.tier,
    });
    Found { accepted, right: accepted == expected, why }
}

fn instructions(case: &Value) -> Found {
    let expected = case["expected"].as_bool().expect("a label");
    let id = field(case, "instruction_id");
    let constraint = Constraint::parse(id, &case["kwargs"]).expect("a known constraint");
    let check = constraint.check(field(case, "response"));
    let why = json!({
        "id": case["id"], "kind": id, "gold": case["kwargs"].to_string(), "pred": case["response"], "expected": expected,
        "verdict": check.holds.to_string(), "reason": check.why,
    });
    Found { accepted: check.holds, right: check.holds == expected, why }
}

fn program(judge: &Judge<'_>, case: &Value) -> Found {
    let tests = Tests::parse(&case["tests"].to_string()).expect("tests");
    let report = judge.run(field(case, "language"), field(case, "program"), &tests).expect("the sandbox works");
    let found = report.overall.as_str();
    let right = case["expected_verdict"] == found
        || case["also_ok"].as_array().is_some_and(|also| also.contains(&found.into()));
    let why = json!({
        "id": case["id"], "kind": case["why"], "gold": case["expected_verdict"], "pred": case["program"],
        "expected": case["expected_verdict"], "verdict": found, "reason": report.detail,
    });
    Found { accepted: report.overall == Ran::Accepted, right, why }
}

fn report(set: &str, cases: &[Value], rounds: usize, judge: &dyn Fn(&Value) -> Found) -> Value {
    let mut counts = [0usize; 4];
    let mut misses = Vec::new();
    let mut best = vec![f64::INFINITY; cases.len()];
    let (mut fastest, mut total) = (f64::INFINITY, 0.0);
    for round in 0..rounds {
        let start = processor_seconds();
        for (case, best) in cases.iter().zip(&mut best) {
            let begin = Instant::now();
            let found = black_box(judge(black_box(case)));
            *best = best.min(begin.elapsed().as_secs_f64() * 1e3);
            if round == 0 {
                counts[usize::from(found.accepted) * 2 + usize::from(found.right)] += 1;
                if !found.right {
                    misses.push(found.why);
                }
            }
        }
        let spent = processor_seconds() - start;
        total += spent;
        fastest = fastest.min(spent);
    }
    // the system's clock of processor time is too coarse for one short round
    let seconds = if fastest < 0.01 { total / rounds as f64 } else { fastest };
    best.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a short list")]
        let at = (share * best.len() as f64) as usize;
        best[at.min(best.len() - 1)]
    };
    json!({
        "set": set, "n": cases.len(), "false_negative": counts[0], "true_negative": counts[1], "false_positive": counts[2],
        "true_positive": counts[3], "per_cpu_second": cases.len() as f64 / seconds, "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99), "max_ms": quantile(1.0), "misses": misses,
    })
}

fn main() {
    supervise_if_asked();
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "../shared/cases".into()));
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let cases = |set: &str| -> Vec<Value> {
        let text = fs::read_to_string(folder.join(format!("{set}.jsonl"))).expect("the folder of cases");
        text.lines().map(|line| serde_json::from_str(line).expect("a case a line")).collect()
    };
    let mut all = Vec::new();
    for set in ["math_variants", "math_equivalence"] {
        let cases = cases(set);
        println!("{}", report(set, &cases, rounds, &mathematics));
        all.extend(cases);
    }
    println!("{}", report("both", &all, rounds, &mathematics));
    println!("{}", report("ifeval", &cases("ifeval"), 100 * rounds, &instructions));
    let toolchains = Toolchains::found();
    let settings = Settings {
        launch: Launch::Itself,
        isolation: Isolation::Full,
        cgroups: Cgroups::Auto,
        roots: toolchains.roots(),
        workers: 1,
    };
    let sandbox = Sandbox::new(settings).expect("a sandbox");
    let judge = Judge::new(&sandbox, &toolchains);
    println!("{}", report("sandbox", &cases("sandbox"), 1, &|case| program(&judge, case)));
}
