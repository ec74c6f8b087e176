//! Rational functions compared at random points modulo the prime 2⁶¹ − 1 (Schwartz 1980, Zippel 1979).
//!
//! Two unequal functions of degree d agree at a random point with probability at most d / 2⁶¹. The
//! prime is 3 modulo 4, so `i` is adjoined as a root of x² + 1. `π` and `e` are treated as
//! indeterminates, which holds for every identity that does not connect the two.

use super::value::Node;
use dashu::{base::Signed, integer::IBig, rational::RBig};

const PRIME: u64 = (1 << 61) - 1;

/// An element of the field with `PRIME²` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residue(u64, u64);

fn add(a: u64, b: u64) -> u64 {
    (a + b) % PRIME
}

fn times(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    u64::try_from(product % u128::from(PRIME)).unwrap_or(0)
}

impl Residue {
    const ONE: Self = Self(1, 0);

    fn plus(self, other: Self) -> Self {
        Self(add(self.0, other.0), add(self.1, other.1))
    }

    fn times(self, other: Self) -> Self {
        let real = add(times(self.0, other.0), PRIME - times(self.1, other.1));
        Self(real % PRIME, add(times(self.0, other.1), times(self.1, other.0)))
    }

    fn power(self, mut exponent: u128) -> Self {
        let (mut result, mut square) = (Self::ONE, self);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result.times(square);
            }
            square = square.times(square);
            exponent >>= 1;
        }
        result
    }

    fn inverse(self) -> Option<Self> {
        let order = u128::from(PRIME) * u128::from(PRIME) - 1;
        (self != Self(0, 0)).then(|| self.power(order - 1))
    }
}

fn residue(value: &IBig) -> u64 {
    let rest = value % IBig::from(PRIME);
    let rest = if rest.is_negative() { rest + IBig::from(PRIME) } else { rest };
    u64::try_from(&rest).unwrap_or(0)
}

fn rational(value: &RBig) -> Option<Residue> {
    let below = Residue(residue(&IBig::from(value.denominator().clone())), 0).inverse()?;
    Some(Residue(residue(value.numerator()), 0).times(below))
}

/// A fixed pseudo-random residue for a symbol in a round (FNV-1a, then a splitmix finish).
fn sample(name: &str, round: u64) -> Residue {
    let mut hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15), |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Residue((hash ^ (hash >> 31)) % (PRIME - 2) + 1, 0)
}

/// The value of a rational function in one round; `None` for anything else or a zero divisor.
pub fn value(node: &Node, round: u64) -> Option<Residue> {
    match node {
        Node::Number(number) => rational(number),
        Node::Symbol(name) if name == "i" => Some(Residue(0, 1)),
        Node::Symbol(name) if matches!(name.as_str(), "∞" | "ℝ" | "ℚ" | "ℤ" | "ℕ" | "ℂ") => None,
        Node::Symbol(name) => Some(sample(name, round)),
        Node::Call(name, _) if name.ends_with('·') || name == "prime" => Some(sample(&node.canonical(), round)),
        Node::Add(items) => items.iter().try_fold(Residue(0, 0), |sum, item| Some(sum.plus(value(item, round)?))),
        Node::Multiply(items) => {
            items.iter().try_fold(Residue::ONE, |product, item| Some(product.times(value(item, round)?)))
        }
        Node::Power(base, exponent) => {
            let Node::Number(exponent) = &**exponent else {
                return None;
            };
            if !exponent.denominator().is_one() {
                return None;
            }
            let count = u64::try_from(exponent.numerator().clone().into_parts().1).ok()?;
            let raised = value(base, round)?.power(u128::from(count));
            if exponent.is_negative() { raised.inverse() } else { Some(raised) }
        }
        Node::Percent(inner) => Some(value(inner, round)?.times(rational(&(RBig::ONE / RBig::from(100u8)))?)),
        _ => None,
    }
}

/// Values in several rounds, the key of an equality class of rational functions.
pub fn fingerprint(node: &Node) -> Option<[Residue; 3]> {
    Some([value(node, 1)?, value(node, 2)?, value(node, 3)?])
}
