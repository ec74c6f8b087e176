//! Checks of instruction constraints per second on one core, over the shared cases or own samples.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and looks for the cases at run time"
)]

use divan::{Bencher, counter::ItemsCount};
use serde_json::{Value, json};
use stage_verify::instruct::{Constraint, Resource, Scoring, checks};
use std::{fs, path::PathBuf, time::Instant};

/// A constraint and a response to it.
type Pair = (Constraint, String);

fn main() {
    let pairs = pairs(is_plain);
    let bytes: usize = pairs.iter().map(|(_, response)| response.len()).sum();
    let started = Instant::now();
    let mut done = 0_u32;
    while started.elapsed().as_secs_f64() < 1.0 {
        for (constraint, response) in &pairs {
            divan::black_box(constraint.check(divan::black_box(response)));
            done += 1;
        }
    }
    let rate = f64::from(done) / started.elapsed().as_secs_f64();
    println!(
        "{} pairs without language detection, {} bytes a response: {rate:.0} checks a second",
        pairs.len(),
        bytes / pairs.len().max(1)
    );
    divan::main();
}

/// Kinds that tell the language of a response are apart: they look at every word of it.
fn is_plain(constraint: &Constraint) -> bool {
    !constraint.kind().uses.contains(&Resource::LanguageDetection)
}

fn is_ifeval(constraint: &Constraint) -> bool {
    let groups = ["change_case", "combination", "detectable_", "keywords", "length_", "punctuation", "startend"];
    is_plain(constraint) && groups.iter().any(|group| constraint.id().starts_with(group))
}

/// The shared cases of the kinds that are asked for, else own samples.
fn pairs(is_asked: fn(&Constraint) -> bool) -> Vec<Pair> {
    let root = std::env::var("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let text = fs::read_to_string(root.join("../../../shared/cases/ifeval.jsonl")).unwrap_or_else(|_| {
        println!("the shared cases are absent: own samples");
        own().iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    });
    let cases = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let pair = |case: Value| Some((read(&case)?, case["response"].as_str()?.to_owned()));
    cases.filter_map(pair).filter(|(constraint, _)| is_asked(constraint)).collect()
}

/// A response of about two kilobytes.
fn letter() -> String {
    "Dear [name],\n\n* The U.S. team met at 5 p.m. on Jan. 3. \"It went well,\" said Dr. Smith.\n".repeat(24)
}

fn own() -> Vec<Value> {
    let case = |id: &str, kwargs: Value| json!({"instruction_id": id, "kwargs": kwargs, "response": letter()});
    vec![
        case("length_constraints:number_words", json!({"num_words": 100, "relation": "at least"})),
        case("length_constraints:number_sentences", json!({"num_sentences": 10, "relation": "at least"})),
        case("change_case:capital_word_frequency", json!({"capital_frequency": 10, "capital_relation": "at least"})),
        case("keywords:forbidden_words", json!({"forbidden_words": ["losing", "cost"]})),
        case("detectable_format:number_bullet_lists", json!({"num_bullets": 24})),
        case("punctuation:no_comma", json!({})),
    ]
}

fn check_all(bencher: Bencher<'_, '_>, is_asked: fn(&Constraint) -> bool) {
    let pairs = pairs(is_asked);
    bencher.counter(ItemsCount::new(pairs.len())).bench(|| {
        pairs.iter().filter(|(constraint, response)| constraint.check(divan::black_box(response)).holds).count()
    });
}

/// One item is one check of a kind of IFEval that does not tell the language.
#[divan::bench]
fn ifeval(bencher: Bencher<'_, '_>) {
    check_all(bencher, is_ifeval);
}

/// One item is one check that tells the language.
#[divan::bench]
fn language(bencher: Bencher<'_, '_>) {
    check_all(bencher, |constraint| !is_plain(constraint));
}

/// One item is one check of a kind of IFBench.
#[divan::bench]
fn ifbench(bencher: Bencher<'_, '_>) {
    check_all(bencher, |constraint| is_plain(constraint) && !is_ifeval(constraint));
}

/// One item is one check of a letter of two kilobytes, kind by kind.
#[divan::bench(args = 0..6)]
fn letter_of_two_kilobytes(bencher: Bencher, index: usize) {
    let case = own().remove(index);
    let (response, id) = (letter(), case["instruction_id"].as_str().unwrap_or_default().to_owned());
    if let Ok(constraint) = Constraint::parse(&id, &case["kwargs"]) {
        bencher.counter(ItemsCount::new(1_usize)).bench(|| constraint.check(divan::black_box(&response)).holds);
    }
}

/// One item is one of six checks of one letter, which share its views.
#[divan::bench(args = [Scoring::Strict, Scoring::Loose])]
fn six_constraints(bencher: Bencher, scoring: Scoring) {
    let constraints: Vec<Constraint> = own().iter().filter_map(read).collect();
    let response = letter();
    bencher.counter(ItemsCount::new(constraints.len())).bench(|| {
        checks(&constraints, divan::black_box(&response), scoring).iter().filter(|check| check.holds).count()
    });
}

fn read(case: &Value) -> Option<Constraint> {
    Constraint::parse(case["instruction_id"].as_str()?, &case["kwargs"]).ok()
}
