//! Causal attention within documents that are packed into one batch of rows, with its backward.
//!
//! Forward is the attention of decoding over pages laid out for the purpose: the same bits. The logarithm of each
//! softmax's sum is kept, so that backward makes the weights again, a row at a time, and never holds a square of them.

use std::sync::{Arc, OnceLock};

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::{copy, elements, output, sizes, tensor};
use crate::kernels::{self, Heads, KeyValues, dot};
use crate::net::PAGE;

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
        let mut scratch = Vec::new();
        let mut first = 0;
        for length in self.documents.iter().copied() {
            let pages: Vec<u32> = (0_u32..).take(length.div_ceil(PAGE)).collect();
            let mut cache = KeyValues::default();
            for position in 0..length {
                let place = (first + position) * k_width..(first + position + 1) * k_width;
                cache.write(position / PAGE, position, &keys[place.clone()], &values[place], heads);
            }
            let place = first * q_width..(first + length) * q_width;
            let sums = &mut log_sums[first * heads.queries..(first + length) * heads.queries];
            let (queries, out) = (&queries[place.clone()], &mut out[place]);
            kernels::attend(queries, 0, &pages, &cache, heads, out, Some(sums), &mut scratch);
            first += length;
        }
        // a second forward of the same op has the same sums
        let _ = self.log_sums.set(log_sums);
        Ok(output(out, (rows, q_width)))
    }

    /// With weights `p`, output `o` and gradient `g` of a row: `dv_j += p_j g`; `ds_j = p_j (g v_j - g o)`;
    /// `dq += s ds_j k_j`; `dk_j += s ds_j q`, where `s = 1 / sqrt(width)`.
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
        let (group, width) = (heads.queries / heads.keys, heads.width);
        let scale = 1.0 / (width as f32).sqrt();
        let (queries, keys, values) = (copy(q)?, copy(k)?, copy(v)?);
        let (out, grads) = (copy(out)?, copy(grad)?);
        let (mut dq, mut dk, mut dv) = (vec![0.0; queries.len()], vec![0.0; keys.len()], vec![0.0; values.len()]);
        let mut first = 0;
        for length in self.documents.iter().copied() {
            for row in first..first + length {
                for head in 0..heads.queries {
                    let place = (row * heads.queries + head) * width;
                    let place = place..place + width;
                    let (query, grad) = (&queries[place.clone()], &grads[place.clone()]);
                    let mean = dot(grad, &out[place.clone()]);
                    let log_sum = log_sums[row * heads.queries + head];
                    for other in first..=row {
                        let seen = (other * heads.keys + head / group) * width;
                        let seen = seen..seen + width;
                        let (key, value) = (&keys[seen.clone()], &values[seen.clone()]);
                        let weight = kernels::exp(dot(query, key) * scale - log_sum);
                        let slope = weight * (dot(grad, value) - mean) * scale;
                        add_scaled(&mut dv[seen.clone()], grad, weight);
                        add_scaled(&mut dk[seen], query, slope);
                        add_scaled(&mut dq[place.clone()], key, slope);
                    }
                }
            }
            first += length;
        }
        Ok((Some(tensor(dq, q)?), Some(tensor(dk, k)?), Some(tensor(dv, v)?)))
    }
}

/// Adds `scale * y` to `x`.
fn add_scaled(x: &mut [f32], y: &[f32], scale: f32) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += scale * y;
    }
}
