//! Norm, rotation and gated activation with their backward.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::{elements, output, read, sizes, tensor};
use crate::kernels;

/// Root-mean-square norm of each row of `x` (`[rows, width]`), times `weight` (`[width]`).
///
/// # Errors
/// For other shapes or types.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    x.apply_op2(weight, RmsNorm { eps })
}

/// Cosines and sines of the rows' positions, `[rows, head_dim / 2]` each.
#[derive(Debug)]
pub struct Angles {
    /// Cosines.
    pub cos: Vec<f32>,
    /// Sines.
    pub sin: Vec<f32>,
    /// Width of a head.
    pub head_dim: usize,
}

/// Rotates every head of each row of `x` by its position.
///
/// # Errors
/// For other shapes or types.
pub fn rotate(x: &Tensor, angles: Arc<Angles>) -> Result<Tensor> {
    x.apply_op1(Rotate { angles })
}

/// `silu(gate) * up`, element by element.
///
/// # Errors
/// For other shapes or types.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.apply_op2(up, SwiGlu)
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, w: &CpuStorage, w_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = sizes(x_at, self.name())?;
        let (x, weight) = (elements(x, x_at, self.name())?, elements(w, w_at, self.name())?);
        if weight.len() != width {
            bail!("rms_norm of width {width} with {} weights", weight.len());
        }
        let mut y = vec![0.0; rows * width];
        kernels::rms_norm(x, weight, self.eps, &mut y);
        Ok(output(y, (rows, width)))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (rows, weights, grads) = (read(x)?, read(weight)?, read(&grad)?);
        let (mut dx, mut dw) = (vec![0.0; rows.len()], vec![0.0; weights.len()]);
        kernels::rms_norm_slopes(&rows, &weights, self.eps, &grads, &mut dx, &mut dw);
        Ok((Some(tensor(dx, x)?), Some(tensor(dw, weight)?)))
    }
}

struct Rotate {
    angles: Arc<Angles>,
}

impl CustomOp1 for Rotate {
    fn name(&self) -> &'static str {
        "rotate"
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = sizes(at, self.name())?;
        let head_dim = self.angles.head_dim;
        if rows * head_dim / 2 != self.angles.cos.len() || width % head_dim != 0 {
            bail!("rotation of {rows} rows of {width} by {} angles of heads of {head_dim}", self.angles.cos.len());
        }
        let mut y = elements(x, at, self.name())?.to_vec();
        kernels::rotate(&mut y, &self.angles.cos, &self.angles.sin, head_dim);
        Ok(output(y, (rows, width)))
    }

    /// A rotation's transpose is the rotation back.
    fn bwd(&self, x: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let mut dx = read(&grad.contiguous()?)?.to_vec();
        let sin: Vec<f32> = self.angles.sin.iter().map(|sin| -sin).collect();
        kernels::rotate(&mut dx, &self.angles.cos, &sin, self.angles.head_dim);
        Ok(Some(tensor(dx, x)?))
    }
}

struct SwiGlu;

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(&self, gate: &CpuStorage, at: &Layout, up: &CpuStorage, up_at: &Layout) -> Result<(CpuStorage, Shape)> {
        if at.dims() != up_at.dims() {
            bail!("swiglu of shapes {:?} and {:?}", at.dims(), up_at.dims());
        }
        let mut y = elements(gate, at, self.name())?.to_vec();
        kernels::swiglu(&mut y, elements(up, up_at, self.name())?);
        Ok(output(y, at.shape().clone()))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (gates, ups, grads) = (read(gate)?, read(up)?, read(&grad)?);
        let (mut d_gate, mut d_up) = (vec![0.0; gates.len()], vec![0.0; ups.len()]);
        kernels::swiglu_slopes(&gates, &ups, &grads, &mut d_gate, &mut d_up);
        Ok((Some(tensor(d_gate, gate)?), Some(tensor(d_up, up)?)))
    }
}
