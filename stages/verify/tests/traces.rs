//! Verdicts on recorded traces against the ones recorded beside them.

#![expect(clippy::print_stdout, reason = "levels are printed")]

mod beside;

use serde_json::Value;
use stage_verify::{Extraction, Verdict, math};
use std::collections::BTreeMap;

fn rows(name: &str) -> Option<Vec<Value>> {
    beside::lines(&format!("data/{name}"))
}

#[derive(Default)]
struct Agreement {
    same: usize,
    total: usize,
    kinds: BTreeMap<String, usize>,
}

impl Agreement {
    fn add(&mut self, recorded: bool, label: &str, trace: &str) {
        let judgement = math::verify(label, trace, Extraction::Strict);
        self.total += 1;
        if recorded == judgement.is_correct() {
            self.same += 1;
            return;
        }
        let kind = format!("recorded {recorded}, found {}", judgement.verdict.as_str());
        println!(
            "{kind} [{}]: label {label:?} answer {:?} end {:?}",
            judgement.reason,
            judgement.answer,
            trace.chars().rev().take(60).collect::<String>().chars().rev().collect::<String>()
        );
        *self.kinds.entry(kind).or_default() += 1;
    }

    fn share(&self) -> f64 {
        println!("{} of {} agree; {:?}", self.same, self.total, self.kinds);
        self.same as f64 / self.total as f64
    }
}

#[test]
fn eight_samples_a_problem_agree_with_their_scores() {
    let Some(rows) = rows("traces-math-8x/math_cot_100.jsonl") else {
        return;
    };
    let (mut by_answer, mut by_gold) = (Agreement::default(), Agreement::default());
    for row in &rows {
        let (codes, scores) = (row["code"].as_array().expect("samples"), row["score"].as_array().expect("scores"));
        for (trace, score) in codes.iter().zip(scores) {
            let (trace, score) = (trace.as_str().unwrap_or(""), score.as_bool().unwrap_or(false));
            by_answer.add(score, row["answer"].as_str().unwrap_or(""), trace);
            by_gold.add(score, row["gt"].as_str().unwrap_or(""), trace);
        }
    }
    assert!(by_answer.share() >= 0.95);
    assert!(by_gold.share() >= 0.95);
}

#[test]
fn final_lines_of_school_problems_agree_with_the_recorded_marks() {
    let Some(rows) = rows("traces-gsm8k-gpt3/example_model_solutions.jsonl") else {
        return;
    };
    let mut agreement = Agreement::default();
    for row in &rows {
        let truth = row["ground_truth"].as_str().unwrap_or("");
        let label = truth.rsplit("A: ").next().unwrap_or("").trim();
        for model in ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"] {
            let recorded = row[model]["is_correct"].as_bool().unwrap_or(false);
            agreement.add(recorded, label, row[model]["solution"].as_str().unwrap_or(""));
        }
    }
    assert!(agreement.share() >= 0.95);
}

#[test]
fn recorded_answer_pairs_are_all_judged() {
    let Some(text) = beside::text("data/math-answer-pairs/math500_qwen3_answers.json") else {
        return;
    };
    let pairs: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for pair in &pairs {
        let (label, answer) = (pair["answer"].as_str().unwrap_or(""), pair["prediction"].as_str().unwrap_or(""));
        let judgement = math::verify(label, answer, Extraction::Strict);
        *counts.entry(judgement.verdict.as_str()).or_default() += 1;
        if !matches!(judgement.verdict, Verdict::Correct | Verdict::Incorrect) {
            println!("{} [{}]: {label:?} {answer:?}", judgement.verdict.as_str(), judgement.reason);
        }
    }
    println!("{counts:?}");
    assert_eq!(counts.get("label_unparsable"), None);
    assert!(counts.get("undecided").copied().unwrap_or(0) * 50 <= pairs.len());
}
