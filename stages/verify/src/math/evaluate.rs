//! Evaluates an expression at a point: exactly while it is rational, as a complex ball beyond that.
//!
//! Every node costs a step and every large number more; the budget is a count, never a clock, so a
//! verdict is the same on every machine.

use super::{
    ball::{Arithmetic, Failure, Real, magnitude},
    exact::{MAX_BITS, exact_root, size},
    value::Node,
};
use dashu::{
    base::Signed,
    integer::{IBig, UBig},
    rational::RBig,
};
use std::cell::Cell;

/// A complex number; real ones have an exact zero as `imaginary`.
#[derive(Debug, Clone)]
pub struct Number {
    /// Real part.
    pub real: Real,
    /// Imaginary part.
    pub imaginary: Real,
}

/// How far a number may lie from the label, when an item states it. Exact by default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tolerance {
    /// Largest difference that counts as equal; 0 for none.
    pub absolute: f64,
    /// Largest difference as a share of the larger value; 0 for none.
    pub relative: f64,
}

impl Tolerance {
    /// Only equal is equal.
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0 };

    /// Equal when rounded to this many decimals.
    pub fn decimals(count: u32) -> Self {
        Self { absolute: 10f64.powi(-i32::try_from(count).unwrap_or(i32::MAX)), relative: 0.0 }
    }

    /// Whether two finite values lie near enough.
    pub(super) fn admits(self, a: f64, b: f64) -> bool {
        let gap = (a - b).abs();
        gap.is_finite() && gap <= self.absolute.max(self.relative * a.abs().max(b.abs()))
    }
}

/// Steps shared by one comparison, and its tolerance.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<u32>,
    /// How near counts as equal.
    pub tolerance: Tolerance,
}

/// Steps of one verification.
pub const MAX_STEPS: u32 = 30_000;
pub(super) const MAX_FACTORIAL: u64 = 5_000;
pub(super) const MAX_TERMS: u64 = 5_000;

impl Default for Budget {
    fn default() -> Self {
        Self::new(Tolerance::EXACT)
    }
}

impl Budget {
    /// All steps left.
    pub fn new(tolerance: Tolerance) -> Self {
        Self { steps: Cell::new(MAX_STEPS), tolerance }
    }

    /// Takes `count` steps.
    ///
    /// # Errors
    /// [`Failure::Budget`] when they are used up.
    pub fn spend(&self, count: usize) -> Result<(), Failure> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let left = self.steps.get().checked_sub(count).ok_or(Failure::Budget);
        self.steps.set(*left.as_ref().unwrap_or(&0));
        left.map(|_| ())
    }
}

/// One evaluation: precision, values of symbols, reading of a bare `log`.
#[derive(Debug)]
pub struct Evaluator<'a> {
    /// The arithmetic and its precision.
    pub arithmetic: Arithmetic,
    /// Symbols and their values, innermost last.
    pub point: Vec<(String, RBig)>,
    /// Whether roots of negative numbers are imaginary (constants only).
    pub complex: bool,
    /// Whether a `log` without base is decimal.
    pub decimal_log: bool,
    /// Shared steps.
    pub budget: &'a Budget,
}

pub(super) fn real(value: Real) -> Number {
    Number { real: value, imaginary: Real::Exact(RBig::ZERO) }
}

pub(super) fn exact(value: RBig) -> Number {
    real(Real::Exact(value))
}

pub(super) fn is_zero(value: &Real) -> bool {
    matches!(value, Real::Exact(zero) if *zero == RBig::ZERO)
}

impl Number {
    /// The rational value, if it is one.
    pub fn rational(&self) -> Option<&RBig> {
        match (&self.real, &self.imaginary) {
            (Real::Exact(value), imaginary) if is_zero(imaginary) => Some(value),
            _ => None,
        }
    }

    pub(super) fn only_real(&self) -> Result<&Real, Failure> {
        if is_zero(&self.imaginary) { Ok(&self.real) } else { Err(Failure::Undefined) }
    }
}

pub(super) fn whole(value: &RBig) -> Option<&IBig> {
    value.denominator().is_one().then(|| value.numerator())
}

pub(super) fn small(number: &Number) -> Option<u64> {
    number.rational().and_then(whole).and_then(|value| u64::try_from(value).ok())
}

impl<'a> Evaluator<'a> {
    /// At high precision, of real constants.
    pub fn exact(budget: &'a Budget) -> Self {
        Self {
            arithmetic: Arithmetic { precision: 1024 },
            point: Vec::new(),
            complex: false,
            decimal_log: false,
            budget,
        }
    }
}

impl Evaluator<'_> {
    /// The value of `node`.
    ///
    /// # Errors
    /// [`Failure`]: undefined here, beyond the budget, or without a numeric meaning.
    pub fn value(&mut self, node: &Node) -> Result<Number, Failure> {
        self.budget.spend(1)?;
        match node {
            Node::Number(value) => Ok(exact(value.clone())),
            Node::Symbol(name) => self.symbol(name),
            Node::Add(items) => {
                let mut total = exact(RBig::ZERO);
                for item in items {
                    let value = self.value(item)?;
                    total = self.add(&total, &value)?;
                }
                Ok(total)
            }
            Node::Multiply(items) => {
                let mut total = exact(RBig::ONE);
                for item in items {
                    let value = self.value(item)?;
                    total = self.multiply(&total, &value)?;
                }
                Ok(total)
            }
            Node::Power(base, exponent) => self.power(base, exponent),
            Node::Percent(inner) => {
                let value = self.value(inner)?;
                self.multiply(&value, &exact(RBig::ONE / RBig::from(100u8)))
            }
            Node::Degree(inner) => {
                let value = self.value(inner)?;
                let turn = self.arithmetic.multiply(&self.arithmetic.pi(), &Real::Exact(RBig::ONE / RBig::from(180u8)));
                self.multiply(&value, &real(turn))
            }
            Node::Based(digits, base) => UBig::from_str_radix(if digits.is_empty() { "0" } else { digits }, *base)
                .map(|value| exact(RBig::from(value)))
                .map_err(|_| Failure::Unsupported),
            Node::Ratio(parts) if parts.len() == 2 => {
                let (above, below) = (self.value(&parts[0])?, self.value(&parts[1])?);
                let below = self.invert(&below)?;
                self.multiply(&above, &below)
            }
            Node::Call(name, arguments) => self.call(name, arguments),
            _ => Err(Failure::Unsupported),
        }
    }

    pub(super) fn symbol(&self, name: &str) -> Result<Number, Failure> {
        if let Some((_, value)) = self.point.iter().rev().find(|(known, _)| known == name) {
            return Ok(exact(value.clone()));
        }
        match name {
            "π" => Ok(real(self.arithmetic.pi())),
            "e" => self.arithmetic.exponential(&Real::Exact(RBig::ONE)).map(real),
            "i" => Ok(Number { real: Real::Exact(RBig::ZERO), imaginary: Real::Exact(RBig::ONE) }),
            _ => Err(Failure::Unsupported),
        }
    }

    pub(super) fn charge(&self, number: &Number) -> Result<(), Failure> {
        let bits = [&number.real, &number.imaginary]
            .into_iter()
            .map(|part| match part {
                // fractions are reduced, which costs more than the product
                Real::Exact(value) if !value.denominator().is_one() => 2 * size(value),
                Real::Exact(value) => size(value),
                Real::Ball { .. } => 2048,
            })
            .max()
            .unwrap_or(0);
        // the work grows faster than the length
        self.budget.spend(bits / 512 * (1 + bits / 8192))
    }

    pub(super) fn add(&self, a: &Number, b: &Number) -> Result<Number, Failure> {
        let sum = Number {
            real: self.arithmetic.add(&a.real, &b.real),
            imaginary: self.arithmetic.add(&a.imaginary, &b.imaginary),
        };
        self.charge(&sum)?;
        Ok(sum)
    }

    pub(super) fn multiply(&self, a: &Number, b: &Number) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        let product = if is_zero(&a.imaginary) && is_zero(&b.imaginary) {
            real(arithmetic.multiply(&a.real, &b.real))
        } else {
            let cross = arithmetic.negate(&arithmetic.multiply(&a.imaginary, &b.imaginary));
            Number {
                real: arithmetic.add(&arithmetic.multiply(&a.real, &b.real), &cross),
                imaginary: arithmetic
                    .add(&arithmetic.multiply(&a.real, &b.imaginary), &arithmetic.multiply(&a.imaginary, &b.real)),
            }
        };
        self.charge(&product)?;
        Ok(product)
    }

    pub(super) fn invert(&self, a: &Number) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        if is_zero(&a.imaginary) {
            return arithmetic.invert(&a.real).map(real);
        }
        let norm =
            arithmetic.add(&arithmetic.multiply(&a.real, &a.real), &arithmetic.multiply(&a.imaginary, &a.imaginary));
        let scale = arithmetic.invert(&norm)?;
        Ok(Number {
            real: arithmetic.multiply(&a.real, &scale),
            imaginary: arithmetic.negate(&arithmetic.multiply(&a.imaginary, &scale)),
        })
    }

    pub(super) fn power(&mut self, base: &Node, exponent: &Node) -> Result<Number, Failure> {
        let raised = self.value(exponent)?;
        if matches!(base, Node::Symbol(name) if name == "e") && !self.point.iter().any(|(name, _)| name == "e") {
            return self.exponential(&raised);
        }
        let value = self.value(base)?;
        if let Some(rational) = raised.rational() {
            if let Some(times) = whole(rational) {
                return self.whole_power(&value, times);
            }
            let (above, below) = (rational.numerator().clone(), rational.denominator().clone());
            let degree = usize::try_from(&below).map_err(|_| Failure::Budget)?;
            let root = self.root(&value, degree)?;
            return self.whole_power(&root, &above);
        }
        let logarithm = self.arithmetic.logarithm(value.only_real()?)?;
        let product = self.multiply(&real(logarithm), &raised)?;
        self.exponential(&product)
    }

    pub(super) fn whole_power(&self, base: &Number, times: &IBig) -> Result<Number, Failure> {
        if let Some(value) = base.rational() {
            if *value == RBig::ONE || times.is_zero() {
                return Ok(exact(RBig::ONE));
            }
            if *value == RBig::ZERO {
                return if times.is_negative() { Err(Failure::Undefined) } else { Ok(base.clone()) };
            }
        }
        let count = u64::try_from(times.clone().unsigned_abs_value()).map_err(|_| Failure::Budget)?;
        let inverse = if times.is_negative() { self.invert(base)? } else { base.clone() };
        let mut square = inverse;
        if let Some(value) = square.rational() {
            let bits = size(value);
            if (bits as u64).saturating_mul(count) <= MAX_BITS as u64 {
                self.budget.spend(bits.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX)) / 512)?;
                return Ok(exact(value.pow(isize::try_from(count).map_err(|_| Failure::Budget)?)));
            }
        }
        // what will not stay exact is rounded at once: exact squares up to the bound cost more than all the rest
        // complex fractions grow in four products a step, so they are rounded sooner
        let most = if is_zero(&square.imaginary) { MAX_BITS } else { MAX_BITS / 16 };
        for part in [&mut square.real, &mut square.imaginary] {
            if let Real::Exact(value) = part
                && *value != RBig::ZERO
                && (size(value) as u64).saturating_mul(count) > most as u64
            {
                let (middle, error, _) = self.arithmetic.ball(part);
                *part = Real::Ball { middle, error, rough: true };
            }
        }
        // the float's exponent must hold the result
        let height = self.arithmetic.ball(&square.real).0;
        let reach = magnitude(&height).abs().max(1.0) * count as f64;
        if !is_zero(&square.imaginary) && count > 1 << 20 || reach.is_finite() && reach > 1e15 {
            return Err(Failure::Budget);
        }
        let mut result = exact(RBig::ONE);
        let mut left = count;
        while left > 0 {
            if left & 1 == 1 {
                result = self.multiply(&result, &square)?;
            }
            left >>= 1;
            if left > 0 {
                square = self.multiply(&square, &square)?;
            }
        }
        Ok(result)
    }

    /// The real root where there is one, imaginary for square roots of negative constants.
    pub(super) fn root(&self, value: &Number, degree: usize) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        let inner = value.only_real()?;
        if let Real::Exact(rational) = inner
            && let Some(root) = exact_root(rational, degree)
        {
            return Ok(exact(root));
        }
        let sign = match arithmetic.sign(inner) {
            Err(Failure::Precision) if degree == 2 => 1,
            other => other?,
        };
        if sign == 0 {
            return Ok(exact(RBig::ZERO));
        }
        let size = arithmetic.absolute(inner);
        if sign < 0 && degree.is_multiple_of(2) {
            if !self.complex || degree != 2 {
                return Err(Failure::Undefined);
            }
            let root = arithmetic.square_root(&size)?;
            return Ok(Number { real: Real::Exact(RBig::ZERO), imaginary: root });
        }
        let root = if degree == 2 {
            arithmetic.square_root(if sign < 0 { &size } else { inner })?
        } else {
            let part = Real::Exact(RBig::from_parts(IBig::ONE, UBig::from(degree)));
            arithmetic.exponential(&arithmetic.multiply(&arithmetic.logarithm(&size)?, &part))?
        };
        Ok(real(if sign < 0 { arithmetic.negate(&root) } else { root }))
    }

    pub(super) fn exponential(&self, value: &Number) -> Result<Number, Failure> {
        let height = self.arithmetic.exponential(&value.real)?;
        if is_zero(&value.imaginary) {
            return Ok(real(height));
        }
        let (sine, cosine) = self.arithmetic.sine_cosine(&value.imaginary)?;
        Ok(Number {
            real: self.arithmetic.multiply(&height, &cosine),
            imaginary: self.arithmetic.multiply(&height, &sine),
        })
    }
}

pub(super) trait Magnitude {
    fn unsigned_abs_value(self) -> UBig;
}

impl Magnitude for IBig {
    fn unsigned_abs_value(self) -> UBig {
        self.into_parts().1
    }
}
