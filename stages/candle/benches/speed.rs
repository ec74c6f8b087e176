//! Tokens per CPU-second of one thread: decoding at batch 1 and 8 (prompt 64, 48 new tokens), scoring 1 and 4 x 512.
//!
//! `cargo bench -p stage-candle --bench speed`. The net is the sample model's GGUF file
//! (`datasets/quickstart/fetch_model.sh`), or `MODEL` of `cargo bench -p stage-candle --bench speed -- MODEL`. Time is the
//! thread's own on the processor, from `/proc/thread-self/schedstat`, so that neighbours disturb little.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints what it measures")]

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use stage_candle::{Forward, Net, PAGE, Span, Step};

const ROUNDS: usize = 3;
const PROMPT: usize = 64;
const NEW: usize = 48;
const SCORED: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = model() else {
        eprintln!("nothing to measure: fetch the sample model first, bash datasets/quickstart/fetch_model.sh");
        return Ok(());
    };
    let start = processor_seconds()?;
    let net = Net::load(&path)?;
    println!("load: {:.2} s of this thread", processor_seconds()? - start);
    for _ in 0..ROUNDS {
        for batch in [1, 8] {
            decode(&net, batch)?;
        }
        for batch in [1, 4] {
            score(&net, batch)?;
        }
    }
    Ok(())
}

/// The model that is named, or the sample model where it is cached.
fn model() -> Option<PathBuf> {
    if let Some(named) = env::args().skip(1).find(|argument| !argument.starts_with("--")) {
        return Some(PathBuf::from(named));
    }
    let cached = env::home_dir()?.join(".cache/pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    cached.exists().then_some(cached)
}

fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let report = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = report.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}

/// Tokens that look random.
fn tokens(net: &Net, count: usize) -> Vec<u32> {
    let vocabulary = u32::try_from(net.vocabulary()).unwrap_or(u32::MAX);
    (0_u32..).map(|index| index.wrapping_mul(7919) % vocabulary).take(count).collect()
}

/// Page tables of `batch` sequences of `length` tokens.
fn tables(batch: usize, length: usize) -> Vec<Vec<u32>> {
    let pages = length.div_ceil(PAGE);
    let all: Vec<u32> = (0_u32..).take(batch * pages).collect();
    all.chunks(pages).map(<[u32]>::to_vec).collect()
}

fn decode(net: &Net, batch: usize) -> Result<(), Box<dyn Error>> {
    let tables = tables(batch, PROMPT + NEW);
    let spans = |rows, start| tables.iter().map(move |pages| Span { rows, start, pages }).collect::<Vec<_>>();
    let mut cache = net.cache(batch * tables[0].len())?;
    let mut logits = Vec::new();
    let begin = processor_seconds()?;
    let last: Vec<usize> = (0..batch).map(|index| (index + 1) * PROMPT - 1).collect();
    let step = Step { tokens: &tokens(net, batch * PROMPT), spans: &spans(PROMPT, 0) };
    net.forward(&step, &mut cache, &last, &mut logits)?;
    let prefilled = processor_seconds()?;
    let rows: Vec<usize> = (0..batch).collect();
    for index in 0..NEW {
        let best = logits.chunks_exact(net.vocabulary()).map(|logits| {
            let best = (0_u32..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1));
            best.map_or(0, |(token, _)| token)
        });
        let step = Step { tokens: &best.collect::<Vec<_>>(), spans: &spans(1, PROMPT + index) };
        net.forward(&step, &mut cache, &rows, &mut logits)?;
    }
    let end = processor_seconds()?;
    let rate = |count: usize, seconds: f64| count as f64 / seconds;
    println!(
        "decode at batch {batch}: {:.1} tokens per CPU-second, with the prompt {:.1}; prompts {:.1}",
        rate(batch * NEW, end - prefilled),
        rate(batch * NEW, end - begin),
        rate(batch * PROMPT, prefilled - begin)
    );
    Ok(())
}

fn score(net: &Net, batch: usize) -> Result<(), Box<dyn Error>> {
    let tables = tables(batch, SCORED);
    let spans: Vec<_> = tables.iter().map(|pages| Span { rows: SCORED, start: 0, pages }).collect();
    let mut cache = net.cache(batch * tables[0].len())?;
    let tokens = tokens(net, batch * SCORED);
    let wanted: Vec<(usize, u32)> = tokens.iter().copied().enumerate().collect();
    let mut log_probs = Vec::new();
    let begin = processor_seconds()?;
    net.log_probs(&Step { tokens: &tokens, spans: &spans }, &mut cache, &wanted, &mut log_probs)?;
    let rate = (batch * SCORED) as f64 / (processor_seconds()? - begin);
    println!("score {batch} x {SCORED}: {rate:.1} tokens per CPU-second");
    Ok(())
}
