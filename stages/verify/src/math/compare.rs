//! Compares two shapes: lists without order, tuples in order, regions piece by piece, equations up to
//! a factor. Symmetric: every rule is tried both ways round.

use super::{
    evaluate::Budget,
    scalar::{self, Outcome, proportional},
    shape::{Piece, assigned, is_infinite, is_name, normalise, region},
    value::{Joint, Node, Relation},
};
use dashu::rational::RBig;

const SHAPE: Outcome = Outcome::Different("shape");

/// Compares two answers.
pub fn compare(a: &Node, b: &Node, budget: &Budget) -> Outcome {
    if let (Node::Number(_), Node::Number(_)) = (a, b) {
        return scalar::compare(a, b, budget);
    }
    if a.canonical() == b.canonical() {
        return Outcome::Equal("normal_form");
    }
    let (a, b) = (normalise(a), normalise(b));
    same(&a, &b, budget, 0)
}

fn same(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Outcome {
    if budget.spend(4).is_err() || depth > 24 {
        return Outcome::Unknown("budget");
    }
    if let (Node::Number(_), Node::Number(_)) = (a, b) {
        return scalar::compare(a, b, budget);
    }
    if a.canonical() == b.canonical() {
        return Outcome::Equal("normal_form");
    }
    let first = directed(a, b, budget, depth + 1);
    match first.or_else(|| directed(b, a, budget, depth + 1)) {
        Some(outcome) => outcome,
        None if is_scalar(a) && is_scalar(b) => scalar::compare(a, b, budget),
        None => SHAPE,
    }
}

fn is_scalar(node: &Node) -> bool {
    matches!(
        node,
        Node::Number(_)
            | Node::Symbol(_)
            | Node::Add(_)
            | Node::Multiply(_)
            | Node::Power(..)
            | Node::Call(..)
            | Node::Percent(_)
            | Node::Degree(_)
            | Node::Based(..)
    ) && !is_infinite(node)
}

/// The rules with `a` on the left; `None` when none of them speaks of this pair.
fn directed(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Option<Outcome> {
    match (a, b) {
        (Node::Text(x), _) => Some(text(x, b)),
        (Node::Percent(x), Node::Percent(y)) | (Node::Degree(x), Node::Degree(y)) => {
            Some(same(x, y, budget, depth))
        }
        (Node::Percent(x), _) if is_scalar(b) => {
            let share = (**x)
                .clone()
                .times(Node::Number(RBig::ONE / RBig::from(100u8)));
            Some(either(scalar::compare(x, b, budget), || {
                scalar::compare(&share, b, budget)
            }))
        }
        (Node::Degree(x), _) if is_scalar(b) => {
            let plain = scalar::compare(x, b, budget);
            if b.any(&|part| matches!(part, Node::Symbol(name) if name == "π")) {
                return Some(either(plain, || scalar::compare(a, b, budget)));
            }
            Some(plain)
        }
        (Node::Based(x, base), Node::Based(y, other)) if base == other => {
            Some(if x.eq_ignore_ascii_case(y) {
                Outcome::Equal("base")
            } else {
                Outcome::Different("base")
            })
        }
        (Node::Based(x, _), Node::Number(y)) if *x == y.to_string() => {
            Some(Outcome::Unknown("base"))
        }
        (Node::Ratio(x), Node::Ratio(y)) => Some(ratios(x, y, budget, depth)),
        (Node::Ratio(x), _) if x.len() == 2 && is_scalar(b) && !is_clock(x) => {
            Some(scalar::compare(a, b, budget))
        }
        (Node::Time(hour, minute, _), Node::Ratio(parts)) => {
            let plain = [Node::Number(hour.clone()), Node::Number(minute.clone())];
            Some(if parts[..] == plain {
                Outcome::Equal("time")
            } else {
                Outcome::Different("time")
            })
        }
        (Node::Matrix(x), Node::Matrix(y)) => Some(matrices(x, y, budget, depth)),
        (Node::Matrix(rows), Node::Tuple(items)) => {
            let cells: Vec<Node> = rows.iter().flatten().cloned().collect();
            Some(
                if rows.len() == 1 || rows.iter().all(|row| row.len() == 1) {
                    ordered(&cells, items, budget, depth)
                } else {
                    SHAPE
                },
            )
        }
        (Node::Chain(..), _) => chain(a, b, budget, depth),
        (Node::Tuple(x), Node::Tuple(y)) => Some(ordered(x, y, budget, depth)),
        (Node::Tuple(x), Node::List(y, _)) => Some(tuple_and_list(x, y, budget, depth)),
        (Node::Tuple(x), Node::Interval(low, high, false, false)) if x.len() == 2 => Some(ordered(
            x,
            &[(**low).clone(), (**high).clone()],
            budget,
            depth,
        )),
        (Node::Set(x), Node::Set(y)) => Some(unordered(&distinct(x), &distinct(y), budget, depth)),
        (Node::Set(x), Node::List(y, _)) => {
            Some(unordered(&distinct(x), &distinct(y), budget, depth))
        }
        (Node::List(x, _), Node::List(y, _)) => Some(lists(a, b, x, y, budget, depth)),
        (Node::Interval(..) | Node::Union(_), _) => regions(a, b, budget, depth),
        (Node::Set(x), _) if x.len() == 1 && is_scalar(b) => Some(same(&x[0], b, budget, depth)),
        _ => None,
    }
}

fn either(first: Outcome, second: impl FnOnce() -> Outcome) -> Outcome {
    if first.is_equal() {
        return first;
    }
    match second() {
        Outcome::Different(_) => first,
        other => other,
    }
}

fn text(words: &str, other: &Node) -> Outcome {
    match other {
        Node::Text(more) => {
            if words.to_lowercase() == more.to_lowercase() {
                return Outcome::Equal("text");
            }
            if words
                .split_whitespace()
                .count()
                .max(more.split_whitespace().count())
                <= 2
            {
                Outcome::Different("text")
            } else {
                Outcome::Unknown("prose")
            }
        }
        _ if words.split_whitespace().count() <= 2 => Outcome::Different("text"),
        _ => Outcome::Unknown("prose"),
    }
}

/// Whether a pair reads as hours and minutes.
fn is_clock(parts: &[Node]) -> bool {
    matches!(parts, [_, Node::Number(minute)] if *minute == RBig::ZERO)
}

fn ratios(x: &[Node], y: &[Node], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    if is_clock(x) || is_clock(y) {
        return ordered(x, y, budget, depth);
    }
    let mut result = Outcome::Equal("ratio");
    for (left, right) in x.iter().zip(y).skip(1) {
        let (across, back) = (
            left.clone().times(y[0].clone()),
            right.clone().times(x[0].clone()),
        );
        match scalar::compare(&across, &back, budget) {
            Outcome::Equal(_) => {}
            other => result = worse(result, other),
        }
    }
    result
}

/// Different beats unknown beats equal.
fn worse(a: Outcome, b: Outcome) -> Outcome {
    match (a, b) {
        (Outcome::Different(_), _) => a,
        (_, Outcome::Different(_)) => b,
        (Outcome::Unknown(_), _) => a,
        (_, Outcome::Unknown(_)) => b,
        // the tier of the whole is that of its least simple part
        (Outcome::Equal("normal_form" | "exact" | "ratio"), _) => b,
        _ => a,
    }
}

fn ordered(x: &[Node], y: &[Node], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    x.iter()
        .zip(y)
        .fold(Outcome::Equal("normal_form"), |result, (a, b)| {
            if matches!(result, Outcome::Different(_)) {
                result
            } else {
                worse(result, same(a, b, budget, depth))
            }
        })
}

fn matrices(x: &[Vec<Node>], y: &[Vec<Node>], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    x.iter()
        .zip(y)
        .fold(Outcome::Equal("normal_form"), |result, (a, b)| {
            worse(result, ordered(a, b, budget, depth))
        })
}

fn distinct(items: &[Node]) -> Vec<Node> {
    let mut keys = std::collections::BTreeSet::new();
    items
        .iter()
        .filter(|item| keys.insert(item.canonical()))
        .cloned()
        .collect()
}

/// Equal as multisets: every item finds a partner of its own.
fn unordered(x: &[Node], y: &[Node], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    let mut left: Vec<Option<&Node>> = y.iter().map(Some).collect();
    let mut rest = Vec::new();
    let mut keys: std::collections::BTreeMap<String, Vec<usize>> =
        std::collections::BTreeMap::new();
    for (index, item) in y.iter().enumerate() {
        keys.entry(item.canonical()).or_default().push(index);
    }
    for item in x {
        match keys.get_mut(&item.canonical()).and_then(Vec::pop) {
            Some(index) => left[index] = None,
            None => rest.push(item),
        }
    }
    let mut result = Outcome::Equal("normal_form");
    for item in rest {
        let mut found = Outcome::Different("item");
        for slot in &mut left {
            let Some(candidate) = *slot else { continue };
            match same(item, candidate, budget, depth) {
                equal @ Outcome::Equal(_) => {
                    found = equal;
                    *slot = None;
                    break;
                }
                unknown @ Outcome::Unknown(_) => found = unknown,
                Outcome::Different(_) => {}
            }
        }
        result = worse(result, found);
        if matches!(result, Outcome::Different(_)) {
            return result;
        }
    }
    result
}

fn lists(a: &Node, b: &Node, x: &[Node], y: &[Node], budget: &Budget, depth: usize) -> Outcome {
    let dotted = |items: &[Node]| items.iter().any(|item| matches!(item, Node::Ellipsis));
    if dotted(x) || dotted(y) {
        return match ordered(x, y, budget, depth) {
            Outcome::Different(_) => Outcome::Different("item"),
            other => other,
        };
    }
    let plain = unordered(x, y, budget, depth);
    if plain.is_equal() {
        return plain;
    }
    if let Some(found @ Outcome::Equal(_)) = regions(a, b, budget, depth) {
        return found;
    }
    // groups of assignments against tuples or other groups
    if x.iter().chain(y).any(|item| matches!(item, Node::List(..))) && x.len() == y.len() {
        let tupled = |items: &[Node]| {
            items
                .iter()
                .map(|item| {
                    if let Node::List(parts, _) = item {
                        Node::Tuple(values(parts))
                    } else {
                        item.clone()
                    }
                })
                .collect::<Vec<_>>()
        };
        return unordered(&tupled(x), &tupled(y), budget, depth);
    }
    plain
}

fn values(items: &[Node]) -> Vec<Node> {
    items
        .iter()
        .map(|item| assigned(item).map_or_else(|| item.clone(), |(_, value)| value.clone()))
        .collect()
}

fn tuple_and_list(tuple: &[Node], list: &[Node], budget: &Budget, depth: usize) -> Outcome {
    ordered(tuple, &values(list), budget, depth)
}

fn chain(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Option<Outcome> {
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
        ([(Relation::Equal, x)], [(Relation::Equal, y)]) => {
            Some(equations((first, x), (other, y), budget, depth))
        }
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
            if back.is_equal() {
                Some(back)
            } else {
                regions(a, b, budget, depth).or(Some(straight))
            }
        }
        _ => Some(regions(a, b, budget, depth).unwrap_or(SHAPE)),
    }
}

fn elementwise(
    (first, rest): (&Node, &[(Relation, Node)]),
    (other, more): (&Node, &[(Relation, Node)]),
    budget: &Budget,
    depth: usize,
) -> Outcome {
    rest.iter().zip(more).fold(
        same(first, other, budget, depth),
        |result, ((one, x), (two, y))| {
            if one == two {
                worse(result, same(x, y, budget, depth))
            } else {
                SHAPE
            }
        },
    )
}

fn reversed(first: &Node, rest: &[(Relation, Node)]) -> (Node, Vec<(Relation, Node)>) {
    let mut nodes: Vec<Node> = std::iter::once(first.clone())
        .chain(rest.iter().map(|(_, node)| node.clone()))
        .collect();
    nodes.reverse();
    let signs = rest.iter().rev().map(|(sign, _)| sign.flipped());
    let last = nodes.remove(0);
    (last, signs.zip(nodes).collect())
}

fn equations(
    (a, x): (&Node, &Node),
    (b, y): (&Node, &Node),
    budget: &Budget,
    depth: usize,
) -> Outcome {
    let sides_scalar = [a, x, b, y].iter().all(|side| is_scalar(side));
    if is_name(a) && is_name(b) {
        let loose = |node: &Node| !matches!(node, Node::Symbol(name) if name.chars().count() == 1);
        if a.canonical() == b.canonical() || loose(a) || loose(b) || !sides_scalar {
            let values = same(x, y, budget, depth);
            if values.is_equal()
                || !sides_scalar
                || a.canonical() == b.canonical() && x.symbols().is_empty()
            {
                return values;
            }
        }
    }
    if !sides_scalar {
        return worse(same(a, b, budget, depth), same(x, y, budget, depth));
    }
    let difference =
        |left: &Node, right: &Node| Node::Add(vec![left.clone(), right.clone().negated()]);
    match proportional(&difference(a, x), &difference(b, y), budget) {
        Ok(Some(_)) => Outcome::Equal("equation"),
        Ok(None) => Outcome::Different("equation"),
        Err(reason) => match worse(same(a, b, budget, depth), same(x, y, budget, depth)) {
            Outcome::Different(_) => Outcome::Unknown(reason),
            other => other,
        },
    }
}

fn inequalities(
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

fn regions(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Option<Outcome> {
    let as_region = |node: &Node| match node {
        Node::Tuple(ends) if ends.len() == 2 => Some((
            vec![Piece {
                low: ends[0].clone(),
                high: ends[1].clone(),
                low_closed: false,
                high_closed: false,
            }],
            None,
        )),
        Node::List(_, Joint::Comma) if !matches!(node, Node::List(items, _) if items.iter().any(|item| matches!(item, Node::Chain(..) | Node::Interval(..)))) => {
            None
        }
        other => region(other, budget),
    };
    let ((x, about), (y, other)) = (as_region(a)?, as_region(b)?);
    if let (Some(about), Some(other)) = (about, other)
        && about.canonical() != other.canonical()
    {
        return Some(Outcome::Different("region"));
    }
    Some(pieces(
        &merged(x, budget),
        &merged(y, budget),
        budget,
        depth,
    ))
}

/// Joins pieces that touch: `(-∞,0] ∪ (0,∞)` is one piece.
fn merged(mut pieces: Vec<Piece>, budget: &Budget) -> Vec<Piece> {
    let mut at = 0;
    while at < pieces.len() && pieces.len() <= 16 {
        let partner = (0..pieces.len()).find(|other| {
            *other != at
                && (pieces[at].high_closed || pieces[*other].low_closed)
                && scalar::compare(&pieces[at].high, &pieces[*other].low, budget).is_equal()
        });
        match partner {
            Some(other) => {
                let next = pieces[other].clone();
                (pieces[at].high, pieces[at].high_closed) = (next.high, next.high_closed);
                pieces.remove(other);
                at = 0;
            }
            None => at += 1,
        }
    }
    pieces
}

fn pieces(x: &[Piece], y: &[Piece], budget: &Budget, depth: usize) -> Outcome {
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
            match worse(
                same(&piece.low, &other.low, budget, depth),
                same(&piece.high, &other.high, budget, depth),
            ) {
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
