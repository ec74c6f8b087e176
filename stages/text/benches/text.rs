//! Speed of the hot paths: view, repetition, contamination look-up, shingles and sketches, banding.
//!
//! Run with `cargo bench -p stage-text --bench text`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::num::NonZeroUsize;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use stage_text::cluster::{Candidate, JoinRules, verify};
use stage_text::contamination::{ContaminationIndex, ContaminationRules, EvalItem};
use stage_text::lsh::{band_hashes, bands_for};
use stage_text::minhash::{DEFAULT_COMPONENTS, SketchMethod};
use stage_text::repetition::{RepetitionRules, find};
use stage_text::shingle::{Shingler, Shingling};
use stage_text::{Symbols, ViewBuilder};

fn main() {
    divan::main();
}

const NAMES: [&str; 8] = ["Anna", "Boris", "Chloe", "Dmitri", "Eva", "Farid", "Grace", "Hugo"];
const THINGS: [&str; 7] = ["apples", "pens", "boxes", "tickets", "marbles", "stamps", "books"];

/// A word problem of about thirty tokens; every seed another.
fn problem(seed: usize) -> String {
    let (name, thing) = (NAMES[seed % 8], THINGS[seed / 8 % 7]);
    let other = NAMES[(seed / 56 + 3) % 8];
    format!(
        "{name} has {} {thing} and buys {} more at ${}.50 each. {other} gives {name} $\\frac{{1}}{{{}}}$ of the rest. \
         How many {thing} does {name} have, and what did they cost?",
        seed % 97,
        seed % 31,
        seed % 13,
        seed % 7 + 2
    )
}

fn trace(problems: usize) -> String {
    (0..problems).fold(String::new(), |mut text, seed| {
        let _ = writeln!(text, "Step {seed}: {}", problem(seed * 31));
        text
    })
}

#[divan::bench(args = ["latin", "han"])]
fn view(bencher: Bencher<'_, '_>, script: &str) {
    let text = if script == "latin" {
        trace(200)
    } else {
        "妈妈带了30元，买了一条鱼，剩6元，这条鱼多少钱？".repeat(500)
    };
    let mut builder = ViewBuilder::new(Symbols::Dropped);
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| builder.build(black_box(&text)).len());
}

#[divan::bench]
fn repetition(bencher: Bencher<'_, '_>) {
    let (text, rules) = (trace(200), RepetitionRules::default());
    bencher.counter(BytesCount::of_str(&text)).bench(|| find(black_box(&text), None, &rules));
}

#[divan::bench]
fn contamination(bencher: Bencher<'_, '_>) {
    let items = (0..5_000).map(|seed| EvalItem {
        set: "bench".to_owned(),
        id: seed.to_string(),
        question: problem(seed),
        answer: None,
    });
    let Ok(index) = ContaminationIndex::build(items.collect(), ContaminationRules::default()) else {
        return;
    };
    let text = "The harbour was quiet, and 12 grey boats came back from the north with empty nets. ".repeat(200);
    let mut searcher = index.searcher();
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| searcher.find(black_box(&text)).hits.len());
}

const COMPONENTS: NonZeroUsize = match NonZeroUsize::new(DEFAULT_COMPONENTS) {
    Some(components) => components,
    None => NonZeroUsize::MIN,
};

#[divan::bench(args = [(1, "one_permutation"), (1, "super_min_hash"), (40, "one_permutation"), (40, "super_min_hash")])]
fn shingles_and_sketch(bencher: Bencher<'_, '_>, (problems, method): (usize, &str)) {
    let method = if method == "one_permutation" { SketchMethod::OnePermutation } else { SketchMethod::SuperMinHash };
    let text = trace(problems);
    let mut shingler = Shingler::new(Shingling::default(), Symbols::Operators, false);
    let mut sketcher = method.sketcher(COMPONENTS, 17);
    let mut sketch = Vec::new();
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| {
        sketcher.sketch(shingler.shingles(black_box(&text)).hashes, &mut sketch);
    });
}

#[divan::bench(args = [30, 1_000])]
fn sketch_alone(bencher: Bencher<'_, '_>, shingles: u64) {
    let hashes: Vec<u64> = (0..shingles).map(stage_text::ngram::mix).collect();
    let mut sketcher = SketchMethod::OnePermutation.sketcher(COMPONENTS, 17);
    let mut sketch = Vec::new();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| sketcher.sketch(black_box(&hashes), &mut sketch));
}

#[divan::bench]
fn bands(bencher: Bencher<'_, '_>) {
    let Ok(bands) = bands_for(0.8, DEFAULT_COMPONENTS) else {
        return;
    };
    let sketch: Vec<u64> = (0..DEFAULT_COMPONENTS as u64).collect();
    let mut hashes = Vec::new();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        hashes.clear();
        band_hashes(black_box(&sketch), bands, &mut hashes);
    });
}

#[divan::bench]
fn verification(bencher: Bencher<'_, '_>) {
    let texts = (0..200_u64).map(|text| Candidate {
        shingles: (text / 2 * 1_000..text / 2 * 1_000 + 1_000).collect(),
        ..Candidate::default()
    });
    let (texts, bucket) = (texts.collect::<Vec<_>>(), (0..200).collect::<Vec<u32>>());
    let rules = JoinRules { threshold: 0.8, keeps_number_twins: true };
    bencher
        .counter(ItemsCount::new(200_usize))
        .bench(|| verify(black_box(&texts), std::slice::from_ref(&bucket), rules).sets.len());
}
