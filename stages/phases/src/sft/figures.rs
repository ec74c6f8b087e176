//! Figures of the steps so far: they go into the table of metrics, and into the state, so that a resumed run has all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use pipeline_core::{StageError, Task};
use serde::{Deserialize, Serialize};
use stage_train::StepReport;

use super::METRICS;
use crate::artifact::Told;

/// Subject of the figures of steps.
const TRAINING: &str = "training";

/// All figures so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Of each step.
    pub steps: Vec<OfStep>,
    /// Checkpoints by name, in order.
    pub checkpoints: Vec<(String, Told)>,
}

/// Figures of a step.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct OfStep {
    step: u64,
    loss: f64,
    entropy: f64,
    gradient_norm: f64,
    learning_rate: f64,
    supervised: usize,
}

impl OfStep {
    /// Mean loss of the step.
    pub fn loss(&self) -> f64 {
        self.loss
    }
}

impl From<StepReport> for OfStep {
    fn from(report: StepReport) -> Self {
        let StepReport { step, rate, loss, entropy, supervised, gradient_norm, .. } = report;
        Self { step, loss, entropy, gradient_norm, learning_rate: rate, supervised }
    }
}

impl Figures {
    /// Reads the figures that belong to the state of a step.
    ///
    /// # Errors
    /// When they are not there or damaged.
    pub fn read(folder: &Path, step: u64) -> Result<Self, StageError> {
        let path = place(folder, step);
        let bytes = fs::read(&path).map_err(StageError::io("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| StageError::Damaged { path, message: error.to_string() })
    }

    /// Writes the figures of the state of a step, whole or not at all.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, folder: &Path, step: u64) -> Result<(), StageError> {
        fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
        let (path, draft) = (place(folder, step), folder.join(".figures.draft"));
        let bytes = serde_json::to_vec(self).map_err(|error| StageError::Internal(error.to_string()))?;
        fs::write(&draft, bytes).map_err(StageError::io("write", &draft))?;
        File::open(&draft).and_then(|file| file.sync_all()).map_err(StageError::io("write", &draft))?;
        fs::rename(&draft, &path).map_err(StageError::io("write", &path))
    }

    /// Removes the figures of states before this one.
    pub fn remove_before(folder: &Path, step: u64) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix("figures-")?.strip_suffix(".json")?.parse().ok());
            if of.is_some_and(|of: u64| of < step) {
                // one that stays costs a few bytes until the stage is done
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Mean loss of the steps after `step`, by supervised tokens; none where there are no such steps.
    pub fn loss_since(&self, step: u64) -> Option<f64> {
        let since = self.steps.iter().filter(|of| of.step > step);
        let (sum, tokens) =
            since.fold((0.0, 0), |(sum, tokens), of| (sum + of.loss * of.supervised as f64, tokens + of.supervised));
        (tokens > 0).then(|| sum / tokens as f64)
    }

    /// Supervised tokens of all steps.
    pub fn supervised(&self) -> u64 {
        self.steps.iter().map(|of| of.supervised as u64).sum()
    }

    /// Writes the table of metrics.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_table(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        type Row<'a> = (&'a str, u64, &'static str, f64, Option<u64>);
        let mut rows: Vec<Row<'_>> = Vec::new();
        for of in &self.steps {
            let n = Some(of.supervised as u64);
            rows.push((TRAINING, of.step, "loss", of.loss, n));
            rows.push((TRAINING, of.step, "entropy", of.entropy, n));
            rows.push((TRAINING, of.step, "gradient_norm", of.gradient_norm, None));
            rows.push((TRAINING, of.step, "learning_rate", of.learning_rate, None));
        }
        for (name, told) in &self.checkpoints {
            if let Some(loss) = told.validation_loss {
                rows.push((name, told.step, "validation_loss", loss, None));
            }
        }
        let output = task.outputs().iter().find(|output| output.name == METRICS);
        let output = output.ok_or_else(|| StageError::Internal("the output of metrics is not declared".to_owned()))?;
        let whole = |value: u64| i64::try_from(value).ok();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| Some(row.0)).collect::<StringViewArray>()),
            Arc::new(rows.iter().map(|row| whole(row.1)).collect::<Int64Array>()),
            Arc::new(StringViewArray::from(vec![None::<&str>; rows.len()])),
            Arc::new(rows.iter().map(|row| Some(row.2)).collect::<StringViewArray>()),
            Arc::new(rows.iter().map(|row| Some(row.3)).collect::<Float64Array>()),
            Arc::new(Float64Array::from(vec![None; rows.len()])),
            Arc::new(rows.iter().map(|row| row.4.and_then(whole)).collect::<Int64Array>()),
        ];
        task.write_to(METRICS, &RecordBatch::try_new(Arc::clone(&output.rows.schema), columns)?)
    }
}

fn place(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("figures-{step:08}.json"))
}
