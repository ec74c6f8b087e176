//! Working on a version outside a run: a few rows for a person to look at, and the tasks of a version for an executor.

use std::fs;
use std::path::{Path, PathBuf};

use pipeline_core::StageError;
use pipeline_core::task::Slice;

use crate::lease;
use crate::records::{Plan, Success};
use crate::run::Runner;
use crate::work::{Work, create_folders};

/// What a try-out gave; its files go when this is dropped.
#[derive(Debug)]
pub struct Tried {
    folder: PathBuf,
    /// Its record.
    pub success: Success,
}

impl Tried {
    /// Where its files lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Runner<'_> {
    /// Runs a stage over the first rows of its first input, on inputs as they are, in a folder of its own.
    ///
    /// # Errors
    /// When an input has no output yet, or the stage fails.
    pub fn try_out(&self, index: usize, rows: u64) -> Result<Tried, StageError> {
        let node = &self.project.nodes[index];
        let inputs = self.inputs_as_they_are(node)?;
        let folder = self.store.root().join(format!(".try-{}", lease::unique()));
        let recipe = self.recipe_as_it_is(node)?;
        let mut plan = crate::plan::make(node, recipe.fingerprint(), &inputs, self.env, String::new())?;
        for step in &mut plan.steps {
            let mut left = rows;
            for task in &mut step.tasks {
                for slice in &mut task.slices {
                    slice.rows = slice.rows.min(left);
                    left -= slice.rows;
                }
                task.slices.retain(|slice: &Slice| slice.rows > 0);
            }
            if node.rows_port().is_some() && !step.tasks.iter().all(|task| task.partition.is_some()) {
                step.tasks.retain(|task| !task.slices.is_empty() || step.kind == crate::records::StepName::Gather);
            }
        }
        let work = Work {
            node,
            folder: &folder,
            plan: &plan,
            inputs: &inputs,
            env: self.env,
            seed: self.project.seed,
            events: self.events,
            cancel: self.cancel,
            jobs: self.jobs,
            ttl: self.ttl,
        };
        match create_folders(&folder).and_then(|()| work.execute()) {
            Ok(success) => Ok(Tried { folder, success }),
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Works on the tasks of a version whose plan is there, until none is left.
    ///
    /// # Errors
    /// When the plan is of another recipe than the dag file now gives, or a task fails.
    pub fn work_on(&self, folder: &Path, plan: &Plan) -> Result<(), StageError> {
        let misfit = |message: String| StageError::Param(pipeline_core::ParamError::new("plan", message));
        let index = self.project.find(&plan.stage);
        let index = index.ok_or_else(|| misfit(format!("the dag file has no stage `{}` any more", plan.stage)))?;
        let node = &self.project.nodes[index];
        if plan.version != node.entry.version {
            return Err(misfit(format!(
                "the plan is of version {} of kind `{}`, this program has {}",
                plan.version, plan.kind, node.entry.version
            )));
        }
        let recipe = self.recipe_as_it_is(node)?;
        if recipe.fingerprint() != plan.fingerprint {
            return Err(misfit("the dag file or an input changed since the plan was made".to_owned()));
        }
        let inputs = self.inputs_as_they_are(node)?;
        Work {
            node,
            folder,
            plan,
            inputs: &inputs,
            env: self.env,
            seed: self.project.seed,
            events: self.events,
            cancel: self.cancel,
            jobs: self.jobs,
            ttl: self.ttl,
        }
        .execute()
        .map(drop)
    }
}
