//! Softmax and its logarithm with sums in one order.

use pulp::{Arch, Simd, WithSimd};

use super::{LANES, exp, fold, rounded};

/// Columns whose sum is kept in `f32`; sums of such blocks are added in `f64`.
const BLOCK: usize = 1024;

/// `ln softmax(logits)[target]`; -infinity where `target` is no column.
///
/// The sum over a vocabulary is taken in `f64` over blocks, so that its error does not grow with the vocabulary.
pub fn log_softmax_at(logits: &[f32], target: u32) -> f32 {
    let Some(logit) = usize::try_from(target).ok().and_then(|target| logits.get(target)) else {
        return f32::NEG_INFINITY;
    };
    let (highest, log_sum) = log_sum(logits);
    rounded(f64::from(*logit) - f64::from(highest) - log_sum)
}

/// The largest value, and the logarithm of the sum of `e^(x - largest)`.
pub(crate) fn log_sum(logits: &[f32]) -> (f32, f64) {
    Arch::new().dispatch(LogSum { logits })
}

/// Puts `e^(x - shift)` in place of each logit, where `shift` is the logarithm of the sum of their exponentials; gives the
/// entropy of these probabilities in nats.
pub(crate) fn probabilities(logits: &mut [f32], shift: f32) -> f32 {
    Arch::new().dispatch(Probabilities { logits, shift })
}

struct Probabilities<'a> {
    logits: &'a mut [f32],
    shift: f32,
}

impl WithSimd for Probabilities<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let mut entropy = 0.0;
        for block in self.logits.chunks_mut(BLOCK) {
            let mut lanes = [0.0; LANES];
            let (whole, rest) = block.as_chunks_mut::<LANES>();
            for x in whole {
                for i in 0..LANES {
                    let log = x[i] - self.shift;
                    x[i] = exp(log);
                    lanes[i] -= x[i] * log.max(f32::MIN);
                }
            }
            for (lane, x) in lanes.iter_mut().zip(rest) {
                let log = *x - self.shift;
                *x = exp(log);
                *lane -= *x * log.max(f32::MIN);
            }
            entropy += f64::from(fold(lanes));
        }
        rounded(entropy)
    }
}

struct LogSum<'a> {
    logits: &'a [f32],
}

impl WithSimd for LogSum<'_> {
    type Output = (f32, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (f32, f64) {
        let highest = largest(self.logits);
        let mut sum = 0.0;
        for block in self.logits.chunks(BLOCK) {
            sum += f64::from(sum_of_exp(block, highest));
        }
        (highest, sum.ln())
    }
}

/// The largest value. A NaN may be passed over here; it shows in the sum of exponentials.
#[inline(always)]
pub(crate) fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            lanes[i] = if x[i] < lanes[i] { lanes[i] } else { x[i] };
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = if x < lane { *lane } else { *x };
    }
    lanes.iter().fold(f32::NEG_INFINITY, |highest, x| if *x < highest { highest } else { *x })
}

#[inline(always)]
fn sum_of_exp(x: &[f32], highest: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            lanes[i] += exp(x[i] - highest);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += exp(x - highest);
    }
    fold(lanes)
}

/// Puts `e^(scale * (x - largest))` in place of the first `length` scores and 0 in place of the others; gives the
/// largest scaled score and the sum.
#[inline(always)]
pub(crate) fn exponentials(scores: &mut [f32], length: usize, scale: f32) -> (f32, f32) {
    let (seen, unseen) = scores.split_at_mut(length);
    let highest = largest(seen) * scale;
    let mut lanes = [0.0; LANES];
    let (whole, rest) = seen.as_chunks_mut::<LANES>();
    for x in whole {
        for i in 0..LANES {
            x[i] = exp(x[i] * scale - highest);
            lanes[i] += x[i];
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *x = exp(*x * scale - highest);
        *lane += *x;
    }
    unseen.fill(0.0);
    (highest, fold(lanes))
}
