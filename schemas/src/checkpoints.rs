//! `checkpoints`: models that a stage has made. A row names a folder beside the table, `checkpoints/<checkpoint>`, which
//! holds the weights in the layout of Hugging Face.

use crate::column::{Column, Table, Type};

/// Name of the checkpoint, and of its folder.
pub const CHECKPOINT: &str = "checkpoint";
/// Optimizer steps behind it.
pub const STEP: &str = "step";
/// Digest of its folder.
pub const DIGEST: &str = "digest";
/// Folder of a version that holds the folders of checkpoints.
pub const FOLDER: &str = "checkpoints";

/// The table.
pub static TABLE: Table = Table {
    name: "checkpoints",
    version: 1,
    doc: "One model that a stage has made; its weights lie in `checkpoints/<checkpoint>` beside the table.",
    base: &[
        Column::required(CHECKPOINT, Type::Text, "name, such as step-200: `[models.x] checkpoint = \"step-200\"`"),
        Column::required(STEP, Type::Int, "optimizer steps of the stage behind it"),
        Column::required(DIGEST, Type::Text, "digest of its folder, sha256: and 64 hexadecimal digits"),
        Column::new("epoch", Type::Float, "passes over the stage's rows behind it"),
        Column::new("tokens", Type::Int, "supervised tokens that the stage has trained on"),
        Column::new("loss", Type::Float, "mean training loss since the checkpoint before it, nats a supervised token"),
        Column::new("validation_loss", Type::Float, "mean loss on the validation rows, nats a supervised token"),
        Column::new("domain", Type::Text, "domain that it is the specialist of, null where it is for all"),
    ],
    own: &[],
};

/// Name of a checkpoint among others of the same name: with eight digits of its digest.
pub fn told_apart(checkpoint: &str, digest: &str) -> String {
    let digits: String = digest.trim_start_matches("sha256:").chars().take(8).collect();
    format!("{checkpoint} ({digits})")
}
