//! Reads conditions, intervals and unions as sets of reals.

use super::{
    evaluate::Budget,
    pieces::{Piece, complement, intersection},
    scalar::{is_negative, linear, order},
    shape::{infinity, is_infinite, is_name},
    value::{Joint, Node, Relation},
};
use dashu::rational::RBig;
use std::cmp::Ordering;

/// A set of reals, with what is said to lie in it (`x`, `f(x)`; none for a bare set).
pub type Region = (Vec<Piece>, Option<Node>);

/// The answer as a set of reals.
pub fn region(node: &Node, budget: &Budget) -> Option<Region> {
    match node {
        Node::Interval(low, high, low_closed, high_closed) => {
            Some((vec![Piece::new(low, high, *low_closed, *high_closed)], None))
        }
        Node::Symbol(name) if name == "ℝ" => Some((vec![Piece::all()], None)),
        Node::Set(points) => Some((points.iter().map(Piece::point).collect(), None)),
        Node::Union(parts) => {
            let mut pieces = Vec::new();
            for part in parts {
                pieces.extend(span(part, budget)?);
            }
            Some((pieces, None))
        }
        Node::Call(name, parts) if name == "difference" && parts.len() == 2 => {
            let without = complement(&span(&parts[1], budget)?, budget)?;
            Some((intersection(&span(&parts[0], budget)?, &without, budget)?, None))
        }
        Node::Call(name, parts) if name == "intersection" && parts.len() == 2 => {
            Some((intersection(&span(&parts[0], budget)?, &span(&parts[1], budget)?, budget)?, None))
        }
        Node::Chain(first, rest) => condition(first, rest, budget),
        Node::List(items, joint) if items.len() > 1 => conditions(items, *joint, budget),
        _ => None,
    }
}

/// A part of a union or difference, where a pair in round brackets is an open interval.
fn span(part: &Node, budget: &Budget) -> Option<Vec<Piece>> {
    match part {
        Node::Tuple(ends) if ends.len() == 2 => Some(vec![Piece::new(&ends[0], &ends[1], false, false)]),
        other => region(other, budget).map(|(pieces, _)| pieces),
    }
}

fn is_closed(sign: Relation) -> bool {
    matches!(sign, Relation::LessEqual | Relation::GreaterEqual)
}

fn is_upward(sign: Relation) -> bool {
    matches!(sign, Relation::Less | Relation::LessEqual)
}

fn condition(first: &Node, rest: &[(Relation, Node)], budget: &Budget) -> Option<Region> {
    match rest {
        [(sign, right)] if sign.is_order() => half_line(first, *sign, right, budget),
        [(Relation::NotEqual, right)] if is_name(first) => Some((
            vec![Piece::new(&infinity(false), right, false, false), Piece::new(right, &infinity(true), false, false)],
            Some(first.clone()),
        )),
        [(one, middle), (two, right)] if one.is_order() && two.is_order() => {
            if is_upward(*one) != is_upward(*two) || !first.symbols().is_empty() || !right.symbols().is_empty() {
                return None;
            }
            let piece = if is_upward(*one) {
                Piece::new(first, right, is_closed(*one), is_closed(*two))
            } else {
                Piece::new(right, first, is_closed(*two), is_closed(*one))
            };
            subject_of(middle, vec![piece], budget)
        }
        _ => None,
    }
}

fn half_line(left: &Node, sign: Relation, right: &Node, budget: &Budget) -> Option<Region> {
    let ray = |sign: Relation, bound: &Node| {
        if is_upward(sign) {
            Piece::new(&infinity(false), bound, false, is_closed(sign))
        } else {
            Piece::new(bound, &infinity(true), is_closed(sign), false)
        }
    };
    let holds = |node: &Node| is_name(node) || magnitude_of(node).is_some();
    if holds(left) && right.symbols().is_empty() {
        return subject_of(left, vec![ray(sign, right)], budget);
    }
    if holds(right) && left.symbols().is_empty() {
        return subject_of(right, vec![ray(sign.flipped(), left)], budget);
    }
    let difference = Node::Add(vec![left.clone(), right.clone().negated()]);
    let (slope, offset) = linear(&difference, budget)?;
    let sign = if is_negative(&slope) { sign.flipped() } else { sign };
    let name = difference.symbols().into_iter().next()?;
    Some((vec![ray(sign, &Node::Number(-offset / slope))], Some(Node::Symbol(name))))
}

/// The inside of `|…|`.
fn magnitude_of(node: &Node) -> Option<&Node> {
    match node {
        Node::Call(name, arguments) if name == "abs" => arguments.first(),
        _ => None,
    }
}

/// What `|ax + b|` between bounds says of `x`; for a name, what is said of the name.
fn subject_of(node: &Node, pieces: Vec<Piece>, budget: &Budget) -> Option<Region> {
    let Some(inner) = magnitude_of(node) else {
        return Some((pieces, Some(node.clone())));
    };
    let (slope, offset, subject) = if matches!(inner, Node::Symbol(_)) {
        (RBig::ONE, RBig::ZERO, inner.clone())
    } else {
        let (slope, offset) = linear(inner, budget)?;
        (slope, offset, Node::Symbol(inner.symbols().into_iter().next()?))
    };
    let zero = Node::integer(0);
    let upward = vec![Piece::new(&zero, &infinity(true), true, false)];
    let mut found = Vec::new();
    for piece in intersection(&pieces, &upward, budget)? {
        let back = |end: &Node, negative: bool| {
            if is_infinite(end) {
                return infinity(negative == is_negative(&slope));
            }
            let value = if negative { end.clone().negated() } else { end.clone() };
            let shifted = Node::Add(vec![value, Node::Number(-offset.clone())]);
            shifted.times(Node::Number(RBig::ONE / slope.clone()))
        };
        for negative in [true, false] {
            let (a, b) = (back(&piece.low, negative), back(&piece.high, negative));
            found.push(if negative == is_negative(&slope) {
                Piece::new(&a, &b, piece.low_closed, piece.high_closed)
            } else {
                Piece::new(&b, &a, piece.high_closed, piece.low_closed)
            });
        }
    }
    Some((found, Some(subject)))
}

/// Several conditions on one quantity: all of them, or any of them.
fn conditions(items: &[Node], joint: Joint, budget: &Budget) -> Option<Region> {
    let mut subject: Option<Node> = None;
    let mut regions: Vec<Vec<Piece>> = Vec::new();
    let excludes = matches!(&items[0], Node::Chain(_, rest) if matches!(&rest[..], [(Relation::NotEqual, _)]));
    for item in items {
        let (pieces, about) = match item {
            Node::Chain(name, rest) if matches!(&rest[..], [(Relation::Equal, _)]) && is_name(name) => {
                (vec![Piece::point(&rest[0].1)], Some((**name).clone()))
            }
            Node::Tuple(ends) if joint == Joint::Or && ends.len() == 2 && ends.iter().any(is_infinite) => {
                (vec![Piece::new(&ends[0], &ends[1], false, false)], None)
            }
            // `x ≠ 1, 2`
            value if excludes && matches!(value, Node::Number(_)) => {
                let sides = [
                    Piece::new(&infinity(false), value, false, false),
                    Piece::new(value, &infinity(true), false, false),
                ];
                (sides.to_vec(), None)
            }
            other => region(other, budget)?,
        };
        let bare = matches!(item, Node::Interval(..) | Node::Tuple(_) | Node::Number(_) | Node::Union(_));
        if about.is_none() && !bare || (subject.is_some() && about.is_some() && subject != about) {
            return None;
        }
        subject = subject.or(about);
        regions.push(pieces);
    }
    if joint == Joint::Or && !excludes {
        return Some((regions.into_iter().flatten().collect(), subject));
    }
    subject.as_ref()?;
    let mut all = vec![Piece::all()];
    for region in regions {
        all = intersection(&all, &region, budget)?;
    }
    Some((all, subject))
}

/// Order of two ends, infinite ones included.
pub fn compare_ends(a: &Node, b: &Node, budget: &Budget) -> Option<Ordering> {
    let far = |node: &Node| match node {
        _ if !is_infinite(node) => 0,
        Node::Symbol(_) => 1,
        _ => -1,
    };
    match (far(a), far(b)) {
        (0, 0) if a == b => Some(Ordering::Equal),
        (0, 0) => order(a, b, budget),
        (x, y) => Some(x.cmp(&y)),
    }
}
