//! What an export is asked for, and what it tells afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pipeline_core::task::InputFile;
use serde::{Deserialize, Serialize};

/// Raw bytes (before compression) after which a shard ends: 256 MiB.
pub const DEFAULT_SHARD_BYTES: u64 = 256 << 20;

/// Columns of an exported row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `messages`: the conversation as a list of `{role, content}`; of a trace with the answer as its last turn.
    #[default]
    Messages,
    /// `prompt` and `completion`, both lists of `{role, content}`: trainers compute the loss on the completion alone.
    PromptCompletion,
    /// The stage's table as it is.
    Parquet,
}

impl Format {
    /// All formats, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Messages, Self::PromptCompletion, Self::Parquet];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::PromptCompletion => "prompt-completion",
            Self::Parquet => "parquet",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("unknown format `{text}`, known: messages, prompt-completion, parquet"))
    }
}

/// One export.
#[derive(Debug, Clone)]
pub struct ExportRequest {
    /// Name of the stage.
    pub stage: String,
    /// Table of its rows: `queries` or `traces`.
    pub table: String,
    /// Its committed files in plan order.
    pub files: Vec<InputFile>,
    /// Folder to write to; made if it is missing.
    pub to: PathBuf,
    /// Columns of a row.
    pub format: Format,
    /// Columns of the stage carried beside those of the format (of `parquet`: the columns written). `None`: ids,
    /// domain, label, model, verdict, source and licence, or all of them for `parquet`.
    pub columns: Option<Vec<String>>,
    /// Raw bytes after which a shard ends, see [`DEFAULT_SHARD_BYTES`]. A shard has at least one row.
    pub shard_bytes: u64,
    /// What the card says beyond the rows themselves.
    pub card: CardFacts,
}

/// What the card says beyond what the rows show. No times, hosts or paths, so that the same data gives the same bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardFacts {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Program and version: `pipeline 0.1.0`.
    pub program: String,
    /// Lines that sum up the recipe, shown as they are.
    pub recipe: Vec<String>,
    /// The stages that led here, in the order data met them.
    pub stages: Vec<StageFact>,
    /// Models that these stages called.
    pub models: Vec<ModelFact>,
}

/// Rows that went through one stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageFact {
    /// Name in `dag.toml`.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Rows read.
    pub read: u64,
    /// Rows that live on.
    pub kept: u64,
    /// Rows of the output; differs from `kept` where a kind multiplies or merges rows.
    pub rows: u64,
    /// Rejected rows by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Rows left out because of passing failures.
    pub transient: u64,
}

/// A model that wrote or judged rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFact {
    /// Name and revision, as in the column `model`.
    pub id: String,
    /// Stages that called it.
    pub stages: Vec<String>,
    /// Licence or terms of what it writes; `None` where `dag.toml` does not say.
    pub output_terms: Option<String>,
}

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportReport {
    /// The folder.
    pub to: PathBuf,
    /// Rows written.
    pub rows: u64,
    /// Shards and card, relative to the folder.
    pub files: Vec<PathBuf>,
    /// Bytes of the shards on disk.
    pub bytes: u64,
    /// Rows by licence expression.
    pub licenses: BTreeMap<String, u64>,
    /// Rows whose licence is not known.
    pub unknown_license: u64,
    /// Rows by language, told by script; one row may count for two.
    pub languages: BTreeMap<String, u64>,
    /// Traces that stop inside their reasoning.
    pub unfinished: u64,
    /// Shards of an earlier export that went away, relative to the folder.
    pub removed: Vec<PathBuf>,
}
