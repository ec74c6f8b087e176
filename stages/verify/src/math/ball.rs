//! Real numbers with an error bound: exact rationals as long as they last, then a binary float of
//! fixed precision beside the logarithm of its largest error.
//!
//! Two balls that do not touch are *proved* different; that is what the comparison builds on. Each
//! rule below is the usual first-order bound with a spare bit for the rounding.

use super::{
    exact::{MAX_BITS, exact_root, exact_value, power_of_two, size},
    series,
};
use dashu::{
    base::{Abs, BitTest, Signed},
    float::{FBig, round::mode::HalfEven},
    integer::IBig,
    rational::RBig,
};

/// The float under a ball.
pub type Float = FBig<HalfEven, 2>;

/// Why a value cannot be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A step, bit or size bound was met.
    Budget,
    /// No real value here: logarithm of a negative number, zero divisor.
    Undefined,
    /// The precision does not suffice to tell.
    Precision,
    /// A part that has no numeric meaning here.
    Unsupported,
}

/// A real number.
#[derive(Debug, Clone)]
pub enum Real {
    /// Exactly this.
    Exact(RBig),
    /// Within `2^error` of `middle`; `rough` marks a huge exact number that was rounded for its size.
    Ball {
        /// The centre.
        middle: Float,
        /// Base-two logarithm of the largest error.
        error: f64,
        /// Agreement of rough numbers proves nothing.
        rough: bool,
    },
}

/// Upper bound of the base-two logarithm of `|x|`; the true value is at most one below.
pub fn magnitude(value: &Float) -> f64 {
    let repr = value.repr();
    if repr.significand().is_zero() {
        return f64::NEG_INFINITY;
    }
    repr.exponent() as f64 + repr.significand().bit_len() as f64
}

fn joined(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(f64::NEG_INFINITY, f64::max) + (errors.len() as f64).log2()
}

/// `x` as a multiple of `2^-BITS`, rounded down; `|x|` is below `2^64` here.
fn fixed(x: &Float) -> IBig {
    let shift = x.repr().exponent() + isize::try_from(series::BITS).unwrap_or(0);
    let significand = x.repr().significand().clone();
    if shift >= 0 { significand << shift.unsigned_abs() } else { significand >> shift.unsigned_abs() }
}

/// Arithmetic at one precision, in bits.
#[derive(Debug, Clone, Copy)]
pub struct Arithmetic {
    /// Bits of every float.
    pub precision: usize,
}

#[expect(clippy::unused_self, reason = "all operations are called alike")]
impl Arithmetic {
    fn rounding(self, value: &Float) -> f64 {
        magnitude(value) - self.precision as f64 + 1.0
    }

    fn float(self, value: &IBig) -> Float {
        Float::from(value.clone()).with_precision(self.precision).value()
    }

    /// Centre, error and roughness of any real.
    pub fn ball(self, value: &Real) -> (Float, f64, bool) {
        match value {
            Real::Ball { middle, error, rough } => (middle.clone(), *error, *rough),
            Real::Exact(exact) => {
                let above = self.float(exact.numerator());
                if exact.denominator().is_one() && exact.numerator().bit_len() <= self.precision {
                    return (above, f64::NEG_INFINITY, false);
                }
                let below = self.float(&IBig::from(exact.denominator().clone()));
                let middle = above / below;
                let error = self.rounding(&middle) + 2.0;
                (middle, error, false)
            }
        }
    }

    fn made(self, middle: Float, error: f64, rough: bool) -> Real {
        let error = joined(&[error, self.rounding(&middle)]);
        Real::Ball { middle, error, rough }
    }

    fn shrunk(self, value: RBig) -> Real {
        if size(&value) <= MAX_BITS {
            return Real::Exact(value);
        }
        let (middle, error, _) = self.ball(&Real::Exact(value));
        Real::Ball { middle, error, rough: true }
    }

    /// `a + b`
    pub fn add(self, a: &Real, b: &Real) -> Real {
        if let (Real::Exact(a), Real::Exact(b)) = (a, b) {
            return self.shrunk(a + b);
        }
        let ((x, ex, rx), (y, ey, ry)) = (self.ball(a), self.ball(b));
        self.made(x + y, joined(&[ex, ey]), rx || ry)
    }

    /// `-a`
    pub fn negate(self, a: &Real) -> Real {
        match a {
            Real::Exact(value) => Real::Exact(-value.clone()),
            Real::Ball { middle, error, rough } => Real::Ball { middle: -middle.clone(), error: *error, rough: *rough },
        }
    }

    /// `a · b`
    pub fn multiply(self, a: &Real, b: &Real) -> Real {
        match (a, b) {
            (Real::Exact(a), Real::Exact(b)) => return self.shrunk(a * b),
            (Real::Exact(zero), _) | (_, Real::Exact(zero)) if *zero == RBig::ZERO => {
                return Real::Exact(RBig::ZERO);
            }
            _ => {}
        }
        let ((x, ex, rx), (y, ey, ry)) = (self.ball(a), self.ball(b));
        let error = joined(&[magnitude(&x) + ey, magnitude(&y) + ex, ex + ey]);
        self.made(x * y, error, rx || ry)
    }

    /// `1 / a`
    ///
    /// # Errors
    /// [`Failure::Undefined`] for zero, [`Failure::Precision`] when zero cannot be excluded.
    pub fn invert(self, a: &Real) -> Result<Real, Failure> {
        if let Real::Exact(value) = a {
            return if *value == RBig::ZERO { Err(Failure::Undefined) } else { Ok(Real::Exact(RBig::ONE / value)) };
        }
        let (x, ex, rough) = self.ball(a);
        let low = magnitude(&x) - 1.0;
        if ex > low - 2.0 {
            return Err(Failure::Precision);
        }
        let error = ex - 2.0 * low + 1.0;
        Ok(self.made(self.float(&IBig::ONE) / x, error, rough))
    }

    /// Sign as −1, 0 or 1.
    ///
    /// # Errors
    /// [`Failure::Precision`] when zero lies inside the ball.
    pub fn sign(self, a: &Real) -> Result<i8, Failure> {
        match a {
            Real::Exact(value) if *value == RBig::ZERO => Ok(0),
            Real::Exact(value) => Ok(if value.is_negative() { -1 } else { 1 }),
            Real::Ball { middle, error, .. } => {
                if *error > magnitude(middle) - 2.0 {
                    return Err(Failure::Precision);
                }
                Ok(if middle.is_negative() { -1 } else { 1 })
            }
        }
    }

    /// `√a` for `a ≥ 0`; exact for squares.
    ///
    /// # Errors
    /// [`Failure::Undefined`] below zero, [`Failure::Precision`] when the sign is not known.
    pub fn square_root(self, a: &Real) -> Result<Real, Failure> {
        if let Real::Exact(value) = a
            && let Some(root) = exact_root(value, 2)
        {
            return Ok(Real::Exact(root));
        }
        match self.sign(a) {
            Ok(-1) => return Err(Failure::Undefined),
            Err(_) => {
                // a true zero under the root: the root is within the root of the error
                let (x, ex, rough) = self.ball(a);
                let error = joined(&[ex, magnitude(&x)]) / 2.0 + 1.0;
                return Ok(Real::Ball { middle: self.float(&IBig::ZERO), error, rough });
            }
            Ok(_) => {}
        }
        let (x, ex, rough) = self.ball(a);
        let root = x.sqrt();
        let error = ex - magnitude(&root) + 1.0;
        Ok(self.made(root, error, rough))
    }

    /// Whether the series suffice for this precision.
    fn by_series(self) -> bool {
        self.precision + 64 <= series::BITS
    }

    /// A multiple of `2^-BITS` with its error, as a ball scaled by a power of two.
    fn unfixed(self, value: IBig, scale: i64, error: f64, rough: bool) -> Real {
        let exponent = isize::try_from(scale).unwrap_or(0) - isize::try_from(series::BITS).unwrap_or(0);
        let middle = Float::from_parts(value, exponent).with_precision(self.precision).value();
        self.made(middle, joined(&[error, series::ERROR + scale as f64]), rough)
    }

    /// `e^a`
    ///
    /// # Errors
    /// [`Failure::Budget`] for `|a|` above about a million.
    pub fn exponential(self, a: &Real) -> Result<Real, Failure> {
        if let Real::Exact(value) = a
            && *value == RBig::ZERO
        {
            return Ok(Real::Exact(RBig::ONE));
        }
        let (x, ex, rough) = self.ball(a);
        if magnitude(&x) > 20.0 {
            return Err(Failure::Budget);
        }
        if ex > 0.0 {
            return Err(Failure::Precision);
        }
        if x.repr().significand().is_zero() {
            return Ok(Real::Ball { middle: self.float(&IBig::ONE), error: ex + 1.0, rough });
        }
        if self.by_series() {
            let (value, scale) = series::exponential(&fixed(&x));
            let error = ex + 2.0 + scale as f64;
            return Ok(self.unfixed(value, scale, error, rough));
        }
        let value = x.exp();
        let error = ex + magnitude(&value) + 1.0;
        Ok(self.made(value, error, rough))
    }

    /// Natural logarithm of `a > 0`.
    ///
    /// # Errors
    /// [`Failure::Undefined`] at and below zero.
    pub fn logarithm(self, a: &Real) -> Result<Real, Failure> {
        if let Real::Exact(value) = a
            && *value == RBig::ONE
        {
            return Ok(Real::Exact(RBig::ZERO));
        }
        if self.sign(a)? <= 0 {
            return Err(Failure::Undefined);
        }
        let (x, ex, rough) = self.ball(a);
        let low = magnitude(&x) - 1.0;
        if low.abs() > 1e9 {
            return Err(Failure::Budget);
        }
        if self.by_series() {
            // x = m · 2^count with m in [1/2, 1)
            let bits = x.repr().significand().bit_len();
            let count = x.repr().exponent() as i64 + i64::try_from(bits).unwrap_or(0);
            let mantissa = x.repr().significand().clone() << series::BITS.saturating_sub(bits);
            let mantissa = mantissa >> bits.saturating_sub(series::BITS);
            let value = series::logarithm(&mantissa) + series::logarithm_of_power(count);
            return Ok(self.unfixed(value, 0, ex - low + 1.0, rough));
        }
        let value = x.ln();
        Ok(self.made(value, joined(&[ex - low + 1.0, -(self.precision as f64)]), rough))
    }

    /// Sine and cosine of an angle in radians.
    ///
    /// # Errors
    /// [`Failure::Budget`] for huge angles.
    pub fn sine_cosine(self, a: &Real) -> Result<(Real, Real), Failure> {
        if let Real::Exact(value) = a
            && *value == RBig::ZERO
        {
            return Ok((Real::Exact(RBig::ZERO), Real::Exact(RBig::ONE)));
        }
        let (x, ex, rough) = self.ball(a);
        if magnitude(&x) > 64.0 {
            return Err(Failure::Budget);
        }
        if x.repr().significand().is_zero() {
            return Ok((
                Real::Ball { middle: x, error: ex, rough },
                Real::Ball { middle: self.float(&IBig::ONE), error: ex, rough },
            ));
        }
        if self.by_series() {
            let (sine, cosine) = series::sine_cosine(&fixed(&x));
            return Ok((self.unfixed(sine, 0, ex, rough), self.unfixed(cosine, 0, ex, rough)));
        }
        let error = joined(&[ex, -(self.precision as f64)]);
        Ok((self.made(x.sin(), error, rough), self.made(x.cos(), error, rough)))
    }

    /// Arc tangent.
    pub fn arc_tangent(self, a: &Real) -> Real {
        if let Real::Exact(value) = a
            && *value == RBig::ZERO
        {
            return Real::Exact(RBig::ZERO);
        }
        let (x, ex, rough) = self.ball(a);
        if x.repr().significand().is_zero() {
            return Real::Ball { middle: x, error: ex, rough };
        }
        if self.by_series() && magnitude(&x) < 64.0 {
            return self.unfixed(series::arc_tangent(&fixed(&x)), 0, ex, rough);
        }
        self.made(x.atan(), ex, rough)
    }

    /// π
    pub fn pi(self) -> Real {
        if self.by_series() {
            return self.unfixed(series::pi(), 0, f64::NEG_INFINITY, false);
        }
        let middle = Float::pi(self.precision);
        self.made(middle, f64::NEG_INFINITY, false)
    }

    /// Largest whole number that is not above `a`.
    ///
    /// # Errors
    /// [`Failure::Precision`] when a whole number lies inside the ball.
    pub fn floor(self, a: &Real) -> Result<RBig, Failure> {
        match a {
            Real::Exact(value) => Ok(RBig::from(value.floor())),
            Real::Ball { middle, error, .. } => {
                if magnitude(middle) > 4096.0 {
                    return Err(Failure::Budget);
                }
                let low = exact_value(middle)?;
                let slack = power_of_two(error.ceil())?;
                let (from, to) = ((&low - &slack).floor(), (&low + &slack).floor());
                if from == to { Ok(RBig::from(from)) } else { Err(Failure::Precision) }
            }
        }
    }

    /// Magnitude of `a`.
    pub fn absolute(self, a: &Real) -> Real {
        match a {
            Real::Exact(value) => Real::Exact(value.clone().abs()),
            Real::Ball { middle, error, rough } => Real::Ball {
                middle: if middle.is_negative() { -middle.clone() } else { middle.clone() },
                error: *error,
                rough: *rough,
            },
        }
    }
}
