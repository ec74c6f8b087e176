//! The typed form of an answer: one tree for numbers, expressions and the shapes around them.
//!
//! A difference is stored as a sum with a factor of minus one and a quotient as a product with a
//! power of minus one, so that equal forms are met by sorting alone. Report section 2.2.1 (answer
//! verification of the mathematics stage).

use dashu::{integer::IBig, rational::RBig};
use std::fmt::Write as _;

/// How the items of a bare list were joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    /// Commas, semicolons or new lines.
    Comma,
    /// At least one "and".
    And,
    /// At least one "or".
    Or,
}

/// A relation sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `=`
    Equal,
    /// `≠`
    NotEqual,
    /// `<`
    Less,
    /// `≤`
    LessEqual,
    /// `>`
    Greater,
    /// `≥`
    GreaterEqual,
    /// `≈`
    About,
    /// `∈`
    In,
    /// `≡`, arrows and other signs that are compared by form only.
    Other,
}

impl Relation {
    fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::About => "~",
            Self::In => "in",
            Self::Other => "?",
        }
    }

    /// The same relation read from right to left.
    pub fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            other => other,
        }
    }

    /// `<`, `≤`, `>` or `≥`.
    pub fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual)
    }
}

/// An answer or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// An exact number.
    Number(RBig),
    /// A variable, a constant (`e`, `i`, `π`, `∞`, `ℝ`) or a named quantity with its index.
    Symbol(String),
    /// A sum of two or more terms.
    Add(Vec<Node>),
    /// A product of two or more factors.
    Multiply(Vec<Node>),
    /// Base and exponent.
    Power(Box<Node>, Box<Node>),
    /// A function by its canonical name, and its arguments.
    Call(String, Vec<Node>),
    /// `±x`, or `∓x` when the flag is set, as a term of a sum.
    PlusMinus(Box<Node>, bool),
    /// A percentage: the number before the sign.
    Percent(Box<Node>),
    /// An angle in degrees.
    Degree(Box<Node>),
    /// Digits written in a base from 2 to 36.
    Based(String, u32),
    /// `a:b` or longer.
    Ratio(Vec<Node>),
    /// Hour, minute, and whether it is past noon.
    Time(RBig, RBig, bool),
    /// Ordered, in round or angle brackets.
    Tuple(Vec<Node>),
    /// Unordered, in braces.
    Set(Vec<Node>),
    /// Lower end, upper end, and whether each belongs to the interval.
    Interval(Box<Node>, Box<Node>, bool, bool),
    /// Union of sets.
    Union(Vec<Node>),
    /// Bare list.
    List(Vec<Node>, Joint),
    /// Rows of a matrix.
    Matrix(Vec<Vec<Node>>),
    /// `first r1 a1 r2 a2 …`
    Chain(Box<Node>, Vec<(Relation, Node)>),
    /// Words.
    Text(String),
    /// Three dots.
    Ellipsis,
}

impl Node {
    /// A whole number.
    pub fn integer(value: i64) -> Self {
        Self::Number(RBig::from(IBig::from(value)))
    }

    /// Minus this.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Number(value) => Self::Number(-value),
            Self::Multiply(mut factors) => {
                factors.insert(0, Self::integer(-1));
                Self::Multiply(factors)
            }
            other => Self::Multiply(vec![Self::integer(-1), other]),
        }
    }

    /// One over this.
    #[must_use]
    pub fn inverted(self) -> Self {
        Self::Power(Box::new(self), Box::new(Self::integer(-1)))
    }

    /// A product, flat.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        match self {
            Self::Multiply(mut factors) => {
                factors.push(other);
                Self::Multiply(factors)
            }
            first => Self::Multiply(vec![first, other]),
        }
    }

    /// The direct parts, in order.
    pub fn parts(&self) -> Vec<&Node> {
        match self {
            Self::Number(_) | Self::Symbol(_) | Self::Based(..) | Self::Time(..) | Self::Text(_) | Self::Ellipsis => {
                Vec::new()
            }
            Self::Add(items)
            | Self::Multiply(items)
            | Self::Call(_, items)
            | Self::Ratio(items)
            | Self::Tuple(items)
            | Self::Set(items)
            | Self::Union(items)
            | Self::List(items, _) => items.iter().collect(),
            Self::Power(base, exponent) => vec![base, exponent],
            Self::PlusMinus(inner, _) | Self::Percent(inner) | Self::Degree(inner) => vec![inner],
            Self::Interval(low, high, _, _) => vec![low, high],
            Self::Matrix(rows) => rows.iter().flatten().collect(),
            Self::Chain(first, rest) => std::iter::once(&**first).chain(rest.iter().map(|(_, node)| node)).collect(),
        }
    }

    /// Whether any part, this one included, satisfies `test`.
    pub fn any(&self, test: &dyn Fn(&Node) -> bool) -> bool {
        test(self) || self.parts().into_iter().any(|part| part.any(test))
    }

    /// Applies `change` to every direct part.
    #[must_use]
    pub fn map_parts(&self, change: &dyn Fn(&Node) -> Node) -> Node {
        let many = |items: &[Node]| items.iter().map(change).collect::<Vec<_>>();
        let one = |item: &Node| Box::new(change(item));
        match self {
            Self::Number(_) | Self::Symbol(_) | Self::Based(..) | Self::Time(..) | Self::Text(_) | Self::Ellipsis => {
                self.clone()
            }
            Self::Add(items) => Self::Add(many(items)),
            Self::Multiply(items) => Self::Multiply(many(items)),
            Self::Call(name, items) => Self::Call(name.clone(), many(items)),
            Self::Ratio(items) => Self::Ratio(many(items)),
            Self::Tuple(items) => Self::Tuple(many(items)),
            Self::Set(items) => Self::Set(many(items)),
            Self::Union(items) => Self::Union(many(items)),
            Self::List(items, joint) => Self::List(many(items), *joint),
            Self::Power(base, exponent) => Self::Power(one(base), one(exponent)),
            Self::PlusMinus(inner, flag) => Self::PlusMinus(one(inner), *flag),
            Self::Percent(inner) => Self::Percent(one(inner)),
            Self::Degree(inner) => Self::Degree(one(inner)),
            Self::Interval(low, high, a, b) => Self::Interval(one(low), one(high), *a, *b),
            Self::Matrix(rows) => Self::Matrix(rows.iter().map(|row| many(row)).collect()),
            Self::Chain(first, rest) => {
                Self::Chain(one(first), rest.iter().map(|(sign, node)| (*sign, change(node))).collect())
            }
        }
    }

    /// Names of the free symbols, sorted and unique; constants and bound indices are left out.
    pub fn symbols(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_symbols(&mut Vec::new(), &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect_symbols(&self, bound: &mut Vec<String>, found: &mut Vec<String>) {
        match self {
            Self::Symbol(name) => {
                if !is_constant(name) && !bound.contains(name) {
                    found.push(name.clone());
                }
            }
            Self::Call(name, items) if name == "sum" || name == "product" => {
                let index =
                    items.get(1).and_then(|node| if let Self::Symbol(name) = node { Some(name.clone()) } else { None });
                for item in items.iter().skip(2) {
                    item.collect_symbols(bound, found);
                }
                bound.extend(index.clone());
                if let Some(body) = items.first() {
                    body.collect_symbols(bound, found);
                }
                if index.is_some() {
                    bound.pop();
                }
            }
            other => other.parts().into_iter().for_each(|part| part.collect_symbols(bound, found)),
        }
    }

    /// A text form in which sums, products, sets and bare lists are sorted: equal texts mean equal
    /// answers; different texts prove nothing.
    pub fn canonical(&self) -> String {
        let sorted = |items: &[Node]| {
            let mut keys: Vec<String> = items.iter().map(Node::canonical).collect();
            keys.sort_unstable();
            keys.join(",")
        };
        let listed = |items: &[Node]| items.iter().map(Node::canonical).collect::<Vec<_>>().join(",");
        match self {
            Self::Number(value) => value.to_string(),
            Self::Symbol(name) => name.clone(),
            Self::Add(items) => format!("+({})", sorted(items)),
            Self::Multiply(items) => format!("*({})", sorted(items)),
            Self::Power(base, exponent) => {
                format!("^({},{})", base.canonical(), exponent.canonical())
            }
            Self::Call(name, items) => format!("{name}({})", listed(items)),
            Self::PlusMinus(inner, minus_first) => {
                format!("{}({})", if *minus_first { "mp" } else { "pm" }, inner.canonical())
            }
            Self::Percent(inner) => format!("%({})", inner.canonical()),
            Self::Degree(inner) => format!("deg({})", inner.canonical()),
            Self::Based(digits, base) => format!("{digits}_{base}"),
            Self::Ratio(items) => format!("ratio({})", listed(items)),
            Self::Time(hour, minute, late) => format!("time({hour},{minute},{late})"),
            Self::Tuple(items) => format!("({})", listed(items)),
            Self::Set(items) => format!("{{{}}}", sorted(items)),
            Self::Interval(low, high, a, b) => {
                format!(
                    "{}{},{}{}",
                    if *a { "[" } else { "]" },
                    low.canonical(),
                    high.canonical(),
                    if *b { "]" } else { "[" }
                )
            }
            Self::Union(items) => format!("union({})", sorted(items)),
            Self::List(items, _) if items.iter().any(|item| matches!(item, Self::Ellipsis)) => {
                format!("list({})", listed(items))
            }
            Self::List(items, _) => format!("list({})", sorted(items)),
            Self::Matrix(rows) => rows.iter().fold(String::from("matrix"), |mut text, row| {
                let _ = write!(text, "[{}]", listed(row));
                text
            }),
            Self::Chain(first, rest) => canonical_chain(first, rest),
            Self::Text(words) => format!("\"{}\"", words.to_lowercase()),
            Self::Ellipsis => "...".into(),
        }
    }
}

fn canonical_chain(first: &Node, rest: &[(Relation, Node)]) -> String {
    rest.iter().fold(first.canonical(), |mut text, (sign, node)| {
        let _ = write!(text, " {} {}", sign.sign(), node.canonical());
        text
    })
}

/// Symbols with a fixed meaning.
pub fn is_constant(name: &str) -> bool {
    matches!(name, "π" | "e" | "i" | "∞" | "ℝ" | "ℚ" | "ℤ" | "ℕ" | "ℂ")
}
