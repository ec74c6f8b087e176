//! Reads `dag.toml`: a tree that knows the place of each value, typed sections, stages, and mistakes shown in place.
//!
//! Includes and variables are resolved first, so what the rest of the program sees is what is fingerprinted; places
//! are kept beside the values and never enter them. Parameters stay JSON here: the kinds read them.
//!
//! ```
//! use pipeline_engine::dagfile;
//!
//! let text = "[stages.seeds]\nkind = \"import\"\n\n[stages.clean]\nkind = \"dedup\"\ninputs = \"seeds\"\n";
//! let dag = dagfile::parse("dag.toml", text, &|_| None).map_err(|error| error.render())?;
//! assert_eq!(dag.stages[1].inputs[""][0].stage, "seeds");
//! assert_eq!(dagfile::order(&dag.stages).map_err(|errors| errors.render(&dag.sources))?, [0, 1]);
//! # Ok::<(), String>(())
//! ```

mod error;
mod files;
mod graph;
mod matrix;
mod node;
mod params;
mod render;
mod sections;
mod source;
mod stage;
#[cfg(test)]
mod tests;
mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use error::{DagError, DagErrors, LoadError, Note};
pub use files::{Disk, Files, Texts};
pub use graph::{Edge, order, order_with, resolve};
pub use node::{Node, NodeValue};
pub use params::{
    ParamProblem, PathSegment, key_place_of, nearest, param_error, parse_params, place_of, unknown_key, unknown_kind,
};
pub use render::shown;
pub use sections::{BUDGET_KEYS, PIPELINE_KEYS, PipelineSection, RUN_KEYS, RunSection, TOP_KEYS};
pub use source::{FileId, Place, SourceFile, Sources};
pub use stage::{InputRef, STAGE_KEYS, StageDef};

/// A dag file with all it includes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DagFile {
    /// The texts, to show mistakes in them.
    pub sources: Sources,
    /// `[pipeline]`.
    pub pipeline: PipelineSection,
    /// `[models.NAME]`; each is a table.
    pub models: BTreeMap<String, Node>,
    /// `[budget]`; a table.
    pub budget: Option<Node>,
    /// `[run]`.
    pub run: RunSection,
    /// The stages in the order of the file, included ones first, combinations of a matrix one after the other.
    pub stages: Vec<StageDef>,
}

/// What could be read, and all that is wrong with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The parts that could be read.
    pub dag: DagFile,
    /// The mistakes; what they touch is left out or empty in `dag`.
    pub errors: DagErrors,
}

/// Reads a dag file and goes on after mistakes, so that later checks can add theirs.
///
/// `lookup` gives the values of variables; the graph is not looked at (see [`order`]).
pub fn read(path: &Path, files: &dyn Files, lookup: &dyn Fn(&str) -> Option<String>) -> Reading {
    let mut loader = files::Loader::new(files, lookup);
    loader.load(path, None);
    let files::Loader { sources, mut merged, mut errors, .. } = loader;
    let pipeline = sections::pipeline(&merged, &mut errors);
    let run = sections::run(&merged, &mut errors);
    let budget = sections::budget(&merged, &mut errors);
    let models = sections::models(std::mem::take(&mut merged.models), &mut errors);
    let mut stages = Vec::new();
    for (name, node) in &merged.stages {
        stages.extend(stage::read(name, node, &mut errors));
    }
    errors.tidy();
    Reading { dag: DagFile { sources, pipeline, models, budget, run, stages }, errors }
}

/// Reads a dag file from disk.
///
/// # Errors
/// All that is wrong with the file and what it includes.
pub fn load(path: &Path, lookup: &dyn Fn(&str) -> Option<String>) -> Result<DagFile, LoadError> {
    whole(read(path, &Disk, lookup))
}

/// Reads a dag from one text that includes nothing.
///
/// # Errors
/// All that is wrong with the text.
pub fn parse(name: &str, text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<DagFile, LoadError> {
    let files = Texts::from([(name, text)]);
    whole(read(Path::new(name), &files, lookup))
}

fn whole(reading: Reading) -> Result<DagFile, LoadError> {
    let Reading { dag, errors } = reading;
    if errors.is_empty() { Ok(dag) } else { Err(LoadError { sources: dag.sources, errors }) }
}

impl<const N: usize> From<[(&str, &str); N]> for Texts {
    fn from(files: [(&str, &str); N]) -> Self {
        let files = files.into_iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()));
        Self(files.collect())
    }
}

impl DagFile {
    /// The stage of this name; a stage with a matrix has one name for each combination.
    pub fn stage(&self, name: &str) -> Option<&StageDef> {
        self.stages.iter().find(|stage| stage.name == name)
    }
}
