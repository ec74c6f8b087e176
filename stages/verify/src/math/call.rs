//! Values of functions, sums and products.

use super::{
    ball::{Failure, Real},
    evaluate::{Budget, Evaluator, MAX_FACTORIAL, MAX_TERMS, Magnitude, Number, exact, is_zero, real, small, whole},
    exact::size,
    value::Node,
};
use dashu::{
    base::{BitTest, Gcd},
    integer::{IBig, UBig},
    rational::RBig,
};

impl Evaluator<'_> {
    pub(super) fn call(&mut self, name: &str, arguments: &[Node]) -> Result<Number, Failure> {
        if matches!(name, "sum" | "product") {
            return self.series(name, arguments);
        }
        // a series costs as much as some dozens of sums
        if !matches!(name, "abs" | "floor" | "ceil" | "factorial" | "binom" | "mod" | "gcd" | "lcm" | "min" | "max") {
            self.budget.spend(if name == "root" { 4 } else { 30 })?;
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
            ("ceil", None) => arithmetic.floor(&arithmetic.negate(first.only_real()?)).map(|value| exact(-value)),
            ("factorial", None) => factorial(small(first).ok_or(Failure::Undefined)?, self.budget),
            ("binom", Some(below)) => self.binomial(first, below),
            ("mod", Some(by)) => {
                let (value, by) =
                    (first.rational().ok_or(Failure::Undefined)?, by.rational().ok_or(Failure::Undefined)?);
                if *by == RBig::ZERO {
                    return Err(Failure::Undefined);
                }
                let turns = RBig::from((value / by).floor());
                Ok(exact(value - turns * by))
            }
            ("gcd" | "lcm", Some(_)) => common(name, &values),
            ("min" | "max", _) => extreme(name == "max", &values),
            ("ln", None) => arithmetic.logarithm(first.only_real()?).map(real),
            ("log", base) => self.logarithm(first, base),
            (_, None) => self.trigonometric(name, first),
            _ => Err(Failure::Unsupported),
        }
    }

    fn logarithm(&self, argument: &Number, base: Option<&Number>) -> Result<Number, Failure> {
        let arithmetic = self.arithmetic;
        let logarithm = arithmetic.logarithm(argument.only_real()?)?;
        let base = match base {
            Some(base) => base.only_real()?.clone(),
            None if self.decimal_log => Real::Exact(RBig::from(10u8)),
            None => return Ok(real(logarithm)),
        };
        let below = arithmetic.invert(&arithmetic.logarithm(&base)?)?;
        Ok(real(arithmetic.multiply(&logarithm, &below)))
    }

    pub(super) fn trigonometric(&self, name: &str, argument: &Number) -> Result<Number, Failure> {
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
                let half_turn = arithmetic.multiply(&arithmetic.pi(), &Real::Exact(RBig::ONE / RBig::from(2u8)));
                let rest = arithmetic.add(&one, &arithmetic.negate(&arithmetic.multiply(x, x)));
                let sine = match arithmetic.sign(&rest)? {
                    -1 => return Err(Failure::Undefined),
                    0 if arithmetic.sign(x)? < 0 => arithmetic.negate(&half_turn),
                    0 => half_turn.clone(),
                    _ => arithmetic
                        .arc_tangent(&arithmetic.multiply(x, &arithmetic.invert(&arithmetic.square_root(&rest)?)?)),
                };
                if name == "arcsin" { sine } else { arithmetic.add(&half_turn, &arithmetic.negate(&sine)) }
            }
            "sinh" | "cosh" | "tanh" => {
                let up = arithmetic.exponential(x)?;
                let down = arithmetic.invert(&up)?;
                let (plus, minus) = (arithmetic.add(&up, &down), arithmetic.add(&up, &arithmetic.negate(&down)));
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

    pub(super) fn binomial(&self, above: &Number, below: &Number) -> Result<Number, Failure> {
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
        if let Some(total) = small(above) {
            let mut result = UBig::ONE;
            for step in 0..count {
                self.budget.spend(usize::from(step % 8 == 0) * (1 + result.bit_len() / 4096))?;
                result = result * (total - step) / (step + 1);
            }
            return Ok(exact(RBig::from(result)));
        }
        let mut result = RBig::ONE;
        for step in 0..count {
            self.budget.spend(1 + size(&result) / 512)?;
            result = result * (top - RBig::from(step)) / RBig::from(step + 1);
        }
        Ok(exact(result))
    }

    pub(super) fn series(&mut self, name: &str, arguments: &[Node]) -> Result<Number, Failure> {
        let [body, Node::Symbol(index), low, high] = arguments else {
            return Err(Failure::Unsupported);
        };
        let bound = |number: Number| {
            number.rational().and_then(whole).and_then(|value| i64::try_from(value).ok()).ok_or(Failure::Undefined)
        };
        let (low, high) = (bound(self.value(low)?)?, bound(self.value(high)?)?);
        if high.saturating_sub(low) > MAX_TERMS.cast_signed() {
            return Err(Failure::Budget);
        }
        let adds = name == "sum";
        let mut total = exact(if adds { RBig::ZERO } else { RBig::ONE });
        for step in low..=high {
            self.point.push((index.clone(), RBig::from(IBig::from(step))));
            let term = self.value(body);
            self.point.pop();
            total = if adds { self.add(&total, &term?)? } else { self.multiply(&total, &term?)? };
        }
        Ok(total)
    }
}
fn factorial(count: u64, budget: &Budget) -> Result<Number, Failure> {
    if count > MAX_FACTORIAL {
        return Err(Failure::Budget);
    }
    budget.spend(usize::try_from(count / 4).unwrap_or(usize::MAX))?;
    Ok(exact(RBig::from(range_product(2, count))))
}

/// `from · (from + 1) · … · to`, halves first, so that large factors meet large ones.
fn range_product(from: u64, to: u64) -> UBig {
    if to < from {
        return UBig::ONE;
    }
    if to - from < 12 {
        return (from..=to).fold(UBig::ONE, |product, factor| product * factor);
    }
    let middle = u64::midpoint(from, to);
    range_product(from, middle) * range_product(middle + 1, to)
}

fn common(name: &str, values: &[Number]) -> Result<Number, Failure> {
    let mut result: Option<UBig> = None;
    for value in values {
        let next = value.rational().and_then(whole).ok_or(Failure::Undefined)?.clone().unsigned_abs_value();
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
                if name == "gcd" { divisor } else { first * next / divisor }
            }
        });
    }
    result.map(|value| exact(RBig::from(value))).ok_or(Failure::Undefined)
}

fn extreme(largest: bool, values: &[Number]) -> Result<Number, Failure> {
    let mut rationals = Vec::with_capacity(values.len());
    for value in values {
        rationals.push(value.rational().ok_or(Failure::Undefined)?.clone());
    }
    let best = if largest { rationals.into_iter().max() } else { rationals.into_iter().min() };
    best.map(exact).ok_or(Failure::Undefined)
}
