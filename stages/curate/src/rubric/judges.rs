//! Parameters of judges, which both kinds have.

use pipeline_core::stage::Estimate;
use pipeline_core::{Env, External, ParamError, StageError, TableType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Rubric, SCALE};
use crate::asking::{self, Aspect, BuiltIn, Manner, Words};
use crate::sample::Names;

/// What a judge is and does.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judges {
    /// Name of a model in `[models]`, or a list of names: each is a judge of its own.
    pub(super) model: Names,
    /// What is rated: names of built-in criteria, or your own as `{ name = "...", description = "..." }`. By default all
    /// built-in ones.
    #[serde(default)]
    criteria: Vec<Aspect>,
    /// A row fails where a criterion is rated below this, 1 to 5. Default 3.
    #[serde(default = "middle")]
    pub(super) min_score: i64,
    /// What becomes of a row that fails: `reject` (default), or `annotate`, where every row stays and the columns tell.
    #[serde(default)]
    pub(super) mode: Mode,
    /// What a judge is asked: a Jinja template that knows the columns of the row and `criteria` (a list with `name` and
    /// `description`). It must ask for JSON of the form `{"reason": "...", "criteria": {"name": 4, ...}}`.
    #[serde(default)]
    template: Option<String>,
    /// File with such a template, relative to `dag.toml`.
    #[serde(default)]
    template_file: Option<String>,
    /// Sampling temperature, 0 (default) = greedy.
    #[serde(default)]
    temperature: f64,
    /// Share of the probability mass to sample from, above 0 and at most 1. Default 1.
    #[serde(default = "full")]
    top_p: f64,
    /// Most tokens of an answer; one that is cut is asked for again with twice as many. Default 1024.
    #[serde(default = "max_tokens")]
    max_tokens: u32,
    /// Draws other answers when it is changed.
    #[serde(default)]
    salt: String,
    /// Most askings of one judge about one row whose answers cannot be used, 1 to 10. Default 3.
    #[serde(default = "three")]
    max_attempts: u32,
}

/// What becomes of a row that fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It falls out.
    #[default]
    Reject,
    /// It stays; the columns tell.
    Annotate,
}

fn middle() -> i64 {
    3
}

fn full() -> f64 {
    1.0
}

fn max_tokens() -> u32 {
    1024
}

fn three() -> u32 {
    3
}

impl Judges {
    /// Checks parameters against each other.
    ///
    /// # Errors
    /// At the parameter that cannot be accepted.
    pub fn validate(&self, built_in: &BuiltIn, words: &'static str) -> Result<(), ParamError> {
        let names = self.model.all();
        if names.is_empty() {
            return Err(ParamError::new("model", "`model` names no model"));
        }
        if names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
            return Err(ParamError::new("model", "a judge comes twice, and would say the same twice"));
        }
        if !(SCALE.0..=SCALE.1).contains(&self.min_score) {
            return Err(ParamError::new("min_score", "`min_score` must lie between 1 and 5"));
        }
        self.rubric(built_in)?;
        self.words(words).ensure()?;
        self.manner("").ensure()
    }

    /// The criteria that a user named, or those that come with the program.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn rubric(&self, built_in: &BuiltIn) -> Result<Rubric, ParamError> {
        Ok(Rubric { criteria: asking::described("criteria", &self.criteria, built_in)? })
    }

    /// Whether the user names what is rated.
    pub fn has_own_criteria(&self) -> bool {
        !self.criteria.is_empty()
    }

    /// Refuses a template that names a column which the rows lack.
    ///
    /// # Errors
    /// At the template.
    pub fn ensure_columns(&self, rows: &TableType, words: &'static str) -> Result<(), ParamError> {
        match self.words(words).at_hand() {
            Some(template) => asking::ensure_columns(&template, rows, &["criteria"]),
            None => Ok(()),
        }
    }

    /// See [`pipeline_core::Stage::externals`].
    ///
    /// # Errors
    /// As there.
    pub fn externals(&self, env: &Env, words: &'static str) -> Result<Vec<External>, StageError> {
        asking::externals(env, &self.words(words))
    }

    /// A question for each row and judge.
    pub fn estimate(&self, kind: &'static str, rows: u64) -> Estimate {
        self.manner(kind).estimate(rows * self.model.all().len() as u64)
    }

    pub(super) fn words(&self, built_in: &'static str) -> Words<'_> {
        Words { text: self.template.as_deref(), file: self.template_file.as_deref(), built_in: Some(built_in) }
    }

    pub(super) fn manner(&self, kind: &'static str) -> Manner {
        Manner {
            kind,
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.max_tokens,
            salt: self.salt.clone(),
            max_attempts: self.max_attempts,
        }
    }
}
