//! Causal attention of a few queries over the pages of their own sequence.
//!
//! A page holds 16 positions. Its keys lie as a panel (`[head_dim][16 positions]`), so that scores are made by the same
//! tile as matrix products; its values lie as panels of 16 columns (`[16 positions][16]`). A score is one chain over the
//! head's elements and a result one chain over the positions in ascending order; the softmax takes its largest score
//! first and its sum in lanes by position. So nothing depends on where a prompt was cut or on who shares the step.
//! Heads that share keys and values are rows of one tile: keys and values are read once for all of them.

use pulp::{Arch, Simd, WithSimd};

use super::tile::{self, MOST_ROWS};
use super::{LANES, softmax};
use crate::net::PAGE;

/// Numbers and widths of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries.
    pub queries: usize,
    /// Heads of keys and values; divides `queries`.
    pub keys: usize,
    /// Width of a head.
    pub width: usize,
}

/// Keys and values of one layer, page after page.
#[derive(Debug, Default)]
pub struct KeyValues {
    pages: Vec<f32>,
}

impl Heads {
    /// Queries that share one head of keys.
    fn group(self) -> usize {
        self.queries / self.keys.max(1)
    }

    /// Panels of 16 columns that a head's values fill.
    fn value_panels(self) -> usize {
        self.width.div_ceil(LANES)
    }

    /// Elements of one head's keys and values in a page.
    fn head_elements(self) -> usize {
        PAGE * (self.width + self.value_panels() * LANES)
    }

    /// Elements of a page of one layer.
    pub fn page_elements(self) -> usize {
        self.keys * self.head_elements()
    }
}

impl KeyValues {
    /// With room for `pages` pages. They are touched when first written.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn with_room(pages: usize, heads: Heads) -> Result<Self, std::collections::TryReserveError> {
        let mut room = Vec::new();
        room.try_reserve_exact(pages.saturating_mul(heads.page_elements()))?;
        Ok(Self { pages: room })
    }

    /// Puts the keys and values (`[keys * width]` each) of a position into slot `position % 16` of `page`.
    ///
    /// The first slot of a page clears the others: what an earlier sequence left there, were it NaN, would spoil sums
    /// that multiply it by 0.
    pub fn write(&mut self, page: usize, position: usize, keys: &[f32], values: &[f32], heads: Heads) {
        let elements = heads.page_elements();
        let end = (page + 1) * elements;
        if self.pages.len() < end {
            self.pages.resize(end, 0.0);
        }
        let slot = position % PAGE;
        let page = &mut self.pages[end - elements..end];
        if slot == 0 {
            page.fill(0.0);
        }
        let both = keys.chunks_exact(heads.width).zip(values.chunks_exact(heads.width));
        for (head, (keys, values)) in page.chunks_exact_mut(heads.head_elements()).zip(both) {
            let (to_keys, to_values) = head.split_at_mut(heads.width * PAGE);
            for (column, key) in to_keys.chunks_exact_mut(PAGE).zip(keys) {
                column[slot] = *key;
            }
            for (panel, values) in to_values.chunks_exact_mut(PAGE * LANES).zip(values.chunks(LANES)) {
                panel[slot * LANES..][..values.len()].copy_from_slice(values);
            }
        }
    }

    fn keys(&self, page: u32, head: usize, heads: Heads) -> &[f32] {
        let start = page as usize * heads.page_elements() + head * heads.head_elements();
        &self.pages[start..start + heads.width * PAGE]
    }

    fn values(&self, page: u32, head: usize, panel: usize, heads: Heads) -> &[f32] {
        let start =
            page as usize * heads.page_elements() + head * heads.head_elements() + PAGE * (heads.width + panel * LANES);
        &self.pages[start..start + PAGE * LANES]
    }
}

/// Attention of `queries` (`[rows, queries * width]`), whose first row stands at position `start`, over all positions up
/// to each row's own, into `out` of the same shape. Scores are multiplied by `1 / sqrt(width)`.
///
/// `log_sums`, where given (`[rows, heads]`), receives the logarithm of each softmax's sum of exponentials.
#[expect(clippy::too_many_arguments, reason = "inputs, outputs and a buffer, none of which belong together")]
pub fn attend(
    queries: &[f32],
    start: usize,
    pages: &[u32],
    cache: &KeyValues,
    heads: Heads,
    out: &mut [f32],
    log_sums: Option<&mut [f32]>,
    scratch: &mut Vec<f32>,
) {
    let scale = 1.0 / (heads.width as f32).sqrt();
    Arch::new().dispatch(Attend { queries, start, pages, cache, heads, scale, out, log_sums, scratch });
}

struct Attend<'a> {
    queries: &'a [f32],
    start: usize,
    pages: &'a [u32],
    cache: &'a KeyValues,
    heads: Heads,
    scale: f32,
    out: &'a mut [f32],
    log_sums: Option<&'a mut [f32]>,
    scratch: &'a mut Vec<f32>,
}

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match S::F32_LANES {
            16 => self.run::<S, 1, 6, 4, 4>(simd),
            8 => self.run::<S, 2, 3, 2, 1>(simd),
            4 => self.run::<S, 4, 2, 2, 1>(simd),
            _ => self.run::<S, 16, 1, 1, 1>(simd),
        }
    }
}

impl Attend<'_> {
    #[inline(always)]
    fn run<S: Simd, const V: usize, const P2: usize, const P3: usize, const P4: usize>(&mut self, simd: S) {
        let rows = self.queries.len() / (self.heads.queries * self.heads.width);
        let pairs = rows * self.heads.group();
        for head in 0..self.heads.keys {
            let mut first = 0;
            while first < pairs {
                // equal tiles, so that none has a single row
                let tiles = (pairs - first).div_ceil(MOST_ROWS);
                let height = (pairs - first).div_ceil(tiles);
                match height {
                    1 => self.tile::<S, 1, P2, V>(simd, head, first),
                    2 => self.tile::<S, 2, P2, V>(simd, head, first),
                    3 => self.tile::<S, 3, P3, V>(simd, head, first),
                    4 => self.tile::<S, 4, P4, V>(simd, head, first),
                    5 => self.tile::<S, 5, P4, V>(simd, head, first),
                    _ => self.tile::<S, 6, P4, V>(simd, head, first),
                }
                first += height;
            }
        }
    }

    /// `M` pairs of a row and a head of the group, from pair `first`, row by row.
    #[inline(always)]
    fn tile<S: Simd, const M: usize, const P: usize, const V: usize>(&mut self, simd: S, head: usize, first: usize) {
        let Heads { queries, width, .. } = self.heads;
        let group = self.heads.group();
        let places = std::array::from_fn::<_, M, _>(|m| {
            let (row, query) = ((first + m) / group, head * group + (first + m) % group);
            (row, (row * queries + query) * width)
        });
        let lengths = places.map(|(row, _)| self.start + row + 1);
        let pages = lengths[M - 1].div_ceil(PAGE);
        let positions = pages * PAGE;
        let mut scratch = std::mem::take(self.scratch);
        scratch.resize(M * (width + 2 * positions), 0.0);
        let (interleaved, rest) = scratch.split_at_mut(M * width);
        let (scores, weights) = rest.split_at_mut(M * positions);
        for (m, (_, place)) in places.iter().enumerate() {
            for (slot, query) in interleaved.chunks_exact_mut(M).zip(&self.queries[*place..place + width]) {
                slot[m] = *query;
            }
        }
        self.scores::<S, M, P, V>(simd, head, interleaved, scores, pages);
        let mut sums = [0.0; M];
        for (m, scores) in scores.chunks_exact_mut(positions).enumerate() {
            let (highest, sum) = softmax::exponentials(scores, lengths[m], self.scale);
            sums[m] = sum;
            if let Some(log_sums) = self.log_sums.as_deref_mut() {
                log_sums[places[m].1 / width] = highest + sum.ln();
            }
            for (slot, score) in weights.chunks_exact_mut(M).zip(&*scores) {
                slot[m] = *score;
            }
        }
        self.mix::<S, M, P, V>(simd, head, weights, pages, sums, places.map(|(_, place)| place));
        *self.scratch = scratch;
    }

    /// Scores of `M` queries with the positions of `pages` pages, into `[M][positions]`.
    #[inline(always)]
    fn scores<S: Simd, const M: usize, const P: usize, const V: usize>(
        &self,
        simd: S,
        head: usize,
        queries: &[f32],
        scores: &mut [f32],
        pages: usize,
    ) {
        let positions = pages * PAGE;
        let queries = queries.as_chunks::<M>().0;
        let mut page = 0;
        while page + P <= pages {
            let keys = std::array::from_fn::<_, P, _>(|p| {
                tile::registers::<S, V>(self.cache.keys(self.pages[page + p], head, self.heads))
            });
            let mut sums = tile::zeros::<S, M, P, V>(simd);
            tile::accumulate::<S, M, P, V>(simd, queries, keys, &mut sums);
            for (m, sums) in sums.iter().enumerate() {
                for (p, sums) in sums.iter().enumerate() {
                    tile::store::<S, V>(&mut scores[m * positions + (page + p) * PAGE..], *sums);
                }
            }
            page += P;
        }
        while page < pages {
            let keys = [tile::registers::<S, V>(self.cache.keys(self.pages[page], head, self.heads))];
            let mut sums = tile::zeros::<S, M, 1, V>(simd);
            tile::accumulate::<S, M, 1, V>(simd, queries, keys, &mut sums);
            for (m, [sums]) in sums.iter().enumerate() {
                tile::store::<S, V>(&mut scores[m * positions + page * PAGE..], *sums);
            }
            page += 1;
        }
    }

    /// Values of all positions by their weights (`[positions][M]`), divided by the weights' sums, to the results' places.
    #[inline(always)]
    fn mix<S: Simd, const M: usize, const P: usize, const V: usize>(
        &mut self,
        simd: S,
        head: usize,
        weights: &[f32],
        pages: usize,
        sums: [f32; M],
        places: [usize; M],
    ) {
        let panels = self.heads.value_panels();
        let mut panel = 0;
        while panel < panels {
            if panel + P <= panels {
                self.mix_panels::<S, M, P, V>(simd, head, weights, pages, sums, places, panel);
                panel += P;
            } else {
                self.mix_panels::<S, M, 1, V>(simd, head, weights, pages, sums, places, panel);
                panel += 1;
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the innermost of three levels; all vary")]
    #[inline(always)]
    fn mix_panels<S: Simd, const M: usize, const P: usize, const V: usize>(
        &mut self,
        simd: S,
        head: usize,
        weights: &[f32],
        pages: usize,
        sums: [f32; M],
        places: [usize; M],
        panel: usize,
    ) {
        let width = self.heads.width;
        let mut mixed = tile::zeros::<S, M, P, V>(simd);
        for (page, weights) in self.pages[..pages].iter().zip(weights.chunks_exact(PAGE * M)) {
            let values = std::array::from_fn::<_, P, _>(|p| {
                tile::registers::<S, V>(self.cache.values(*page, head, panel + p, self.heads))
            });
            tile::accumulate::<S, M, P, V>(simd, weights.as_chunks::<M>().0, values, &mut mixed);
        }
        for m in 0..M {
            let sum = simd.splat_f32s(sums[m]);
            let row = &mut self.out[places[m]..places[m] + width];
            for p in 0..P {
                let column = (panel + p) * LANES;
                let end = width.min(column + LANES);
                tile::store::<S, V>(&mut row[column..end], mixed[m][p].map(|mixed| simd.div_f32s(mixed, sum)));
            }
        }
    }
}
