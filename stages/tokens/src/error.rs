//! What can be wrong with a tokenizer, a chat template or a GGUF file, each with its place and a way out.

use std::path::PathBuf;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// A file cannot be read.
    #[error("`{path}` cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that does not begin as a GGUF file does.
    #[error("`{path}` is not a GGUF file: it begins with {found} where `GGUF` is due")]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// Its first bytes, readable.
        found: String,
    },
    /// A version of GGUF that this reader does not know.
    #[error("`{path}` is GGUF version {version}; versions 2 and 3, little-endian, can be read")]
    GgufVersion {
        /// The file.
        path: PathBuf,
        /// The version that it states.
        version: u32,
    },
    /// A GGUF file that ends too early, or whose lengths lie.
    #[error(
        "`{path}` is cut or damaged: {what} needs {needed} bytes from byte {at} on, {present} are there; fetch the file again"
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// What is missing: a key, a tensor.
        what: String,
        /// Where it begins, in bytes from the start of the file.
        at: u64,
        /// Bytes that it needs at least.
        needed: u64,
        /// Bytes that are there.
        present: u64,
    },
    /// A GGUF file that contradicts itself or the format.
    #[error("`{path}` is damaged: {what}: {message}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// The key or tensor.
        what: String,
        /// What is wrong.
        message: String,
    },
    /// A metadata key that is missing or has another type.
    #[error("`{path}`: metadata `{key}`: {message}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// A tokenizer that cannot be built.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// GGUF metadata from which no tokenizer can be built.
    #[error("the metadata has no usable tokenizer: {0}; put the model's `tokenizer.json` beside the .gguf file")]
    NoTokenizer(String),
    /// A file of a tokenizer or template with a mistake in it.
    #[error("`{path}`: {source}")]
    In {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: Box<TokensError>,
    },
    /// No chat template where one is looked for.
    #[error(
        "`{path}` has no chat template: put `chat_template.jinja` there, or ask for plain completions instead of chat"
    )]
    NoTemplate {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A chat template that cannot be parsed or filled in.
    #[error("chat template{}: {message}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Template {
        /// Line of the template, from 1.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// The chat template refused the conversation with `raise_exception`.
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// Tool calls that are not JSON.
    #[error("`tool_calls` of message {index} is not JSON: {source}")]
    ToolCalls {
        /// Position of the message, from 0.
        index: usize,
        /// Why.
        source: serde_json::Error,
    },
}
