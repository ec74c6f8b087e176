//! Rotary positions: frequencies of the pairs of a head's elements, and the angles of a step's rows.

use std::f64::consts::TAU;

use super::config::{NetConfig, RopeScaling};
use crate::kernels::rounded;

/// Frequencies, one a pair: `head_dim / 2`.
#[derive(Debug, Clone)]
pub struct Rotary {
    frequencies: Vec<f32>,
}

impl Rotary {
    /// Frequencies `theta^(-2i / head_dim)` in `f32`, scaled as the configuration says.
    pub fn new(config: &NetConfig) -> Self {
        let half = config.head_dim / 2;
        let frequencies = (0..half).map(|i| {
            let base = rounded(config.rope_theta.powf(-((2 * i) as f64) / config.head_dim as f64));
            match &config.rope_scaling {
                RopeScaling::None => base,
                RopeScaling::Linear { factor } => base / rounded(*factor),
                RopeScaling::Factors(factors) => factors.get(i).map_or(base, |factor| base / factor),
                RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context } => {
                    let (low, high) = (*low_frequency_factor, *high_frequency_factor);
                    let waves = original_context * f64::from(base) / TAU;
                    let share = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                    rounded(f64::from(base) * (share + (1.0 - share) / factor))
                }
            }
        });
        Self { frequencies: frequencies.collect() }
    }

    /// Cosines and sines of all pairs at the given positions, `[positions, head_dim / 2]` each.
    ///
    /// Angles are rounded to `f32` as in training; their functions are taken in `f64`.
    pub fn angles(&self, positions: impl Iterator<Item = usize>, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
        cos.clear();
        sin.clear();
        for position in positions {
            for frequency in &self.frequencies {
                let (s, c) = f64::from(position as f32 * frequency).sin_cos();
                cos.push(rounded(c));
                sin.push(rounded(s));
            }
        }
    }
}
