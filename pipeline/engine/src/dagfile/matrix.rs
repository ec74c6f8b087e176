//! `[stages.x.matrix]`: one stage for each combination of values.
//!
//! Keys are taken in code point order, the first one changing slowest, so that moving a line renames nothing.
//! A value stands in the stage's name, so it is a text, a number or a boolean; what could not stand in the name of a
//! folder is percent-encoded there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::error::{DagError, DagErrors};
use super::node::{Node, NodeValue};
use super::render::shown;

/// Combinations of one stage at most.
const MAX_COMBINATIONS: usize = 1000;

/// One combination of a stage's matrix, or the stage itself when it has none.
pub(super) struct Combination {
    /// `[key=value,…]`, empty without a matrix.
    pub(super) label: String,
    pub(super) values: BTreeMap<String, Value>,
    /// The stage's table with the values in the place of its own.
    pub(super) node: Node,
}

/// All combinations in order; the plain stage when the matrix is missing or wrong.
pub(super) fn combinations(stage: &str, node: &Node, errors: &mut DagErrors) -> Vec<Combination> {
    let plain = || vec![Combination { label: String::new(), values: BTreeMap::new(), node: node.clone() }];
    let Some(matrix) = node.get("matrix") else {
        return plain();
    };
    let Some(axes) = axes(stage, matrix, errors) else {
        return plain();
    };
    let count = axes.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()));
    let Some(count) = count.filter(|count| *count <= MAX_COMBINATIONS) else {
        let message = format!("the matrix of stage `{}` has more than {MAX_COMBINATIONS} combinations", shown(stage));
        errors.push(DagError::new(message).at(matrix.key_or_value_place()));
        return plain();
    };
    (0..count).map(|index| combination(node, &axes, index)).collect()
}

/// The keys with their values; none when anything is wrong.
fn axes<'a>(stage: &str, matrix: &'a Node, errors: &mut DagErrors) -> Option<Vec<(&'a str, &'a [Node])>> {
    let before = errors.len();
    let Some(entries) = matrix.as_table().filter(|entries| !entries.is_empty()) else {
        if !matrix.is_invalid() {
            let message = format!("the matrix of stage `{}` must be a table of lists", shown(stage));
            errors.push(DagError::new(message).at(matrix.key_or_value_place()));
        }
        return None;
    };
    let mut axes = Vec::new();
    let mut is_whole = true;
    for (key, node) in entries {
        let problem = axis_problem(key, node);
        is_whole &= problem.is_none() && !node.is_invalid();
        if let Some(problem) = problem {
            errors.push(problem);
        }
        axes.push((key.as_str(), node.as_array().unwrap_or_default()));
    }
    (is_whole && errors.len() == before).then_some(axes)
}

fn axis_problem(key: &str, node: &Node) -> Option<DagError> {
    if key == "kind" || key == "matrix" {
        let message = format!("`{key}` cannot vary in a matrix");
        return Some(DagError::new(message).at(node.key_or_value_place()));
    }
    let Some(values) = node.as_array().filter(|values| !values.is_empty()) else {
        let message = format!("`{}` in a matrix must be a list with at least one value", shown(key));
        return (!node.is_invalid()).then(|| DagError::new(message).at(&node.place));
    };
    let mut seen: BTreeMap<String, &Node> = BTreeMap::new();
    for value in values {
        let NodeValue::Scalar(scalar) = &value.value else {
            let message = format!("`{}` in a matrix must hold texts, numbers or booleans", shown(key));
            return Some(DagError::new(message).at(&value.place));
        };
        if let Some(first) = seen.insert(label(scalar), value) {
            let message = format!("`{}` in a matrix has the value {} twice", shown(key), shown(&scalar.to_string()));
            return Some(DagError::new(message).at(&value.place).with_note("first given here", Some(&first.place)));
        }
    }
    None
}

fn combination(node: &Node, axes: &[(&str, &[Node])], index: usize) -> Combination {
    let mut node = node.clone();
    let mut rest = index;
    let mut values = BTreeMap::new();
    // the last key changes fastest
    for (key, choices) in axes.iter().rev() {
        let choice = &choices[rest % choices.len()];
        rest /= choices.len();
        values.insert((*key).to_owned(), choice.to_json());
        if let NodeValue::Table(entries) = &mut node.value {
            let key_place = entries.get(*key).and_then(|own| own.key_place.clone());
            entries.insert(
                (*key).to_owned(),
                Node { key_place: key_place.or(Some(choice.place.clone())), ..choice.clone() },
            );
        }
    }
    let pairs = values.iter().map(|(key, value)| format!("{}={}", encode(key), label(value)));
    let label = format!("[{}]", pairs.collect::<Vec<_>>().join(","));
    Combination { label, values, node }
}

/// A value as it stands in a name.
fn label(value: &Value) -> String {
    match value {
        Value::String(text) => encode(text),
        other => encode(&other.to_string()),
    }
}

/// Everything but letters, digits, `_`, `-`, `.` and `+` as `%XX` of its UTF-8 bytes, so that different texts stay different.
fn encode(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '+') {
            out.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
