//! Compares equations, inequalities and regions.

use super::{
    compare::{SHAPE, is_scalar, same, worse},
    evaluate::Budget,
    pieces::{Piece, sorted},
    region::region,
    scalar::{Outcome, proportional},
    shape::{assigned, is_name},
    value::{Joint, Node, Relation},
};

pub(super) fn chain(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Option<Outcome> {
    let Node::Chain(first, rest) = a else {
        return None;
    };
    let Node::Chain(other, more) = b else {
        if let Some((_, value)) = assigned(a) {
            return Some(same(value, b, budget, depth));
        }
        return Some(regions(a, b, budget, depth).unwrap_or(SHAPE));
    };
    match (&rest[..], &more[..]) {
        ([(Relation::Equal, x)], [(Relation::Equal, y)]) => Some(equations((first, x), (other, y), budget, depth)),
        ([(one, x)], [(two, y)]) if one.is_order() && two.is_order() => {
            Some(inequalities((first, *one, x), (other, *two, y), budget))
        }
        ([(Relation::NotEqual, x)], [(Relation::NotEqual, y)]) => {
            let outcome = equations((first, x), (other, y), budget, depth);
            Some(outcome)
        }
        _ if rest.len() == more.len() && rest.len() > 1 => {
            let straight = elementwise((first, rest), (other, more), budget, depth);
            if straight.is_equal() {
                return Some(straight);
            }
            let (last, turned) = reversed(other, more);
            let back = elementwise((first, rest), (&last, &turned), budget, depth);
            if back.is_equal() { Some(back) } else { regions(a, b, budget, depth).or(Some(straight)) }
        }
        _ => Some(regions(a, b, budget, depth).unwrap_or(SHAPE)),
    }
}

pub(super) fn elementwise(
    (first, rest): (&Node, &[(Relation, Node)]),
    (other, more): (&Node, &[(Relation, Node)]),
    budget: &Budget,
    depth: usize,
) -> Outcome {
    rest.iter().zip(more).fold(same(first, other, budget, depth), |result, ((one, x), (two, y))| {
        if one == two { worse(result, same(x, y, budget, depth)) } else { SHAPE }
    })
}

pub(super) fn reversed(first: &Node, rest: &[(Relation, Node)]) -> (Node, Vec<(Relation, Node)>) {
    let mut nodes: Vec<Node> =
        std::iter::once(first.clone()).chain(rest.iter().map(|(_, node)| node.clone())).collect();
    nodes.reverse();
    let signs = rest.iter().rev().map(|(sign, _)| sign.flipped());
    let last = nodes.remove(0);
    (last, signs.zip(nodes).collect())
}

pub(super) fn equations((a, x): (&Node, &Node), (b, y): (&Node, &Node), budget: &Budget, depth: usize) -> Outcome {
    let sides_scalar = [a, x, b, y].iter().all(|side| is_scalar(side));
    if is_name(a) && is_name(b) {
        let loose = |node: &Node| !matches!(node, Node::Symbol(name) if name.chars().count() == 1);
        if a.canonical() == b.canonical() || loose(a) || loose(b) || !sides_scalar {
            let values = same(x, y, budget, depth);
            if values.is_equal()
                || !sides_scalar
                || a.canonical() == b.canonical() && x.symbols().is_empty() && y.symbols().is_empty()
            {
                return values;
            }
        }
    }
    if !sides_scalar {
        return worse(same(a, b, budget, depth), same(x, y, budget, depth));
    }
    let difference = |left: &Node, right: &Node| Node::Add(vec![left.clone(), right.clone().negated()]);
    match proportional(&difference(a, x), &difference(b, y), budget) {
        Ok(Some(_)) => Outcome::Equal("equation"),
        Ok(None) => Outcome::Different("equation"),
        Err(reason) => match worse(same(a, b, budget, depth), same(x, y, budget, depth)) {
            Outcome::Different(_) => Outcome::Unknown(reason),
            other => other,
        },
    }
}

pub(super) fn inequalities(
    (a, one, x): (&Node, Relation, &Node),
    (b, two, y): (&Node, Relation, &Node),
    budget: &Budget,
) -> Outcome {
    // everything is brought to `difference < 0` or `difference ≤ 0`
    let below = |left: &Node, sign: Relation, right: &Node| {
        let upward = matches!(sign, Relation::Less | Relation::LessEqual);
        let (small, large) = if upward { (left, right) } else { (right, left) };
        Node::Add(vec![small.clone(), large.clone().negated()])
    };
    let closed = |sign: Relation| matches!(sign, Relation::LessEqual | Relation::GreaterEqual);
    if closed(one) != closed(two) {
        return Outcome::Different("inequality");
    }
    match proportional(&below(a, one, x), &below(b, two, y), budget) {
        Ok(Some(1)) => Outcome::Equal("inequality"),
        Ok(_) => Outcome::Different("inequality"),
        Err(reason) => Outcome::Unknown(reason),
    }
}

pub(super) fn regions(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Option<Outcome> {
    let as_region = |node: &Node, other: &Node| match node {
        Node::Tuple(ends) if ends.len() == 2 => Some((vec![Piece::new(&ends[0], &ends[1], false, false)], None)),
        Node::Set(points) if points.is_empty() || !matches!(other, Node::Union(_)) => None,
        Node::List(items, Joint::Comma)
            if !items.iter().any(|item| matches!(item, Node::Chain(..) | Node::Interval(..))) =>
        {
            None
        }
        other => region(other, budget),
    };
    let ((x, about), (y, other)) = (as_region(a, b)?, as_region(b, a)?);
    if let (Some(about), Some(other)) = (about, other)
        && about.canonical() != other.canonical()
    {
        return Some(Outcome::Different("region"));
    }
    let normal = |pieces: Vec<Piece>| sorted(&pieces, budget).unwrap_or(pieces);
    Some(pieces(&normal(x), &normal(y), budget, depth))
}

pub(super) fn pieces(x: &[Piece], y: &[Piece], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return Outcome::Different("region");
    }
    let mut left: Vec<&Piece> = y.iter().collect();
    let mut result = Outcome::Equal("region");
    for piece in x {
        let mut found = Outcome::Different("region");
        for index in 0..left.len() {
            let other = left[index];
            if piece.low_closed != other.low_closed || piece.high_closed != other.high_closed {
                continue;
            }
            match worse(same(&piece.low, &other.low, budget, depth), same(&piece.high, &other.high, budget, depth)) {
                Outcome::Equal(_) => {
                    found = Outcome::Equal("region");
                    left.remove(index);
                    break;
                }
                unknown @ Outcome::Unknown(_) => found = unknown,
                Outcome::Different(_) => {}
            }
        }
        result = worse(result, found);
    }
    result
}
