//! Plain functions over `f32` slices that nets compute with, the same bits on every machine and for every batch.
//!
//! Two rules make it so. A sum has one order, fixed by the place of its terms alone: products of a row with a matrix are
//! one chain of fused multiply-adds per output, other sums run in 16 lanes that are joined in a fixed tree. And no
//! function of the system's mathematical library is called where results are rounded to `f32` at once.

#![expect(clippy::inline_always, reason = "only what is inlined is compiled for the vectors of the running machine")]

mod attention;
mod blocks;
mod exp;
mod matrix;
mod rounding;
mod rows;
mod slopes;
mod softmax;
mod tile;

pub use attention::{Heads, KeyValues, attend};
pub use blocks::{BlockKind, Blocks};
pub use exp::exp;
pub use matrix::{Matrix, Panels};
pub use rounding::round_to_8_bits;
pub use rows::{add, rms_norm, rotate, swiglu};
pub(crate) use rows::{dot, inverse_rms, scale};
pub(crate) use slopes::{AttentionRow, attention_slopes, product, rms_norm_slopes, swiglu_slopes};
pub use softmax::log_softmax_at;
pub(crate) use softmax::{log_sum, probabilities};

/// Columns of a panel of weights, and lanes of a sum.
pub(crate) const LANES: usize = 16;

/// The nearest `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
pub(crate) fn rounded(x: f64) -> f32 {
    x as f32
}

/// Sum of lanes in a fixed tree: halves are added until one is left.
#[inline(always)]
pub(crate) fn fold(lanes: [f32; LANES]) -> f32 {
    let mut eight = [0.0; 8];
    for i in 0..8 {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    let four = [eight[0] + eight[4], eight[1] + eight[5], eight[2] + eight[6], eight[3] + eight[7]];
    (four[0] + four[2]) + (four[1] + four[3])
}
