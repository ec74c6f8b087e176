//! Verifications per second on a mix of answers, one core.

use stage_verify::{Extraction, cluster, math, stem};

const PAIRS: &[(&str, &str)] = &[
    ("18", "18"),
    ("1,080", "1080"),
    ("\\frac{1}{2}", "0.5"),
    ("\\frac{14}{3}", "\\dfrac{14}{3}"),
    ("2\\sqrt{6}", "\\sqrt{24}"),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac{\\pi}{2})"),
    ("x^2+2x+1", "(x+1)^2"),
    ("[1,2)", "1\\le x<2"),
    ("1,3,9", "9,1,3"),
    ("\\text{Evelyn}", "Angela"),
    ("90^\\circ", "90"),
    ("42", "43"),
    ("28\\%", "0.28"),
    ("2x+4y=6", "x+2y-3=0"),
];

fn main() {
    divan::main();
}

/// One item is one comparison.
#[divan::bench(args = 0..PAIRS.len())]
fn compare(bencher: divan::Bencher, index: usize) {
    let (label, answer) = PAIRS[index];
    bencher
        .counter(divan::counter::ItemsCount::new(1usize))
        .bench(|| math::equivalent(divan::black_box(label), divan::black_box(answer)));
}

/// One item is one comparison of the mix.
#[divan::bench]
fn mix(bencher: divan::Bencher) {
    bencher.counter(divan::counter::ItemsCount::new(PAIRS.len())).bench(|| {
        PAIRS.iter().filter(|(label, answer)| math::equivalent(divan::black_box(label), answer).is_correct()).count()
    });
}

/// Whole traces of about 8 kB with a box at the end.
#[divan::bench]
fn whole_trace(bencher: divan::Bencher) {
    let trace = format!(
        "<think>{}</think>So the answer is \\boxed{{\\frac{{1}}{{2}}}}.",
        "We compute \\(x^2 = 4\\) and go on. ".repeat(240)
    );
    bencher
        .counter(divan::counter::ItemsCount::new(1usize))
        .bench(|| math::verify("0.5", divan::black_box(&trace), Extraction::Strict));
}

/// Option letters.
#[divan::bench]
fn options(bencher: divan::Bencher) {
    bencher.counter(divan::counter::ItemsCount::new(1usize)).bench(|| {
        stem::verify(
            "B",
            &["1 m", "2 m", "3 m", "4 m"],
            divan::black_box("Thus the answer is (B)."),
            Extraction::Strict,
        )
    });
}

/// Sixteen samples of one query.
#[divan::bench]
fn classes(bencher: divan::Bencher) {
    let answers = [
        "1/2",
        "0.5",
        "\\frac12",
        "3",
        "x=3",
        "\\frac{2}{4}",
        "7",
        "0.5",
        "1/2",
        "3",
        "2",
        "\\frac{1}{2}",
        "0.50",
        "4",
        "1/2",
        "1/3",
    ];
    bencher.counter(divan::counter::ItemsCount::new(answers.len())).bench(|| cluster(divan::black_box(&answers)));
}
