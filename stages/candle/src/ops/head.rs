//! Log-probabilities of target tokens, with their backward; logits of all rows are never held at once.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{elements, output, read, sizes, tensor, with_matrix};
use crate::kernels::{self, Matrix, log_sum};
use crate::net::{Readings, Target};

/// Logits that are held at once: 64 MiB.
const LOGITS: usize = 1 << 24;

/// `ln softmax(x W^T)[target]` of each row of `x` (`[rows, in]`), for `W` of `[vocabulary, in]`: `[rows]`.
///
/// # Errors
/// For other shapes or types, or a target outside the vocabulary.
pub fn log_probs(x: &Tensor, weight: &Tensor, targets: Arc<[u32]>) -> Result<Tensor> {
    x.apply_op2(weight, LogProbs { targets })
}

/// A matrix `[vocabulary, in]` that gives logits.
pub(crate) struct Head<'a> {
    weights: &'a [f32],
    vocabulary: usize,
    inputs: usize,
}

/// Where gradients are added.
pub(crate) struct HeadSlopes<'a> {
    /// Of the rows: `[rows, in]`.
    pub rows: &'a mut [f32],
    /// Of the weights: `[vocabulary, in]`.
    pub weights: &'a mut [f32],
}

impl<'a> Head<'a> {
    /// From its weights, row-major.
    pub(crate) fn new(weights: &'a [f32], vocabulary: usize) -> Self {
        Self { weights, vocabulary, inputs: weights.len() / vocabulary.max(1) }
    }

    /// What the head says of the rows' targets (`x` is `[targets, in]`); the gradient of the sum of `weight * -ln p` is
    /// added to `slopes`.
    ///
    /// The gradient of a row's logits is `weight (softmax - 1[target])`.
    pub(crate) fn read(&self, x: &[f32], targets: &[Target], mut slopes: Option<HeadSlopes<'_>>) -> Readings {
        let (vocabulary, inputs) = (self.vocabulary, self.inputs);
        let (mut readings, mut logits) = (Readings::default(), Vec::new());
        let pack = |spare| Matrix::new_in(spare, self.weights, vocabulary, inputs);
        let pack_back = |spare| Matrix::transposed_in(spare, self.weights, vocabulary, inputs);
        let (rows, has_slopes) = ((LOGITS / vocabulary).max(1), slopes.is_some());
        with_matrix(pack, |forward| {
            let mut pass = |back: Option<&Matrix>| {
                for (index, targets) in targets.chunks(rows).enumerate() {
                    let place = index * rows * inputs..(index * rows + targets.len()) * inputs;
                    let x = &x[place.clone()];
                    logits.resize(targets.len() * vocabulary, 0.0);
                    forward.multiply_together(x, &mut logits);
                    let read = logits.par_chunks_exact_mut(vocabulary).zip(targets);
                    readings
                        .extend(&read.map(|(logits, target)| reading(logits, *target)).collect::<Vec<_>>(), targets);
                    if let (Some(slopes), Some(back)) = (&mut slopes, back) {
                        self.go_back(&mut logits, x, targets, back, &mut slopes.rows[place], slopes.weights);
                    }
                }
            };
            if has_slopes { with_matrix(pack_back, |back| pass(Some(back))) } else { pass(None) }
        });
        readings
    }

    /// Adds the gradients of a few rows, whose logits have become probabilities.
    fn go_back(
        &self,
        logits: &mut [f32],
        x: &[f32],
        targets: &[Target],
        back: &Matrix,
        row_slopes: &mut [f32],
        weight_slopes: &mut [f32],
    ) {
        logits.par_chunks_exact_mut(self.vocabulary).zip(targets).for_each(|(logits, target)| {
            kernels::scale(logits, target.weight);
            logits[target.token as usize] -= target.weight;
        });
        back.multiply_onto(logits, row_slopes);
        let pack = |spare| Matrix::transposed_in(spare, x, targets.len(), self.inputs);
        with_matrix(pack, |columns| columns.multiply_columns_onto(logits, weight_slopes));
    }
}

/// Log-probability of a row's target and entropy of the row; its logits become probabilities.
fn reading(logits: &mut [f32], target: Target) -> (f32, f32) {
    let (highest, log_sum) = log_sum(logits);
    let logit = f64::from(logits[target.token as usize]);
    let log_prob = kernels::rounded(logit - f64::from(highest) - log_sum);
    (log_prob, kernels::probabilities(logits, kernels::rounded(f64::from(highest) + log_sum)))
}

impl Readings {
    fn extend(&mut self, read: &[(f32, f32)], targets: &[Target]) {
        for ((log_prob, entropy), target) in read.iter().zip(targets) {
            self.loss -= f64::from(target.weight) * f64::from(*log_prob);
            self.log_probs.push(*log_prob);
            self.entropies.push(*entropy);
        }
    }
}

struct LogProbs {
    targets: Arc<[u32]>,
}

impl LogProbs {
    /// Targets, weighted by minus the given gradients.
    fn weighted(&self, grads: impl Iterator<Item = f32>) -> Vec<Target> {
        let targets = self.targets.iter().zip(grads).enumerate();
        targets.map(|(row, (token, grad))| Target { row, token: *token, weight: -grad }).collect()
    }
}

impl CustomOp2 for LogProbs {
    fn name(&self) -> &'static str {
        "log_probs"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, w: &CpuStorage, w_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((rows, inputs), (vocabulary, columns)) = (sizes(x_at, self.name())?, sizes(w_at, self.name())?);
        if inputs != columns || rows != self.targets.len() {
            let targets = self.targets.len();
            bail!("log_probs of {rows} rows of {inputs} with weights for {columns} and {targets} targets");
        }
        if let Some(target) = self.targets.iter().find(|target| **target as usize >= vocabulary) {
            bail!("target {target} is outside the vocabulary of {vocabulary} tokens");
        }
        let head = Head::new(elements(w, w_at, self.name())?, vocabulary);
        let targets = self.weighted(std::iter::repeat(0.0));
        Ok(output(head.read(elements(x, x_at, self.name())?, &targets, None).log_probs, rows))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (vocabulary, _) = weight.dims2()?;
        let grad = grad.contiguous()?;
        let (rows, weights, grads) = (read(x)?, read(weight)?, read(&grad)?);
        let (mut dx, mut dw) = (vec![0.0; rows.len()], vec![0.0; weights.len()]);
        let slopes = HeadSlopes { rows: &mut dx, weights: &mut dw };
        Head::new(&weights, vocabulary).read(&rows, &self.weighted(grads.iter().copied()), Some(slopes));
        Ok((Some(tensor(dx, x)?), Some(tensor(dw, weight)?)))
    }
}
