//! Nets against `transformers` and `PyTorch`: logits, gradients, and the two ways through the decoder against each other.
//!
//! The fixtures are made by `tests/python/make_tiny_models.py`: a Llama in two shards, a Qwen2 with biases and a head of
//! its own, and two Llamas in 16 bits with scaled rotary positions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use stage_candle::{Forward, Net, PAGE, Span, Step, TapedNet};

const NETS: [&str; 4] = ["llama", "qwen2", "llama3-bf16", "linear-f16"];
const LENGTHS: [usize; 2] = [150, 37];

fn folder(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

struct Expected {
    tensors: HashMap<String, Tensor>,
    tokens: Vec<u32>,
}

impl Expected {
    fn of(name: &str) -> Self {
        let tensors = candle_core::safetensors::load(folder(name).join("expected.safetensors"), &Device::Cpu).unwrap();
        let tokens = tensors["tokens"].to_vec1::<i64>().unwrap();
        Self { tensors, tokens: tokens.into_iter().map(|token| u32::try_from(token).unwrap()).collect() }
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.tensors[name].flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Rows that have a next token in their document, with it.
    fn targets(&self) -> Vec<(usize, u32)> {
        let ends = [LENGTHS[0] - 1, LENGTHS[0] + LENGTHS[1] - 1];
        (0..self.tokens.len()).filter(|row| !ends.contains(row)).map(|row| (row, self.tokens[row + 1])).collect()
    }
}

fn with_step<T>(net: &Net, tokens: &[u32], run: impl FnOnce(&Step<'_>, &mut stage_candle::Cache) -> T) -> T {
    let counts = LENGTHS.map(|length| length.div_ceil(PAGE));
    let pages: Vec<u32> = (0..u32::try_from(counts[0] + counts[1]).unwrap()).rev().collect();
    let (first, second) = pages.split_at(counts[0]);
    let spans = [Span { rows: LENGTHS[0], start: 0, pages: first }, Span { rows: LENGTHS[1], start: 0, pages: second }];
    let mut cache = net.cache(pages.len()).unwrap();
    run(&Step { tokens, spans: &spans }, &mut cache)
}

fn largest_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).fold(0.0, |largest, (ours, theirs)| largest.max((ours - theirs).abs()))
}

fn mean_loss(net: &TapedNet, expected: &Expected) -> Tensor {
    let (rows, targets): (Vec<u32>, Vec<u32>) =
        expected.targets().into_iter().map(|(row, target)| (u32::try_from(row).unwrap(), target)).unzip();
    let hidden = net.rows(&expected.tokens, &LENGTHS).unwrap();
    let hidden = hidden.index_select(&Tensor::new(rows, &Device::Cpu).unwrap(), 0).unwrap();
    net.log_probs(&hidden, &targets).unwrap().mean_all().unwrap().neg().unwrap()
}

#[test]
fn logits_are_those_of_transformers() {
    for name in NETS {
        let (net, expected) = (Net::load(&folder(name)).unwrap(), Expected::of(name));
        let every_third: Vec<usize> = (0..expected.tokens.len()).step_by(3).collect();
        let mut logits = Vec::new();
        with_step(&net, &expected.tokens, |step, cache| net.forward(step, cache, &every_third, &mut logits).unwrap());
        let difference = largest_difference(&logits, &expected.values("logits"));
        println!("{name}: largest difference of logits {difference:.2e}");
        assert!(difference < 1e-4, "{name}: {difference}");
    }
}

#[test]
fn differentiable_logits_are_bit_equal_to_those_of_decoding() {
    for name in NETS {
        let (net, taped, expected) =
            (Net::load(&folder(name)).unwrap(), TapedNet::load(&folder(name)).unwrap(), Expected::of(name));
        let all: Vec<usize> = (0..expected.tokens.len()).collect();
        let (mut logits, mut log_probs) = (Vec::new(), Vec::new());
        with_step(&net, &expected.tokens, |step, cache| net.forward(step, cache, &all, &mut logits).unwrap());
        let rows = taped.rows(&expected.tokens, &LENGTHS).unwrap();
        let ours: Vec<f32> = taped.logits(&rows).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert!(ours == logits, "{name}: {}", largest_difference(&ours, &logits));
        let wanted: Vec<(usize, u32)> = all.iter().map(|row| (*row, expected.tokens[*row])).collect();
        with_step(&net, &expected.tokens, |step, cache| net.log_probs(step, cache, &wanted, &mut log_probs).unwrap());
        let ours: Vec<f32> = taped.log_probs(&rows, &expected.tokens).unwrap().to_vec1().unwrap();
        assert!(ours == log_probs, "{name}: {}", largest_difference(&ours, &log_probs));
    }
}

#[test]
fn gradients_are_those_of_pytorch() {
    for name in ["llama", "qwen2"] {
        let (net, expected) = (TapedNet::load(&folder(name)).unwrap(), Expected::of(name));
        let grads = mean_loss(&net, &expected).backward().unwrap();
        let (mut worst, mut compared) = (0.0_f32, 0);
        for key in expected.tensors.keys().filter_map(|key| key.strip_prefix("grad.")) {
            let theirs = expected.values(&format!("grad.{key}"));
            let ours: Vec<f32> = grads.get(&net.variables()[key]).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let scale = theirs.iter().fold(0.0_f32, |scale, grad| scale.max(grad.abs()));
            let relative = largest_difference(&ours, &theirs) / scale;
            assert!(relative < 5e-6, "{name}, {key}: {relative}");
            worst = worst.max(relative);
            compared += 1;
        }
        println!("{name}: largest relative difference {worst:.2e} over {compared} tensors");
        assert!(compared > 8, "{compared}");
    }
}

#[test]
fn every_variable_has_a_gradient_and_nothing_else_has() {
    for name in NETS {
        let (net, expected) = (TapedNet::load(&folder(name)).unwrap(), Expected::of(name));
        let grads = mean_loss(&net, &expected).backward().unwrap();
        for (key, variable) in net.variables() {
            let grad = grads.get(variable).unwrap_or_else(|| panic!("{name}, {key}: no gradient"));
            let largest = grad.abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
            assert!(largest > 0.0 && largest.is_finite(), "{name}, {key}: {largest}");
        }
        let known: Vec<_> = net.variables().values().map(|variable| variable.id()).collect();
        let stale = grads.get_ids().filter(|id| !known.contains(id)).count();
        assert_eq!(stale, 0, "{name}");
    }
}

#[test]
fn packed_variables_are_the_loaded_net() {
    let (net, taped) =
        (Net::load(&folder("qwen2")).unwrap(), TapedNet::load(&folder("qwen2")).unwrap().pack().unwrap());
    let tokens = Expected::of("qwen2").tokens;
    let mut logits = [Vec::new(), Vec::new()];
    for (net, logits) in [net, taped].iter().zip(&mut logits) {
        with_step(net, &tokens, |step, cache| net.forward(step, cache, &[149, 186], logits).unwrap());
    }
    assert_eq!(logits[0], logits[1]);
}
