//! How weights are stored, as `dag.toml` says it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage_train::Storage;

/// Number format of stored weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoredAs {
    /// 32 bits: nothing of the training is lost.
    #[default]
    F32,
    /// 16 bits with the range of 32: half the size, rounded.
    Bf16,
}

impl From<StoredAs> for Storage {
    fn from(stored: StoredAs) -> Self {
        match stored {
            StoredAs::F32 => Self::F32,
            StoredAs::Bf16 => Self::Bf16,
        }
    }
}
