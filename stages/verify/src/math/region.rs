//! Reads conditions, intervals and unions as sets of reals.

use super::{
    evaluate::Budget,
    scalar::{is_negative, linear},
    shape::{infinity, is_infinite, is_name},
    value::{Joint, Node, Relation},
};

/// One interval of a region.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Lower end.
    pub low: Node,
    /// Upper end.
    pub high: Node,
    /// Whether the lower end belongs to it.
    pub low_closed: bool,
    /// Whether the upper end belongs to it.
    pub high_closed: bool,
}

/// The answer as a set of reals, with what is said to lie in it (`x`, `f(x)`; none for a bare set).
pub fn region(node: &Node, budget: &Budget) -> Option<(Vec<Piece>, Option<Node>)> {
    match node {
        Node::Interval(low, high, low_closed, high_closed) => Some((
            vec![Piece {
                low: (**low).clone(),
                high: (**high).clone(),
                low_closed: *low_closed,
                high_closed: *high_closed,
            }],
            None,
        )),
        Node::Set(points) => Some((
            points
                .iter()
                .map(|point| Piece { low: point.clone(), high: point.clone(), low_closed: true, high_closed: true })
                .collect(),
            None,
        )),
        Node::Union(parts) => {
            let mut pieces = Vec::new();
            for part in parts {
                match part {
                    Node::Tuple(ends) if ends.len() == 2 => pieces.push(Piece {
                        low: ends[0].clone(),
                        high: ends[1].clone(),
                        low_closed: false,
                        high_closed: false,
                    }),
                    other => pieces.extend(region(other, budget)?.0),
                }
            }
            Some((pieces, None))
        }
        Node::Chain(first, rest) => inequality(first, rest, budget),
        Node::List(items, joint) if items.len() > 1 => conditions(items, *joint, budget),
        _ => None,
    }
}

/// Intersection of half-lines: each end is given once.
fn intersection(regions: &[Vec<Piece>]) -> Option<Piece> {
    let mut result = Piece { low: infinity(false), high: infinity(true), low_closed: false, high_closed: false };
    for region in regions {
        let [piece] = &region[..] else { return None };
        if !is_infinite(&piece.low) {
            if !is_infinite(&result.low) {
                return None;
            }
            (result.low, result.low_closed) = (piece.low.clone(), piece.low_closed);
        }
        if !is_infinite(&piece.high) {
            if !is_infinite(&result.high) {
                return None;
            }
            (result.high, result.high_closed) = (piece.high.clone(), piece.high_closed);
        }
    }
    Some(result)
}

fn inequality(first: &Node, rest: &[(Relation, Node)], budget: &Budget) -> Option<(Vec<Piece>, Option<Node>)> {
    match rest {
        [(sign, right)] if sign.is_order() => half_line(first, *sign, right, budget),
        [(Relation::NotEqual, right)] if is_name(first) => Some((
            vec![
                Piece { low: infinity(false), high: right.clone(), low_closed: false, high_closed: false },
                Piece { low: right.clone(), high: infinity(true), low_closed: false, high_closed: false },
            ],
            Some(first.clone()),
        )),
        [(one, middle), (two, right)] if one.is_order() && two.is_order() => {
            let upward = |sign: Relation| matches!(sign, Relation::Less | Relation::LessEqual);
            if upward(*one) != upward(*two) || !first.symbols().is_empty() || !right.symbols().is_empty() {
                return None;
            }
            let closed = |sign: Relation| matches!(sign, Relation::LessEqual | Relation::GreaterEqual);
            let (low, high, low_closed, high_closed) = if upward(*one) {
                (first, right, closed(*one), closed(*two))
            } else {
                (right, first, closed(*two), closed(*one))
            };
            Some((vec![Piece { low: low.clone(), high: high.clone(), low_closed, high_closed }], Some(middle.clone())))
        }
        _ => None,
    }
}

fn half_line(left: &Node, sign: Relation, right: &Node, budget: &Budget) -> Option<(Vec<Piece>, Option<Node>)> {
    let (subject, sign, bound) = if is_name(left) && right.symbols().is_empty() {
        (left.clone(), sign, right.clone())
    } else if is_name(right) && left.symbols().is_empty() {
        (right.clone(), sign.flipped(), left.clone())
    } else {
        let difference = Node::Add(vec![left.clone(), right.clone().negated()]);
        let (slope, offset) = linear(&difference, budget)?;
        let sign = if is_negative(&slope) { sign.flipped() } else { sign };
        let name = difference.symbols().into_iter().next()?;
        (Node::Symbol(name), sign, Node::Number(-offset / slope))
    };
    let piece = match sign {
        Relation::Less | Relation::LessEqual => {
            Piece { low: infinity(false), high: bound, low_closed: false, high_closed: sign == Relation::LessEqual }
        }
        _ => Piece { low: bound, high: infinity(true), low_closed: sign == Relation::GreaterEqual, high_closed: false },
    };
    Some((vec![piece], Some(subject)))
}

/// Several conditions on one quantity: all of them, or any of them.
fn conditions(items: &[Node], joint: Joint, budget: &Budget) -> Option<(Vec<Piece>, Option<Node>)> {
    let mut subject = None;
    let mut regions = Vec::new();
    for item in items {
        let (pieces, about) = region(item, budget)?;
        if about.is_none() && !matches!(item, Node::Interval(..))
            || (subject.is_some() && about.is_some() && subject != about)
        {
            return None;
        }
        subject = subject.or(about);
        regions.push(pieces);
    }
    if subject.is_none() && joint != Joint::Or {
        return None;
    }
    if joint == Joint::Or {
        Some((regions.into_iter().flatten().collect(), subject))
    } else {
        Some((vec![intersection(&regions)?], subject))
    }
}
