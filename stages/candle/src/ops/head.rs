//! Log-probabilities of target tokens, with their backward; logits of all rows are never held at once.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::linear::{times, transposed_times};
use super::{copy, elements, output, sizes, tensor};
use crate::kernels::{self, Matrix, Panels, log_sum};

/// Rows whose logits are held at once.
const ROWS: usize = 64;

/// `ln softmax(x W^T)[target]` of each row of `x` (`[rows, in]`), for `W` of `[vocabulary, in]`: `[rows]`.
///
/// # Errors
/// For other shapes or types, or a target outside the vocabulary.
pub fn log_probs(x: &Tensor, weight: &Tensor, targets: Arc<[u32]>) -> Result<Tensor> {
    x.apply_op2(weight, LogProbs { targets })
}

struct LogProbs {
    targets: Arc<[u32]>,
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
        let matrix = Matrix::new(elements(w, w_at, self.name())?, vocabulary, inputs);
        let (mut logits, mut panels) = (Vec::new(), Panels::default());
        let mut log_probs = Vec::with_capacity(rows);
        let chunks = elements(x, x_at, self.name())?.chunks(ROWS * inputs).zip(self.targets.chunks(ROWS));
        for (x, targets) in chunks {
            logits.resize(targets.len() * vocabulary, 0.0);
            matrix.multiply(x, None, &mut logits, &mut panels);
            let rows = logits.chunks_exact(vocabulary).zip(targets);
            log_probs.extend(rows.map(|(logits, target)| kernels::log_softmax_at(logits, *target)));
        }
        Ok(output(log_probs, rows))
    }

    /// The gradient of a row's logits is `g (1[target] - softmax)`; each chunk's share of the weights' gradient is added.
    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (vocabulary, inputs) = weight.dims2()?;
        let (rows, weights, grads) = (copy(x)?, copy(weight)?, copy(grad)?);
        let matrix = Matrix::new(&weights, vocabulary, inputs);
        let (mut dx, mut dw) = (Vec::with_capacity(rows.len()), vec![0.0; weights.len()]);
        let (mut logits, mut panels) = (Vec::new(), Panels::default());
        let chunks = rows.chunks(ROWS * inputs).zip(self.targets.chunks(ROWS)).zip(grads.chunks(ROWS));
        for ((x, targets), grads) in chunks {
            logits.resize(targets.len() * vocabulary, 0.0);
            matrix.multiply(x, None, &mut logits, &mut panels);
            for ((logits, target), grad) in logits.chunks_exact_mut(vocabulary).zip(targets).zip(grads) {
                let (highest, log_sum) = log_sum(logits);
                let shift = kernels::rounded(f64::from(highest) + log_sum);
                for logit in logits.iter_mut() {
                    *logit = -grad * kernels::exp(*logit - shift);
                }
                if let Some(logit) = logits.get_mut(*target as usize) {
                    *logit += grad;
                }
            }
            dx.extend(times(&logits, &weights, vocabulary, inputs));
            kernels::add(&mut dw, &transposed_times(&logits, x, vocabulary, inputs));
        }
        Ok((Some(tensor(dx, x)?), Some(tensor(dw, weight)?)))
    }
}
