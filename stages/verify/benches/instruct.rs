//! Checks of instruction constraints per second, one core, on the labelled cases beside the repository.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench stops at a case that cannot be read")]

use serde_json::Value;
use stage_verify::instruct::Constraint;
use std::path::PathBuf;

fn main() {
    divan::main();
}

type Case = (Constraint, String);

/// The cases of the groups that are asked for; none where the file is absent.
fn cases(is_asked: fn(&str) -> bool) -> Vec<Case> {
    #[expect(
        clippy::disallowed_methods,
        reason = "target folders outlive clones, so the path is asked for at run time"
    )]
    let root = std::env::var("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let Ok(text) = std::fs::read_to_string(root.join("../../../shared/cases/ifeval.jsonl")) else {
        println!("skipped: shared/cases/ifeval.jsonl is absent");
        return Vec::new();
    };
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let read = |row: Value| {
        let constraint = Constraint::parse(row["instruction_id"].as_str()?, &row["kwargs"]).ok()?;
        is_asked(constraint.id()).then(|| (constraint, row["response"].as_str().unwrap_or_default().to_owned()))
    };
    rows.filter_map(read).collect()
}

/// Kinds that tell the language of a response are apart: they alone look at every letter's frequency.
fn tells_language(id: &str) -> bool {
    id.starts_with("language:") || id.starts_with("change_case:english")
}

/// Kinds of IFEval, which has these groups and no others.
fn is_ifeval(id: &str) -> bool {
    let groups = ["keywords", "length_constraints", "detectable_content", "detectable_format"];
    let more = ["combination", "change_case", "startend", "punctuation", "language"];
    groups.iter().chain(&more).any(|group| id.split(':').next() == Some(*group))
}

fn run(bencher: divan::Bencher<'_, '_>, cases: &[Case]) {
    bencher.counter(divan::counter::ItemsCount::new(cases.len())).bench(|| {
        cases.iter().filter(|(constraint, response)| constraint.check(divan::black_box(response)).holds).count()
    });
}

/// One item is one check of a kind of IFEval that does not tell the language.
#[divan::bench]
fn ifeval(bencher: divan::Bencher<'_, '_>) {
    run(bencher, &cases(|id| is_ifeval(id) && !tells_language(id)));
}

/// One item is one check that tells the language.
#[divan::bench]
fn language(bencher: divan::Bencher<'_, '_>) {
    run(bencher, &cases(tells_language));
}

/// One item is one check of a kind of IFBench.
#[divan::bench]
fn ifbench(bencher: divan::Bencher<'_, '_>) {
    run(bencher, &cases(|id| !is_ifeval(id)));
}
