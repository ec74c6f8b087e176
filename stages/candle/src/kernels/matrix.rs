//! Weights of a linear layer in panels, and the product of rows with them.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::LANES;
use super::blocks::{self, Blocks};
use super::tile::{self, MOST_ROWS};

/// Depth of a block of weights that stays in the first-level cache while several tiles of rows use it: 16 KiB.
const DEPTH: usize = 256;
/// Depth of all panels together that are unpacked at once for a single tile of rows: 24 KiB.
const UNPACKED: usize = 384;
/// Up to so many rows, all their inputs stay in the first-level caches.
const FEW_ROWS: usize = 24;
/// Rows whose block of `DEPTH` columns stays in the second-level cache.
const ROWS: usize = 96;

/// A matrix `[out, in]` that rows are multiplied with: `y = x W^T`.
///
/// Laid out in panels of 16 outputs, `[out / 16][in][16]`; the last panel is filled with zeros.
#[derive(Debug, Clone)]
pub struct Matrix {
    outputs: usize,
    inputs: usize,
    weights: Weights,
}

/// How weights are kept.
#[derive(Debug, Clone)]
enum Weights {
    /// Panels in `f32`.
    Whole(Vec<f32>),
    /// Panels in blocks of few bits.
    Blocks(Blocks),
}

/// Buffers that products need; reused from call to call.
#[derive(Debug, Default)]
pub struct Panels {
    rows: Vec<f32>,
    weights: Vec<f32>,
}

impl From<Blocks> for Matrix {
    fn from(blocks: Blocks) -> Self {
        Self { outputs: blocks.outputs(), inputs: blocks.inputs(), weights: Weights::Blocks(blocks) }
    }
}

impl Matrix {
    /// From row-major weights `[outputs, inputs]`.
    pub fn new(weights: &[f32], outputs: usize, inputs: usize) -> Self {
        Self::new_in(Vec::new(), weights, outputs, inputs)
    }

    /// As [`Self::new`], in a buffer that is there.
    pub(crate) fn new_in(spare: Vec<f32>, weights: &[f32], outputs: usize, inputs: usize) -> Self {
        let mut panels = empty_panels(spare, outputs, inputs);
        for (panel, rows) in panels.chunks_exact_mut(inputs * LANES).zip(weights.chunks(inputs * LANES)) {
            for (column, row) in rows.chunks_exact(inputs).enumerate() {
                for (slot, weight) in panel.chunks_exact_mut(LANES).zip(row) {
                    slot[column] = *weight;
                }
            }
        }
        Self { outputs, inputs, weights: Weights::Whole(panels) }
    }

    /// From the transposed weights `[inputs, outputs]`, row-major.
    pub fn transposed(weights: &[f32], inputs: usize, outputs: usize) -> Self {
        Self::transposed_in(Vec::new(), weights, inputs, outputs)
    }

    /// As [`Self::transposed`], in a buffer that is there.
    pub(crate) fn transposed_in(spare: Vec<f32>, weights: &[f32], inputs: usize, outputs: usize) -> Self {
        let mut panels = empty_panels(spare, outputs, inputs);
        for (index, panel) in panels.chunks_exact_mut(inputs * LANES).enumerate() {
            let first = index * LANES;
            let width = LANES.min(outputs - first);
            for (slot, row) in panel.chunks_exact_mut(LANES).zip(weights.chunks_exact(outputs)) {
                slot[..width].copy_from_slice(&row[first..first + width]);
            }
        }
        Self { outputs, inputs, weights: Weights::Whole(panels) }
    }

    /// The buffer of its panels, for another matrix.
    pub(crate) fn into_spare(self) -> Vec<f32> {
        match self.weights {
            Weights::Whole(panels) => panels,
            Weights::Blocks(_) => Vec::new(),
        }
    }

    /// Rows of the weights: width of the result.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the weights: width of what is multiplied.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Copies row `index` of the weights.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        let panels = match &self.weights {
            Weights::Whole(panels) => panels,
            Weights::Blocks(blocks) => return blocks.row(index, row),
        };
        let panel = index / LANES * self.inputs * LANES;
        let column = index % LANES;
        for (value, slot) in row.iter_mut().zip(panels[panel..].chunks_exact(LANES)) {
            *value = slot[column];
        }
    }

    /// `y = x W^T + bias` for `x` of `[rows, inputs]`, into `y` of `[rows, outputs]`, which is overwritten.
    ///
    /// Every element is one chain of fused multiply-adds over the inputs in ascending order from 0, the bias last: the
    /// same bits for any number of rows.
    pub fn multiply(&self, x: &[f32], bias: Option<&[f32]>, y: &mut [f32], buffers: &mut Panels) {
        if self.inputs == 0 || self.outputs == 0 {
            y.fill(0.0);
            return;
        }
        let x = Left::rows(x, self.inputs);
        for (index, y) in y.chunks_mut(ROWS * self.outputs).enumerate() {
            self.chunk(x, index * ROWS, y, false, buffers);
        }
        if let Some(bias) = bias {
            y.chunks_exact_mut(self.outputs).for_each(|y| super::add(y, bias));
        }
    }

    /// As [`Matrix::multiply`], without bias and with all threads.
    pub fn multiply_together(&self, x: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        self.multiply_onto(x, y);
    }

    /// Adds `x W^T` to `y`, with all threads: the chains of [`Matrix::multiply`] begin at what is there.
    pub fn multiply_onto(&self, x: &[f32], y: &mut [f32]) {
        self.add_products(Left::rows(x, self.inputs), y);
    }

    /// Adds `x^T W^T` to `y`, with all threads, for `x` of `[inputs, rows]`.
    pub fn multiply_columns_onto(&self, x: &[f32], y: &mut [f32]) {
        self.add_products(Left::columns(x, y.len() / self.outputs.max(1)), y);
    }

    fn add_products(&self, x: Left<'_>, y: &mut [f32]) {
        if self.inputs == 0 || self.outputs == 0 {
            return;
        }
        let chunks = y.par_chunks_mut(ROWS * self.outputs).enumerate();
        chunks.for_each_init(Panels::default, |buffers, (index, y)| self.chunk(x, index * ROWS, y, true, buffers));
    }

    /// A few rows of a product, from row `row` of `x`.
    fn chunk(&self, x: Left<'_>, row: usize, y: &mut [f32], is_sum: bool, buffers: &mut Panels) {
        let rows = y.len() / self.outputs;
        // few rows: each weight is read once, in the order of memory; many: rows stay in the cache, block by block
        let span = if rows <= FEW_ROWS { self.inputs } else { DEPTH };
        for first in (0..self.inputs).step_by(span) {
            let depth = span.min(self.inputs - first);
            let block = if rows <= MOST_ROWS { depth } else { DEPTH };
            interleave(x, row, first..first + depth, block, rows, &mut buffers.rows);
            let Panels { rows: x, weights: unpacked } = &mut *buffers;
            Arch::new().dispatch(Product { matrix: self, x, rows, first, depth, block, is_sum, unpacked, y });
        }
    }
}

/// What is multiplied, as it lies in memory.
#[derive(Debug, Clone, Copy)]
struct Left<'a> {
    values: &'a [f32],
    /// Elements from one line to the next.
    width: usize,
    /// Whether a line is a column.
    is_transposed: bool,
}

impl<'a> Left<'a> {
    /// Rows of `inputs` elements.
    fn rows(values: &'a [f32], inputs: usize) -> Self {
        Self { values, width: inputs, is_transposed: false }
    }

    /// Columns of `rows` elements.
    fn columns(values: &'a [f32], rows: usize) -> Self {
        Self { values, width: rows, is_transposed: true }
    }
}

/// Room for panels; columns of the last one that no output fills are 0.
fn empty_panels(mut panels: Vec<f32>, outputs: usize, inputs: usize) -> Vec<f32> {
    let count = outputs.div_ceil(LANES) * inputs * LANES;
    panels.resize(count, 0.0);
    if !outputs.is_multiple_of(LANES) {
        panels[count - inputs * LANES..].fill(0.0);
    }
    panels
}

/// Numbers of rows of the tiles that `rows` are cut into, as equal as can be.
#[inline(always)]
fn tiles(rows: usize) -> impl Iterator<Item = usize> {
    let count = rows.div_ceil(MOST_ROWS);
    (0..count).map(move |index| rows / count + usize::from(index < rows % count))
}

/// Copies columns of `rows` rows of `x`, from row `first_row`, block by block, within a block tile by tile, within a tile
/// column by column.
fn interleave(x: Left<'_>, first_row: usize, columns: Range<usize>, block: usize, rows: usize, to: &mut Vec<f32>) {
    to.resize(rows * columns.len(), 0.0);
    let mut rest = to.as_mut_slice();
    for first in columns.clone().step_by(block) {
        let depth = block.min(columns.end - first);
        let mut row = first_row;
        for height in tiles(rows) {
            let (tile, others) = rest.split_at_mut(height * depth);
            rest = others;
            if x.is_transposed {
                for (index, slot) in tile.chunks_exact_mut(height).enumerate() {
                    slot.copy_from_slice(&x.values[(first + index) * x.width + row..][..height]);
                }
            } else {
                for index in 0..height {
                    let source = &x.values[(row + index) * x.width + first..][..depth];
                    for (slot, value) in tile.chunks_exact_mut(height).zip(source) {
                        slot[index] = *value;
                    }
                }
            }
            row += height;
        }
    }
}

/// The part of a product that inputs `first..first + depth` make, for all panels.
struct Product<'a> {
    matrix: &'a Matrix,
    /// Interleaved, see [`interleave`].
    x: &'a [f32],
    rows: usize,
    first: usize,
    depth: usize,
    /// Inputs of a block of `x`.
    block: usize,
    /// Whether `y` holds something to add to.
    is_sum: bool,
    unpacked: &'a mut Vec<f32>,
    y: &'a mut [f32],
}

/// Weights of neighbouring panels, so many elements apart, from the first input of a tile on.
#[derive(Clone, Copy)]
struct Piece<'a> {
    weights: &'a [f32],
    stride: usize,
}

/// A tile of a product: where it begins.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    panel: usize,
    first: usize,
    depth: usize,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.run::<S, 1, 8, 6, 4, 4>(simd),
            8 => self.run::<S, 2, 4, 2, 2, 1>(simd),
            4 => self.run::<S, 4, 3, 2, 2, 1>(simd),
            _ => self.run::<S, 16, 1, 1, 1, 1>(simd),
        }
    }
}

impl Product<'_> {
    /// `P1`, `P2`, `P3` panels at once for tiles of 1, 2 and 3 rows, `P4` for more: as many as registers hold.
    #[inline(always)]
    fn run<S: Simd, const V: usize, const P1: usize, const P2: usize, const P3: usize, const P4: usize>(
        mut self,
        simd: S,
    ) {
        let panels = self.matrix.outputs.div_ceil(LANES);
        let mut panel = 0;
        // few rows: several panels at once; the rest one by one
        let wide = match self.rows {
            1 => P1,
            2 => P2,
            3 => P3,
            _ => P4,
        };
        // a single tile of rows is interleaved the same for any block, so blocks may be as short as the cache asks
        let is_packed = matches!(self.matrix.weights, Weights::Blocks(_));
        let block = if is_packed && self.rows <= MOST_ROWS {
            (UNPACKED / wide / blocks::BLOCK).max(1) * blocks::BLOCK
        } else {
            self.block
        };
        let mut unpacked = std::mem::take(self.unpacked);
        unpacked.resize(wide * block.min(self.depth) * LANES, 0.0);
        while panel < panels {
            let count = if panel + wide <= panels { wide } else { 1 };
            let mut offset = 0;
            for first in (self.first..self.first + self.depth).step_by(block) {
                let depth = block.min(self.first + self.depth - first);
                let matrix = self.matrix;
                let (weights, stride) = match &matrix.weights {
                    Weights::Whole(panels) => {
                        (&panels[(panel * matrix.inputs + first) * LANES..], matrix.inputs * LANES)
                    }
                    Weights::Blocks(blocks) => {
                        for (index, to) in unpacked.chunks_exact_mut(depth * LANES).take(count).enumerate() {
                            blocks.unpack(panel + index, first, depth, to);
                        }
                        (&*unpacked, depth * LANES)
                    }
                };
                let weights = Piece { weights, stride };
                let mut place = Place { row: 0, panel, first, depth };
                for height in tiles(self.rows) {
                    let x = &self.x[offset..offset + height * depth];
                    match (height, count > 1) {
                        (1, true) => self.tile::<S, 1, P1, V>(simd, x, place, weights),
                        (2, true) => self.tile::<S, 2, P2, V>(simd, x, place, weights),
                        (3, true) => self.tile::<S, 3, P3, V>(simd, x, place, weights),
                        (4, true) => self.tile::<S, 4, P4, V>(simd, x, place, weights),
                        (5, true) => self.tile::<S, 5, P4, V>(simd, x, place, weights),
                        (6, true) => self.tile::<S, 6, P4, V>(simd, x, place, weights),
                        (1, false) => self.tile::<S, 1, 1, V>(simd, x, place, weights),
                        (2, false) => self.tile::<S, 2, 1, V>(simd, x, place, weights),
                        (3, false) => self.tile::<S, 3, 1, V>(simd, x, place, weights),
                        (4, false) => self.tile::<S, 4, 1, V>(simd, x, place, weights),
                        (5, false) => self.tile::<S, 5, 1, V>(simd, x, place, weights),
                        _ => self.tile::<S, 6, 1, V>(simd, x, place, weights),
                    }
                    place.row += height;
                    offset += height * depth;
                }
            }
            panel += count;
        }
        *self.unpacked = unpacked;
    }

    #[inline(always)]
    fn tile<S: Simd, const M: usize, const P: usize, const V: usize>(
        &mut self,
        simd: S,
        x: &[f32],
        place: Place,
        piece: Piece<'_>,
    ) {
        let Place { row, panel, first, depth } = place;
        let outputs = self.matrix.outputs;
        let mut sums = tile::zeros::<S, M, P, V>(simd);
        if first > 0 || self.is_sum {
            for (m, sums) in sums.iter_mut().enumerate() {
                for (p, sums) in sums.iter_mut().enumerate() {
                    let column = (panel + p) * LANES;
                    let end = outputs.min(column + LANES);
                    *sums = tile::load::<S, V>(&self.y[(row + m) * outputs..][column..end]);
                }
            }
        }
        let weights = std::array::from_fn::<_, P, _>(|p| {
            tile::registers::<S, V>(&piece.weights[p * piece.stride..][..depth * LANES])
        });
        tile::accumulate::<S, M, P, V>(simd, x.as_chunks::<M>().0, weights, &mut sums);
        for (m, sums) in sums.iter().enumerate() {
            for (p, sums) in sums.iter().enumerate() {
                let column = (panel + p) * LANES;
                let end = outputs.min(column + LANES);
                tile::store::<S, V>(&mut self.y[(row + m) * outputs..][column..end], *sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize, salt: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + salt * 104_729 + i * i * 31) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    fn transposed(x: &[f32], width: usize) -> Vec<f32> {
        (0..width).flat_map(|column| x.iter().skip(column).step_by(width).copied().collect::<Vec<_>>()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn products_that_are_added_continue_the_chain_whatever_the_layout(
            rows in 1_usize..210, inputs in 1_usize..530, outputs in 1_usize..40,
        ) {
            let (x, weights, start) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2), numbers(rows * outputs, 3));
            let mut expected = start.clone();
            for (place, sum) in expected.iter_mut().enumerate() {
                let (x, weights) = (&x[place / outputs * inputs..][..inputs], &weights[place % outputs * inputs..]);
                *sum = x.iter().zip(weights).fold(*sum, |sum, (x, weight)| x.mul_add(*weight, sum));
            }
            for matrix in [Matrix::new(&weights, outputs, inputs), Matrix::transposed(&transposed(&weights, inputs), inputs, outputs)] {
                let (mut by_rows, mut by_columns) = (start.clone(), start.clone());
                matrix.multiply_onto(&x, &mut by_rows);
                matrix.multiply_columns_onto(&transposed(&x, inputs), &mut by_columns);
                prop_assert!(by_rows == expected, "rows");
                prop_assert!(by_columns == expected, "columns");
            }
        }
    }
}
