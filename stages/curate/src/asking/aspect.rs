//! Things with a name that a model is told about: criteria of a judge, dimensions of an expansion.

use std::collections::BTreeSet;

use pipeline_core::ParamError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One that is built in, by its name, or one of the user's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Aspect {
    /// Name of a built-in one.
    BuiltIn(String),
    /// One of the user's own.
    Own(Described),
}

/// A name with what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// A `snake_case` word.
    pub name: String,
    /// What the model is told about it.
    pub description: String,
}

/// Names that come with the program, and what they mean.
pub type BuiltIn = [(&'static str, &'static str)];

/// The descriptions of what a user names; all built-in ones where nothing is named.
///
/// # Errors
/// At `parameter`, when a name is unknown, comes twice or is no word.
pub fn described(parameter: &str, given: &[Aspect], built_in: &BuiltIn) -> Result<Vec<Described>, ParamError> {
    let own = |(name, description): &(&str, &str)| Described {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
    };
    if given.is_empty() {
        return Ok(built_in.iter().map(own).collect());
    }
    let mut seen = BTreeSet::new();
    let mut all = Vec::with_capacity(given.len());
    for aspect in given {
        let described = match aspect {
            Aspect::Own(described) => described.clone(),
            Aspect::BuiltIn(name) => built_in.iter().find(|(known, _)| known == name).map(own).ok_or_else(|| {
                let known = built_in.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                ParamError::new(parameter, format!("`{name}` is not built in; built in are {known}"))
                    .hint(format!("or describe it: `{{ name = \"{name}\", description = \"...\" }}`"))
            })?,
        };
        let is_word = |name: &str| {
            name.starts_with(|letter: char| letter.is_ascii_lowercase())
                && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
        };
        if !is_word(&described.name) {
            let message = format!("`{}` must be a word of small letters, digits and `_`", described.name);
            return Err(ParamError::new(parameter, message));
        }
        if described.description.trim().is_empty() {
            return Err(ParamError::new(parameter, format!("`{}` has no description", described.name)));
        }
        if !seen.insert(described.name.clone()) {
            return Err(ParamError::new(parameter, format!("`{}` comes twice", described.name)));
        }
        all.push(described);
    }
    Ok(all)
}
