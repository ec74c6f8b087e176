//! Activations rounded as engines round them that multiply quantised weights in whole numbers.

use half::f16;

/// Values that share a scale.
const BLOCK: usize = 32;
/// Largest whole number of 8 bits that is used.
const LARGEST: f32 = 127.0;

/// Rounds every row of `x` (`[rows, width]`) to whole multiples of a scale, one scale for 32 values: the largest of them
/// over 127, kept in 16 bits. Blocks of GGUF's `Q8_0` and `Q8_1` hold such numbers.
pub fn round_to_8_bits(x: &mut [f32], width: usize) {
    for row in x.chunks_mut(width.max(1)) {
        for block in row.chunks_mut(BLOCK) {
            let largest = block.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            if largest == 0.0 {
                continue;
            }
            let (scale, inverse) = (f16::from_f32(largest / LARGEST).to_f32(), LARGEST / largest);
            for value in block {
                *value = (*value * inverse).round_ties_even() * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_moves_by_half_a_scale_at_most_and_zeros_stay() {
        let mut x: Vec<f32> = (0..80).map(|index| (index as f32 * 0.37).sin() * 3.0).collect();
        x[40..].fill(0.0);
        let before = x.clone();
        round_to_8_bits(&mut x, 40);
        for (block, old) in x.chunks(40).zip(before.chunks(40)) {
            for (block, old) in block.chunks(BLOCK).zip(old.chunks(BLOCK)) {
                let largest = old.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                let bound = largest / LARGEST * 0.5 + largest / 2048.0;
                assert!(block.iter().zip(old).all(|(new, old)| (new - old).abs() <= bound));
            }
        }
        assert!(x.iter().zip(&before).any(|(new, old)| (new - old).abs() > 1e-3));
    }
}
