//! The sections that are not stages: `[pipeline]`, `[run]`, `[budget]`, `[models.NAME]`.
//!
//! `[pipeline]` holds what may enter fingerprints, `[run]` how a run goes and never does. What is inside a model or
//! the budget is read by those who use it; the keys of the budget are checked here.

use std::collections::BTreeMap;

use super::error::{DagError, DagErrors};
use super::files::Merged;
use super::node::Node;
use super::params::nearest;
use super::render::shown;
use super::source::Place;

/// Keys of a dag file.
pub const TOP_KEYS: &[&str] = &["include", "pipeline", "models", "budget", "run", "stages"];
/// Keys of `[pipeline]`.
pub const PIPELINE_KEYS: &[&str] = &["name", "seed"];
/// Keys of `[budget]`.
pub const BUDGET_KEYS: &[&str] = &["tokens", "money"];
/// Keys of `[run]`.
pub const RUN_KEYS: &[&str] = &["jobs", "shard_rows", "out", "calls", "offline", "executor", "log_format", "verbosity"];

/// `[pipeline]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PipelineSection {
    /// The project's name, for people; not fingerprinted.
    pub name: Option<String>,
    /// What every random choice derives from; 0 where the file says nothing.
    pub seed: u64,
    /// The section's place.
    pub place: Option<Place>,
}

/// `[run]`: how a run goes. A flag of the command line wins over each of these.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSection {
    /// Worker threads, from 1.
    pub jobs: Option<u64>,
    /// Rows a shard has at most, from 1.
    pub shard_rows: Option<u64>,
    /// Output folder, relative to the dag file.
    pub out: Option<String>,
    /// Call store, relative to the dag file.
    pub calls: Option<String>,
    /// Only recorded answers.
    pub offline: Option<bool>,
    /// Name of the executor.
    pub executor: Option<String>,
    /// `text` or `json`.
    pub log_format: Option<String>,
    /// `quiet`, `normal` or `verbose`.
    pub verbosity: Option<String>,
    /// The section's place.
    pub place: Option<Place>,
}

/// Reads typed values out of one section and gathers what is wrong.
struct Section<'a> {
    name: &'static str,
    node: &'a Node,
    errors: &'a mut DagErrors,
}

impl Section<'_> {
    fn check_keys(&mut self, known: &[&str]) {
        let Some(entries) = self.node.as_table() else {
            return;
        };
        for (key, node) in entries {
            if !known.contains(&key.as_str()) {
                let message = format!("unknown key `{}` in `[{}]`", shown(key), self.name);
                let error = DagError::new(message).at(node.key_or_value_place());
                self.errors.push(error.with_nearest(nearest(key, known)));
            }
        }
    }

    /// The value under a key; a value `read` does not take is reported as not being `wanted`.
    fn value<T>(&mut self, key: &str, wanted: &str, read: impl Fn(&Node) -> Option<T>) -> Option<T> {
        let node = self.node.get(key)?;
        let value = read(node);
        if value.is_none() && !node.is_invalid() {
            let message = format!("`{key}` in `[{}]` must be {wanted}", self.name);
            self.errors.push(DagError::new(message).at(&node.place));
        }
        value
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.value(key, "a text that is not empty", |node| {
            node.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        })
    }

    fn count(&mut self, key: &str) -> Option<u64> {
        self.value(key, "a whole number from 1 on", |node| node.as_u64().filter(|count| *count > 0))
    }

    fn choice(&mut self, key: &str, wanted: &str, choices: &[&str]) -> Option<String> {
        self.value(key, wanted, |node| node.as_str().filter(|text| choices.contains(text)).map(str::to_owned))
    }
}

/// `[pipeline]` as typed values.
pub(super) fn pipeline(merged: &Merged, errors: &mut DagErrors) -> PipelineSection {
    let Some(node) = merged.sections.get("pipeline") else {
        return PipelineSection::default();
    };
    let mut section = Section { name: "pipeline", node, errors };
    section.check_keys(PIPELINE_KEYS);
    PipelineSection {
        name: section.text("name"),
        seed: section.value("seed", "a whole number from 0 on", Node::as_u64).unwrap_or_default(),
        place: Some(node.key_or_value_place().clone()),
    }
}

/// `[run]` as typed values.
pub(super) fn run(merged: &Merged, errors: &mut DagErrors) -> RunSection {
    let Some(node) = merged.sections.get("run") else {
        return RunSection::default();
    };
    let mut section = Section { name: "run", node, errors };
    section.check_keys(RUN_KEYS);
    RunSection {
        jobs: section.count("jobs"),
        shard_rows: section.count("shard_rows"),
        out: section.text("out"),
        calls: section.text("calls"),
        offline: section.value("offline", "true or false", Node::as_bool),
        executor: section.text("executor"),
        log_format: section.choice("log_format", "`text` or `json`", &["text", "json"]),
        verbosity: section.choice("verbosity", "`quiet`, `normal` or `verbose`", &["quiet", "normal", "verbose"]),
        place: Some(node.key_or_value_place().clone()),
    }
}

/// `[budget]` with its keys checked.
pub(super) fn budget(merged: &Merged, errors: &mut DagErrors) -> Option<Node> {
    let node = merged.sections.get("budget")?;
    Section { name: "budget", node, errors }.check_keys(BUDGET_KEYS);
    Some(node.clone())
}

/// The models that are tables.
pub(super) fn models(models: BTreeMap<String, Node>, errors: &mut DagErrors) -> BTreeMap<String, Node> {
    let mut kept = BTreeMap::new();
    for (name, node) in models {
        if node.as_table().is_some() {
            kept.insert(name, node);
        } else {
            errors.extend(not_a_table(&format!("models.{name}"), &node));
        }
    }
    kept
}

/// A key no dag file has.
pub(super) fn unknown_top_key(key: &str, node: &Node) -> DagError {
    DagError::new(format!("unknown section `{}`", shown(key)))
        .at(node.key_or_value_place())
        .with_nearest(nearest(key, TOP_KEYS))
}

/// Empty when the value was reported already.
pub(super) fn not_a_table(name: &str, node: &Node) -> DagErrors {
    if node.is_invalid() {
        return DagErrors::default();
    }
    let message = format!("`{}` must be a table, not {}", shown(name), node.type_name());
    DagError::new(message).at(node.key_or_value_place()).into()
}
