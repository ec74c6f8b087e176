//! From logits to a token.
//!
//! The order is: divide the logits by the temperature; keep the `top_k` largest; of these keep the smallest set of likeliest
//! tokens whose share of the probability that is left reaches `top_p` (the token that crosses it is kept); of these drop
//! what is less than `min_p` times as likely as the best. What remains is renormalised and drawn from with one uniform
//! number, walking it in order of ids, so a truncation that drops nothing changes nothing but rounding. Ties, wherever two logits are
//! equal, go to the smaller id. Temperature 0 takes the largest logit.
//!
//! Weights are `exp((logit - largest) / temperature)` in f32, by an exponential written here so that it is the same on every
//! machine and fast enough for large vocabularies; sums are f64 in a fixed order. Nothing is sorted when nothing is truncated.

use std::cmp::Ordering;

use crate::decode::job::Draw;
use crate::decode::philox;

/// Weights that are summed together; a draw finds its block first, then its token.
const BLOCK: usize = 256;

/// Draws tokens; keeps its buffers from token to token.
#[derive(Debug, Default)]
pub struct Sampler {
    weights: Vec<f32>,
    blocks: Vec<f64>,
    kept: Vec<u32>,
}

impl Sampler {
    /// The token that `draw` takes from `logits` (one for each id) at the n-th place of an answer, `place` from 0.
    ///
    /// `None` where no token can be drawn: a logit is NaN or positive infinity, or none is finite.
    pub fn draw(&mut self, logits: &[f32], draw: &Draw, place: u64) -> Option<u32> {
        let largest = largest(logits)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a temperature beyond f32 is as good as its largest number"
        )]
        let temperature = (draw.temperature as f32).min(f32::MAX);
        if temperature <= 0.0 {
            return id_of(logits.iter().position(|logit| *logit >= largest)?);
        }
        let uniform = philox::uniform(draw.seed, place);
        let top_k = usize::try_from(draw.top_k).unwrap_or(usize::MAX);
        let has_top_k = top_k > 0 && top_k < logits.len();
        if !has_top_k && draw.top_p >= 1.0 && draw.min_p <= 0.0 {
            self.weigh(logits, largest, temperature);
            return self.walk_blocks(uniform);
        }
        self.weigh(logits, largest, temperature);
        self.kept.clear();
        let cut = if has_top_k {
            self.kept.extend(0..id_of(logits.len())?);
            self.kept.select_nth_unstable_by(top_k - 1, |left, right| likelier(logits, *left, *right));
            self.kept.truncate(top_k);
            None
        } else {
            Some(self.blocks.iter().sum::<f64>())
        };
        if draw.top_p < 1.0 {
            self.keep_nucleus(logits, draw.top_p, cut);
        } else if cut.is_some() {
            self.kept.extend(0..id_of(logits.len())?);
        }
        let weights = &self.weights;
        self.kept.retain(|id| f64::from(weights[*id as usize]) >= draw.min_p);
        self.kept.sort_unstable();
        self.walk_kept(uniform)
    }

    /// Weights of all tokens, and their sums by blocks.
    fn weigh(&mut self, logits: &[f32], largest: f32, temperature: f32) {
        self.weights.clear();
        self.weights.extend(logits.iter().map(|logit| exp((logit - largest) / temperature)));
        self.blocks.clear();
        self.blocks.extend(self.weights.chunks(BLOCK).map(sum));
    }

    /// Keeps the likeliest tokens up to the share `top_p`: of `total` among all tokens, or among those kept so far.
    fn keep_nucleus(&mut self, logits: &[f32], top_p: f64, total: Option<f64>) {
        let weights = &self.weights;
        if let Some(total) = total {
            // All tokens lighter than this together weigh less than what top_p may leave out, so none of them is needed:
            // only the rest is sorted.
            let needed = (1.0 - top_p) * total / weights.len() as f64 * 0.999;
            let heavy = weights.iter().enumerate().filter(|(_, weight)| f64::from(**weight) >= needed);
            self.kept.extend(heavy.filter_map(|(id, _)| id_of(id)));
        }
        self.kept.sort_unstable_by(|left, right| likelier(logits, *left, *right));
        let weight_of = |id: &u32| f64::from(weights[*id as usize]);
        let goal = top_p * total.unwrap_or_else(|| self.kept.iter().map(weight_of).sum());
        let mut reached = 0.0;
        let inside = self.kept.iter().position(|id| {
            reached += weight_of(id);
            reached >= goal
        });
        self.kept.truncate(inside.map_or(self.kept.len(), |last| last + 1));
    }

    /// The token at share `uniform` of all weights, in order of ids.
    fn walk_blocks(&self, uniform: f64) -> Option<u32> {
        let goal = uniform * self.blocks.iter().sum::<f64>();
        let (mut before, mut last) = (0.0, None);
        for (block, total) in self.blocks.iter().enumerate() {
            if before + total > goal {
                let ids = block * BLOCK..self.weights.len().min((block + 1) * BLOCK);
                let found = walk(ids.map(|id| (id, self.weights[id])), before, goal);
                return id_of(found?);
            }
            before += total;
            last = if *total > 0.0 { Some(block) } else { last };
        }
        // Rounding: the goal is the whole sum. The last token that has any weight is the one.
        let ids = last? * BLOCK..self.weights.len().min((last? + 1) * BLOCK);
        id_of(walk(ids.map(|id| (id, self.weights[id])), 0.0, f64::INFINITY)?)
    }

    /// The token at share `uniform` of the kept ones' weights, in order of ids.
    fn walk_kept(&self, uniform: f64) -> Option<u32> {
        let weighted = || self.kept.iter().map(|id| (*id as usize, self.weights[*id as usize]));
        let goal = uniform * weighted().map(|(_, weight)| f64::from(weight)).sum::<f64>();
        id_of(walk(weighted(), 0.0, goal)?)
    }
}

/// The first token whose weights from `before` on sum up to more than `goal`; the last one of any weight if none does.
fn walk(weighted: impl Iterator<Item = (usize, f32)>, before: f64, goal: f64) -> Option<usize> {
    let (mut reached, mut last) = (before, None);
    for (id, weight) in weighted.filter(|(_, weight)| *weight > 0.0) {
        reached += f64::from(weight);
        last = Some(id);
        if reached > goal {
            break;
        }
    }
    last
}

/// The `count` likeliest tokens, best first, ties to the smaller id.
pub(super) fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(logits.len());
    let mut ids: Vec<u32> = (0..logits.len()).filter_map(id_of).collect();
    if count > 0 && count < ids.len() {
        ids.select_nth_unstable_by(count - 1, |left, right| likelier(logits, *left, *right));
    }
    ids.truncate(count);
    ids.sort_unstable_by(|left, right| likelier(logits, *left, *right));
    ids
}

/// Larger logits first, then smaller ids.
fn likelier(logits: &[f32], left: u32, right: u32) -> Ordering {
    // Adding 0 makes -0 the same as 0.
    let (of_left, of_right) = (logits[left as usize] + 0.0, logits[right as usize] + 0.0);
    of_right.total_cmp(&of_left).then(left.cmp(&right))
}

/// The largest logit, if all are numbers below infinity and one is finite.
fn largest(logits: &[f32]) -> Option<f32> {
    let (mut largest, mut has_nan) = (f32::NEG_INFINITY, false);
    for logit in logits {
        has_nan |= logit.is_nan();
        largest = largest.max(*logit);
    }
    (!has_nan && largest.is_finite()).then_some(largest)
}

fn id_of(index: usize) -> Option<u32> {
    u32::try_from(index).ok()
}

/// Sum in eight lanes, then over them: an order that depends on nothing and that a compiler can keep in registers.
fn sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    for chunk in weights.chunks(8) {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*weight);
        }
    }
    lanes.iter().sum()
}

/// e^x for x <= 0, relative error below 2e-7; 0 below the smallest normal number.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor polynomial of degree 7, whose rest is below 6e-9, and 2^n is put
/// together from its bits. No branches, so loops over it become vector code.
fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.0;
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with few bits so that n times it is exact.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let bounded = x.max(LOWEST);
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW;
    let tail = 1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0)));
    let power = 1.0 + (r + r * r * (0.5 + r * (1.0 / 6.0 + r * tail)));
    // The low bits of `shifted` hold n.
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x < LOWEST { 0.0 } else { power * scale }
}

#[cfg(test)]
mod tests;
