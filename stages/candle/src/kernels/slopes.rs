//! Backward of the operations between matrices, compiled for the running machine's vectors.

use pulp::{Arch, Simd, WithSimd};

use super::{dot, exp, inverse_rms};

/// Gradients of [`super::rms_norm`] for `x` of `[rows, width]`: into `dx`, which is overwritten, and added to `dw`
/// (`[width]`).
///
/// With `r = 1 / sqrt(mean(x^2) + eps)` and `h = w g`: `dx = r h - x r^3 mean(h x)`, `dw = sum over rows of g x r`.
pub(crate) fn rms_norm_slopes(x: &[f32], weight: &[f32], eps: f32, grad: &[f32], dx: &mut [f32], dw: &mut [f32]) {
    if !weight.is_empty() {
        Arch::new().dispatch(NormSlopes { x, weight, eps, grad, dx, dw });
    }
}

/// Gradients of [`super::swiglu`], into `d_gate` and `d_up`, which are overwritten.
///
/// With `s = 1 / (1 + e^-x)`: `silu'(x) = s (1 + x (1 - s))`.
pub(crate) fn swiglu_slopes(gate: &[f32], up: &[f32], grad: &[f32], d_gate: &mut [f32], d_up: &mut [f32]) {
    Arch::new().dispatch(SwiGluSlopes { gate, up, grad, d_gate, d_up });
}

/// Product of two rows.
pub(crate) fn product(x: &[f32], y: &[f32]) -> f32 {
    Arch::new().dispatch(Dot { x, y })
}

/// A row of attention: puts its weights `p = e^(scale s - log_sum)` in place of scores `s`, and the gradient of the scores,
/// `scale p (d - mean)`, in place of that of the weights, `d`. Columns beyond `seen` become 0.
pub(crate) fn attention_slopes(scores: &mut [f32], slopes: &mut [f32], seen: usize, row: AttentionRow) {
    Arch::new().dispatch(AttentionSlopes { scores, slopes, seen, row });
}

/// Numbers of a row of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionRow {
    /// What scores are multiplied by.
    pub scale: f32,
    /// Logarithm of the softmax's sum.
    pub log_sum: f32,
    /// Mean of the weights' gradient by the weights: product of the result with its gradient.
    pub mean: f32,
}

struct NormSlopes<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    grad: &'a [f32],
    dx: &'a mut [f32],
    dw: &'a mut [f32],
}

impl WithSimd for NormSlopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { weight, eps, dw, .. } = self;
        let width = weight.len();
        let both = self.x.chunks_exact(width).zip(self.grad.chunks_exact(width));
        for ((x, grad), dx) in both.zip(self.dx.chunks_exact_mut(width)) {
            let r = inverse_rms(x, eps);
            for ((dx, grad), weight) in dx.iter_mut().zip(grad).zip(weight) {
                *dx = grad * weight;
            }
            let shift = r * r * (dot(dx, x) / width as f32);
            for ((dx, x), (dw, grad)) in dx.iter_mut().zip(x).zip(dw.iter_mut().zip(grad)) {
                *dx = r * (*dx - x * shift);
                *dw += grad * x * r;
            }
        }
    }
}

struct SwiGluSlopes<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    grad: &'a [f32],
    d_gate: &'a mut [f32],
    d_up: &'a mut [f32],
}

impl WithSimd for SwiGluSlopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let inputs = self.gate.iter().zip(self.up).zip(self.grad);
        for (((x, up), grad), (d_gate, d_up)) in inputs.zip(self.d_gate.iter_mut().zip(self.d_up)) {
            let s = 1.0 / (1.0 + exp(-*x));
            *d_gate = grad * up * s * (1.0 + x * (1.0 - s));
            *d_up = grad * x * s;
        }
    }
}

struct Dot<'a> {
    x: &'a [f32],
    y: &'a [f32],
}

impl WithSimd for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        dot(self.x, self.y)
    }
}

struct AttentionSlopes<'a> {
    scores: &'a mut [f32],
    slopes: &'a mut [f32],
    seen: usize,
    row: AttentionRow,
}

impl WithSimd for AttentionSlopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let AttentionRow { scale, log_sum, mean } = self.row;
        let ((scores, unseen), (slopes, none)) =
            (self.scores.split_at_mut(self.seen), self.slopes.split_at_mut(self.seen));
        for (score, slope) in scores.iter_mut().zip(slopes) {
            *score = exp(*score * scale - log_sum);
            *slope = *score * (*slope - mean) * scale;
        }
        unseen.fill(0.0);
        none.fill(0.0);
    }
}
