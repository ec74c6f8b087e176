//! Seconds of a step of fine-tuning, 1 x 512 and 4 x 512 tokens, all supervised, of a net shaped like SmolLM2-135M with random
//! weights.
//!
//! `cargo bench -p stage-train --bench step`, with `RAYON_NUM_THREADS=1` for one thread. Processor time is that of all
//! threads of this process, from `/proc/self/stat`, so that neighbours disturb little.
//! `tests/python/time_training_step.py` does the same with `torch`.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::error::Error;
use std::fs;
use std::time::Instant;

use stage_candle::{Architecture, Checkpointing, NetConfig, RopeScaling, TapedNet};
use stage_train::{Example, Micro, Options, Schedule, Trainer};

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LENGTH: usize = 512;
const ROUNDS: usize = 3;
/// Ticks of a second in `/proc/self/stat`, on every Linux.
const TICKS: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    let config = NetConfig {
        architecture: Architecture::Llama,
        vocabulary: 49_152,
        hidden: 576,
        intermediate: 1536,
        layers: 30,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        context: 8192,
        rope_theta: 100_000.0,
        rope_scaling: RopeScaling::None,
        rms_eps: 1e-5,
        tied: true,
        qkv_bias: false,
    };
    // the smaller memory first: its peak would not show behind the larger one
    for checkpointing in [Checkpointing::Layers, Checkpointing::None] {
        let net = TapedNet::random(config.clone(), 1)?;
        let options = Options { checkpointing, ..Options::default() };
        let mut trainer = Trainer::new(net, Schedule::new(1e-5, 1e-5, 0.0, 100)?, options)?;
        for documents in [1, 4] {
            time(&mut trainer, documents, checkpointing)?;
        }
    }
    Ok(())
}

fn time(trainer: &mut Trainer, documents: usize, checkpointing: Checkpointing) -> Result<(), Box<dyn Error>> {
    let example = |index: usize| Example {
        ids: (0..LENGTH).map(|i| u32::try_from((i * 7919 + index * 104_729) % 49_152).unwrap_or(0)).collect(),
        supervised: std::iter::once(1..LENGTH).collect(),
    };
    let examples: Vec<Example> = (0..documents).map(example).collect();
    let micro = [Micro::of(examples.iter().map(|example| ("row", example)))];
    for _ in 0..ROUNDS {
        let begin = processor_seconds()?;
        trainer.evaluate(&micro)?;
        let (wall, middle) = (Instant::now(), processor_seconds()?);
        let report = trainer.step(&micro)?;
        let (step, clock) = (processor_seconds()? - middle, wall.elapsed().as_secs_f64());
        println!(
            "{documents} x {LENGTH}, checkpointing {checkpointing:?}: step {step:.2} CPU-seconds, {clock:.2} s on the \
             clock, {:.0} tokens per CPU-second; a forward pass alone {:.2} CPU-seconds; loss {:.4}; peak {} MiB",
            report.tokens as f64 / step,
            middle - begin,
            report.loss,
            peak_mebibytes()?
        );
    }
    Ok(())
}

/// Processor time of all threads of this process.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("malformed")?.1;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS)
}

fn peak_mebibytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
    Ok(peak.trim().trim_end_matches(" kB").trim().parse::<u64>()? / 1024)
}
