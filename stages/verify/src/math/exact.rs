//! Exact helpers of the ball arithmetic: sizes, powers of two, rational roots.

use super::ball::{Failure, Float};
use dashu::{
    base::{Abs, BitTest, Signed},
    integer::IBig,
    rational::RBig,
};

/// Exact numbers grow to this many bits in numerator or denominator before they become rough.
pub const MAX_BITS: usize = 1 << 16;

/// Bits of the larger of numerator and denominator.
pub fn size(value: &RBig) -> usize {
    value.numerator().bit_len().max(value.denominator().bit_len())
}

pub(super) fn exact_value(middle: &Float) -> Result<RBig, Failure> {
    let repr = middle.repr();
    let shift = repr.exponent();
    if shift.unsigned_abs() > 1 << 16 {
        return Err(Failure::Budget);
    }
    let digits = repr.significand().clone();
    Ok(if shift >= 0 {
        RBig::from(digits << shift.unsigned_abs())
    } else {
        RBig::from_parts(digits, dashu::integer::UBig::ONE << shift.unsigned_abs())
    })
}

pub(super) fn power_of_two(exponent: f64) -> Result<RBig, Failure> {
    if exponent == f64::NEG_INFINITY {
        return Ok(RBig::ZERO);
    }
    if exponent.abs() > 65536.0 {
        return Err(Failure::Budget);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded just above")]
    let shift = exponent.abs() as usize;
    let power = dashu::integer::UBig::ONE << shift;
    Ok(if exponent >= 0.0 { RBig::from(power) } else { RBig::from_parts(IBig::ONE, power) })
}

/// The rational `n`-th root, if there is one.
pub fn exact_root(value: &RBig, n: usize) -> Option<RBig> {
    if n == 0 || n > 64 || (value.is_negative() && n.is_multiple_of(2)) || size(value) > MAX_BITS {
        return None;
    }
    let (negative, above) = (value.is_negative(), value.numerator().clone().abs());
    let above = dashu::integer::UBig::try_from(above).ok()?;
    let (top, bottom) = (above.nth_root(n), value.denominator().nth_root(n));
    if top.pow(n) != above || bottom.pow(n) != *value.denominator() {
        return None;
    }
    let top = IBig::from(top);
    Some(RBig::from_parts(if negative { -top } else { top }, bottom))
}
