//! Whether a stage's earlier output serves, and why or why not: decisions come from content alone.

use std::collections::BTreeMap;

use pipeline_core::{Digest, Env, External, Recipe, StageError};
use serde_json::Value;

use crate::project::{Node, Project};
use crate::records::Success;
use crate::store::{Store, Version};

/// A stage's recipe, the folder of its version, and what is to be done.
#[derive(Debug)]
pub struct Decision {
    /// All that decides the output.
    pub recipe: Recipe,
    /// Where that output lies or will lie.
    pub version: Version,
    /// What is to be done.
    pub outcome: Outcome,
}

/// What is to be done.
#[derive(Debug)]
pub enum Outcome {
    /// An earlier output serves.
    Reuse {
        /// Its record.
        success: Box<Success>,
        /// Why it serves.
        reason: String,
    },
    /// The stage must run.
    Run {
        /// Why.
        reason: String,
    },
}

/// The recipe of a stage whose inputs have these digests.
///
/// # Errors
/// When a file that decides the output is missing.
pub fn recipe(
    project: &Project,
    node: &Node,
    env: &Env,
    inputs: BTreeMap<String, Vec<Digest>>,
) -> Result<Recipe, StageError> {
    let mut params = node.stage.params();
    if let Value::Object(params) = &mut params {
        for param in node.entry.model_params {
            params.remove(*param);
        }
    }
    let mut tables = BTreeMap::new();
    let flowing = node.ports.0.values().flatten().chain(node.outputs.iter().map(|output| &output.rows));
    for table in flowing.filter_map(|rows| rows.table) {
        tables.insert(table.name.to_owned(), table.version);
    }
    let mut models: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, param) in &node.models {
        models.entry(param.clone()).or_default().extend(project.models.get(name).cloned());
    }
    let mut externals: Vec<External> = node.stage.externals(env, &node.ports)?;
    externals.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(Recipe {
        format: pipeline_core::recipe::FORMAT,
        kind: node.entry.kind.to_owned(),
        version: node.entry.version,
        tables,
        params,
        models: models.into_iter().map(|(param, names)| (param, names.join(", "))).collect(),
        seed: node.entry.draws.then_some(project.seed),
        inputs,
        externals,
        max_errors: node.def.max_errors,
    })
}

/// Decides about a stage whose inputs are at hand.
///
/// # Errors
/// When a file that decides the output is missing.
pub fn decide(
    project: &Project,
    node: &Node,
    store: &Store,
    env: &Env,
    inputs: BTreeMap<String, Vec<Digest>>,
) -> Result<Decision, StageError> {
    let recipe = recipe(project, node, env, inputs)?;
    let version = store.version(&node.name, recipe.fingerprint());
    let current = store.current(&node.name);
    let outcome = match version.success() {
        Ok(Some(success)) if success.fingerprint == recipe.fingerprint() => {
            let reason = reuse_reason(project, node, &recipe, &version, current.as_ref(), &success);
            Outcome::Reuse { success: Box::new(success), reason }
        }
        Err(damage) => Outcome::Run { reason: format!("its output is damaged: {damage}") },
        Ok(_) => Outcome::Run { reason: run_reason(project, node, &recipe, &version, current.as_ref()) },
    };
    Ok(Decision { recipe, version, outcome })
}

fn reuse_reason(
    project: &Project,
    node: &Node,
    recipe: &Recipe,
    version: &Version,
    current: Option<&Version>,
    success: &Success,
) -> String {
    if current.is_some_and(|current| current.name == version.name) {
        return "unchanged".to_owned();
    }
    if let Some(difference) = current.and_then(Version::recipe).and_then(|old| recipe.first_difference(&old)) {
        return format!("{}; an earlier version has this recipe", with_stages(project, node, difference));
    }
    if success.stage == node.name {
        "an earlier version has this recipe".to_owned()
    } else {
        format!("stage `{}` has the same recipe", success.stage)
    }
}

fn run_reason(project: &Project, node: &Node, recipe: &Recipe, version: &Version, current: Option<&Version>) -> String {
    let begun = version.folder.join("plan.json").exists();
    let difference = current.and_then(Version::recipe).and_then(|old| recipe.first_difference(&old));
    match (difference, begun) {
        (Some(difference), false) => with_stages(project, node, difference),
        (Some(difference), true) => {
            format!("{}; goes on where an earlier run stopped", with_stages(project, node, difference))
        }
        (None, true) => "goes on where an earlier run stopped".to_owned(),
        (None, false) => "no earlier output".to_owned(),
    }
}

/// Adds, to a difference that names a port, the stages that feed it.
fn with_stages(project: &Project, node: &Node, difference: String) -> String {
    for (port, sources) in &node.edges {
        if difference.starts_with(&format!("input `{port}` has")) {
            let names: Vec<String> =
                sources.iter().map(|(stage, _)| format!("`{}`", project.nodes[*stage].name)).collect();
            return format!("{difference} (from {})", names.join(", "));
        }
    }
    difference
}
