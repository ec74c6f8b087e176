//! Faults of training as faults of a stage.

use pipeline_core::{ParamError, StageError};
use pipeline_models::ModelError;
use stage_tokens::TokensError;
use stage_train::TrainError;

/// What a fault of training means for the stage.
pub fn of_training(error: TrainError) -> StageError {
    match error {
        TrainError::Read { path, source } => StageError::Io { action: "read", path, source },
        TrainError::Write { path, source } => StageError::Io { action: "write", path, source },
        TrainError::Parameter(message) => StageError::Param(ParamError::new("", message)),
        other => StageError::Alarm(other.to_string()),
    }
}

/// What it means that a model has no weights.
pub fn of_model(error: &ModelError) -> StageError {
    StageError::Param(ParamError::new("model", error.to_string()))
}

/// What a fault of a tokenizer or chat template means for the stage.
pub fn of_tokens(error: &TokensError) -> StageError {
    StageError::Param(ParamError::new("model", error.to_string()))
}
