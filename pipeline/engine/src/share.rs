//! Sharing tasks between versions: when rows are appended to an input, the tasks whose slice did not change serve the
//! new version as they are.

use std::fs;
use std::path::Path;

use pipeline_core::{Recipe, StageError};

use crate::project::Node;
use crate::records::{FileRecord, Manifest, Plan, TaskPlan};
use crate::store::{Store, create_json};
use crate::work::{committed, manifest_path};

/// Links committed tasks of other versions into `folder`; says how many.
///
/// # Errors
/// When the disk refuses.
pub fn share_tasks(
    store: &Store,
    node: &Node,
    recipe: &Recipe,
    folder: &Path,
    plan: &Plan,
) -> Result<usize, StageError> {
    let Some(step) = plan.steps.last() else { return Ok(0) };
    let open: Vec<&TaskPlan> = step.tasks.iter().filter(|task| committed(folder, task).is_none()).collect();
    if open.is_empty() {
        return Ok(0);
    }
    let fingerprint = recipe.for_tasks(node.rows_port());
    let found = store.reusable_tasks(fingerprint, node.entry.kind, node.rows_port());
    let mut shared = 0;
    for task in open {
        if let Some((from, manifest)) = found.get(&task.input_key)
            && from != folder
            && manifest.counts.transient == 0
            && share(from, manifest, folder, task)?
        {
            shared += 1;
        }
    }
    Ok(shared)
}

/// Links one task's files and commits them; `false` when a file is not there any more.
fn share(from: &Path, manifest: &Manifest, folder: &Path, task: &TaskPlan) -> Result<bool, StageError> {
    let mut ours = manifest.clone();
    task.id.clone_into(&mut ours.task);
    for file in ours.outputs.values_mut().chain(&mut ours.rejects) {
        let source = from.join(&file.file);
        if !fs::metadata(&source).is_ok_and(|found| found.len() == file.bytes) {
            return Ok(false);
        }
        file.file = renamed(file, &task.id);
        let target = folder.join(&file.file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(StageError::io("create", parent))?;
        }
        if !target.exists() && fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target).map_err(StageError::io("copy", &target))?;
        }
    }
    create_json(&manifest_path(folder, &task.id), &ours)?;
    Ok(true)
}

fn renamed(file: &FileRecord, task: &str) -> String {
    let below = file.file.rsplit_once('/').map_or("data", |(below, _)| below);
    format!("{below}/{task}.{}.parquet", file.digest.short())
}
