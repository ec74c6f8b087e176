//! Parameters of a kind: read from JSON values, with mistakes put back to their place in the file.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::error::DagError;
use super::node::{Node, NodeValue};
use super::render::shown;
use super::source::Place;
use super::stage::{STAGE_KEYS, StageDef};

/// Names longer than this are no slips of the pen.
const MAX_COMPARED: usize = 64;

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSegment {
    /// An entry of an object.
    Key(String),
    /// An element of an array, from 0.
    Index(usize),
}

/// Why parameters do not fit their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamProblem {
    /// The part that does not fit; empty for the parameters as a whole.
    pub path: Vec<PathSegment>,
    /// Why, in the words of serde.
    pub message: String,
}

/// Reads parameters, keeping the path to what does not fit.
///
/// # Errors
/// The first thing that does not fit.
pub fn parse_params<T: DeserializeOwned>(value: &Value) -> Result<T, ParamProblem> {
    serde_path_to_error::deserialize(value).map_err(|error| ParamProblem {
        path: error.path().iter().filter_map(segment).collect(),
        message: error.into_inner().to_string(),
    })
}

fn segment(segment: &Segment) -> Option<PathSegment> {
    match segment {
        Segment::Seq { index } => Some(PathSegment::Index(*index)),
        Segment::Map { key } => Some(PathSegment::Key(key.clone())),
        // an enum's variant may be a key of the object or not be written at all; `locate` passes over it
        Segment::Enum { variant } => Some(PathSegment::Key(variant.clone())),
        Segment::Unknown => None,
    }
}

/// The value's place, or that of the nearest parent; the stage's name for an empty path.
pub fn place_of(def: &StageDef, path: &[PathSegment]) -> Place {
    locate(def, path).map_or_else(|| def.place.clone(), |node| node.place.clone())
}

/// The key's place; the value's where there is no key, or that of the nearest parent.
pub fn key_place_of(def: &StageDef, path: &[PathSegment]) -> Place {
    locate(def, path).map_or_else(|| def.place.clone(), |node| node.key_or_value_place().clone())
}

/// The deepest node of the path that is written in the file; none when not even the first is.
fn locate<'a>(def: &'a StageDef, path: &[PathSegment]) -> Option<&'a Node> {
    let mut node = &def.node;
    let mut depth = 0;
    for step in path {
        let next = match (&node.value, step) {
            (NodeValue::Table(entries), PathSegment::Key(key)) => entries.get(key),
            (NodeValue::Array(elements), PathSegment::Index(index)) => elements.get(*index),
            _ => None,
        };
        let Some(next) = next else { break };
        node = next;
        depth += 1;
    }
    (depth > 0).then_some(node)
}

/// A problem of [`parse_params`] at its place: unknown keys and values with the nearest known one, missing parameters
/// by name.
pub fn param_error(def: &StageDef, problem: &ParamProblem) -> DagError {
    let ParamProblem { path, message } = problem;
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut names = backticked(rest);
        let field = if names.is_empty() { "" } else { names.remove(0) };
        if path.len() > 1 {
            let parent = dotted(&path[..path.len() - 1]);
            return DagError::new(format!("unknown key `{}` in `{}`", shown(field), shown(&parent)))
                .at(&key_place_of(def, path))
                .with_nearest(nearest(field, &names));
        }
        return unknown_key(def, field, &names);
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        let field = backticked(rest).first().copied().unwrap_or_default();
        let mut full = path.clone();
        full.push(PathSegment::Key(field.to_owned()));
        let message = format!("missing parameter `{}` of kind `{}`", shown(&dotted(&full)), shown(&def.kind));
        return DagError::new(message).at(&key_place_of(def, path));
    }
    let subject = if path.is_empty() { String::new() } else { format!("parameter `{}` ", dotted(path)) };
    let text = format!("{subject}of kind `{}`: {message}", def.kind);
    let error = DagError::new(shorten(&text)).at(&place_of(def, path));
    match message.strip_prefix("unknown variant ").map(backticked) {
        Some(names) => match names.split_first() {
            Some((word, known)) => error.with_nearest(nearest(word, known)),
            None => error,
        },
        None => error,
    }
}

/// A parameter the kind does not have, with the nearest one it has.
pub fn unknown_key(def: &StageDef, key: &str, known: &[&str]) -> DagError {
    let candidates: Vec<&str> = known.iter().chain(STAGE_KEYS).copied().collect();
    DagError::new(format!("unknown parameter `{}` of kind `{}`", shown(key), shown(&def.kind)))
        .at(&key_place_of(def, &[PathSegment::Key(key.to_owned())]))
        .with_nearest(nearest(key, &candidates))
}

/// A kind that does not exist, with the nearest one that does.
pub fn unknown_kind(def: &StageDef, known: &[&str]) -> DagError {
    DagError::new(format!("unknown kind `{}`", shown(&def.kind)))
        .at(&def.kind_place)
        .with_nearest(nearest(&def.kind, known))
}

/// The candidate that differs least from a word, if it differs little: one slip (a letter more, less, other or swapped)
/// for each three letters, case aside. The earlier candidate wins a tie.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let length = word.chars().count();
    if length > MAX_COMPARED {
        return None;
    }
    let allowed = (length / 3).max(1);
    let word = word.to_lowercase();
    candidates
        .iter()
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= allowed)
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn dotted(path: &[PathSegment]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            PathSegment::Key(key) if out.is_empty() => out.push_str(key),
            PathSegment::Key(key) => {
                out.push('.');
                out.push_str(key);
            }
            PathSegment::Index(index) => {
                let _ = write!(out, "[{index}]");
            }
        }
    }
    out
}

/// The names between backticks.
fn backticked(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A message that may repeat a value of the file, on one line and of bounded length.
fn shorten(message: &str) -> String {
    const MAX: usize = 300;
    let one_line = |character: char| {
        if character.is_control() { ' ' } else { character }
    };
    let mut out: String = message.chars().take(MAX).map(one_line).collect();
    if message.chars().nth(MAX).is_some() {
        out.push('…');
    }
    out
}
