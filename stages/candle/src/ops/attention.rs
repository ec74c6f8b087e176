//! Causal attention within documents that are packed into one batch of rows, with its backward.
//!
//! Forward is the attention of decoding over pages laid out for the purpose: the same bits. The logarithm of each
//! softmax's sum is kept, so that backward makes the weights again, a block at a time, and never holds a square of them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{elements, output, read, sizes, tensor};
use crate::kernels::{self, AttentionRow, Heads, KeyValues, Matrix};
use crate::net::PAGE;

/// Rows of queries that forward takes at once.
const FORWARD_ROWS: usize = 64;
/// Rows of a block of backward.
const BLOCK: usize = 64;

/// Attention of `queries` (`[rows, queries * width]`) over `keys` and `values` (`[rows, keys * width]`): each row sees the
/// rows of its own document up to itself. `documents` are the documents' numbers of rows, in order.
///
/// # Errors
/// For other shapes or types.
pub fn attention(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    heads: Heads,
    documents: Arc<[usize]>,
) -> Result<Tensor> {
    queries.apply_op3(keys, values, Attention { heads, documents, log_sums: OnceLock::new() })
}

struct Attention {
    heads: Heads,
    documents: Arc<[usize]>,
    /// `[rows, queries]`.
    log_sums: OnceLock<Vec<f32>>,
}

impl Attention {
    /// First row and number of rows of each document.
    fn places(&self) -> Vec<(usize, usize)> {
        let mut first = 0;
        let place = |length: &usize| {
            first += length;
            (first - length, *length)
        };
        self.documents.iter().map(place).collect()
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_at: &Layout,
        k: &CpuStorage,
        k_at: &Layout,
        v: &CpuStorage,
        v_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let heads = self.heads;
        let (rows, q_width) = sizes(q_at, self.name())?;
        let k_width = heads.keys * heads.width;
        let is_fit =
            q_width == heads.queries * heads.width && [k_at, v_at].iter().all(|at| at.dims() == [rows, k_width]);
        if !is_fit || self.documents.iter().sum::<usize>() != rows {
            bail!("attention of {:?} over {:?} and {:?} with {heads:?}", q_at.dims(), k_at.dims(), v_at.dims());
        }
        let (queries, keys) = (elements(q, q_at, self.name())?, elements(k, k_at, self.name())?);
        let values = elements(v, v_at, self.name())?;
        let (mut out, mut log_sums) = (vec![0.0; rows * q_width], vec![0.0; rows * heads.queries]);
        for (first, length) in self.places() {
            let pages: Vec<u32> = (0_u32..).take(length.div_ceil(PAGE)).collect();
            let mut cache = KeyValues::default();
            for position in 0..length {
                let place = (first + position) * k_width..(first + position + 1) * k_width;
                cache.write(position / PAGE, position, &keys[place.clone()], &values[place], heads);
            }
            let place = first * q_width..(first + length) * q_width;
            let sums = log_sums[first * heads.queries..][..length * heads.queries]
                .par_chunks_mut(FORWARD_ROWS * heads.queries);
            let chunks = queries[place.clone()].par_chunks(FORWARD_ROWS * q_width);
            let chunks = chunks.zip(out[place].par_chunks_mut(FORWARD_ROWS * q_width)).zip(sums).enumerate();
            chunks.for_each_init(Vec::new, |scratch, (index, ((queries, out), sums))| {
                kernels::attend(queries, index * FORWARD_ROWS, &pages, &cache, heads, out, Some(sums), scratch);
            });
        }
        // a second forward of the same op has the same sums
        let _ = self.log_sums.set(log_sums);
        Ok(output(out, (rows, q_width)))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let Some(log_sums) = self.log_sums.get() else { bail!("attention has no forward to go back through") };
        let heads = self.heads;
        let grad = grad.contiguous()?;
        let (queries, keys, values, out, grads) = (read(q)?, read(k)?, read(v)?, read(out)?, read(&grad)?);
        let inputs =
            Inputs { heads, queries: &queries, keys: &keys, values: &values, out: &out, grads: &grads, log_sums };
        let places = self.places();
        let parts: Vec<_> = places.iter().flat_map(|place| (0..heads.keys).map(move |head| (*place, head))).collect();
        let made: Vec<_> = parts.par_iter().map(|((first, rows), head)| inputs.slopes(*first, *rows, *head)).collect();
        let (mut dq, mut dk, mut dv) = (vec![0.0; queries.len()], vec![0.0; keys.len()], vec![0.0; values.len()]);
        for (((first, rows), head), slopes) in parts.into_iter().zip(made) {
            let place = first..first + rows;
            scatter(&slopes.queries, &mut dq, place.clone(), head, heads.keys);
            scatter(&slopes.keys, &mut dk, place.clone(), head, heads.keys);
            scatter(&slopes.values, &mut dv, place, head, heads.keys);
        }
        Ok((Some(tensor(dq, q)?), Some(tensor(dk, k)?), Some(tensor(dv, v)?)))
    }
}

/// All that backward looks at; rows as for [`attention`].
struct Inputs<'a> {
    heads: Heads,
    queries: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    out: &'a [f32],
    grads: &'a [f32],
    /// `[rows, queries]`.
    log_sums: &'a [f32],
}

/// Gradients of a document for one head of keys; queries are those that share it.
struct Slopes {
    /// `[rows, group * width]`.
    queries: Vec<f32>,
    /// `[rows, width]`.
    keys: Vec<f32>,
    /// `[rows, width]`.
    values: Vec<f32>,
}

/// A block of keys and values, packed for the products that it takes part in.
struct Seen {
    rows: Range<usize>,
    keys: Matrix,
    keys_back: Matrix,
    values: Matrix,
}

impl Inputs<'_> {
    /// With weights `p`, output `o` and gradient `g` of a row: `dv_j += p_j g`; `ds_j = s p_j (g v_j - g o)`;
    /// `dq += ds_j k_j`; `dk_j += ds_j q`, where `s = 1 / sqrt(width)`. All sums over rows are products of matrices:
    /// those of `BLOCK` rows of queries, for all heads that share keys, with `BLOCK` rows of keys.
    fn slopes(&self, first: usize, rows: usize, head: usize) -> Slopes {
        let Heads { keys: key_heads, width, queries: query_heads } = self.heads;
        let group = query_heads / key_heads;
        let gathered = |all, width| gather(all, first..first + rows, head, key_heads, width);
        let [queries, out, grads] = [self.queries, self.out, self.grads].map(|all| gathered(all, group * width));
        let [keys, values] = [self.keys, self.values].map(|all| gathered(all, width));
        let log_sums = gathered(self.log_sums, group);
        let means: Vec<f32> = grads
            .chunks_exact(width)
            .zip(out.chunks_exact(width))
            .map(|(grad, out)| kernels::product(grad, out))
            .collect();
        let seen: Vec<Seen> = (0..rows)
            .step_by(BLOCK)
            .map(|start| Seen::new(&keys, &values, start..rows.min(start + BLOCK), width))
            .collect();
        let zeros = |count: usize| vec![0.0; count];
        let mut slopes = Slopes { queries: zeros(queries.len()), keys: zeros(keys.len()), values: zeros(values.len()) };
        let (mut scores, mut score_slopes) = (Vec::new(), Vec::new());
        let scale = 1.0 / (width as f32).sqrt();
        for block in &seen {
            let pairs = block.rows.start * group..block.rows.end * group;
            let place = pairs.start * width..pairs.end * width;
            let (own, grads) = (&queries[place.clone()], &grads[place.clone()]);
            let (own_columns, grad_columns) =
                (Matrix::transposed(own, pairs.len(), width), Matrix::transposed(grads, pairs.len(), width));
            for other in seen.iter().take_while(|other| other.rows.start < block.rows.end) {
                let count = other.rows.len();
                scores.resize(pairs.len() * count, 0.0);
                score_slopes.resize(pairs.len() * count, 0.0);
                other.keys.multiply_together(own, &mut scores);
                other.values.multiply_together(grads, &mut score_slopes);
                let both = scores.chunks_exact_mut(count).zip(score_slopes.chunks_exact_mut(count));
                for (pair, (scores, slopes)) in pairs.clone().zip(both) {
                    let visible = (pair / group + 1).saturating_sub(other.rows.start).min(count);
                    let row = AttentionRow { scale, log_sum: log_sums[pair], mean: means[pair] };
                    kernels::attention_slopes(scores, slopes, visible, row);
                }
                let seen_place = other.rows.start * width..other.rows.end * width;
                other.keys_back.multiply_onto(&score_slopes, &mut slopes.queries[place.clone()]);
                own_columns.multiply_columns_onto(&score_slopes, &mut slopes.keys[seen_place.clone()]);
                grad_columns.multiply_columns_onto(&scores, &mut slopes.values[seen_place]);
            }
        }
        slopes
    }
}

impl Seen {
    fn new(keys: &[f32], values: &[f32], rows: Range<usize>, width: usize) -> Self {
        let place = rows.start * width..rows.end * width;
        let (keys, values, count) = (&keys[place.clone()], &values[place], rows.len());
        Self {
            rows,
            keys: Matrix::new(keys, count, width),
            keys_back: Matrix::transposed(keys, count, width),
            values: Matrix::new(values, count, width),
        }
    }
}

/// The part of some rows that belongs to one of `parts` parts of `width` elements of a row.
fn gather(all: &[f32], rows: Range<usize>, part: usize, parts: usize, width: usize) -> Vec<f32> {
    let mut gathered = Vec::with_capacity(rows.len() * width);
    for row in rows {
        gathered.extend_from_slice(&all[(row * parts + part) * width..][..width]);
    }
    gathered
}

/// Puts back what [`gather`] took out.
fn scatter(from: &[f32], all: &mut [f32], rows: Range<usize>, part: usize, parts: usize) {
    let width = from.len() / rows.len().max(1);
    for (row, from) in rows.zip(from.chunks_exact(width.max(1))) {
        all[(row * parts + part) * width..][..width].copy_from_slice(from);
    }
}
