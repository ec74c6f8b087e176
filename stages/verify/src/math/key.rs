//! Keys of equality classes.

use super::{
    Side,
    ball::Arithmetic,
    evaluate::{Budget, Evaluator},
    modular, shape,
    value::Node,
};

/// A key that equal answers share; `None` where only a comparison can tell.
pub(crate) fn class_key(answer: &str) -> Option<String> {
    let parsed = Side::read(answer).parsed.ok().filter(|parsed| !parsed.doubts.commas)?;
    key(&shape::normalise(&parsed.node), 0)
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
            parts.sort_unstable();
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
