//! The recipe: all that decides a stage's output, as a document a person can read, and its fingerprint.
//!
//! Inputs enter by the digest of their content, not by their own recipes, so an input that was rebuilt to the same
//! bytes stops the cascade.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::digest::Digest;
use crate::env::External;

/// Version of the recipe document itself.
pub const FORMAT: u32 = 1;

/// All that decides an output. Stage names, paths, times, hosts and thread counts are deliberately absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Version of this document.
    pub format: u32,
    /// Kind of the stage.
    pub kind: String,
    /// Version of the kind's code.
    pub version: u32,
    /// Versions of the tables it reads and writes.
    pub tables: BTreeMap<String, u32>,
    /// Parameters after defaults were filled in, without names of models.
    pub params: Value,
    /// Identity of each model that a parameter names.
    pub models: BTreeMap<String, String>,
    /// Seed of `dag.toml`, for kinds that draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Digests of the inputs, by port, in the order given.
    pub inputs: BTreeMap<String, Vec<Digest>>,
    /// Files, templates and scripts.
    pub externals: Vec<External>,
    /// Share of rows that may fail for passing reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_errors: Option<f64>,
}

/// blake3 of the recipe's canonical JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub Digest);

impl Fingerprint {
    /// The 12 digits in a folder's name.
    pub fn short(&self) -> String {
        self.0.short()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl Recipe {
    /// The fingerprint of this recipe.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Digest::of(canonical::to_string(&self.document()).as_bytes()))
    }

    /// The same recipe with the pieces left out that tasks check for themselves: digests of sliced files and of the
    /// port that is mapped. Two versions that agree here may share tasks.
    pub fn for_tasks(&self, mapped_port: Option<&str>) -> Fingerprint {
        let mut recipe = self.clone();
        if let Some(port) = mapped_port {
            recipe.inputs.remove(port);
        }
        recipe.externals.retain(|external| !external.sliced);
        recipe.fingerprint()
    }

    /// This recipe as JSON.
    pub fn document(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The first field in which `self` differs from an `older` recipe, in words: parameters first, since those are
    /// what a person changes, then code, models, files and inputs. `None` when the two are equal.
    pub fn first_difference(&self, older: &Self) -> Option<String> {
        if self.kind != older.kind {
            return Some(format!("kind changed: {} -> {}", older.kind, self.kind));
        }
        if let Some(change) = value_difference("parameter", "", &older.params, &self.params) {
            return Some(change);
        }
        if self.version != older.version {
            return Some(format!("kind version raised: {} -> {}", older.version, self.version));
        }
        if self.tables != older.tables {
            return Some("a table's columns changed with the program".to_owned());
        }
        if let Some(change) = map_difference("model of", &older.models, &self.models) {
            return Some(change);
        }
        if self.seed != older.seed {
            return Some(format!("seed changed: {} -> {}", optional(older.seed), optional(self.seed)));
        }
        if self.max_errors != older.max_errors {
            return Some(format!(
                "`max_errors` changed: {} -> {}",
                optional(older.max_errors),
                optional(self.max_errors)
            ));
        }
        if let Some(change) = self.external_difference(older) {
            return Some(change);
        }
        let ports: BTreeSet<_> = self.inputs.keys().chain(older.inputs.keys()).collect();
        for port in ports {
            match (older.inputs.get(port), self.inputs.get(port)) {
                (Some(old), Some(new)) if old == new => {}
                (Some(old), Some(new)) if old.len() != new.len() => {
                    return Some(format!("input `{port}` has {} tables instead of {}", new.len(), old.len()));
                }
                (None, _) => return Some(format!("input `{port}` was added")),
                (_, None) => return Some(format!("input `{port}` was removed")),
                _ => return Some(format!("input `{port}` has other content")),
            }
        }
        None
    }

    fn external_difference(&self, older: &Self) -> Option<String> {
        let by_name = |recipe: &Self| -> BTreeMap<String, String> {
            recipe.externals.iter().map(|external| (external.name.clone(), external.digest.clone())).collect()
        };
        let (old, new) = (by_name(older), by_name(self));
        for (name, digest) in &new {
            match old.get(name) {
                None => return Some(format!("{name} was added")),
                Some(before) if before != digest => return Some(format!("{name} has other content")),
                Some(_) => {}
            }
        }
        old.keys().find(|name| !new.contains_key(*name)).map(|name| format!("{name} was removed"))
    }
}

fn optional<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn map_difference(what: &str, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Option<String> {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    keys.into_iter().find_map(|key| {
        let (before, after) = (old.get(key), new.get(key));
        (before != after)
            .then(|| format!("{what} `{key}` changed: {} -> {}", optional(before.cloned()), optional(after.cloned())))
    })
}

fn value_difference(what: &str, path: &str, old: &Value, new: &Value) -> Option<String> {
    if old == new {
        return None;
    }
    if let (Value::Object(before), Value::Object(after)) = (old, new) {
        let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let (before, after) = (before.get(key).unwrap_or(&Value::Null), after.get(key).unwrap_or(&Value::Null));
            if let Some(change) = value_difference(what, &inner, before, after) {
                return Some(change);
            }
        }
        return None;
    }
    Some(format!("{what} `{path}` changed: {} -> {}", brief(old), brief(new)))
}

/// A value in at most 60 characters.
fn brief(value: &Value) -> String {
    let text = if value.is_null() { "none".to_owned() } else { value.to_string() };
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(57).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            format: FORMAT,
            kind: "select".into(),
            version: 1,
            tables: BTreeMap::new(),
            params: serde_json::json!({"where": "a > 1", "top": 3}),
            models: BTreeMap::new(),
            seed: None,
            inputs: BTreeMap::from([("rows".into(), vec![Digest::of(b"x")])]),
            externals: vec![],
            max_errors: None,
        }
    }

    #[test]
    fn a_difference_names_field_old_and_new_value() {
        let old = recipe();
        let mut new = recipe();
        new.params["top"] = 4.into();
        assert_eq!(new.first_difference(&old).as_deref(), Some("parameter `top` changed: 3 -> 4"));
        assert_ne!(new.fingerprint(), old.fingerprint());
        assert_eq!(old.first_difference(&recipe()), None);
    }

    #[test]
    fn task_sharing_ignores_the_mapped_port_only() {
        let old = recipe();
        let mut new = recipe();
        new.inputs.insert("rows".into(), vec![Digest::of(b"y")]);
        assert_eq!(new.for_tasks(Some("rows")), old.for_tasks(Some("rows")));
        assert_ne!(new.for_tasks(None), old.for_tasks(None));
        assert_eq!(new.first_difference(&old).as_deref(), Some("input `rows` has other content"));
    }
}
