//! Own work in megabytes of text per second of CPU time: view, repetition, contamination, on one thread.
//!
//! `cargo bench -p stage-text --bench speed [-- FILE]` measures a corpus made here (prose, formulas, code and Chinese
//! in documents of some 6 KB), or the documents of a file, one a line. Each figure is the best of five rounds, and CPU
//! time is what counts, so that a busy machine changes little.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints its figures")]

use std::fmt::Write as _;
use std::hint::black_box;

use stage_text::contamination::{ContaminationIndex, ContaminationRules, EvalItem};
use stage_text::repetition::{Finder, RepetitionRules};
use stage_text::{Symbols, ViewBuilder};

/// Bytes of the corpus.
const CORPUS: usize = 24_000_000;

/// Evaluation items.
const ITEMS: usize = 2_300;

fn main() {
    let path = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let documents: Vec<String> = match &path {
        None => corpus(),
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) => return eprintln!("read `{path}`: {error}"),
        },
    };
    let bytes: usize = documents.iter().map(String::len).sum();
    println!("{} documents, {:.1} MB", documents.len(), bytes as f64 / 1e6);
    for (name, symbols) in [("view", Symbols::Dropped), ("view with symbols", Symbols::Kept)] {
        let mut views = ViewBuilder::new(symbols);
        measure(name, bytes, || documents.iter().map(|text| views.build(text).len()).sum());
    }
    let rules = RepetitionRules::default();
    let mut finder = Finder::new(&rules);
    measure("repetition", bytes, || documents.iter().filter(|text| finder.find(text, None).is_some()).count());
    let mut writer = Writer(1);
    let items = (0..ITEMS).map(|id| EvalItem {
        set: (id % 4).to_string(),
        id: id.to_string(),
        question: writer.sentences(3),
        answer: None,
    });
    match ContaminationIndex::build(items.collect(), ContaminationRules::default()) {
        Err(error) => eprintln!("{error}"),
        Ok(index) => {
            println!("{:?}", index.counts());
            let mut searcher = index.searcher();
            measure("contamination", bytes, || {
                documents.iter().filter(|text| searcher.find(text).is_contaminated()).count()
            });
        }
    }
}

/// Prints the speed of the best of five rounds.
fn measure(name: &str, bytes: usize, mut round: impl FnMut() -> usize) {
    let mut best = f64::INFINITY;
    let mut found = 0;
    for _ in 0..5 {
        let before = cpu_seconds();
        found = black_box(round());
        best = best.min(cpu_seconds() - before);
    }
    println!("{name}: {:.0} MB per CPU-second ({found})", bytes as f64 / 1e6 / best);
}

/// CPU time of this thread, as Linux counts it.
fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

/// Makes texts from a stream of numbers.
struct Writer(u64);

const SYLLABLES: [&str; 24] = [
    "ar", "ben", "cor", "dal", "en", "for", "gi", "hel", "in", "ka", "lo", "men", "nor", "op", "per", "qui", "ran",
    "sol", "tu", "ur", "ve", "win", "xo", "yel",
];

impl Writer {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        usize::try_from(stage_text::ngram::mix(self.0) % end as u64).unwrap_or_default()
    }

    fn word(&mut self, text: &mut String) {
        for _ in 0..=self.below(3) {
            text.push_str(SYLLABLES[self.below(24)]);
        }
    }

    fn sentences(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str("The ");
            for _ in 0..8 + self.below(12) {
                self.word(&mut text);
                text.push_str(if self.below(9) == 0 { ", " } else { " " });
            }
            if self.below(3) == 0 {
                let (a, b, c) = (self.below(99), self.below(99), self.below(900));
                let _ = write!(text, "$\\frac{{{a}}}{{{b}}}x^2 + {c}y_{{1}}$");
            }
            text.push_str(". ");
        }
        text
    }

    fn code(&mut self, text: &mut String) {
        let (mut name, mut value) = (String::new(), String::new());
        self.word(&mut name);
        self.word(&mut value);
        let number = self.below(500);
        let _ = writeln!(
            text,
            "    for row in range({number}):\n        {name}_{value} = {value}[row] + {name}(row, {number})"
        );
    }

    fn chinese(&mut self, text: &mut String) {
        for _ in 0..12 + self.below(12) {
            text.extend(u32::try_from(0x4E00 + self.below(4000)).ok().and_then(char::from_u32));
        }
        text.push_str(if self.below(2) == 0 { "，" } else { "。" });
    }
}

fn corpus() -> Vec<String> {
    let mut writer = Writer(7);
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < CORPUS {
        let (length, kind) = (2_000 + writer.below(8_000), writer.below(10));
        let mut text = String::with_capacity(length + 400);
        while text.len() < length {
            match kind {
                0..=5 => {
                    text.push_str(&writer.sentences(5));
                    text.push('\n');
                }
                6 | 7 => writer.code(&mut text),
                _ => writer.chinese(&mut text),
            }
        }
        bytes += text.len();
        documents.push(text);
    }
    documents
}
