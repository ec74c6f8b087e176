//! Throws mutated answers at every public door of the verifier of mathematics and of options, and measures it.
//!
//! ```text
//! cargo run --release -p stage-verify --example fuzz -- [COUNT] [SEED]
//! ```
//!
//! The strings are pieces of real notation, answers of the shared cases where they lie beside the
//! repository, and mutations of both: spliced, cut, doubled, nested, with bytes changed. Runs on a
//! thread with 2 MiB of stack, as a pool gives it. Ends with status 1 after a panic, an asymmetry, or a
//! verdict that is not the same twice.

#![expect(clippy::print_stdout, reason = "a program for people")]

#[path = "../tests/mutations/mod.rs"]
mod mutations;

use mutations::{Source, trial};
use stage_verify::math;
use std::{panic, process::ExitCode, thread, time::Instant};

fn run(count: u64, seed: u64) -> bool {
    let mut source = Source::new(seed);
    let mut times = vec![0u64; 64];
    let (mut worst, mut slowest) = (0.0, String::new());
    let mut sound = true;
    for index in 0..count {
        let (a, b) = source.pair();
        let begin = Instant::now();
        let verdict = panic::catch_unwind(|| math::equivalent(&a, &b));
        let elapsed = begin.elapsed().as_secs_f64() * 1e3;
        let outcome = verdict.and_then(|_| panic::catch_unwind(|| trial(&a, &b, index)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                println!("{fault}: {a:?} | {b:?}");
                sound = false;
            }
            Err(_) => {
                println!("panic: {a:?} | {b:?}");
                sound = false;
            }
        }
        if elapsed > worst {
            (worst, slowest) = (elapsed, format!("{a:.200?} | {b:.200?}"));
        }
        let microseconds = (elapsed * 1e3).max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm below 64")]
        let bucket = (microseconds.log2() * 2.0) as usize;
        times[bucket.min(63)] += 1;
    }
    let mut seen = 0;
    for (bucket, number) in times.iter().enumerate() {
        seen += number;
        if seen * 100 >= count * 99 {
            println!("99 % of the pairs take below {:.3} ms a verdict", ((bucket + 1) as f64 / 2.0).exp2() / 1e3);
            break;
        }
    }
    println!("{count} pairs, seed {seed}; the slowest took {worst:.3} ms a verdict: {slowest}");
    sound
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (count, seed) = (arguments.next().unwrap_or(100_000), arguments.next().unwrap_or(1));
    let work = thread::Builder::new().stack_size(2 << 20).spawn(move || run(count, seed));
    match work.map(thread::JoinHandle::join) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
