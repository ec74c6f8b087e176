//! Random weights for tests and for training from nothing: a function of the seed and the tensor's name.

use super::Source;
use crate::NetError;

/// Uniform weights with the variance that keeps activations near 1.
pub(crate) struct Random {
    pub(crate) seed: u64,
}

impl Source for Random {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetError> {
        let count = shape.iter().product();
        let mut state =
            name.bytes().fold(self.seed ^ 0x9e37_79b9_7f4a_7c15, |state, byte| mix(state ^ u64::from(byte)));
        let (center, spread) = match shape {
            [_, inputs] => (0.0, (3.0 / *inputs as f32).sqrt()),
            _ if name.rsplit_once('.').is_some_and(|(_, kind)| kind == "bias") => (0.0, 0.2),
            _ => (1.0, 0.2),
        };
        let mut next = || {
            state = mix(state);
            // 24 random bits as a number in [-1, 1)
            center + spread * ((state >> 40) as f32 / 8_388_608.0 - 1.0)
        };
        Ok((0..count).map(|_| next()).collect())
    }
}

/// One step of a 64-bit mixer (splitmix64).
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
