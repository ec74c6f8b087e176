//! Models that come in through a port: rows of the table `checkpoints` with the folders of their weights.

use std::path::{Path, PathBuf};

use schemas::checkpoints::{CHECKPOINT, DIGEST, FOLDER, STEP, told_apart};

use crate::error::StageError;
use crate::rows;
use crate::task::Task;

/// A model that a stage before has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name; where several have one name, with digits of the digest.
    pub subject: String,
    /// Optimizer steps behind it.
    pub step: i64,
    /// Folder of its weights.
    pub folder: PathBuf,
    /// Digest of that folder.
    pub digest: String,
}

/// All checkpoints that a port brings, in order.
///
/// # Errors
/// When a table is damaged.
pub fn of_port(task: &Task<'_>, port: &str) -> Result<Vec<Checkpoint>, StageError> {
    let mut all = Vec::new();
    let mut batches = task.port_batches(port, None)?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        // tables lie in a folder of the version, and the checkpoints in another beside it
        let file = task.port(port).get(batches.input()).and_then(|given| given.files.first());
        let version = file.and_then(|file| file.path.parent()).and_then(Path::parent).unwrap_or(Path::new(""));
        let (names, digests) = (rows::texts(&batch, CHECKPOINT)?, rows::texts(&batch, DIGEST)?);
        let steps = rows::integers(&batch, STEP)?;
        for row in 0..batch.num_rows() {
            all.push(Checkpoint {
                subject: names.value(row).to_owned(),
                step: steps.value(row),
                folder: version.join(FOLDER).join(names.value(row)),
                digest: digests.value(row).to_owned(),
            });
        }
    }
    let names: Vec<String> = all.iter().map(|one| one.subject.clone()).collect();
    for one in &mut all {
        if names.iter().filter(|name| **name == one.subject).count() > 1 {
            one.subject = told_apart(&one.subject, &one.digest);
        }
    }
    Ok(all)
}
