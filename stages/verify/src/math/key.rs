//! Keys of equality classes: exact ones, which settle equality, and buckets, which say what is worth
//! comparing.
//!
//! Equal exact keys mean equal answers. Answers that are equal share a bucket: a bucket holds the values
//! in an answer at a fixed point, rounded to eleven digits, whatever the shape around them, so that
//! `(1,3)`, `1<x<3` and `x>1 \text{ and } x<3` meet. An answer with several meanings (`28\%`, an equation
//! that names a value) lies in several.

use super::{
    Side,
    ball::{Arithmetic, Real},
    evaluate::Tolerance,
    evaluate::{Budget, Evaluator, Number},
    modular, region, scalar, shape, sides,
    value::{Node, Relation},
};
use crate::stem;
use std::collections::BTreeSet;

/// An answer ready to be sorted into classes.
#[derive(Debug)]
pub(crate) struct Keyed {
    side: Side,
    /// Equal keys, equal answers.
    pub(crate) exact: Option<String>,
    /// Where equal answers may lie.
    pub(crate) buckets: Vec<String>,
}

impl Keyed {
    /// Parses an answer and finds its keys.
    pub(crate) fn read(answer: &str) -> Self {
        let side = Side::read(answer);
        let mut buckets = Vec::new();
        let mut exact = None;
        if let stem::Choice::One(letter) = stem::leading_letter(&side.text, stem::letters(10)) {
            buckets.push(format!("o{letter}"));
        }
        match &side.parsed {
            Ok(parsed) => {
                let node = shape::normalise(&parsed.node);
                if !(parsed.doubts.commas || parsed.doubts.decimal || parsed.doubts.units) {
                    exact = key(&node, 0);
                }
                for meaning in meanings(&node) {
                    buckets.push(bucket(&meaning));
                }
                buckets.extend(equation(&node));
            }
            Err(_) if side.text.len() > super::LONGEST => return Self { side, exact: None, buckets: Vec::new() },
            Err(_) => buckets.push(format!("x{}", super::reading::squeezed(&side.text))),
        }
        if let Some(words) = super::reading::words(&side.text) {
            buckets.push(format!("w{words}"));
        }
        buckets.sort_unstable();
        buckets.dedup();
        Self { side, exact, buckets }
    }

    /// Whether two answers are equal.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        sides(&self.side, &other.side, Tolerance::EXACT).is_correct()
    }
}

/// What an answer may be compared as.
fn meanings(node: &Node) -> Vec<Node> {
    let hundredth = || Node::Number(dashu::rational::RBig::from_parts(1.into(), 100u8.into()));
    match node {
        Node::Percent(inner) => vec![(**inner).clone(), inner.as_ref().clone().times(hundredth())],
        Node::Degree(inner) => vec![(**inner).clone(), node.clone()],
        Node::Chain(..) => match shape::assigned(node) {
            Some((_, value)) if value.symbols().is_empty() => vec![value.clone()],
            Some((_, value)) => vec![value.clone(), node.clone()],
            None => vec![node.clone()],
        },
        other => vec![other.clone()],
    }
}

/// The bucket of an equation as such: `x = -1` names a value, and is also the equation `x = 2x + 1`.
fn equation(node: &Node) -> Option<String> {
    match node {
        Node::Chain(first, rest) => match &rest[..] {
            [(Relation::Equal, last)] => {
                Some(proportion(&Node::Add(vec![(**first).clone(), last.clone().negated()]), &Budget::default()))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The values of an answer, sorted and each once.
fn bucket(node: &Node) -> String {
    let mut values = BTreeSet::new();
    let budget = Budget::default();
    match region::region(node, &budget) {
        Some((pieces, _)) if !matches!(node, Node::Set(_)) => {
            let pieces = super::pieces::sorted(&pieces, &budget).unwrap_or(pieces);
            for piece in pieces {
                values.insert(rounded(&piece.low, &budget));
                values.insert(rounded(&piece.high, &budget));
            }
        }
        _ => collect(node, &budget, &mut values),
    }
    values.into_iter().collect::<Vec<_>>().join(";")
}

fn collect(node: &Node, budget: &Budget, values: &mut BTreeSet<String>) {
    match node {
        Node::List(items, _) | Node::Set(items) | Node::Tuple(items) | Node::Union(items) => {
            for item in items {
                collect(item, budget, values);
            }
        }
        Node::Matrix(rows) => rows.iter().flatten().for_each(|cell| collect(cell, budget, values)),
        Node::Interval(low, high, ..) => {
            collect(low, budget, values);
            collect(high, budget, values);
        }
        Node::Chain(first, rest) => match (shape::assigned(node), &rest[..]) {
            (Some((_, value)), _) if value.symbols().is_empty() => collect(value, budget, values),
            (_, [(Relation::Equal | Relation::NotEqual, last)]) => {
                values.insert(proportion(&Node::Add(vec![(**first).clone(), last.clone().negated()]), budget));
            }
            _ => {
                values.insert("chain".into());
            }
        },
        Node::Text(words) => {
            let mut words: Vec<String> = words.split(" and ").map(str::to_lowercase).collect();
            words.sort_unstable();
            values.extend(words);
        }
        Node::Ratio(parts) => {
            values.insert(format!("ratio{}", parts.len()));
        }
        Node::Time(_, minute, _) => {
            values.insert(format!("time{minute}"));
        }
        Node::Ellipsis => {}
        other => {
            values.insert(rounded(other, budget));
        }
    }
}

/// A scalar at a fixed point, to eleven digits.
fn rounded(node: &Node, budget: &Budget) -> String {
    if shape::is_infinite(node) {
        return "∞".into();
    }
    let inner = match node {
        Node::Percent(inner) | Node::Degree(inner) => inner,
        other => other,
    };
    at_point(inner, 1, budget)
        .map_or_else(|| "?".into(), |number| format!("{}:{}", digits(&number.real), digits(&number.imaginary)))
}

fn at_point(node: &Node, index: usize, budget: &Budget) -> Option<Number> {
    let symbols = node.symbols();
    let complex = symbols.is_empty();
    let point = scalar::point(&symbols, index);
    let mut evaluator =
        Evaluator { arithmetic: Arithmetic { precision: 96 }, point, complex, decimal_log: false, budget };
    evaluator.value(node).ok()
}

/// The value of an equation's difference relative to another point, which no factor changes.
fn proportion(difference: &Node, budget: &Budget) -> String {
    let (Some(x), Some(y)) = (at_point(difference, 1, budget), at_point(difference, 4, budget)) else {
        return "=?".into();
    };
    let arithmetic = Arithmetic { precision: 96 };
    arithmetic
        .invert(&y.real)
        .map_or_else(|_| "=?".into(), |below| format!("={}", digits(&arithmetic.multiply(&x.real, &below))))
}

fn digits(value: &Real) -> String {
    let (middle, error, _) = Arithmetic { precision: 96 }.ball(value);
    let float = middle.to_f64().value();
    if float.abs() < 1e-15 && error > -90.0 { "0".into() } else { format!("{:.10e}", float + 0.0) }
}

fn key(node: &Node, depth: usize) -> Option<String> {
    if depth > 8 {
        return None;
    }
    let keys = |items: &[Node]| items.iter().map(|item| key(item, depth + 1)).collect::<Option<Vec<_>>>();
    match node {
        Node::Number(value) => Some(format!("n{value}")),
        Node::Text(words) if words.split_whitespace().count() <= 2 => Some(format!("t{}", words.to_lowercase())),
        Node::List(items, _) | Node::Set(items)
            if !items.iter().any(|item| matches!(item, Node::Ellipsis | Node::Chain(..))) =>
        {
            let mut parts = keys(items)?;
            match (&parts[..], node) {
                ([], Node::Set(_)) => return Some("tno solution".into()),
                ([_], Node::Set(_)) => return parts.pop(),
                _ => parts.sort_unstable(),
            }
            if parts.windows(2).any(|pair| pair[0] == pair[1]) {
                return None;
            }
            Some(format!("l{}", parts.join(";")))
        }
        Node::Chain(..) => {
            let (_, value) = shape::assigned(node)?;
            key(value, depth + 1).filter(|key| key.starts_with('n'))
        }
        Node::Add(_) | Node::Multiply(_) | Node::Power(..) | Node::Symbol(_) | Node::Call(..)
            if !shape::is_infinite(node) =>
        {
            if node.symbols().is_empty() {
                let budget = Budget::default();
                let mut evaluator = Evaluator {
                    arithmetic: Arithmetic { precision: 96 },
                    point: Vec::new(),
                    complex: true,
                    decimal_log: false,
                    budget: &budget,
                };
                return evaluator.value(node).ok()?.rational().map(|value| format!("n{value}"));
            }
            modular::fingerprint(node).map(|residues| format!("f{residues:?}"))
        }
        _ => None,
    }
}
