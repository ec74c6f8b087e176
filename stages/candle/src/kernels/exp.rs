//! The exponential function, as plain arithmetic that compilers vectorise and every machine rounds alike.

use std::f32::consts::LOG2_E;

/// Beyond these the result is 0 or infinite.
const LOWEST: f32 = -104.0;
const HIGHEST: f32 = 89.0;
/// `ln 2` in two parts; the first has so few bits that its product with a whole number below 2^8 is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// 1.5 * 2^23: adding it rounds to a whole number, which then stands in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// Coefficients of the Chebyshev fit of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2], from the constant up.
const SERIES: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_456, 0.008_333_297, 0.001_393_454_5, 1.990_044_4e-4];

/// `e^x`, at most 2 units in the last place off; 0 below -104, infinite above 89, NaN for NaN.
///
/// `x = n ln 2 + r` with whole `n` and `|r| <= ln 2 / 2`; then `e^x = 2^n e^r`. The power of two is multiplied in as two
/// factors, so that results below the smallest normal number are rounded, not lost.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = x.mul_add(LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let [c2, c3, c4, c5, c6, c7] = SERIES;
    let series = c7.mul_add(r, c6).mul_add(r, c5).mul_add(r, c4).mul_add(r, c3).mul_add(r, c2);
    let value = (series * r).mul_add(r, r) + 1.0;
    // the low bits of `shifted` hold n as a two's complement number
    let n = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed();
    let half = n >> 1;
    value * power_of_two(half) * power_of_two(n - half)
}

/// `2^n` for `n` in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units_off(x: f32) -> f64 {
        let exact = f64::from(x).exp();
        let unit = f64::from(f32::MIN_POSITIVE).max(exact) * f64::from(f32::EPSILON);
        // spacing of floats at `exact` lies between unit / 2 and unit
        (f64::from(exp(x)) - exact).abs() / (unit / 2.0)
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        let mut bits = 0.0_f32.to_bits();
        while f32::from_bits(bits) < 88.7 {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                worst = worst.max(units_off(x));
            }
            bits += 61;
        }
        println!("worst error: {worst} units");
        assert!(worst <= 2.0, "{worst}");
    }

    #[test]
    fn exp_at_the_edges_is_zero_one_infinite_or_nan() {
        let edges = [(0.0, 1.0_f32), (f32::NEG_INFINITY, 0.0), (-1000.0, 0.0), (f32::INFINITY, f32::INFINITY)];
        for (x, expected) in edges {
            assert_eq!(exp(x).to_bits(), expected.to_bits(), "{x}");
        }
        assert!(exp(f32::NAN).is_nan());
    }
}
