//! The innermost loop: a few rows times a few panels of 16 columns, held in registers.
//!
//! Every output is one chain `acc = fma(x[k], w[k], acc)` with ascending `k`. Saving the accumulators and going on later
//! continues the same chain, so blocking changes no bit; nor does the width of the machine's registers.

use pulp::Simd;

use super::LANES;

/// Most rows in one tile.
pub(crate) const MOST_ROWS: usize = 6;

/// Sums of `M` rows by `P` panels by `V` registers.
pub(crate) type Sums<S, const M: usize, const P: usize, const V: usize> = [[[<S as Simd>::f32s; V]; P]; M];

/// Adds `x` (`[k][M]`) times the panels (`[k][16]` each) to the sums.
#[inline(always)]
pub(crate) fn accumulate<S: Simd, const M: usize, const P: usize, const V: usize>(
    simd: S,
    x: &[[f32; M]],
    panels: [&[[S::f32s; V]]; P],
    sums: &mut Sums<S, M, P, V>,
) {
    let mut local = *sums;
    let depth = panels.iter().fold(x.len(), |depth, panel| depth.min(panel.len()));
    let x = &x[..depth];
    let panels = panels.map(|panel| &panel[..depth]);
    for k in 0..depth {
        for p in 0..P {
            let weights = panels[p][k];
            for m in 0..M {
                let factor = simd.splat_f32s(x[k][m]);
                for v in 0..V {
                    local[m][p][v] = simd.mul_add_f32s(factor, weights[v], local[m][p][v]);
                }
            }
        }
    }
    *sums = local;
}

/// A slice of panels as registers, 16 columns a row.
#[inline(always)]
pub(crate) fn registers<S: Simd, const V: usize>(panel: &[f32]) -> &[[S::f32s; V]] {
    S::as_simd_f32s(panel).0.as_chunks::<V>().0
}

/// Sums that start at 0.
#[inline(always)]
pub(crate) fn zeros<S: Simd, const M: usize, const P: usize, const V: usize>(simd: S) -> Sums<S, M, P, V> {
    [[[simd.splat_f32s(0.0); V]; P]; M]
}

/// The 16 columns at the head of `row`; columns that the row lacks are 0.
#[inline(always)]
pub(crate) fn load<S: Simd, const V: usize>(row: &[f32]) -> [S::f32s; V] {
    if let Some(whole) = row.first_chunk::<LANES>() {
        return registers::<S, V>(whole)[0];
    }
    let mut padded = [0.0; LANES];
    padded[..row.len()].copy_from_slice(row);
    registers::<S, V>(&padded)[0]
}

/// Writes 16 columns to the head of `row`; those that the row lacks are dropped.
#[inline(always)]
pub(crate) fn store<S: Simd, const V: usize>(row: &mut [f32], columns: [S::f32s; V]) {
    if let Some(whole) = row.first_chunk_mut::<LANES>() {
        S::as_mut_simd_f32s(whole).0.copy_from_slice(&columns);
        return;
    }
    let mut padded = [0.0; LANES];
    S::as_mut_simd_f32s(&mut padded).0.copy_from_slice(&columns);
    let width = row.len();
    row.copy_from_slice(&padded[..width]);
}
