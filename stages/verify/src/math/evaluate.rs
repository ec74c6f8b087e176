//! Evaluates an expression at a point: exactly while it is rational, as a complex ball beyond that.
//!
//! Every node costs a step and every large number more; the budget is a count, never a clock, so a
//! verdict is the same on every machine.

use super::{
    ball::{Arithmetic, Failure, MAX_BITS, Real, exact_root, magnitude, size},
    value::Node,
};
use dashu::{
    base::{BitTest, Gcd, Signed},
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

/// Steps shared by one comparison.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<u32>,
}

/// Steps of one verification.
pub const MAX_STEPS: u32 = 60_000;
const MAX_FACTORIAL: u64 = 5_000;
const MAX_TERMS: u64 = 5_000;

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps: Cell::new(MAX_STEPS),
        }
    }
}

impl Budget {
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

fn real(value: Real) -> Number {
    Number {
        real: value,
        imaginary: Real::Exact(RBig::ZERO),
    }
}

fn exact(value: RBig) -> Number {
    real(Real::Exact(value))
}

fn is_zero(value: &Real) -> bool {
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

    fn only_real(&self) -> Result<&Real, Failure> {
        if is_zero(&self.imaginary) {
            Ok(&self.real)
        } else {
            Err(Failure::Undefined)
        }
    }
}

fn whole(value: &RBig) -> Option<&IBig> {
    value.denominator().is_one().then(|| value.numerator())
}

fn small(number: &Number) -> Option<u64> {
    number
        .rational()
        .and_then(whole)
        .and_then(|value| u64::try_from(value).ok())
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
                let turn = self.arithmetic.multiply(
                    &self.arithmetic.pi(),
                    &Real::Exact(RBig::ONE / RBig::from(180u8)),
                );
                self.multiply(&value, &real(turn))
            }
            Node::Based(digits, base) => {
                UBig::from_str_radix(if digits.is_empty() { "0" } else { digits }, *base)
                    .map(|value| exact(RBig::from(value)))
                    .map_err(|_| Failure::Unsupported)
            }
            Node::Ratio(parts) if parts.len() == 2 => {
                let (above, below) = (self.value(&parts[0])?, self.value(&parts[1])?);
                let below = self.invert(&below)?;
                self.multiply(&above, &below)
            }
            Node::Call(name, arguments) => self.call(name, arguments),
            _ => Err(Failure::Unsupported),
        }
    }

    fn symbol(&self, name: &str) -> Result<Number, Failure> {
        if let Some((_, value)) = self.point.iter().rev().find(|(known, _)| known == name) {
            return Ok(exact(value.clone()));
        }
        match name {
            "π" => Ok(real(self.arithmetic.pi())),
            "e" => self
                .arithmetic
                .exponential(&Real::Exact(RBig::ONE))
                .map(real),
            "i" => Ok(Number {
                real: Real::Exact(RBig::ZERO),
                imaginary: Real::Exact(RBig::ONE),
            }),
            _ => Err(Failure::Unsupported),
        }
    }

    fn charge(&self, number: &Number) -> Result<(), Failure> {
        let bits = [&number.real, &number.imaginary]
            .into_iter()
            .map(|part| {
                if let Real::Exact(value) = part {
                    size(value)
                } else {
                    2048
                }
            })
            .max()
            .unwrap_or(0);
        self.budget.spend(bits / 512)
    }

    fn add(&self, a: &Number, b: &Number) -> Result<Number, Failure> {
        let sum = Number {
            real: self.arithmetic.add(&a.real, &b.real),
            imaginary: self.arithmetic.add(&a.imaginary, &b.imaginary),
        };
        self.charge(&sum)?;
        Ok(sum)
    }

    fn multiply(&self, a: &Number, b: &Number) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        let product = if is_zero(&a.imaginary) && is_zero(&b.imaginary) {
            real(arithmetic.multiply(&a.real, &b.real))
        } else {
            let cross = arithmetic.negate(&arithmetic.multiply(&a.imaginary, &b.imaginary));
            Number {
                real: arithmetic.add(&arithmetic.multiply(&a.real, &b.real), &cross),
                imaginary: arithmetic.add(
                    &arithmetic.multiply(&a.real, &b.imaginary),
                    &arithmetic.multiply(&a.imaginary, &b.real),
                ),
            }
        };
        self.charge(&product)?;
        Ok(product)
    }

    fn invert(&self, a: &Number) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        if is_zero(&a.imaginary) {
            return arithmetic.invert(&a.real).map(real);
        }
        let norm = arithmetic.add(
            &arithmetic.multiply(&a.real, &a.real),
            &arithmetic.multiply(&a.imaginary, &a.imaginary),
        );
        let scale = arithmetic.invert(&norm)?;
        Ok(Number {
            real: arithmetic.multiply(&a.real, &scale),
            imaginary: arithmetic.negate(&arithmetic.multiply(&a.imaginary, &scale)),
        })
    }

    fn power(&mut self, base: &Node, exponent: &Node) -> Result<Number, Failure> {
        let raised = self.value(exponent)?;
        if matches!(base, Node::Symbol(name) if name == "e")
            && !self.point.iter().any(|(name, _)| name == "e")
        {
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

    fn whole_power(&self, base: &Number, times: &IBig) -> Result<Number, Failure> {
        if let Some(value) = base.rational() {
            if *value == RBig::ONE || times.is_zero() {
                return Ok(exact(RBig::ONE));
            }
            if *value == RBig::ZERO {
                return if times.is_negative() {
                    Err(Failure::Undefined)
                } else {
                    Ok(base.clone())
                };
            }
        }
        let count =
            u64::try_from(times.clone().unsigned_abs_value()).map_err(|_| Failure::Budget)?;
        let inverse = if times.is_negative() {
            self.invert(base)?
        } else {
            base.clone()
        };
        let mut square = inverse;
        if let Some(value) = square.rational() {
            let bits = size(value);
            if (bits as u64).saturating_mul(count) <= MAX_BITS as u64 {
                self.budget.spend(
                    bits.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX)) / 512,
                )?;
                return Ok(exact(
                    value.pow(isize::try_from(count).map_err(|_| Failure::Budget)?),
                ));
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
    fn root(&self, value: &Number, degree: usize) -> Result<Number, Failure> {
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
            return Ok(Number {
                real: Real::Exact(RBig::ZERO),
                imaginary: root,
            });
        }
        let root = if degree == 2 {
            arithmetic.square_root(if sign < 0 { &size } else { inner })?
        } else {
            let part = Real::Exact(RBig::from_parts(IBig::ONE, UBig::from(degree)));
            arithmetic.exponential(&arithmetic.multiply(&arithmetic.logarithm(&size)?, &part))?
        };
        Ok(real(if sign < 0 {
            arithmetic.negate(&root)
        } else {
            root
        }))
    }

    fn exponential(&self, value: &Number) -> Result<Number, Failure> {
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

    fn call(&mut self, name: &str, arguments: &[Node]) -> Result<Number, Failure> {
        if matches!(name, "sum" | "product") {
            return self.series(name, arguments);
        }
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.value(argument)?);
        }
        let first = values.first().ok_or(Failure::Unsupported)?;
        let arithmetic = self.arithmetic;
        match (name, values.get(1)) {
            ("root", Some(index)) => {
                let degree = small(index)
                    .and_then(|degree| usize::try_from(degree).ok())
                    .filter(|degree| *degree > 0)
                    .ok_or(Failure::Undefined)?;
                self.root(first, degree)
            }
            ("abs", None) => {
                if is_zero(&first.imaginary) {
                    return Ok(real(arithmetic.absolute(&first.real)));
                }
                let norm = arithmetic.add(
                    &arithmetic.multiply(&first.real, &first.real),
                    &arithmetic.multiply(&first.imaginary, &first.imaginary),
                );
                arithmetic.square_root(&norm).map(real)
            }
            ("floor", None) => arithmetic.floor(first.only_real()?).map(exact),
            ("ceil", None) => arithmetic
                .floor(&arithmetic.negate(first.only_real()?))
                .map(|value| exact(-value)),
            ("factorial", None) => factorial(small(first).ok_or(Failure::Undefined)?, self.budget),
            ("binom", Some(below)) => self.binomial(first, below),
            ("mod", Some(by)) => {
                let (value, by) = (
                    first.rational().ok_or(Failure::Undefined)?,
                    by.rational().ok_or(Failure::Undefined)?,
                );
                if *by == RBig::ZERO {
                    return Err(Failure::Undefined);
                }
                let turns = RBig::from((value / by).floor());
                Ok(exact(value - turns * by))
            }
            ("gcd" | "lcm", Some(_)) => common(name, &values),
            ("min" | "max", _) => extreme(name == "max", &values),
            ("ln", None) => arithmetic.logarithm(first.only_real()?).map(real),
            ("log", base) => {
                let logarithm = arithmetic.logarithm(first.only_real()?)?;
                let base = match base {
                    Some(base) => base.only_real()?.clone(),
                    None if self.decimal_log => Real::Exact(RBig::from(10u8)),
                    None => return Ok(real(logarithm)),
                };
                let below = arithmetic.invert(&arithmetic.logarithm(&base)?)?;
                Ok(real(arithmetic.multiply(&logarithm, &below)))
            }
            (_, None) => self.trigonometric(name, first),
            _ => Err(Failure::Unsupported),
        }
    }

    fn trigonometric(&self, name: &str, argument: &Number) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        let x = argument.only_real()?;
        let one = Real::Exact(RBig::ONE);
        let result = match name {
            "sin" => arithmetic.sine_cosine(x)?.0,
            "cos" => arithmetic.sine_cosine(x)?.1,
            "tan" | "sec" | "csc" | "cot" => {
                let (sine, cosine) = arithmetic.sine_cosine(x)?;
                let (above, below) = match name {
                    "tan" => (sine, cosine),
                    "sec" => (one, cosine),
                    "csc" => (one, sine),
                    _ => (cosine, sine),
                };
                arithmetic.multiply(&above, &arithmetic.invert(&below)?)
            }
            "arctan" => arithmetic.arc_tangent(x),
            "arcsin" | "arccos" => {
                let half_turn = arithmetic
                    .multiply(&arithmetic.pi(), &Real::Exact(RBig::ONE / RBig::from(2u8)));
                let rest = arithmetic.add(&one, &arithmetic.negate(&arithmetic.multiply(x, x)));
                let sine = match arithmetic.sign(&rest)? {
                    -1 => return Err(Failure::Undefined),
                    0 if arithmetic.sign(x)? < 0 => arithmetic.negate(&half_turn),
                    0 => half_turn.clone(),
                    _ => arithmetic.arc_tangent(
                        &arithmetic
                            .multiply(x, &arithmetic.invert(&arithmetic.square_root(&rest)?)?),
                    ),
                };
                if name == "arcsin" {
                    sine
                } else {
                    arithmetic.add(&half_turn, &arithmetic.negate(&sine))
                }
            }
            "sinh" | "cosh" | "tanh" => {
                let up = arithmetic.exponential(x)?;
                let down = arithmetic.invert(&up)?;
                let (plus, minus) = (
                    arithmetic.add(&up, &down),
                    arithmetic.add(&up, &arithmetic.negate(&down)),
                );
                let half = Real::Exact(RBig::ONE / RBig::from(2u8));
                match name {
                    "sinh" => arithmetic.multiply(&minus, &half),
                    "cosh" => arithmetic.multiply(&plus, &half),
                    _ => arithmetic.multiply(&minus, &arithmetic.invert(&plus)?),
                }
            }
            _ => return Err(Failure::Unsupported),
        };
        Ok(real(result))
    }

    fn binomial(&self, above: &Number, below: &Number) -> Result<Number, Failure> {
        let top = above.rational().ok_or(Failure::Undefined)?;
        let mut count = small(below).ok_or(Failure::Undefined)?;
        if let Some(total) = small(above) {
            if count > total {
                return Ok(exact(RBig::ZERO));
            }
            count = count.min(total - count);
        }
        if count > MAX_FACTORIAL {
            return Err(Failure::Budget);
        }
        let mut result = RBig::ONE;
        for step in 0..count {
            self.budget.spend(1 + size(&result) / 512)?;
            result = result * (top - RBig::from(step)) / RBig::from(step + 1);
        }
        Ok(exact(result))
    }

    fn series(&mut self, name: &str, arguments: &[Node]) -> Result<Number, Failure> {
        let [body, Node::Symbol(index), low, high] = arguments else {
            return Err(Failure::Unsupported);
        };
        let bound = |number: Number| {
            number
                .rational()
                .and_then(whole)
                .and_then(|value| i64::try_from(value).ok())
                .ok_or(Failure::Undefined)
        };
        let (low, high) = (bound(self.value(low)?)?, bound(self.value(high)?)?);
        if high.saturating_sub(low) > MAX_TERMS.cast_signed() {
            return Err(Failure::Budget);
        }
        let adds = name == "sum";
        let mut total = exact(if adds { RBig::ZERO } else { RBig::ONE });
        for step in low..=high {
            self.point
                .push((index.clone(), RBig::from(IBig::from(step))));
            let term = self.value(body);
            self.point.pop();
            total = if adds {
                self.add(&total, &term?)?
            } else {
                self.multiply(&total, &term?)?
            };
        }
        Ok(total)
    }
}

fn factorial(count: u64, budget: &Budget) -> Result<Number, Failure> {
    if count > MAX_FACTORIAL {
        return Err(Failure::Budget);
    }
    let mut result = UBig::ONE;
    for factor in 2..=count {
        budget.spend(usize::from(factor % 8 == 0) * (1 + result.bit_len() / 8192))?;
        result *= factor;
    }
    Ok(exact(RBig::from(result)))
}

fn common(name: &str, values: &[Number]) -> Result<Number, Failure> {
    let mut result: Option<UBig> = None;
    for value in values {
        let next = value
            .rational()
            .and_then(whole)
            .ok_or(Failure::Undefined)?
            .clone()
            .unsigned_abs_value();
        result = Some(match result {
            None => next,
            Some(first) if first.is_zero() || next.is_zero() => {
                if name == "gcd" {
                    first + next
                } else {
                    UBig::ZERO
                }
            }
            Some(first) => {
                let divisor = (&first).gcd(&next);
                if name == "gcd" {
                    divisor
                } else {
                    first * next / divisor
                }
            }
        });
    }
    result
        .map(|value| exact(RBig::from(value)))
        .ok_or(Failure::Undefined)
}

fn extreme(largest: bool, values: &[Number]) -> Result<Number, Failure> {
    let mut rationals = Vec::with_capacity(values.len());
    for value in values {
        rationals.push(value.rational().ok_or(Failure::Undefined)?.clone());
    }
    let best = if largest {
        rationals.into_iter().max()
    } else {
        rationals.into_iter().min()
    };
    best.map(exact).ok_or(Failure::Undefined)
}

trait Magnitude {
    fn unsigned_abs_value(self) -> UBig;
}

impl Magnitude for IBig {
    fn unsigned_abs_value(self) -> UBig {
        self.into_parts().1
    }
}
