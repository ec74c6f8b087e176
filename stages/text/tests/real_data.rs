//! Claims over real sets and traces that stand beside the repository; skipped where that folder is absent.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "these are tests, and helpers outside test functions are not seen as such"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use stage_text::contamination::{ContaminationIndex, ContaminationRules, EvalItem};
use stage_text::repetition::{RepetitionRules, find};

/// A file of the shared data as JSON values; `None` with a printed reason where the folder is absent.
fn rows(path: &str) -> Option<Vec<Value>> {
    let shared = PathBuf::from("../../../shared");
    if !shared.is_dir() {
        println!("skipped: no folder `../shared` beside the repository");
        return None;
    }
    let text = fs::read_to_string(shared.join("data").join(path)).unwrap();
    Some(match serde_json::from_str::<Value>(&text) {
        Ok(Value::Array(rows)) => rows,
        _ => text
            .split('\n')
            .filter(|line| !line.trim().is_empty())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    })
}

fn text<'a>(row: &'a Value, column: &str) -> &'a str {
    row[column].as_str().unwrap_or_default()
}

fn index(set: &str, rows: &[Value], column: &str) -> ContaminationIndex {
    let items = rows.iter().enumerate().map(|(id, row)| EvalItem {
        set: set.to_owned(),
        id: id.to_string(),
        question: text(row, column).to_owned(),
        answer: None,
    });
    ContaminationIndex::build(items.collect(), ContaminationRules::default()).unwrap()
}

#[test]
fn every_math500_item_that_stands_in_math_is_found() {
    let (Some(eval), Some(train)) = (rows("math500/math500_test.json"), rows("math/test.jsonl")) else {
        return;
    };
    let index = index("math500", &eval, "problem");
    index.self_test().unwrap();
    println!("{:?}", index.counts());
    let verbatim: BTreeSet<&str> = train.iter().map(|row| text(row, "problem").trim()).collect();
    let expected: BTreeSet<String> = (0..eval.len())
        .filter(|id| verbatim.contains(text(&eval[*id], "problem").trim()))
        .map(|id| id.to_string())
        .collect();
    let (mut found, mut others, mut twins) = (BTreeSet::new(), 0, 0);
    let mut searcher = index.searcher();
    for row in &train {
        let document = text(row, "problem");
        let result = searcher.find(document);
        twins += usize::from(!result.twins.is_empty());
        for hit in result.hits {
            let item = text(&eval[hit.item_id.parse::<usize>().unwrap()], "problem");
            if item.trim() == document.trim() {
                found.insert(hit.item_id);
            } else {
                others += 1;
                println!("OTHER {:.2} {:?}\n  doc  {document}\n  item {item}", hit.score, hit.kind);
            }
        }
    }
    println!(
        "math: {} of {} verbatim items found, {others} other hits, {twins} rows with twins",
        found.len(),
        expected.len()
    );
    assert_eq!(found, expected);
    assert!(expected.len() == 397 && others <= 20, "{others}");
}

#[test]
fn gsm8k_train_and_test_hardly_overlap() {
    let (Some(eval), Some(train)) = (rows("gsm8k/test.jsonl"), rows("gsm8k/train.jsonl")) else {
        return;
    };
    let index = index("gsm8k", &eval, "question");
    let mut searcher = index.searcher();
    let (mut contaminated, mut twins) = (0, 0);
    for row in &train {
        let document = text(row, "question");
        let result = searcher.find(document);
        twins += usize::from(!result.twins.is_empty());
        if let Some(hit) = result.best() {
            contaminated += 1;
            let item = text(&eval[hit.item_id.parse::<usize>().unwrap()], "question");
            println!("HIT {:.2} {:?}\n  doc  {document}\n  item {item}", hit.score, hit.kind);
        }
        for hit in result.twins {
            println!(
                "TWIN {:.2}\n  doc  {document}\n  item {}",
                hit.score,
                text(&eval[hit.item_id.parse::<usize>().unwrap()], "question")
            );
        }
    }
    println!("gsm8k: {contaminated} of {} rows hit, {twins} rows with twins", train.len());
    assert!(contaminated <= 6, "{contaminated}");
}

#[test]
fn chinese_questions_are_indexed_and_found() {
    let Some(rows) = rows("cmath/cmath_dev.jsonl") else {
        return;
    };
    let index = index("cmath", &rows, "input");
    println!("{:?}", index.counts());
    assert_eq!(index.counts().empty, 0);
    index.self_test().unwrap();
    let mut searcher = index.searcher();
    for (id, row) in rows.iter().enumerate() {
        let document = format!("请回答下面的问题。\n{}\n谢谢。", text(row, "input"));
        let result = searcher.find(&document);
        let by_ngrams = stage_text::View::new(text(row, "input")).len() >= 10;
        let is_found = result
            .hits
            .iter()
            .any(|hit| text(&rows[hit.item_id.parse::<usize>().unwrap()], "input") == text(row, "input"));
        assert!(is_found || !by_ngrams, "{id}: {document}");
        for hit in result.hits.iter().filter(|hit| hit.item_id != id.to_string()) {
            println!(
                "OTHER {:.2}\n  {}\n  {}",
                hit.score,
                text(row, "input"),
                text(&rows[hit.item_id.parse::<usize>().unwrap()], "input")
            );
        }
    }
}

/// Rules that fired over many responses, each with its figure.
fn fired<'a>(
    responses: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> (usize, Vec<(&'static str, f64, &'a str)>) {
    let rules = RepetitionRules::default();
    let mut all = 0;
    let found = responses
        .filter_map(|(response, prompt)| {
            all += 1;
            find(response, prompt, &rules).map(|finding| (finding.rule, finding.figure, response))
        })
        .collect();
    (all, found)
}

#[test]
fn real_solutions_hardly_ever_repeat() {
    let (Some(math), Some(gsm8k), Some(solutions)) = (
        rows("traces-math-8x/math_cot_100.jsonl"),
        rows("traces-gsm8k-gpt3/example_model_solutions.jsonl"),
        rows("math/test.jsonl"),
    ) else {
        return;
    };
    let many = math.iter().flat_map(|row| {
        row["code"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(|code| (code, Some(text(row, "question"))))
    });
    let (all, found) = fired(many);
    println!("traces-math-8x: {} of {all}", found.len());
    for (rule, figure, response) in &found {
        println!("{rule} {figure:.2}\n{response}\n--------");
    }
    assert!(all >= 600 && found.len() * 100 <= all, "{} of {all}", found.len());

    let columns = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"];
    let many = gsm8k.iter().flat_map(|row| {
        columns.iter().filter_map(|column| {
            row[*column]["solution"].as_str().map(|solution| (solution, Some(text(row, "question"))))
        })
    });
    let (all, found) = fired(many);
    println!("traces-gsm8k-gpt3: {} of {all} {:?}", found.len(), found);
    assert!(all >= 4_000 && found.len() * 200 <= all, "{} of {all}", found.len());

    let (all, found) = fired(solutions.iter().map(|row| (text(row, "solution"), Some(text(row, "problem")))));
    println!("math solutions: {} of {all} {:?}", found.len(), found);
    assert!(found.len() * 200 <= all, "{} of {all}", found.len());
}
