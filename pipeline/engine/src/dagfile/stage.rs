//! `[stages.NAME]`: the keys every stage has, and the parameters as the kind will read them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{DagError, DagErrors};
use super::matrix;
use super::node::Node;
use super::render::shown;
use super::sections::not_a_table;
use super::source::Place;

/// Keys of a stage that are not parameters of its kind.
pub const STAGE_KEYS: &[&str] = &["kind", "inputs", "matrix", "max_errors"];
/// Names the output folder needs for itself.
const RESERVED: &[&str] = &["calls", "runs", "try"];
/// Bytes of a stage's name at most, matrix values included: the name and a fingerprint make a file name.
const MAX_NAME: usize = 200;

/// A stage of the graph; a stage with a matrix is several of these.
#[derive(Debug, Clone, PartialEq)]
pub struct StageDef {
    /// Unique name: the table's, or `base[key=value,…]` for one combination of a matrix.
    pub name: String,
    /// Name of the table `[stages.base]`.
    pub base: String,
    /// The name's place.
    pub place: Place,
    /// What the stage does; empty when missing, which was reported.
    pub kind: String,
    /// The kind's place, or the name's when it is missing.
    pub kind_place: Place,
    /// Inputs by port; `""` is the port of the short form `inputs = "seeds"`.
    pub inputs: BTreeMap<String, Vec<InputRef>>,
    /// Share of rows that may fail for passing reasons, 0 to 1.
    pub max_errors: Option<f64>,
    /// The combination: key and value of each matrix entry; empty without a matrix.
    pub matrix: BTreeMap<String, Value>,
    /// Parameters: an object without [`STAGE_KEYS`], the matrix values put in.
    pub params: Value,
    /// The stage's table with the matrix values put in; for places.
    pub node: Node,
}

/// One stage that a port reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRef {
    /// A stage's name or, for all combinations of a matrix, its base name.
    pub stage: String,
    /// The named output; none for the main one.
    pub output: Option<String>,
    /// Where it is written.
    pub place: Place,
}

/// The stages of one table; none when it is no table.
pub(super) fn read(name: &str, node: &Node, errors: &mut DagErrors) -> Vec<StageDef> {
    let place = node.key_or_value_place();
    if let Some(problem) = name_problem(name) {
        errors.push(DagError::new(format!("`{}` cannot name a stage: {problem}", shown(name))).at(place));
    }
    if node.as_table().is_none() {
        errors.extend(not_a_table(&format!("stages.{name}"), node));
        return Vec::new();
    }
    let mut stages = Vec::new();
    for combination in matrix::combinations(name, node, errors) {
        let stage_name = format!("{name}{}", combination.label);
        if stage_name.len() > MAX_NAME {
            let message = format!("the name `{}` is longer than {MAX_NAME} bytes", shown(&stage_name));
            errors.push(DagError::new(message).at(place));
        }
        stages.push(read_one(stage_name, name, combination, errors));
    }
    stages
}

fn read_one(name: String, base: &str, combination: matrix::Combination, errors: &mut DagErrors) -> StageDef {
    let node = combination.node;
    let place = node.key_or_value_place().clone();
    let (kind, kind_place) = kind(&node, &place, base, errors);
    let inputs = node.get("inputs").map(|inputs| read_inputs(inputs, errors)).unwrap_or_default();
    let max_errors = max_errors(&node, errors);
    let entries = node.as_table().into_iter().flatten();
    let params = entries
        .filter(|(key, _)| !STAGE_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.to_json()))
        .collect::<Map<_, _>>();
    StageDef {
        name,
        base: base.to_owned(),
        place,
        kind,
        kind_place,
        inputs,
        max_errors,
        matrix: combination.values,
        params: Value::Object(params),
        node,
    }
}

/// Why a stage cannot have this name.
fn name_problem(name: &str) -> Option<String> {
    let is_allowed = |character: char| character.is_alphanumeric() || character == '_' || character == '-';
    if name.is_empty() {
        Some("it is empty".into())
    } else if let Some(character) = name.chars().find(|character| !is_allowed(*character)) {
        Some(format!("`{}` is no letter, digit, `_` or `-`", shown(character.encode_utf8(&mut [0; 4]))))
    } else if name.starts_with('-') {
        Some("it looks like a flag".into())
    } else if RESERVED.contains(&name.to_lowercase().as_str()) {
        Some("the output folder has an entry of this name".into())
    } else {
        None
    }
}

fn kind(node: &Node, place: &Place, base: &str, errors: &mut DagErrors) -> (String, Place) {
    let Some(kind) = node.get("kind") else {
        let error = DagError::new(format!("stage `{}` has no `kind`", shown(base))).at(place);
        errors.push(error.with_hint("`pipeline kinds` lists them"));
        return (String::new(), place.clone());
    };
    let text = kind.as_str().filter(|text| !text.is_empty());
    if text.is_none() && !kind.is_invalid() {
        errors.push(DagError::new("`kind` must be a text that is not empty").at(&kind.place));
    }
    (text.unwrap_or_default().to_owned(), kind.place.clone())
}

fn max_errors(node: &Node, errors: &mut DagErrors) -> Option<f64> {
    let node = node.get("max_errors")?;
    let share = node.as_f64().filter(|share| (0.0..=1.0).contains(share));
    if share.is_none() && !node.is_invalid() {
        errors.push(DagError::new("`max_errors` must be a share of rows from 0 to 1").at(&node.place));
    }
    share
}

fn read_inputs(node: &Node, errors: &mut DagErrors) -> BTreeMap<String, Vec<InputRef>> {
    if let Some(ports) = node.as_table() {
        return ports.iter().map(|(port, node)| (port.clone(), references(node, errors))).collect();
    }
    BTreeMap::from([(String::new(), references(node, errors))])
}

fn references(node: &Node, errors: &mut DagErrors) -> Vec<InputRef> {
    let elements = node.as_array().unwrap_or(std::slice::from_ref(node));
    let mut references = Vec::new();
    for element in elements {
        if let Some(text) = element.as_str() {
            match split_reference(text) {
                Some((stage, output)) => references.push(InputRef {
                    stage: stage.to_owned(),
                    output: output.map(str::to_owned),
                    place: element.place.clone(),
                }),
                None => errors.push(
                    DagError::new(format!("`{}` names no stage", shown(text)))
                        .at(&element.place)
                        .with_hint("an input is `stage` or `stage.output`"),
                ),
            }
        } else if !element.is_invalid() {
            let message = format!("an input must be the name of a stage, not {}", element.type_name());
            errors.push(DagError::new(message).at(&element.place));
        }
    }
    references
}

/// Stage and output of `stage`, `stage.output`, `stage[key=0.5]` or `stage[key=0.5].output`.
fn split_reference(text: &str) -> Option<(&str, Option<&str>)> {
    let dot = text.rfind(']').map_or_else(|| text.find('.'), |end| text[end..].find('.').map(|dot| end + dot));
    let (stage, output) = match dot {
        Some(dot) => (&text[..dot], Some(&text[dot + 1..])),
        None => (text, None),
    };
    (!stage.is_empty() && output != Some("")).then_some((stage, output))
}
