//! Row-wise operations between the matrices: norm, rotation of positions, gated activation, sum.

use pulp::{Arch, Simd, WithSimd};

use super::{LANES, exp, fold};

/// Root-mean-square norm of every row of `x` (`[rows, width]`), times `weight` (`[width]`), into `y`:
/// `y = weight * (x / sqrt(mean(x^2) + eps))`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    if !weight.is_empty() {
        Arch::new().dispatch(Norm { x, weight, eps, y });
    }
}

/// Rotates every head of every row of `x` (`[rows, heads * head_dim]`) in place by its position's angles.
///
/// `cos` and `sin` are `[rows, head_dim / 2]`; the partner of element `i` is element `i + head_dim / 2`, the layout of
/// Hugging Face. With `sin` negated it rotates back.
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], head_dim: usize) {
    if !cos.is_empty() && !x.is_empty() {
        Arch::new().dispatch(Rotation { x, cos, sin, head_dim });
    }
}

/// `silu(gate) * up` element by element, into `gate`; `silu(x) = x / (1 + e^-x)`.
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    Arch::new().dispatch(SwiGlu { gate, up });
}

/// Adds `y` to `x`.
pub fn add(x: &mut [f32], y: &[f32]) {
    Arch::new().dispatch(Sum { x, y });
}

/// Multiplies every element by `factor`.
pub(crate) fn scale(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

struct Norm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

// closures would not be inlined into the functions that are compiled for each machine, so operations are types
impl WithSimd for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((y, x), weight) in y.iter_mut().zip(x).zip(self.weight) {
                *y = weight * (x * scale);
            }
        }
    }
}

struct Rotation<'a> {
    x: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    head_dim: usize,
}

impl WithSimd for Rotation<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let half = self.head_dim / 2;
        let width = self.x.len() / (self.cos.len() / half);
        let angles = self.cos.chunks_exact(half).zip(self.sin.chunks_exact(half));
        for (row, (cos, sin)) in self.x.chunks_exact_mut(width).zip(angles) {
            for head in row.chunks_exact_mut(self.head_dim) {
                let (left, right) = head.split_at_mut(half);
                for (((a, b), cos), sin) in left.iter_mut().zip(right).zip(cos).zip(sin) {
                    let (x, y) = (*a, *b);
                    *a = x * cos - y * sin;
                    *b = y * cos + x * sin;
                }
            }
        }
    }
}

struct SwiGlu<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl WithSimd for SwiGlu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            *gate = *gate / (1.0 + exp(-*gate)) * up;
        }
    }
}

struct Sum<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl WithSimd for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (x, y) in self.x.iter_mut().zip(self.y) {
            *x += y;
        }
    }
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
