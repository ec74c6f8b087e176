//! Product of rows with a weight matrix, with its backward.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::{elements, output, read, sizes, tensor, with_matrix};
use crate::kernels::Matrix;

/// `x W^T` for `x` of `[rows, in]` and `W` of `[out, in]`.
///
/// # Errors
/// For other shapes or types.
pub fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.apply_op2(weight, Linear { sink: None })
}

/// As [`linear`], but backward adds the weights' gradient to what is in `sink` instead of making a tensor of it: that of
/// a large matrix is best added while it is computed.
pub(crate) fn linear_into(x: &Tensor, weight: &Tensor, sink: Sink) -> Result<Tensor> {
    x.apply_op2(weight, Linear { sink: Some(sink) })
}

/// A place for the gradient of a matrix, which is lent to backward.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Lent>>);

#[derive(Debug, Default)]
struct Lent {
    buffer: Vec<f32>,
    is_used: bool,
}

impl Sink {
    /// Lends a buffer of the matrix' size.
    pub(crate) fn lend(&self, buffer: Vec<f32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Lent { buffer, is_used: false };
    }

    /// Takes the buffer back; tells whether backward has added to it.
    pub(crate) fn take_back(&self) -> (Vec<f32>, bool) {
        let Lent { buffer, is_used } = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (buffer, is_used)
    }

    fn add(&self, add: impl FnOnce(&mut [f32]), count: usize) -> Result<()> {
        let mut lent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lent.buffer.len() != count {
            bail!("a gradient of {count} elements has a place for {}", lent.buffer.len());
        }
        lent.is_used = true;
        add(&mut lent.buffer);
        Ok(())
    }
}

struct Linear {
    sink: Option<Sink>,
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, w: &CpuStorage, w_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((rows, inputs), (outputs, columns)) = (sizes(x_at, self.name())?, sizes(w_at, self.name())?);
        if inputs != columns {
            bail!("linear of {inputs} inputs with weights for {columns}");
        }
        let (x, weights) = (elements(x, x_at, self.name())?, elements(w, w_at, self.name())?);
        let mut y = vec![0.0; rows * outputs];
        let pack = |spare| Matrix::new_in(spare, weights, outputs, inputs);
        with_matrix(pack, |matrix| matrix.multiply_onto(x, &mut y));
        Ok(output(y, (rows, outputs)))
    }

    /// `dx = dy W`, `dW = dy^T x`.
    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (outputs, inputs) = weight.dims2()?;
        let grad = grad.contiguous()?;
        let (rows, grads) = (read(x)?, read(&grad)?);
        let weights = read(weight)?;
        let mut dx = vec![0.0; rows.len()];
        let pack = |spare| Matrix::transposed_in(spare, &weights, outputs, inputs);
        with_matrix(pack, |matrix| matrix.multiply_onto(&grads, &mut dx));
        let dx = Some(tensor(dx, x)?);
        let pack = |spare| Matrix::transposed_in(spare, &rows, rows.len() / inputs.max(1), inputs);
        let add = |dw: &mut [f32]| with_matrix(pack, |matrix| matrix.multiply_columns_onto(&grads, dw));
        if let Some(sink) = &self.sink {
            sink.add(add, outputs * inputs)?;
            return Ok((dx, None));
        }
        let mut dw = vec![0.0; outputs * inputs];
        add(&mut dw);
        Ok((dx, Some(tensor(dw, weight)?)))
    }
}
