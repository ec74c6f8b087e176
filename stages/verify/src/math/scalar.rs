//! Compares two expressions in tiers, cheapest and surest first.
//!
//! Same normal form; exact rationals; identity of rational functions modulo a prime; balls at two
//! precisions, where disjoint balls prove a difference and agreement to 60 digits counts as
//! equality. Report section 2.2.1; the order follows the rule that exact arithmetic comes first.

use super::{
    ball::{Arithmetic, Failure, Real, magnitude},
    evaluate::{Budget, Evaluator, Number, Tolerance, is_zero},
    modular,
    value::Node,
};
use dashu::{base::Signed, integer::IBig, integer::UBig, rational::RBig};
use std::cmp::Ordering;

/// What a comparison found, with the tier or the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Equal, decided by this tier.
    Equal(&'static str),
    /// Different, decided by this tier.
    Different(&'static str),
    /// Not decided, for this reason.
    Unknown(&'static str),
}

impl Outcome {
    /// Whether equality was found.
    pub fn is_equal(self) -> bool {
        matches!(self, Self::Equal(_))
    }
}

/// Bits of the quick look and of the final one, and the bits that must agree (60 digits are 200).
const PRECISIONS: [usize; 2] = [96, 288];
const AGREEMENT: f64 = 200.0;
const POINTS: usize = 36;
const NEEDED: usize = 3;
/// Points for expressions with corners, which may agree on one side of them only.
const ENOUGH: usize = 8;

/// Compares two expressions.
pub fn compare(a: &Node, b: &Node, budget: &Budget) -> Outcome {
    let exact = compare_exactly(a, b, budget);
    if budget.tolerance != Tolerance::EXACT
        && matches!(exact, Outcome::Different(_))
        && let (Some(x), Some(y)) = (approximate(a, budget), approximate(b, budget))
        && budget.tolerance.admits(x, y)
    {
        return Outcome::Equal("tolerance");
    }
    exact
}

/// A real constant as a float.
fn approximate(node: &Node, budget: &Budget) -> Option<f64> {
    let mut evaluator = Evaluator {
        arithmetic: Arithmetic { precision: 96 },
        point: Vec::new(),
        complex: false,
        decimal_log: false,
        budget,
    };
    let number = evaluator.value(node).ok()?;
    let (middle, ..) = evaluator.arithmetic.ball(number.only_real().ok()?);
    Some(middle.to_f64().value())
}

/// Order of two real constants, proved.
pub fn order(a: &Node, b: &Node, budget: &Budget) -> Option<Ordering> {
    for precision in PRECISIONS {
        let mut evaluator = Evaluator {
            arithmetic: Arithmetic { precision },
            point: Vec::new(),
            complex: false,
            decimal_log: false,
            budget,
        };
        let (x, y) = (evaluator.value(a).ok()?, evaluator.value(b).ok()?);
        let arithmetic = evaluator.arithmetic;
        let gap = arithmetic.add(x.only_real().ok()?, &arithmetic.negate(y.only_real().ok()?));
        if let Ok(sign) = arithmetic.sign(&gap) {
            return Some(sign.cmp(&0));
        }
    }
    // what agrees to the last digit is equal
    compare_exactly(a, b, budget).is_equal().then_some(Ordering::Equal)
}

fn compare_exactly(a: &Node, b: &Node, budget: &Budget) -> Outcome {
    if let (Node::Number(a), Node::Number(b)) = (a, b) {
        return if a == b { Outcome::Equal("exact") } else { Outcome::Different("exact") };
    }
    let first = compare_reading(a, b, budget, false);
    let bare_log = |node: &Node| {
        node.any(&|part| matches!(part, Node::Call(name, arguments) if name == "log" && arguments.len() == 1))
    };
    if matches!(first, Outcome::Different(_)) && (bare_log(a) || bare_log(b)) {
        return compare_reading(a, b, budget, true);
    }
    first
}

fn compare_reading(a: &Node, b: &Node, budget: &Budget, decimal_log: bool) -> Outcome {
    let mut symbols = a.symbols();
    symbols.extend(b.symbols());
    symbols.sort_unstable();
    symbols.dedup();
    if symbols.is_empty() {
        return constants(a, b, budget, decimal_log);
    }
    for round in 0..4 {
        match (modular::value(a, round), modular::value(b, round)) {
            (Some(x), Some(y)) if x != y => return Outcome::Different("identity"),
            (Some(_), Some(_)) => {}
            _ => return sampled(a, b, &symbols, budget, decimal_log),
        }
    }
    Outcome::Equal("identity")
}

fn constants(a: &Node, b: &Node, budget: &Budget, decimal_log: bool) -> Outcome {
    let mut last = Outcome::Unknown("precision");
    for precision in PRECISIONS {
        let mut evaluator =
            Evaluator { arithmetic: Arithmetic { precision }, point: Vec::new(), complex: true, decimal_log, budget };
        let (x, y) = match (evaluator.value(a), evaluator.value(b)) {
            (Ok(x), Ok(y)) => (x, y),
            (Err(Failure::Precision), _) | (_, Err(Failure::Precision)) => continue,
            (Err(failure), _) | (_, Err(failure)) => return Outcome::Unknown(reason(failure)),
        };
        last = numbers(precision, &x, &y);
        if !matches!(last, Outcome::Unknown(_)) {
            return last;
        }
    }
    last
}

fn reason(failure: Failure) -> &'static str {
    match failure {
        Failure::Budget => "budget",
        Failure::Undefined => "undefined",
        Failure::Precision => "precision",
        Failure::Unsupported => "unsupported",
    }
}

/// Compares two values of the same precision.
fn numbers(precision: usize, x: &Number, y: &Number) -> Outcome {
    let parts = [reals(precision, &x.real, &y.real), reals(precision, &x.imaginary, &y.imaginary)];
    if let Some(different) = parts.iter().find(|part| matches!(part, Outcome::Different(_))) {
        return *different;
    }
    if let Some(unknown) = parts.iter().find(|part| matches!(part, Outcome::Unknown(_))) {
        return *unknown;
    }
    if parts[0] == Outcome::Equal("exact") { parts[1] } else { parts[0] }
}

fn reals(precision: usize, x: &Real, y: &Real) -> Outcome {
    if let (Real::Exact(x), Real::Exact(y)) = (x, y) {
        return if x == y { Outcome::Equal("exact") } else { Outcome::Different("exact") };
    }
    let arithmetic = Arithmetic { precision };
    let ((a, ea, ra), (b, eb, rb)) = (arithmetic.ball(x), arithmetic.ball(y));
    let size = magnitude(&a).max(magnitude(&b)).max(0.0);
    let gap = magnitude(&(a - b)) - 1.0;
    let error = ea.max(eb) + 1.0;
    if gap > error + 2.0 {
        return Outcome::Different("numeric");
    }
    if ra || rb {
        return Outcome::Unknown("budget");
    }
    if error > size - AGREEMENT { Outcome::Unknown("precision") } else { Outcome::Equal("numeric") }
}

/// Point `index` of the fixed series: small whole numbers, positive and negative fractions in turn.
pub fn point(symbols: &[String], index: usize) -> Vec<(String, RBig)> {
    let mut state = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    symbols
        .iter()
        .map(|name| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = match index % 3 {
                0 => RBig::from(UBig::from(2 + state % 11)),
                sign => {
                    let above = IBig::from(1 + state % 53);
                    let below = UBig::from(7 + (state >> 20) % 13);
                    let value = RBig::from_parts(above, below);
                    if sign == 2 && !(state >> 40).is_multiple_of(4) { -value } else { value }
                }
            };
            (name.clone(), value)
        })
        .collect()
}

fn sampled(a: &Node, b: &Node, symbols: &[String], budget: &Budget, decimal_log: bool) -> Outcome {
    let mut agreed = 0;
    let mut why = "undefined";
    let enough = if has_corners(a) || has_corners(b) { ENOUGH } else { NEEDED };
    for index in 0..POINTS {
        if agreed >= enough || (index >= POINTS / 2 && agreed >= NEEDED) {
            break;
        }
        let at = point(symbols, index);
        // after one agreement the quick look finds nothing more
        for precision in &PRECISIONS[usize::from(agreed > 0)..] {
            let precision = *precision;
            let mut evaluator = Evaluator {
                arithmetic: Arithmetic { precision },
                point: at.clone(),
                complex: false,
                decimal_log,
                budget,
            };
            let (x, y) = match (evaluator.value(a), evaluator.value(b)) {
                (Ok(x), Ok(y)) => (x, y),
                (Err(Failure::Precision), _) | (_, Err(Failure::Precision)) => continue,
                (Err(failure), _) | (_, Err(failure)) => {
                    if matches!(failure, Failure::Unsupported | Failure::Budget) {
                        return Outcome::Unknown(reason(failure));
                    }
                    break;
                }
            };
            match numbers(precision, &x, &y) {
                Outcome::Equal(_) => {
                    agreed += 1;
                    break;
                }
                Outcome::Different(_) => return Outcome::Different("sampled"),
                Outcome::Unknown(found) => why = found,
            }
        }
    }
    if agreed >= NEEDED { Outcome::Equal("sampled") } else { Outcome::Unknown(why) }
}

/// Functions that are not analytic: agreement on an interval says nothing beyond it.
fn has_corners(node: &Node) -> bool {
    node.any(&|part| match part {
        Node::Call(name, _) => {
            matches!(
                name.as_str(),
                "abs" | "floor" | "ceil" | "mod" | "max" | "min" | "root" | "gcd" | "lcm" | "factorial"
            )
        }
        Node::Power(_, exponent) => !matches!(&**exponent, Node::Number(value) if value.denominator().is_one()),
        _ => false,
    })
}

/// Whether `a = r · b` for a constant `r ≠ 0`; gives the sign of `r`.
pub fn proportional(a: &Node, b: &Node, budget: &Budget) -> Result<Option<i8>, &'static str> {
    let mut symbols = a.symbols();
    symbols.extend(b.symbols());
    symbols.sort_unstable();
    symbols.dedup();
    let mut pivot: Option<(Number, Number, i8)> = None;
    let mut agreed = 0;
    for index in 0..POINTS {
        if agreed >= ENOUGH {
            break;
        }
        let mut evaluator = Evaluator {
            arithmetic: Arithmetic { precision: 288 },
            point: point(&symbols, index),
            complex: false,
            decimal_log: false,
            budget,
        };
        let (x, y) = match (evaluator.value(a), evaluator.value(b)) {
            (Ok(x), Ok(y)) => (x, y),
            (Err(failure @ (Failure::Budget | Failure::Unsupported)), _)
            | (_, Err(failure @ (Failure::Budget | Failure::Unsupported))) => {
                return Err(reason(failure));
            }
            _ => continue,
        };
        let arithmetic = evaluator.arithmetic;
        let Some((px, py, _)) = &pivot else {
            if !(is_zero(&x.imaginary) && is_zero(&y.imaginary)) {
                // a complex factor has no sign
                pivot = Some((x, y, 1));
            } else if let (Ok(sx), Ok(sy)) = (arithmetic.sign(&x.real), arithmetic.sign(&y.real)) {
                if sx == 0 && sy == 0 {
                    continue;
                }
                if sx == 0 || sy == 0 {
                    return Ok(None);
                }
                pivot = Some((x, y, sx * sy));
            }
            continue;
        };
        let (Ok(left), Ok(right)) = (evaluator.multiply(&x, py), evaluator.multiply(&y, px)) else {
            return Err("budget");
        };
        match numbers(288, &left, &right) {
            Outcome::Equal(_) => agreed += 1,
            Outcome::Different(_) => return Ok(None),
            Outcome::Unknown(_) => {}
        }
    }
    match pivot {
        Some((_, _, sign)) if agreed >= NEEDED => Ok(Some(sign)),
        _ => Err("undefined"),
    }
}

/// Coefficients of `slope · x + offset`, if the node is that in its only symbol.
pub fn linear(node: &Node, budget: &Budget) -> Option<(RBig, RBig)> {
    let symbols = node.symbols();
    let [symbol] = &symbols[..] else { return None };
    let at = |value: i64| {
        let point = vec![(symbol.clone(), RBig::from(IBig::from(value)))];
        let mut evaluator =
            Evaluator { arithmetic: Arithmetic { precision: 96 }, point, complex: false, decimal_log: false, budget };
        evaluator.value(node).ok().and_then(|number| number.rational().cloned())
    };
    let (zero, one, seven, back) = (at(0)?, at(1)?, at(7)?, at(-5)?);
    let slope = &one - &zero;
    let fits = |x: i64, value: &RBig| &slope * RBig::from(IBig::from(x)) + &zero == *value;
    (slope != RBig::ZERO && fits(7, &seven) && fits(-5, &back)).then_some((slope, zero))
}

/// Whether a rational is negative.
pub fn is_negative(value: &RBig) -> bool {
    value.is_negative()
}
