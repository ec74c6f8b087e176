//! Training against `PyTorch`, and the laws of a step.
//!
//! The fixtures are made by `tests/python/make_training_curve.py`; the net of the curve is made anew from its seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use stage_candle::{Architecture, Batch, Checkpointing, Gradients, NetConfig, RopeScaling, TapedNet, Target};
use stage_train::{AdamW, AdamWOptions, Example, Micro, Options, Schedule, Trainer};

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn floats(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|number| number as f32).collect()
}

/// The net of the curve: 1.4 million parameters.
fn curve_net() -> TapedNet {
    let config = NetConfig {
        architecture: Architecture::Qwen2,
        vocabulary: 2048,
        hidden: 128,
        intermediate: 384,
        layers: 6,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        context: 128,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        rms_eps: 1e-5,
        tied: true,
        qkv_bias: true,
    };
    TapedNet::random(config, 11).unwrap()
}

/// A document of the curve, all but its first token supervised.
fn document(step: usize, index: usize, length: usize) -> Example {
    let salt = 31 * (step % 8) + index;
    let ids = (0..length).map(|i| u32::try_from((i * 37 + salt * 101 + i * i) % 2048).unwrap()).collect();
    Example { ids, supervised: std::iter::once(1..length).collect() }
}

fn micro(examples: &[Example]) -> Micro {
    Micro::of(examples.iter().map(|example| ("row", example)))
}

#[test]
fn the_loss_curve_of_twenty_steps_is_that_of_pytorch() {
    let expected = fixture(include_str!("fixtures/curve.json"));
    let (losses, norms) = (numbers(&expected["losses"]), numbers(&expected["norms"]));
    let optimizer = AdamWOptions { beta2: 0.95, weight_decay: 0.1, ..AdamWOptions::default() };
    let options = Options { optimizer, ..Options::default() };
    let mut trainer = Trainer::new(curve_net(), Schedule::new(1e-3, 1e-5, 0.1, 20).unwrap(), options).unwrap();
    let count: usize = trainer.net().variables().values().map(|variable| variable.elem_count()).sum();
    assert_eq!(count as u64, expected["parameters"].as_u64().unwrap());
    let (mut worst, mut worst_norm) = (0.0_f64, 0.0_f64);
    for step in 1..=20 {
        // two windows of two documents each
        let windows = [(0, 40, 1, 17), (2, 96, 3, 3)].map(|(first, length, second, other)| {
            micro(&[document(step, first, length), document(step, second, other)])
        });
        let report = trainer.step(&windows).unwrap();
        worst = worst.max((report.loss - losses[step - 1]).abs());
        worst_norm = worst_norm.max((report.gradient_norm / norms[step - 1] - 1.0).abs());
    }
    println!("largest difference of the loss {worst:.2e}, relative difference of the gradient's norm {worst_norm:.2e}");
    assert!(worst < 1e-4 && worst_norm < 1e-3, "{worst} {worst_norm}");
}

#[test]
fn steps_of_the_optimizer_are_those_of_pytorch() {
    let expected = fixture(include_str!("fixtures/adamw.json"));
    let net = TapedNet::random(NetConfig::tiny(Architecture::Llama), 1).unwrap();
    let options = AdamWOptions { beta2: 0.95, weight_decay: 0.1, ..AdamWOptions::default() };
    let mut optimizer = AdamW::new(&net, options).unwrap();
    let name = "model.embed_tokens.weight";
    net.update(name, |weights| weights[..4].copy_from_slice(&floats(&expected["start"]))).unwrap();
    let mut gradients = Gradients::zeros(&net);
    let steps = expected["gradients"].as_array().unwrap().iter().zip(expected["after"].as_array().unwrap());
    for (gradient, after) in steps {
        gradients.get_mut(name).unwrap()[..4].copy_from_slice(&floats(gradient));
        optimizer.step(&net, &gradients, 1e-2, 1.0).unwrap();
        let ours = net.read_with(name, |weights| weights[..4].to_vec()).unwrap();
        for (ours, theirs) in ours.iter().zip(floats(after)) {
            assert!((ours - theirs).abs() <= 2e-7 * theirs.abs().max(0.1), "{ours} {theirs}");
        }
    }
}

fn tiny_trainer(peak: f64, steps: u64) -> Trainer {
    let net = TapedNet::random(NetConfig::tiny(Architecture::Qwen2), 3).unwrap();
    Trainer::new(net, Schedule::new(peak, peak / 100.0, 0.05, steps).unwrap(), Options::default()).unwrap()
}

fn tiny_example(salt: usize, length: usize) -> Example {
    let ids = (0..length).map(|i| u32::try_from((i * 37 + salt * 101 + i * i) % 256).unwrap()).collect();
    Example { ids, supervised: std::iter::once(length / 3..length).collect() }
}

#[test]
fn one_batch_is_learnt_by_heart() {
    let mut trainer = tiny_trainer(3e-3, 120);
    let batch = [micro(&[tiny_example(1, 40), tiny_example(2, 25)]), micro(&[tiny_example(3, 30)])];
    let first = trainer.step(&batch).unwrap();
    for _ in 1..120 {
        trainer.step(&batch).unwrap();
    }
    let (loss, tokens) = trainer.evaluate(&batch).unwrap().unwrap();
    println!("loss {:.3} before, {loss:.4} after 120 steps, over {tokens} tokens", first.loss);
    assert!(first.loss > 3.0 && loss < 0.1, "{loss}");
    assert_eq!((tokens, first.supervised, first.tokens), (27 + 17 + 20, 27 + 17 + 20, 95));
}

#[test]
fn the_gradient_does_not_depend_on_how_examples_are_split() {
    let examples: Vec<Example> = (0..6).map(|salt| tiny_example(salt, 12 + 7 * salt)).collect();
    let splits: [Vec<Micro>; 3] = [
        vec![micro(&examples)],
        examples.iter().map(|example| micro(std::slice::from_ref(example))).collect(),
        vec![micro(&examples[..1]), micro(&examples[1..4]), micro(&examples[4..])],
    ];
    let net = TapedNet::random(NetConfig::tiny(Architecture::Qwen2), 3).unwrap();
    let mut sums: Vec<Gradients> = Vec::new();
    for split in &splits {
        let mut gradients = Gradients::zeros(&net);
        for micro in split {
            net.backward(&micro.batch, Checkpointing::Layers, &mut gradients).unwrap();
        }
        sums.push(gradients);
    }
    for other in &sums[1..] {
        for ((name, whole), (_, split)) in sums[0].iter().zip(other.iter()) {
            let scale = whole.iter().fold(0.0_f32, |scale, value| scale.max(value.abs()));
            let off = whole.iter().zip(split).fold(0.0_f32, |off, (whole, split)| off.max((whole - split).abs()));
            assert!(off <= 2e-6 * scale, "{name}: {off} of {scale}");
        }
    }
    let reports = splits.map(|split| tiny_trainer(1e-3, 10).step(&split).unwrap());
    for report in &reports[1..] {
        assert!((report.loss - reports[0].loss).abs() < 1e-9);
        assert!((report.gradient_norm / reports[0].gradient_norm - 1.0).abs() < 1e-6);
        assert_eq!((report.supervised, report.tokens), (reports[0].supervised, reports[0].tokens));
    }
}

#[test]
fn logits_of_a_packed_example_are_those_of_the_example_alone() {
    let net = TapedNet::random(NetConfig::tiny(Architecture::Llama), 5).unwrap();
    let examples = [tiny_example(1, 21), tiny_example(2, 33), tiny_example(3, 9)];
    let packed = micro(&examples).batch;
    let together = net.logits(&net.rows(&packed.tokens, &packed.documents).unwrap()).unwrap().to_vec2::<f32>().unwrap();
    let alone: Vec<Vec<f32>> = examples
        .iter()
        .flat_map(|example| {
            let rows = net.rows(&example.ids, &[example.ids.len()]).unwrap();
            net.logits(&rows).unwrap().to_vec2::<f32>().unwrap()
        })
        .collect();
    assert!(together == alone, "not bit-equal");
}

#[test]
fn targets_are_the_supervised_tokens_one_row_before_them() {
    let first = Example { ids: vec![10, 11, 12], supervised: std::iter::once(2..3).collect() };
    let second = Example { ids: vec![20, 21, 22, 23], supervised: vec![1..2, 3..4] };
    let micro = Micro::of([("a", &first), ("b", &second)]);
    let target = |row, token| Target { row, token, weight: 1.0 };
    let targets = vec![target(1, 12), target(3, 21), target(5, 23)];
    let batch = Batch { tokens: vec![10, 11, 12, 20, 21, 22, 23], documents: vec![3, 4], targets };
    assert_eq!(micro, Micro { batch, rows: vec!["a".to_owned(), "b".to_owned()] });
}

#[test]
fn a_loss_that_is_no_number_stops_with_the_rows_and_changes_nothing() {
    let mut trainer = tiny_trainer(1e-3, 10);
    let good = tiny_example(1, 20);
    trainer.step(&[micro(std::slice::from_ref(&good))]).unwrap();
    let name = "model.layers.1.mlp.up_proj.weight";
    trainer.net().update(name, |weights| weights[5] = f32::NAN).unwrap();
    let bits = |trainer: &Trainer| trainer.net().read_with(name, |w| w.iter().map(|w| w.to_bits()).collect::<Vec<_>>());
    let before = (bits(&trainer).unwrap(), trainer.optimizer().clone());
    let micros = [Micro::of([("trace-7", &good), ("trace-9", &tiny_example(2, 8))]), Micro::of([("trace-11", &good)])];
    let error = trainer.step(&micros).unwrap_err().to_string();
    assert_eq!(error, "step 2: the loss is NaN; rows of the batch: trace-7, trace-9");
    assert_eq!((bits(&trainer).unwrap(), trainer.optimizer()), (before.0, &before.1));
    assert_eq!(trainer.steps(), 1);
}

#[test]
fn a_step_without_supervised_tokens_is_refused() {
    let example = Example { ids: vec![1, 2, 3], supervised: Vec::new() };
    let error = tiny_trainer(1e-3, 10).step(&[micro(&[example])]).unwrap_err().to_string();
    assert_eq!(error, "step 1 has no supervised token");
}

#[test]
fn a_long_gradient_is_shortened_and_the_report_tells_its_true_norm() {
    let net = || TapedNet::random(NetConfig::tiny(Architecture::Qwen2), 3).unwrap();
    let schedule = || Schedule::new(1e-3, 1e-3, 0.0, 1).unwrap();
    let batch = [micro(&[tiny_example(1, 40)])];
    let step = |clip| {
        let mut trainer = Trainer::new(net(), schedule(), Options { clip, ..Options::default() }).unwrap();
        let report = trainer.step(&batch).unwrap();
        let first = trainer.optimizer().moments().values().flat_map(|moments| &moments.first);
        let norm = first.map(|m| (f64::from(*m) / 0.1).powi(2)).sum::<f64>().sqrt();
        (report.gradient_norm, norm)
    };
    let (told, applied) = step(None);
    assert!((applied / told - 1.0).abs() < 1e-5);
    let (told_again, clipped) = step(Some(0.5));
    assert!((told_again - told).abs() < 1e-12 && (clipped - 0.5).abs() < 1e-5, "{clipped}");
}
