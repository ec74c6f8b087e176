//! Nets against `transformers` and `PyTorch`: logits, gradients, and the two ways through the decoder against each other.
//!
//! The fixtures are made by `tests/python/make_tiny_models.py`: a Llama in two shards, a Qwen2 with biases and a head of
//! its own, and two Llamas in 16 bits with scaled rotary positions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use stage_candle::{Batch, Checkpointing, Forward, Gradients, Net, PAGE, Readings, Span, Step, TapedNet, Target};

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

/// The batch whose loss is the mean that the fixtures have gradients of.
fn mean_batch(expected: &Expected) -> Batch {
    let targets = expected.targets();
    let weight = 1.0 / targets.len() as f32;
    let targets = targets.into_iter().map(|(row, token)| Target { row, token, weight });
    Batch { tokens: expected.tokens.clone(), documents: LENGTHS.to_vec(), targets: targets.collect() }
}

fn gradients(net: &TapedNet, batch: &Batch, checkpointing: Checkpointing) -> (Gradients, Readings) {
    let mut gradients = Gradients::zeros(net);
    let readings = net.backward(batch, checkpointing, &mut gradients).unwrap();
    (gradients, readings)
}

/// Largest difference over the largest of `theirs`.
fn relative_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    let scale = theirs.iter().fold(0.0_f32, |scale, value| scale.max(value.abs()));
    largest_difference(ours, theirs) / scale
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
            let relative = relative_difference(&ours, &theirs);
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
fn gradients_layer_by_layer_are_those_of_pytorch_and_of_one_graph() {
    for name in NETS {
        let (net, expected) = (TapedNet::load(&folder(name)).unwrap(), Expected::of(name));
        let loss = mean_loss(&net, &expected);
        let graph = loss.backward().unwrap();
        let (kept, readings) = gradients(&net, &mean_batch(&expected), Checkpointing::None);
        let (again, _) = gradients(&net, &mean_batch(&expected), Checkpointing::Layers);
        assert_eq!(kept, again, "{name}: what is computed again differs");
        let off = readings.loss - f64::from(loss.to_scalar::<f32>().unwrap());
        assert!(off.abs() < 1e-5, "{name}: the loss differs by {off}");
        let (mut to_graph, mut to_pytorch) = (0.0_f32, 0.0_f32);
        for (key, ours) in kept.iter() {
            let whole: Vec<f32> = graph.get(&net.variables()[key]).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            to_graph = to_graph.max(relative_difference(ours, &whole));
            let key = format!("grad.{key}");
            if expected.tensors.contains_key(&key) {
                to_pytorch = to_pytorch.max(relative_difference(ours, &expected.values(&key)));
            }
        }
        println!("{name}: largest relative difference to one graph {to_graph:.2e}, to PyTorch {to_pytorch:.2e}");
        assert!(to_graph < 1e-6 && to_pytorch < 5e-6, "{name}: {to_graph} {to_pytorch}");
    }
}

#[test]
fn every_variable_has_a_gradient_in_every_mode() {
    for name in NETS {
        let (net, expected) = (TapedNet::load(&folder(name)).unwrap(), Expected::of(name));
        for mode in [Checkpointing::None, Checkpointing::Layers] {
            let (gradients, _) = gradients(&net, &mean_batch(&expected), mode);
            assert_eq!(gradients.iter().count(), net.variables().len());
            for (key, gradient) in gradients.iter() {
                let largest = gradient.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                assert!(largest > 0.0 && gradient.iter().all(|value| value.is_finite()), "{name}, {key}: {largest}");
            }
        }
    }
}

#[test]
fn gradients_are_the_same_bits_for_any_number_of_threads() {
    let (net, expected) = (TapedNet::load(&folder("qwen2")).unwrap(), Expected::of("qwen2"));
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| gradients(&net, &mean_batch(&expected), Checkpointing::Layers))
    };
    let (alone, readings) = with_threads(1);
    for threads in [2, 3, 7] {
        let (gradients, other) = with_threads(threads);
        assert!(gradients == alone && other == readings, "{threads} threads");
        assert_eq!(gradients.norm().to_bits(), alone.norm().to_bits());
    }
}

#[test]
fn gradients_are_added_to_what_is_there() {
    let (net, expected) = (TapedNet::load(&folder("llama")).unwrap(), Expected::of("llama"));
    let (once, _) = gradients(&net, &mean_batch(&expected), Checkpointing::Layers);
    let mut twice = once.clone();
    net.backward(&mean_batch(&expected), Checkpointing::Layers, &mut twice).unwrap();
    for ((key, once), (_, twice)) in once.iter().zip(twice.iter()) {
        let doubled: Vec<f32> = once.iter().map(|value| 2.0 * value).collect();
        assert!(relative_difference(twice, &doubled) < 2e-6, "{key}");
    }
}

#[test]
fn packed_documents_have_the_gradients_and_readings_of_documents_alone() {
    for name in ["llama", "qwen2"] {
        let (net, expected) = (TapedNet::load(&folder(name)).unwrap(), Expected::of(name));
        let batch = mean_batch(&expected);
        let (together, readings) = gradients(&net, &batch, Checkpointing::Layers);
        let mut alone = Gradients::zeros(&net);
        let (mut log_probs, mut entropies) = (Vec::new(), Vec::new());
        for (first, length) in [(0, LENGTHS[0]), (LENGTHS[0], LENGTHS[1])] {
            let own = batch.targets.iter().filter(|target| (first..first + length).contains(&target.row));
            let own = Batch {
                tokens: expected.tokens[first..first + length].to_vec(),
                documents: vec![length],
                targets: own.map(|target| Target { row: target.row - first, ..*target }).collect(),
            };
            assert_eq!(net.evaluate(&own).unwrap().log_probs, {
                let readings = net.backward(&own, Checkpointing::Layers, &mut alone).unwrap();
                log_probs.extend(&readings.log_probs);
                entropies.extend(&readings.entropies);
                readings.log_probs
            });
        }
        assert_eq!((&readings.log_probs, &readings.entropies), (&log_probs, &entropies), "{name}");
        for ((key, together), (_, alone)) in together.iter().zip(alone.iter()) {
            let relative = relative_difference(together, alone);
            assert!(relative < 2e-6, "{name}, {key}: {relative}");
        }
    }
}

#[test]
fn readings_are_those_of_decoding_and_of_the_softmax() {
    let (net, packed, expected) =
        (TapedNet::load(&folder("qwen2")).unwrap(), Net::load(&folder("qwen2")).unwrap(), Expected::of("qwen2"));
    let readings = net.evaluate(&mean_batch(&expected)).unwrap();
    let (mut log_probs, mut logits) = (Vec::new(), Vec::new());
    let rows: Vec<usize> = expected.targets().iter().map(|(row, _)| *row).collect();
    with_step(&packed, &expected.tokens, |step, cache| {
        packed.log_probs(step, cache, &expected.targets(), &mut log_probs).unwrap();
        packed.forward(step, cache, &rows, &mut logits).unwrap();
    });
    assert_eq!(readings.log_probs, log_probs);
    for (logits, entropy) in logits.chunks_exact(packed.vocabulary()).zip(&readings.entropies) {
        let weights: Vec<f64> = logits.iter().map(|logit| f64::from(*logit).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let exact: f64 = weights.iter().map(|weight| -weight / sum * (weight / sum).ln()).sum();
        assert!((exact - f64::from(*entropy)).abs() < 1e-5, "{exact} {entropy}");
    }
}

#[test]
fn a_target_of_negative_weight_pushes_the_other_way() {
    let (net, expected) = (TapedNet::load(&folder("llama")).unwrap(), Expected::of("llama"));
    let batch = mean_batch(&expected);
    let mut turned = batch.clone();
    turned.targets.iter_mut().for_each(|target| target.weight *= -2.0);
    let ((once, first), (twice, second)) =
        (gradients(&net, &batch, Checkpointing::None), gradients(&net, &turned, Checkpointing::None));
    assert!((second.loss + 2.0 * first.loss).abs() < 1e-9);
    for ((key, once), (_, twice)) in once.iter().zip(twice.iter()) {
        let expected: Vec<f32> = once.iter().map(|value| -2.0 * value).collect();
        assert!(relative_difference(twice, &expected) < 1e-6, "{key}");
    }
}

#[test]
fn a_batch_that_contradicts_itself_is_refused_and_one_without_targets_does_nothing() {
    let (net, expected) = (TapedNet::load(&folder("llama")).unwrap(), Expected::of("llama"));
    let good = mean_batch(&expected);
    let refuse = |change: &dyn Fn(&mut Batch)| {
        let mut batch = good.clone();
        change(&mut batch);
        net.evaluate(&batch).unwrap_err().to_string()
    };
    assert!(refuse(&|batch| batch.targets[0].row = 187).contains("row 187, but there are 187 rows"));
    assert!(refuse(&|batch| batch.targets[0].token = 192).contains("outside the vocabulary of 192"));
    assert!(refuse(&|batch| batch.targets[0].weight = f32::NAN).contains("weight NaN"));
    assert!(refuse(&|batch| batch.documents[0] = 149).contains("187 tokens"));
    let none = Batch { targets: Vec::new(), ..good };
    let (gradients, readings) = gradients(&net, &none, Checkpointing::Layers);
    assert_eq!((gradients, readings), (Gradients::zeros(&net), Readings::default()));
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
