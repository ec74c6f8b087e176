//! What can go wrong with weights, configurations and passes over a net.

use std::io;
use std::path::PathBuf;

/// Failure to load a net or to run it.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is shorter than its own header says, or its header is no header.
    #[error("`{}` is damaged: {message}; fetch it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit, with numbers.
        message: String,
    },
    /// A value of the configuration is missing or senseless.
    #[error("`{}`: {message}", path.display())]
    Config {
        /// The configuration's file.
        path: PathBuf,
        /// The key, what it holds and what it should hold.
        message: String,
    },
    /// Something that this program does not compute.
    #[error("`{}` asks for {what}, which is not supported", path.display())]
    Unsupported {
        /// The configuration's file.
        path: PathBuf,
        /// The key with its value, and what is supported.
        what: String,
    },
    /// A tensor that the configuration needs is not there.
    #[error("`{}` has no tensor `{name}`", path.display())]
    MissingTensor {
        /// The weights' file or folder.
        path: PathBuf,
        /// The tensor, as the file would call it.
        name: String,
    },
    /// A tensor that the net would not use.
    #[error("`{}` has a tensor `{name}` that a net of this configuration does not use", path.display())]
    ExtraTensor {
        /// The weights' file or folder.
        path: PathBuf,
        /// The tensor, as the file calls it.
        name: String,
    },
    /// A tensor of another shape than the configuration says.
    #[error("tensor `{name}` of `{}` has shape {found:?} instead of {expected:?}", path.display())]
    Shape {
        /// The weights' file or folder.
        path: PathBuf,
        /// The tensor, as the file calls it.
        name: String,
        /// Rows and columns, or the width, that the configuration asks for.
        expected: Vec<usize>,
        /// What the file has.
        found: Vec<usize>,
    },
    /// A weight that is NaN or infinite.
    #[error("tensor `{name}` of `{}` holds {value} at element {index}; weights must be finite", path.display())]
    NotFinite {
        /// The weights' file or folder.
        path: PathBuf,
        /// The tensor, as the file calls it.
        name: String,
        /// Place of the first such value in row-major order.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A token that the net has no row for.
    #[error("token {token} is outside the vocabulary of {vocabulary} tokens; the tokenizer does not fit the net")]
    Token {
        /// The token's id.
        token: u32,
        /// Rows of the embedding.
        vocabulary: usize,
    },
    /// A position that the net was not made for.
    #[error("position {position} is beyond the context of {context} tokens")]
    Context {
        /// Place of the token in its sequence, from 0.
        position: usize,
        /// Largest number of tokens in a sequence.
        context: usize,
    },
    /// A step that contradicts itself.
    #[error("malformed step: {0}")]
    Step(String),
    /// A variable that the loss does not depend on, or that an operation without backward cuts off.
    #[error("`{0}` has no gradient")]
    NoGradient(String),
    /// No memory for the key/value cache.
    #[error(
        "a key/value cache of {pages} pages needs {needed} bytes, but {}; take fewer threads (`--jobs`, `--threads`), \
         fewer texts at a time (`max_in_flight`, `--slots`) or a shorter context",
        .available.map_or_else(|| "the system does not give them to this process".to_owned(), |free| format!("{free} bytes are free"))
    )]
    CacheMemory {
        /// Pages asked for.
        pages: usize,
        /// Bytes of those pages.
        needed: u64,
        /// Bytes that the system has left; none where it refused for another reason, such as a limit of the process.
        available: Option<u64>,
    },
    /// The GGUF container cannot be read.
    #[error(transparent)]
    Gguf(#[from] stage_tokens::TokensError),
    /// The tensor library refuses an operation.
    #[error("tensor operation: {0}")]
    Tensor(#[from] candle_core::Error),
}
