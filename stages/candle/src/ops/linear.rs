//! Product of rows with a weight matrix, with its backward.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::{copy, elements, output, sizes, tensor};
use crate::kernels::{Matrix, Panels};

/// `x W^T` for `x` of `[rows, in]` and `W` of `[out, in]`.
///
/// # Errors
/// For other shapes or types.
pub fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.apply_op2(weight, Linear)
}

struct Linear;

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, w: &CpuStorage, w_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((rows, inputs), (outputs, columns)) = (sizes(x_at, self.name())?, sizes(w_at, self.name())?);
        if inputs != columns {
            bail!("linear of {inputs} inputs with weights for {columns}");
        }
        let matrix = Matrix::new(elements(w, w_at, self.name())?, outputs, inputs);
        let mut y = vec![0.0; rows * outputs];
        matrix.multiply(elements(x, x_at, self.name())?, None, &mut y, &mut Panels::default());
        Ok(output(y, (rows, outputs)))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (outputs, inputs) = weight.dims2()?;
        let grads = copy(grad)?;
        let dx = times(&grads, &copy(weight)?, outputs, inputs);
        let dw = transposed_times(&grads, &copy(x)?, outputs, inputs);
        Ok((Some(tensor(dx, x)?), Some(tensor(dw, weight)?)))
    }
}

/// `y W` for `y` of `[rows, outputs]` and `W` of `[outputs, inputs]`.
fn times(y: &[f32], weight: &[f32], outputs: usize, inputs: usize) -> Vec<f32> {
    let mut x = vec![0.0; y.len() / outputs.max(1) * inputs];
    Matrix::transposed(weight, outputs, inputs).multiply(y, None, &mut x, &mut Panels::default());
    x
}

/// `y^T x` for `y` of `[rows, outputs]` and `x` of `[rows, inputs]`.
fn transposed_times(y: &[f32], x: &[f32], outputs: usize, inputs: usize) -> Vec<f32> {
    let rows = y.len() / outputs.max(1);
    let mut weight = vec![0.0; outputs * inputs];
    Matrix::transposed(x, rows, inputs).multiply(&transposed(y, outputs), None, &mut weight, &mut Panels::default());
    weight
}

/// `y` of `[rows, width]` as `[width, rows]`.
pub(super) fn transposed(y: &[f32], width: usize) -> Vec<f32> {
    let rows = y.len() / width.max(1);
    let mut columns = vec![0.0; y.len()];
    for (index, row) in y.chunks_exact(width).enumerate() {
        for (column, value) in columns.chunks_exact_mut(rows).zip(row) {
            column[index] = *value;
        }
    }
    columns
}
