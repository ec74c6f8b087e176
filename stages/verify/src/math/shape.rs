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
        Node::Call(name, arguments) if name == "difference" => {
            without_points(arguments).unwrap_or_else(|| node.clone())
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

fn matrix_product(items: &[Node]) -> Option<Node> {
    let mut total: Option<Vec<Vec<Node>>> = None;
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
                left.iter()
                    .map(|row| {
                        (0..width)
                            .map(|column| {
                                Node::Add(
                                    row.iter().zip(rows).map(|(a, b)| a.clone().times(b[column].clone())).collect(),
                                )
                            })
                            .collect()
                    })
                    .collect()
            }
        });
    }
    let scaled = |cell: Node| scale.iter().fold(cell, |cell, factor| cell.times(factor.clone()));
    total.map(|rows| Node::Matrix(rows.into_iter().map(|row| row.into_iter().map(scaled).collect()).collect()))
}

/// `ℝ ∖ {a, b}` as a union is left to the comparison of forms; only a single point is rewritten.
fn without_points(arguments: &[Node]) -> Option<Node> {
    let [Node::Symbol(name), Node::Set(points)] = arguments else {
        return None;
    };
    let [point] = &points[..] else { return None };
    (name == "ℝ").then(|| {
        Node::Union(vec![
            Node::Interval(Box::new(infinity(false)), Box::new(point.clone()), false, false),
            Node::Interval(Box::new(point.clone()), Box::new(infinity(true)), false, false),
        ])
    })
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
            name.ends_with('·') || name == "prime" || (name == "abs" && arguments.iter().all(is_name))
        }
        Node::Text(_) => true,
        Node::Tuple(items) | Node::List(items, _) | Node::Ratio(items) => items.iter().all(is_name),
        Node::Multiply(items) => {
            let segment = |node: &Node| {
                capital(node)
                    || matches!(node, Node::Power(base, exponent) if segment_base(base, &capital) && matches!(&**exponent, Node::Number(value) if *value == -RBig::ONE))
            };
            items.iter().all(segment)
                || matches!(&items[..], [Node::Text(_), ..])
                || matches!(&items[..], [Node::Symbol(_), Node::Tuple(arguments)] if arguments.iter().all(is_name))
        }
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
