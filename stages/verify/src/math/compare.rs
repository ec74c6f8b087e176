//! Compares two shapes: lists without order, tuples in order, regions piece by piece, equations up to
//! a factor. Symmetric: every rule is tried both ways round.

use super::{
    evaluate::Budget,
    relations::{chain, regions},
    scalar::{self, Outcome},
    shape::{assigned, is_infinite, normalise},
    value::Node,
};
use dashu::rational::RBig;

pub(super) const SHAPE: Outcome = Outcome::Different("shape");

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

pub(super) fn same(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Outcome {
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

pub(super) fn is_scalar(node: &Node) -> bool {
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
        (Node::Multiply(x), _) if modulus(x).is_some() => Some(residues(x, b, budget, depth)),
        (Node::Symbol(name), Node::Interval(low, high, ..)) if name == "R" => {
            Some(if is_infinite(low) && is_infinite(high) { Outcome::Equal("text") } else { SHAPE })
        }
        (Node::Multiply(x), Node::Tuple(_)) => match &x[..] {
            // a named point
            [Node::Symbol(name), inner @ Node::Tuple(_)] if name.len() == 1 && name.starts_with(char::is_uppercase) => {
                Some(same(inner, b, budget, depth))
            }
            _ => None,
        },
        (Node::Matrix(x), Node::Interval(..) | Node::Tuple(_)) if x.len() > 1 && rows_of(b).is_some() => {
            Some(matrices(x, &rows_of(b).unwrap_or_default(), budget, depth))
        }
        (Node::Percent(_) | Node::Degree(_) | Node::Based(..) | Node::Ratio(_) | Node::Time(..), _) => {
            marked_number(a, b, budget, depth)
        }
        (Node::Matrix(x), Node::Matrix(y)) => Some(matrices(x, y, budget, depth)),
        (Node::Matrix(rows), Node::Tuple(items)) => {
            let cells: Vec<Node> = rows.iter().flatten().cloned().collect();
            Some(if rows.len() == 1 || rows.iter().all(|row| row.len() == 1) {
                ordered(&cells, items, budget, depth)
            } else {
                SHAPE
            })
        }
        (Node::Chain(..), _) => chain(a, b, budget, depth),
        (Node::Tuple(x), Node::Tuple(y)) => Some(ordered(x, y, budget, depth)),
        (Node::Tuple(x), Node::List(y, _)) => Some(tuple_and_list(x, y, budget, depth)),
        (Node::Tuple(x), Node::Interval(low, high, false, false)) if x.len() == 2 => {
            Some(ordered(x, &[(**low).clone(), (**high).clone()], budget, depth))
        }
        (Node::Set(x), Node::Set(y) | Node::List(y, _)) => Some(unordered(&distinct(x), &distinct(y), budget, depth)),
        (Node::List(x, _), Node::List(y, _)) => Some(lists(a, b, x, y, budget, depth)),
        (Node::Interval(..) | Node::Union(_), _) => regions(a, b, budget, depth),
        (Node::Call(name, _), _) if matches!(name.as_str(), "difference" | "intersection") => {
            regions(a, b, budget, depth)
        }
        (Node::Set(x), _) if x.len() == 1 && is_scalar(b) => Some(same(&x[0], b, budget, depth)),
        _ => None,
    }
}

/// Percentages, angles, numerals with a base, ratios and times.
fn marked_number(a: &Node, b: &Node, budget: &Budget, depth: usize) -> Option<Outcome> {
    match (a, b) {
        (Node::Percent(x), Node::Percent(y)) | (Node::Degree(x), Node::Degree(y)) => Some(same(x, y, budget, depth)),
        (Node::Percent(x), _) if is_scalar(b) => {
            let share = (**x).clone().times(Node::Number(RBig::ONE / RBig::from(100u8)));
            Some(either(scalar::compare(x, b, budget), || scalar::compare(&share, b, budget)))
        }
        (Node::Degree(x), _) if is_scalar(b) => {
            let plain = scalar::compare(x, b, budget);
            if b.any(&|part| matches!(part, Node::Symbol(name) if name == "π")) {
                return Some(either(plain, || scalar::compare(a, b, budget)));
            }
            Some(plain)
        }
        (Node::Based(x, base), Node::Based(y, other)) if base == other => {
            Some(if x.eq_ignore_ascii_case(y) { Outcome::Equal("base") } else { Outcome::Different("base") })
        }
        (Node::Based(x, _), Node::Number(y)) if *x == y.to_string() => Some(Outcome::Unknown("base")),
        (Node::Ratio(x), Node::Ratio(y)) => Some(ratios(x, y, budget, depth)),
        (Node::Ratio(x), _) if x.len() == 2 && is_scalar(b) && !is_clock(x) => Some(scalar::compare(a, b, budget)),
        (Node::Time(hour, minute, late), Node::Ratio(parts)) => {
            let plain = [Node::Number(hour.clone()), Node::Number(minute.clone())];
            let half_day = if *late && *hour < RBig::from(12u8) { RBig::from(12u8) } else { RBig::ZERO };
            let whole_day = [Node::Number(hour + half_day), Node::Number(minute.clone())];
            Some(if parts[..] == plain || parts[..] == whole_day {
                Outcome::Equal("time")
            } else {
                Outcome::Different("time")
            })
        }
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

/// Rows of `[[1, 2], [3, 4]]`, whose pairs read as intervals.
fn rows_of(node: &Node) -> Option<Vec<Vec<Node>>> {
    let items = |node: &Node| match node {
        Node::Interval(low, high, true, true) => Some(vec![(**low).clone(), (**high).clone()]),
        Node::Tuple(items) => Some(items.clone()),
        _ => None,
    };
    items(node)?.iter().map(items).collect()
}

/// The modulus of `3 (mod 7)`.
fn modulus(factors: &[Node]) -> Option<&Node> {
    match factors {
        [_, Node::Call(name, arguments)] if name == "pmod" => arguments.first(),
        _ => None,
    }
}

/// A residue against a residue of the same modulus, or against a plain number.
fn residues(factors: &[Node], other: &Node, budget: &Budget, depth: usize) -> Outcome {
    match other {
        Node::Multiply(more) if modulus(more).is_some() => {
            let (Some(x), Some(y)) = (modulus(factors), modulus(more)) else { return SHAPE };
            worse(same(&factors[0], &more[0], budget, depth), same(x, y, budget, depth))
        }
        _ => same(&factors[0], other, budget, depth),
    }
}

fn text(words: &str, other: &Node) -> Outcome {
    let few = |words: &str| words.split_whitespace().nth(2).is_none();
    match other {
        Node::Text(more) => {
            if *words == **more || words.to_lowercase() == more.to_lowercase() {
                return Outcome::Equal("text");
            }
            if let (Some(x), Some(y)) = (joined_words(words), joined_words(more)) {
                return if x == y { Outcome::Equal("text") } else { Outcome::Different("text") };
            }
            if few(words) && few(more) { Outcome::Different("text") } else { Outcome::Unknown("prose") }
        }
        Node::Set(items) if items.is_empty() && words == "no solution" => Outcome::Equal("text"),
        Node::List(items, _) | Node::Set(items) if joined_words(words).is_some() => {
            let mut names = Vec::new();
            for item in items {
                let (Node::Text(name) | Node::Symbol(name)) = item else { return Outcome::Different("text") };
                names.push(name.to_lowercase());
            }
            names.sort_unstable();
            if joined_words(words) == Some(names) { Outcome::Equal("text") } else { Outcome::Different("text") }
        }
        _ if few(words) => Outcome::Different("text"),
        _ => Outcome::Unknown("prose"),
    }
}

/// The sorted parts of `Alice and Bob`.
fn joined_words(words: &str) -> Option<Vec<String>> {
    if !words.contains(" and ") {
        return None;
    }
    let mut parts: Vec<String> = words.split(" and ").map(str::to_lowercase).collect();
    parts.sort_unstable();
    Some(parts)
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
        let (across, back) = (left.clone().times(y[0].clone()), right.clone().times(x[0].clone()));
        match scalar::compare(&across, &back, budget) {
            Outcome::Equal(_) => {}
            other => result = worse(result, other),
        }
    }
    result
}

/// Different beats unknown beats equal.
pub(super) fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |outcome: Outcome| match outcome {
        Outcome::Different(_) => 3,
        Outcome::Unknown(_) => 2,
        // the tier of the whole is that of its least simple part
        Outcome::Equal("normal_form" | "exact" | "ratio") => 0,
        Outcome::Equal(_) => 1,
    };
    if rank(b) > rank(a) { b } else { a }
}

fn ordered(x: &[Node], y: &[Node], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    x.iter().zip(y).fold(Outcome::Equal("normal_form"), |result, (a, b)| {
        if matches!(result, Outcome::Different(_)) { result } else { worse(result, same(a, b, budget, depth)) }
    })
}

fn matrices(x: &[Vec<Node>], y: &[Vec<Node>], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    x.iter().zip(y).fold(Outcome::Equal("normal_form"), |result, (a, b)| worse(result, ordered(a, b, budget, depth)))
}

fn distinct(items: &[Node]) -> Vec<Node> {
    let mut keys = std::collections::BTreeSet::new();
    items.iter().filter(|item| keys.insert(item.canonical())).cloned().collect()
}

/// Equal as multisets: every item finds a partner of its own.
fn unordered(x: &[Node], y: &[Node], budget: &Budget, depth: usize) -> Outcome {
    if x.len() != y.len() {
        return SHAPE;
    }
    let mut left: Vec<Option<&Node>> = y.iter().map(Some).collect();
    let mut rest = Vec::new();
    let mut keys: std::collections::BTreeMap<String, Vec<usize>> = std::collections::BTreeMap::new();
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
                .map(|item| if let Node::List(parts, _) = item { Node::Tuple(values(parts)) } else { item.clone() })
                .collect::<Vec<_>>()
        };
        return unordered(&tupled(x), &tupled(y), budget, depth);
    }
    plain
}

fn values(items: &[Node]) -> Vec<Node> {
    items.iter().map(|item| assigned(item).map_or_else(|| item.clone(), |(_, value)| value.clone())).collect()
}

fn tuple_and_list(tuple: &[Node], list: &[Node], budget: &Budget, depth: usize) -> Outcome {
    ordered(tuple, &values(list), budget, depth)
}
