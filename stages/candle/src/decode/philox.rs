//! Random numbers by counter: a number is a function of (seed, position) with no state between, so an answer that is
//! interrupted, moved or batched otherwise draws the same tokens.
//!
//! The generator is Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): ten rounds of
//! multiplications on a 128-bit counter under a 64-bit key. Here the key is the seed and the counter the position.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// A number in [0, 1) with 53 random bits.
pub fn uniform(seed: u64, position: u64) -> f64 {
    let [low, high] = halves(position);
    let words = philox([low, high, 0, 0], halves(seed));
    let bits = (u64::from(words[1]) << 32) | u64::from(words[0]);
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [low_0, high_0] = halves(u64::from(MULTIPLIERS[0]) * u64::from(counter[0]));
        let [low_1, high_1] = halves(u64::from(MULTIPLIERS[1]) * u64::from(counter[2]));
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// Lower and upper 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the other half is the second value")]
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_come_out() {
        // Known answers of the authors' library for philox4x32, ten rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let expected = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), expected);
    }

    #[test]
    fn numbers_are_frozen_and_lie_in_the_unit_interval() {
        // When this changes, every sampled text changes.
        let expected = f64::from_bits(uniform(0, 0).to_bits());
        assert!((expected - 0xe169_c58d_6627_e8d5_u64 as f64 / 2_f64.powi(64)).abs() < 1e-15, "{expected}");
        let mut mean = 0.0;
        for position in 0..10_000 {
            let number = uniform(17, position);
            assert!((0.0..1.0).contains(&number));
            mean += number / 10_000.0;
        }
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert_ne!(uniform(1, 2).to_bits(), uniform(2, 1).to_bits());
    }
}
