//! Elementary functions by power series on whole numbers that stand for multiples of `2^-BITS`.
//!
//! The floats of `dashu` have these functions too, about twenty times slower at the precision that
//! comparisons need. Each function here shrinks its argument, sums a series until its terms vanish and
//! undoes the shrinking; every step rounds by less than one unit, and [`ERROR`] covers a hundred
//! thousand of them, so that the result is a proved ball. Formulas: Brent, "Fast multiple-precision
//! evaluation of elementary functions" (1976).

use dashu::{
    base::{BitTest, Signed, SquareRoot},
    integer::{IBig, UBig},
};
use std::sync::OnceLock;

/// Bits behind the point.
pub const BITS: usize = 448;
/// Base-two logarithm of the largest error of a result.
pub const ERROR: f64 = 24.0 - BITS as f64;

/// More bits for the constants, so that large multiples of them stay exact enough.
const SPARE: usize = 96;

/// How often each function halves its argument, or takes roots of it, before its series.
const EXPONENTIAL_HALVINGS: usize = 8;
const ANGLE_HALVINGS: usize = 6;
const TANGENT_HALVINGS: usize = 5;
const ROOTS: usize = 5;

/// Bits that the summing of a constant may spoil.
const SLACK: usize = 16;

struct Constants {
    pi: IBig,
    ln_two: IBig,
}

/// π and ln 2 as multiples of `2^-(BITS + SPARE)`: values, not state, so they are kept.
fn constants() -> &'static Constants {
    static CONSTANTS: OnceLock<Constants> = OnceLock::new();
    CONSTANTS.get_or_init(|| {
        let one = IBig::ONE << (BITS + SPARE + SLACK);
        // Machin: π = 16 arctan 1/5 − 4 arctan 1/239
        let pi = (inverse_series(&one, 5, true) * 16 - inverse_series(&one, 239, true) * 4) >> SLACK;
        // ln 2 = 18 artanh 1/26 − 2 artanh 1/4801 + 8 artanh 1/8749
        let ln_two = (inverse_series(&one, 26, false) * 18 - inverse_series(&one, 4801, false) * 2
            + inverse_series(&one, 8749, false) * 8)
            >> SLACK;
        Constants { pi, ln_two }
    })
}

/// `Σ (±1)^k / ((2k + 1) n^(2k + 1))`: the arc tangent or area tangent of `1/n`.
fn inverse_series(one: &IBig, n: u32, alternating: bool) -> IBig {
    let mut power = one / IBig::from(n);
    let square = IBig::from(u64::from(n) * u64::from(n));
    let mut total = power.clone();
    let mut index = 1u32;
    while !power.is_zero() {
        power /= &square;
        let term = &power / IBig::from(2 * index + 1);
        if alternating && index % 2 == 1 {
            total -= term;
        } else {
            total += term;
        }
        index += 1;
    }
    total
}

/// π
pub fn pi() -> IBig {
    &constants().pi >> SPARE
}

fn times(a: &IBig, b: &IBig) -> IBig {
    (a * b) >> BITS
}

fn over(a: &IBig, b: &IBig) -> IBig {
    (a << BITS) / b
}

fn one() -> IBig {
    IBig::ONE << BITS
}

fn root(value: &IBig) -> IBig {
    let positive = UBig::try_from(value << BITS).unwrap_or(UBig::ZERO);
    IBig::from(positive.sqrt())
}

/// The whole number nearest to `value / unit`.
fn nearest(value: &IBig, unit: &IBig) -> IBig {
    let twice: IBig = value * IBig::from(2) + unit;
    let below: IBig = unit * IBig::from(2);
    let quotient: IBig = &twice / &below;
    if twice.is_negative() && &quotient * &below != twice { quotient - IBig::ONE } else { quotient }
}

/// `e^x` as a multiple of `2^-BITS` and a power of two to multiply it with, for `|x|` below `2^40`.
pub fn exponential(x: &IBig) -> (IBig, i64) {
    let wide = x << SPARE;
    let ln_two = &constants().ln_two;
    let count = nearest(&wide, ln_two);
    let rest = (wide - &count * ln_two) >> SPARE;
    let small = rest >> EXPONENTIAL_HALVINGS;
    let (mut total, mut term, mut index) = (one() + &small, small.clone(), 2u32);
    while !term.is_zero() && index < 200 {
        term = times(&term, &small) / IBig::from(index);
        total += &term;
        if term == -IBig::ONE {
            break;
        }
        index += 1;
    }
    for _ in 0..EXPONENTIAL_HALVINGS {
        total = times(&total, &total);
    }
    (total, i64::try_from(count).unwrap_or(0))
}

/// `ln x` of a positive multiple of `2^-BITS` between a half and two.
pub fn logarithm(x: &IBig) -> IBig {
    let mut small = x.clone();
    for _ in 0..ROOTS {
        small = root(&small);
    }
    let ratio = over(&(&small - one()), &(&small + one()));
    let square = times(&ratio, &ratio);
    let (mut total, mut power, mut index) = (ratio.clone(), ratio, 3u32);
    while power.bit_len() > 1 && index < 600 {
        power = times(&power, &square);
        total += &power / IBig::from(index);
        index += 2;
    }
    total << (ROOTS + 1)
}

/// `count · ln 2`.
pub fn logarithm_of_power(count: i64) -> IBig {
    (&constants().ln_two * IBig::from(count)) >> SPARE
}

/// Sine and cosine, for `|x|` below `2^64`.
pub fn sine_cosine(x: &IBig) -> (IBig, IBig) {
    let wide = x << SPARE;
    let quarter = &constants().pi >> 1;
    let turns = nearest(&wide, &quarter);
    let rest = (wide - &turns * &quarter) >> SPARE;
    let small = rest >> ANGLE_HALVINGS;
    let square = times(&small, &small);
    let (mut sine, mut term, mut index) = (small.clone(), small, 1u32);
    let mut cosine = one();
    let mut other = one();
    while (term.bit_len() > 1 || other.bit_len() > 1) && index < 200 {
        other = -times(&other, &square) / IBig::from(index * (index + 1));
        cosine += &other;
        term = -times(&term, &square) / IBig::from((index + 1) * (index + 2));
        sine += &term;
        index += 2;
    }
    for _ in 0..ANGLE_HALVINGS {
        let double = times(&sine, &cosine) << 1;
        cosine = one() - (times(&sine, &sine) << 1);
        sine = double;
    }
    let place = &turns % IBig::from(4);
    let place = if place.is_negative() { place + 4 } else { place };
    match u8::try_from(&place).unwrap_or(0) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// The arc tangent, for `|x|` below `2^64`.
pub fn arc_tangent(x: &IBig) -> IBig {
    let negative = x.is_negative();
    let size = if negative { -x.clone() } else { x.clone() };
    let inverted = size > one();
    let mut small = if inverted { over(&one(), &size) } else { size };
    for _ in 0..TANGENT_HALVINGS {
        let length = root(&(one() + times(&small, &small)));
        small = over(&small, &(one() + length));
    }
    let square = times(&small, &small);
    let (mut total, mut power, mut index) = (small.clone(), small, 3u32);
    while power.bit_len() > 1 && index < 600 {
        power = -times(&power, &square);
        total += &power / IBig::from(index);
        index += 2;
    }
    total <<= TANGENT_HALVINGS;
    if inverted {
        total = (pi() >> 1) - total;
    }
    if negative { -total } else { total }
}
