//! Brings an answer into the shape that is compared: strips what names it, expands `±`, turns
//! conditions into regions, adds matrices.

use super::value::{Joint, Node, Relation};
use dashu::rational::RBig;

/// The normal shape of an answer.
pub fn normalise(node: &Node) -> Node {
    match node {
        Node::Chain(first, rest) => chain(first, rest),
        Node::Symbol(name) if name == "ℝ" => {
            Node::Interval(Box::new(infinity(false)), Box::new(infinity(true)), false, false)
        }
        Node::Interval(low, high, a, b) => Node::Interval(
            Box::new(normalise(low)),
            Box::new(normalise(high)),
            *a && !is_infinite(low),
            *b && !is_infinite(high),
        ),
        Node::List(items, joint) => list(items, *joint),
        Node::Set(items) => Node::Set(items.iter().flat_map(expanded).collect()),
        Node::Tuple(items) => Node::Tuple(items.iter().map(normalise).collect()),
        Node::Union(items) => Node::Union(
            items
                .iter()
                .map(normalise)
                .flat_map(|item| if let Node::Union(parts) = item { parts } else { vec![item] })
                .collect(),
        ),
        Node::Multiply(items) => product(items),
        Node::Add(items) if items.iter().any(|item| matches!(item, Node::Matrix(_))) => {
            matrix_sum(items).unwrap_or_else(|| node.clone())
        }
        Node::Add(items) if items.iter().any(is_basis_term) => vector(items).unwrap_or_else(|| node.clone()),
        Node::Add(items) => without_set(items).unwrap_or_else(|| expanded_sum(node)),
        Node::Power(base, exponent)
            if matches!(**base, Node::Matrix(_))
                && matches!(&**exponent, Node::Symbol(name) if name == "T" || name == "top") =>
        {
            transposed(base).unwrap_or_else(|| node.clone())
        }
        other => {
            let variants = doubled(other);
            if variants.len() == 1 { other.clone() } else { Node::List(variants, Joint::Comma) }
        }
    }
}

/// Plus or minus infinity.
pub fn infinity(positive: bool) -> Node {
    let symbol = Node::Symbol("∞".into());
    if positive { symbol } else { symbol.negated() }
}

/// `∞` or `-∞`.
pub fn is_infinite(node: &Node) -> bool {
    match node {
        Node::Symbol(name) => name == "∞",
        Node::Multiply(items) => items.len() == 2 && matches!(&items[0], Node::Number(_)) && is_infinite(&items[1]),
        _ => false,
    }
}

/// The two readings of `±`, or the node itself.
fn doubled(node: &Node) -> Vec<Node> {
    if !node.any(&|part| matches!(part, Node::PlusMinus(..))) {
        return vec![node.clone()];
    }
    vec![signed(node, false), signed(node, true)]
}

fn signed(node: &Node, second: bool) -> Node {
    match node {
        Node::PlusMinus(inner, minus_first) => {
            let inner = signed(inner, second);
            if *minus_first == second { inner } else { inner.negated() }
        }
        other => other.map_parts(&|part| signed(part, second)),
    }
}

fn expanded(node: &Node) -> Vec<Node> {
    match normalise(node) {
        Node::List(items, _) if node.any(&|part| matches!(part, Node::PlusMinus(..))) => items,
        other => vec![other],
    }
}

fn product(items: &[Node]) -> Node {
    // a factor in front of an angle or a percentage belongs to its number
    if let [Node::Number(factor), inner @ (Node::Degree(_) | Node::Percent(_))] = items {
        let scaled = |value: &Node| Box::new(Node::Number(factor.clone()).times(value.clone()));
        return match inner {
            Node::Degree(value) => Node::Degree(scaled(value)),
            Node::Percent(value) => Node::Percent(scaled(value)),
            other => other.clone(),
        };
    }
    let node = Node::Multiply(items.to_vec());
    if items.iter().any(|item| matches!(item, Node::Matrix(_))) {
        return matrix_product(items).unwrap_or(node);
    }
    let variants = doubled(&node);
    if variants.len() == 1 { node } else { Node::List(variants, Joint::Comma) }
}

fn matrix_sum(items: &[Node]) -> Option<Node> {
    let mut total: Option<Vec<Vec<Node>>> = None;
    for item in items {
        let Node::Matrix(rows) = normalise(item) else {
            return None;
        };
        total = Some(match total {
            None => rows,
            Some(sum) => {
                if sum.len() != rows.len() || sum.iter().zip(&rows).any(|(a, b)| a.len() != b.len()) {
                    return None;
                }
                sum.into_iter()
                    .zip(rows)
                    .map(|(a, b)| a.into_iter().zip(b).map(|(x, y)| Node::Add(vec![x, y])).collect())
                    .collect()
            }
        });
    }
    total.map(Node::Matrix)
}

/// Matrices that are multiplied out: with entries that are formulas, and with whole or decimal ones.
const MOST_SYMBOLIC: usize = 2;
const MOST_MATRICES: usize = 32;

/// One entry of a product: a number where all that goes in is one.
fn cell(row: &[Node], rows: &[Vec<Node>], column: usize) -> Node {
    let mut sum = RBig::ZERO;
    for (a, b) in row.iter().zip(rows) {
        let (Node::Number(x), Node::Number(y)) = (a, &b[column]) else {
            return Node::Add(row.iter().zip(rows).map(|(a, b)| a.clone().times(b[column].clone())).collect());
        };
        sum += x * y;
    }
    Node::Number(sum)
}

fn matrix_product(items: &[Node]) -> Option<Node> {
    let mut total: Option<Vec<Vec<Node>>> = None;
    let mut factors = 1;
    let mut scale = Vec::new();
    for item in items {
        let Node::Matrix(rows) = item else {
            scale.push(item.clone());
            continue;
        };
        total = Some(match total {
            None => rows.clone(),
            Some(left) => {
                let width = rows.first()?.len();
                if rows.len() > 8
                    || width > 8
                    || left.iter().any(|row| row.len() != rows.len())
                    || rows.iter().any(|row| row.len() != width)
                {
                    return None;
                }
                // entries that stay formulas grow threefold with every further matrix
                factors += 1;
                let product: Vec<Vec<Node>> =
                    left.iter().map(|row| (0..width).map(|column| cell(row, rows, column)).collect()).collect();
                let symbolic = product.iter().flatten().any(|cell| !matches!(cell, Node::Number(_)));
                if symbolic && factors > MOST_SYMBOLIC || factors > MOST_MATRICES {
                    return None;
                }
                product
            }
        });
    }
    let scaled = |cell: Node| scale.iter().fold(cell, |cell, factor| cell.times(factor.clone()));
    total.map(|rows| Node::Matrix(rows.into_iter().map(|row| row.into_iter().map(scaled).collect()).collect()))
}

/// `ℝ - {0}`
fn without_set(items: &[Node]) -> Option<Node> {
    match items {
        [Node::Symbol(name), Node::Multiply(factors)] if name == "ℝ" => match &factors[..] {
            [Node::Number(minus), Node::Set(points)] if *minus == -RBig::ONE => {
                Some(Node::Call("difference".into(), vec![items[0].clone(), Node::Set(points.clone())]))
            }
            _ => None,
        },
        _ => None,
    }
}

fn expanded_sum(node: &Node) -> Node {
    let variants = doubled(node);
    if variants.len() == 1 { node.clone() } else { Node::List(variants, Joint::Comma) }
}

fn transposed(matrix: &Node) -> Option<Node> {
    let Node::Matrix(rows) = matrix else { return None };
    let width = rows.first()?.len();
    if rows.iter().any(|row| row.len() != width) {
        return None;
    }
    Some(Node::Matrix((0..width).map(|column| rows.iter().map(|row| row[column].clone()).collect()).collect()))
}

const BASIS: [&str; 3] = ["hat(i)", "hat(j)", "hat(k)"];

/// The place of a unit vector, and what stands before it.
fn basis_term(node: &Node) -> Option<(usize, Node)> {
    let place = |node: &Node| match node {
        Node::Symbol(name) => BASIS.iter().position(|basis| basis == name),
        _ => None,
    };
    if let Some(at) = place(node) {
        return Some((at, Node::integer(1)));
    }
    let Node::Multiply(factors) = node else { return None };
    let at = place(factors.last()?)?;
    let mut rest = factors[..factors.len() - 1].to_vec();
    Some((at, if rest.len() == 1 { rest.remove(0) } else { Node::Multiply(rest) }))
}

fn is_basis_term(node: &Node) -> bool {
    basis_term(node).is_some()
}

/// `3i + 4j` with unit vectors, as coordinates.
fn vector(items: &[Node]) -> Option<Node> {
    let mut coordinates = vec![Node::integer(0), Node::integer(0), Node::integer(0)];
    let mut longest = 2;
    for item in items {
        let (at, value) = basis_term(item)?;
        longest = longest.max(at + 1);
        coordinates[at] = value;
    }
    coordinates.truncate(longest);
    Some(Node::Tuple(coordinates))
}

/// A chain without its approximations and middle steps.
fn chain(first: &Node, rest: &[(Relation, Node)]) -> Node {
    let about = rest.iter().position(|(sign, _)| *sign == Relation::About);
    let kept = match about {
        Some(0) if is_name(first) => return chain(first, &[(Relation::Equal, rest[0].1.clone())]),
        Some(0) => return normalise(first),
        Some(cut) => &rest[..cut],
        None => rest,
    };
    if let Some((Relation::In, set)) = kept.last() {
        return normalise(set);
    }
    // `n ≡ 3 (mod 7)` is its residue
    if let [(Relation::Other, residue @ Node::Multiply(parts))] = kept
        && is_name(first)
        && matches!(parts.last(), Some(Node::Call(name, _)) if name == "pmod")
    {
        return residue.clone();
    }
    let all_equal = kept.iter().all(|(sign, _)| *sign == Relation::Equal);
    let Some((_, last)) = kept.last() else {
        return normalise(first);
    };
    if all_equal {
        if kept.len() > 1 && !is_name(first) && !is_name(last) && first.symbols().is_empty()
            || is_constant_value(first) && is_constant_value(last)
        {
            return normalise(last);
        }
        let values = expanded_values(last);
        if values.len() > 1 {
            return Node::List(
                values
                    .into_iter()
                    .map(|value| Node::Chain(Box::new(first.clone()), vec![(Relation::Equal, value)]))
                    .collect(),
                Joint::Or,
            );
        }
        return Node::Chain(Box::new(first.clone()), vec![(Relation::Equal, normalise(last))]);
    }
    Node::Chain(Box::new(first.clone()), kept.to_vec())
}

fn expanded_values(node: &Node) -> Vec<Node> {
    if node.any(&|part| matches!(part, Node::PlusMinus(..)))
        && !matches!(node, Node::Set(_) | Node::List(..) | Node::Tuple(_))
    {
        doubled(node)
    } else {
        vec![node.clone()]
    }
}

fn is_constant_value(node: &Node) -> bool {
    !node.any(&|part| {
        matches!(
            part,
            Node::Symbol(_)
                | Node::Text(_)
                | Node::Ratio(_)
                | Node::Tuple(_)
                | Node::Set(_)
                | Node::Call(..)
                | Node::Interval(..)
                | Node::Matrix(_)
        )
    })
}

fn list(items: &[Node], joint: Joint) -> Node {
    let parts: Vec<Node> = items.iter().flat_map(expanded).collect();
    // `n = 1, 2, 3` names its first item only
    if let Some(Node::Chain(_, rest)) = parts.first()
        && parts.len() > 1
        && let [(Relation::Equal, value)] = &rest[..]
        && !parts[1..].iter().any(|part| matches!(part, Node::Chain(..)))
        && is_named(&parts[0])
    {
        let mut plain = vec![value.clone()];
        plain.extend(parts[1..].iter().cloned());
        return Node::List(plain, joint);
    }
    Node::List(parts, joint)
}

fn is_named(node: &Node) -> bool {
    matches!(node, Node::Chain(first, _) if is_name(first))
}

/// Whether a node only names a quantity: `x`, `f(x)`, `a_n`, `(x, y)`, `AB`, `|AB|`, `A:B`, `NO/BO`.
pub fn is_name(node: &Node) -> bool {
    let capital = |node: &Node| matches!(node, Node::Symbol(name) if name.chars().next().is_some_and(|first| first.is_uppercase() || matches!(first, '∠' | '△')));
    match node {
        Node::Symbol(name) => !super::value::is_constant(name) || name == "i",
        Node::Call(name, arguments) => {
            name.ends_with('·')
                || name == "prime"
                || (matches!(name.as_str(), "abs" | "sin" | "cos" | "tan" | "cot" | "sec" | "csc")
                    && arguments.iter().all(is_name))
        }
        Node::Text(_) => true,
        Node::Tuple(items) | Node::List(items, _) | Node::Ratio(items) => items.iter().all(is_name),
        Node::Multiply(items) => {
            let segment = |node: &Node| {
                capital(node)
                    || matches!(node, Node::Power(base, exponent) if segment_base(base, &capital) && matches!(&**exponent, Node::Number(value) if *value == -RBig::ONE))
            };
            items.iter().all(segment)
                || is_derivative(items)
                || matches!(&items[..], [Node::Symbol(name), Node::Symbol(_)] if name.ends_with('\'') )
                || matches!(&items[..], [Node::Text(_), ..])
                || matches!(&items[..], [Node::Symbol(_), Node::Tuple(arguments)] if arguments.iter().all(is_name))
        }
        _ => false,
    }
}

/// `dy/dx`, `f'(x)`.
fn is_derivative(items: &[Node]) -> bool {
    let differential = |node: &Node| matches!(node, Node::Multiply(parts) if matches!(&parts[..], [Node::Symbol(d), Node::Symbol(_)] if d == "d"));
    match items {
        [Node::Symbol(d), Node::Symbol(_), Node::Power(below, _)] => d == "d" && differential(below),
        [above, Node::Power(below, _)] => differential(above) && differential(below),
        _ => false,
    }
}

fn segment_base(base: &Node, capital: &dyn Fn(&Node) -> bool) -> bool {
    capital(base) || matches!(base, Node::Multiply(items) if items.iter().all(capital))
}

/// The value of `name = value` (either way round).
pub fn assigned(node: &Node) -> Option<(&Node, &Node)> {
    let Node::Chain(first, rest) = node else {
        return None;
    };
    let [(Relation::Equal, last)] = &rest[..] else {
        return None;
    };
    if is_name(first) {
        return Some((first, last));
    }
    (is_name(last) && first.symbols().is_empty()).then_some((last, first))
}
