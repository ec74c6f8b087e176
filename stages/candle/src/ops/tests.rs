//! Every operation against finite differences.

use std::sync::Arc;

use candle_core::{Device, Tensor, Var};

use super::*;
use crate::kernels::Heads;

/// Numbers between -1 and 1 that look random.
fn numbers(count: usize, salt: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + salt * 104_729 + i * i * 31) % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn var(rows: usize, columns: usize, salt: usize) -> Var {
    Var::from_vec(numbers(rows * columns, salt), (rows, columns), &Device::Cpu).unwrap()
}

/// Weighted sum of `op`'s result, so that every element matters differently.
fn loss(result: &Tensor) -> Tensor {
    let weights = Tensor::from_vec(numbers(result.elem_count(), 99), result.shape(), &Device::Cpu).unwrap();
    (result * weights).unwrap().sum_all().unwrap()
}

/// Holds the gradient of each input against central differences of the loss, taken in `f64` over a loss in `f32`.
fn check(inputs: &[&Var], op: impl Fn() -> Tensor) {
    let grads = loss(&op()).backward().unwrap();
    for (place, input) in inputs.iter().enumerate() {
        let grad = grads.get(input).expect("a gradient").flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let start: Vec<f32> = input.flatten_all().unwrap().to_vec1().unwrap();
        let scale = grad.iter().fold(0.0_f32, |scale, grad| scale.max(grad.abs()));
        assert!(scale > 0.0, "input {place} has a zero gradient");
        for index in (0..start.len()).step_by(1 + start.len() / 40) {
            let at = |step: f32| {
                let mut moved = start.clone();
                moved[index] += step;
                input.set(&Tensor::from_vec(moved, input.shape(), &Device::Cpu).unwrap()).unwrap();
                f64::from(loss(&op()).to_scalar::<f32>().unwrap())
            };
            let step = 1.0 / 128.0;
            let slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * f64::from(step));
            let off = (slope - f64::from(grad[index])).abs() / f64::from(scale);
            assert!(off < 2e-3, "input {place}, element {index}: {slope} by differences, {} by backward", grad[index]);
        }
        input.set(&Tensor::from_vec(start, input.shape(), &Device::Cpu).unwrap()).unwrap();
    }
}

#[test]
fn the_gradient_of_rms_norm_is_its_slope() {
    let x = var(5, 24, 1);
    let weight = Var::from_vec(numbers(24, 2), 24, &Device::Cpu).unwrap();
    check(&[&x, &weight], || rms_norm(&x, &weight, 1e-5).unwrap());
}

#[test]
fn the_gradient_of_rotation_is_its_slope() {
    let x = var(3, 16, 3);
    let angles: Vec<f32> = (0..12).map(|i| i as f32 * 0.7).collect();
    let cos = angles.iter().map(|angle| angle.cos()).collect();
    let sin = angles.iter().map(|angle| angle.sin()).collect();
    let angles = Arc::new(Angles { cos, sin, head_dim: 8 });
    check(&[&x], || rotate(&x, angles.clone()).unwrap());
}

#[test]
fn the_gradient_of_swiglu_is_its_slope() {
    let (gate, up) = (var(4, 10, 4), var(4, 10, 5));
    check(&[&gate, &up], || swiglu(&gate, &up).unwrap());
}

#[test]
fn the_gradient_of_linear_is_its_slope() {
    let (x, weight) = (var(7, 18, 6), var(21, 18, 7));
    check(&[&x, &weight], || linear(&x, &weight).unwrap());
}

#[test]
fn the_gradient_of_attention_is_its_slope() {
    let heads = Heads { queries: 4, keys: 2, width: 8 };
    let (q, k, v) = (var(25, 32, 8), var(25, 16, 9), var(25, 16, 10));
    let documents: Arc<[usize]> = Arc::new([19, 1, 5]);
    check(&[&q, &k, &v], || attention(&q, &k, &v, heads, documents.clone()).unwrap());
}

#[test]
fn the_gradient_of_log_probs_is_its_slope() {
    let (x, weight) = (var(70, 12, 11), var(33, 12, 12));
    let targets: Arc<[u32]> = (0..70).map(|row| row * 7 % 33).collect();
    check(&[&x, &weight], || log_probs(&x, &weight, targets.clone()).unwrap());
}

#[test]
fn a_document_does_not_see_its_neighbours() {
    let heads = Heads { queries: 4, keys: 2, width: 8 };
    let (q, k, v) = (var(40, 32, 13), var(40, 16, 14), var(40, 16, 15));
    let together = attention(&q, &k, &v, heads, Arc::new([17, 23])).unwrap();
    let rows = |tensor: &Var| tensor.narrow(0, 17, 23).unwrap();
    let alone = attention(&rows(&q), &rows(&k), &rows(&v), heads, Arc::new([23])).unwrap();
    assert_eq!(together.narrow(0, 17, 23).unwrap().to_vec2::<f32>().unwrap(), alone.to_vec2::<f32>().unwrap());
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let (x, weight) = (var(2, 6, 1), var(4, 5, 2));
    assert!(linear(&x, &weight).unwrap_err().to_string().contains("6 inputs with weights for 5"));
    let message = log_probs(&x, &var(4, 6, 3), Arc::new([1, 4])).unwrap_err().to_string();
    assert!(message.contains("target 4 is outside the vocabulary of 4"), "{message}");
}
