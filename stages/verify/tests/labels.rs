//! Gold answers of public sets held against themselves: each is correct, or is listed with its reason.

#![expect(clippy::print_stdout, reason = "faults of labels are listed")]

mod beside;

use serde_json::Value;
use stage_verify::{Extraction, Verdict, math, stem};
use std::collections::BTreeMap;

#[derive(Default)]
struct Faults {
    total: usize,
    listed: Vec<String>,
}

impl Faults {
    /// Holds a label against itself in a box, as a trace would say it.
    fn hold(&mut self, label: &str) {
        self.total += 1;
        let boxed = format!("So the answer is $\\boxed{{{label}}}$.");
        for (judgement, way) in
            [(math::equivalent(label, label), "itself"), (math::verify(label, &boxed, Extraction::Strict), "boxed")]
        {
            if judgement.verdict != Verdict::Correct {
                self.listed.push(format!("{label:?} {way}: {} {}", judgement.verdict.as_str(), judgement.reason));
                return;
            }
        }
    }

    fn choose(&mut self, label: &str, options: &[&str]) {
        self.total += 1;
        let trace = format!("The answer is ({label}).");
        let judgement = stem::verify(label, options, &trace, Extraction::Strict);
        if judgement.verdict != Verdict::Correct {
            self.listed.push(format!("{label:?} of {options:?}: {} {}", judgement.verdict.as_str(), judgement.reason));
        }
    }

    /// Prints the list and gives the share without fault.
    fn share(&self, set: &str) -> f64 {
        for fault in &self.listed {
            println!("{set}: {fault}");
        }
        let share = 1.0 - self.listed.len() as f64 / self.total.max(1) as f64;
        println!("{set}: {} of {} correct against themselves ({share:.4})", self.total - self.listed.len(), self.total);
        share
    }
}

fn field<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or("")
}

#[test]
fn competition_answers_equal_themselves() {
    let Some(text) = beside::text("data/math500/math500_test.json") else { return };
    let rows: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let mut faults = Faults::default();
    for row in &rows {
        faults.hold(field(row, "answer"));
    }
    assert!(faults.share("math500") >= 0.99);
}

#[test]
fn boxed_answers_of_solutions_equal_themselves() {
    let Some(rows) = beside::lines("data/math/test.jsonl") else { return };
    let mut faults = Faults::default();
    for row in &rows {
        let solution = field(row, "solution");
        let found = stage_verify::extract(solution, Extraction::Strict).expect("a box");
        faults.hold(&found.text);
    }
    assert!(faults.share("math") >= 0.99);
}

#[test]
fn school_answers_equal_themselves() {
    for (set, file, column) in
        [("gsm8k", "data/gsm8k/test.jsonl", "answer"), ("cmath", "data/cmath/cmath_dev.jsonl", "golden")]
    {
        let Some(rows) = beside::lines(file) else { return };
        let mut faults = Faults::default();
        for row in &rows {
            let stated = row[column].as_str().map_or_else(|| row[column].to_string(), str::to_string);
            faults.hold(stated.rsplit("#### ").next().unwrap_or("").trim());
        }
        assert!(faults.share(set) >= 0.999);
    }
}

#[test]
fn olympiad_answers_equal_themselves() {
    let Some(rows) = beside::lines("data/olympiadbench/test.jsonl") else { return };
    let mut types: BTreeMap<String, Faults> = BTreeMap::new();
    for row in &rows {
        let answers = row["final_answer"].as_array().cloned().unwrap_or_default();
        for answer in &answers {
            types.entry(field(row, "answer_type").to_string()).or_default().hold(answer.as_str().unwrap_or("").trim());
        }
    }
    for (kind, faults) in &types {
        let share = faults.share(&format!("olympiadbench {kind}"));
        if matches!(kind.as_str(), "Numerical" | "Expression") {
            assert!(share >= 0.99, "{kind}");
        }
    }
}

#[test]
fn option_letters_choose_themselves() {
    const LETTERS: [&str; 5] = ["A", "B", "C", "D", "E"];
    let Some(rows) = beside::lines("data/aqua/dev.json") else { return };
    let mut faults = Faults::default();
    for row in &rows {
        let options: Vec<&str> = row["options"].as_array().expect("options").iter().filter_map(Value::as_str).collect();
        faults.choose(field(row, "correct"), &options);
    }
    assert!(faults.share("aqua") >= 0.99);
    let Some(rows) = beside::lines("data/mmlu_stem/test.jsonl") else { return };
    let mut faults = Faults::default();
    for row in &rows {
        let options: Vec<&str> = row["choices"].as_array().expect("options").iter().filter_map(Value::as_str).collect();
        let index = row["answer"].as_u64().expect("an index");
        faults.choose(LETTERS[usize::try_from(index).expect("a small index")], &options);
    }
    assert!(faults.share("mmlu_stem") >= 0.99);
}

#[test]
fn science_answers_equal_themselves_with_their_units() {
    let mut faults = Faults::default();
    let books = ["atkins", "calculus", "chemmc", "diff", "fund", "matter", "stat", "thermo"];
    for name in books.iter().flat_map(|book| [(*book).to_string(), format!("{book}_sol")]) {
        let Some(text) = beside::text(&format!("data/scibench/{name}.json")) else { return };
        let rows: Vec<Value> = serde_json::from_str(&text).expect("a list");
        for row in &rows {
            let (number, unit) =
                (field(row, "answer_number").trim(), field(row, "unit").trim().trim_matches('$').trim());
            faults.hold(number);
            // some columns hold a power of ten that belongs to the number, or prose
            let measured = format!("{number} {unit}");
            let trace = format!("The answer is \\boxed{{{measured}}}.");
            for label in if unit.contains("10^") { vec![measured.as_str()] } else { vec![measured.as_str(), number] } {
                let judgement = stem::verify(label, &[], &trace, Extraction::Strict);
                faults.total += 1;
                if judgement.verdict != Verdict::Correct {
                    let verdict = judgement.verdict.as_str();
                    faults.listed.push(format!("{label:?} with its unit {measured:?}: {verdict} {}", judgement.reason));
                }
            }
        }
    }
    assert!(faults.share("scibench") >= 0.98);
}
