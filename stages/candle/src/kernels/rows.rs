//! Row-wise operations between the matrices: norm, rotation of positions, gated activation, sum.

use pulp::Arch;

use super::{LANES, exp, fold};

/// Root-mean-square norm of every row of `x` (`[rows, width]`), times `weight` (`[width]`), into `y`:
/// `y = weight * (x / sqrt(mean(x^2) + eps))`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (x, y) in x.chunks_exact(weight.len()).zip(y.chunks_exact_mut(weight.len())) {
                let scale = inverse_rms(x, eps);
                for ((y, x), weight) in y.iter_mut().zip(x).zip(weight) {
                    *y = weight * (x * scale);
                }
            }
        },
    );
}

/// `1 / sqrt(mean(x^2) + eps)` of one row.
#[inline(always)]
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt()
}

/// Product of two rows in the fixed order of lanes.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (x_whole, x_rest) = x.as_chunks::<LANES>();
    let (y_whole, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_whole.iter().zip(y_whole) {
        for i in 0..LANES {
            lanes[i] = x[i].mul_add(y[i], lanes[i]);
        }
    }
    for (i, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        lanes[i] = x.mul_add(*y, lanes[i]);
    }
    fold(lanes)
}

/// Rotates every head of every row of `x` (`[rows, heads * head_dim]`) in place by its position's angles.
///
/// `cos` and `sin` are `[rows, head_dim / 2]`; the partner of element `i` is element `i + head_dim / 2`, the layout of
/// Hugging Face. With `sin` negated it rotates back.
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], head_dim: usize) {
    let half = head_dim / 2;
    let rows = cos.len() / half.max(1);
    if rows == 0 || x.is_empty() {
        return;
    }
    let width = x.len() / rows;
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let angles = cos.chunks_exact(half).zip(sin.chunks_exact(half));
            for (row, (cos, sin)) in x.chunks_exact_mut(width).zip(angles) {
                for head in row.chunks_exact_mut(head_dim) {
                    let (left, right) = head.split_at_mut(half);
                    for (((a, b), cos), sin) in left.iter_mut().zip(right).zip(cos).zip(sin) {
                        let (x, y) = (*a, *b);
                        *a = x * cos - y * sin;
                        *b = y * cos + x * sin;
                    }
                }
            }
        },
    );
}

/// `silu(gate) * up` element by element, into `gate`; `silu(x) = x / (1 + e^-x)`.
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (gate, up) in gate.iter_mut().zip(up) {
                *gate = *gate / (1.0 + exp(-*gate)) * up;
            }
        },
    );
}

/// Adds `y` to `x`.
pub fn add(x: &mut [f32], y: &[f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (x, y) in x.iter_mut().zip(y) {
                *x += y;
            }
        },
    );
}
