//! A model as it lies on disk, opened for decoding: net, tokenizer, chat template and ends of a turn.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stage_tokens::{ChatTemplate, EndTokens, Gguf, Tokenizer, TokensError, Turn};

use crate::decode::{Service, ServiceOptions, Vocabulary};
use crate::{Forward, Net, NetError};

/// How a GGUF file begins.
const GGUF: &[u8] = b"GGUF";

/// A net with everything that turns conversations into its ids and its ids into text.
#[derive(Debug)]
pub struct LocalModel {
    net: Arc<Net>,
    tokenizer: Arc<Tokenizer>,
    /// Why there is none, otherwise.
    template: Result<ChatTemplate, String>,
    ends: EndTokens,
}

/// Why a model cannot be opened or decoded.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Weights or configuration.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Tokenizer, chat template or conversation.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that is no GGUF.
    #[error(
        "`{}` is no GGUF file: it does not begin with `GGUF`; weights are a `.gguf` file or a folder with `config.json`, \
         `tokenizer.json` and `*.safetensors`", .0.display()
    )]
    NotWeights(PathBuf),
    /// A folder whose texts could not be turned into tokens.
    #[error("the folder `{}` has no `tokenizer.json`; save the model's tokenizer there", .0.display())]
    NoTokenizer(PathBuf),
    /// The tokenizer makes ids that the net does not know.
    #[error(
        "the tokenizer has ids up to {largest}, but the net knows {vocabulary} tokens: they are not of the same model"
    )]
    TokenizerMisfit {
        /// Largest id of the tokenizer.
        largest: usize,
        /// Rows of the net's embedding.
        vocabulary: usize,
    },
    /// Conversations need a chat template, and there is none.
    #[error("the model has no chat template: {0}")]
    NoTemplate(String),
    /// No page of the cache fits into memory.
    #[error(
        "{bytes} bytes{} are too few for the cache of keys and values: a page of {page} tokens takes {page_bytes} bytes in \
         each of {threads} threads; raise `cache_bytes` or take fewer threads",
        if *.is_default { ", a quarter of the free memory," } else { "" }, page = crate::PAGE
    )]
    NoCache {
        /// Bytes for all threads.
        bytes: usize,
        /// Whether nobody gave the number.
        is_default: bool,
        /// Number of threads.
        threads: usize,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// The system gives no thread.
    #[error("cannot start a thread for decoding: {0}")]
    Thread(std::io::Error),
}

impl LocalModel {
    /// Looks at what lies at `path` without reading weights: whether it is a GGUF file whose tensors are all there, or a
    /// folder with a tokenizer.
    ///
    /// # Errors
    /// What keeps it from being opened, as far as headers tell.
    pub fn inspect(path: &Path) -> Result<(), LocalError> {
        if path.is_dir() {
            let tokenizer = path.join("tokenizer.json");
            return if tokenizer.is_file() { Ok(()) } else { Err(LocalError::NoTokenizer(path.to_owned())) };
        }
        let mut magic = Vec::new();
        let read = File::open(path).and_then(|file| file.take(GGUF.len() as u64).read_to_end(&mut magic));
        read.map_err(|source| LocalError::Read { path: path.to_owned(), source })?;
        if magic != GGUF {
            return Err(LocalError::NotWeights(path.to_owned()));
        }
        Gguf::open(path)?;
        Ok(())
    }

    /// Opens a `.gguf` file or a Hugging Face folder.
    ///
    /// # Errors
    /// When weights, tokenizer or ends of a turn cannot be read, or the tokenizer does not fit the net. A chat template
    /// that is missing or broken is an error only when a conversation is asked for.
    pub fn open(path: &Path) -> Result<Self, LocalError> {
        Self::inspect(path)?;
        // The small parts first: a mistake in them is told before gigabytes are read.
        let tokenizer = Tokenizer::open(path)?;
        let template = ChatTemplate::open(path).map_err(|error| error.to_string());
        let ends = EndTokens::open(path, &tokenizer, template.as_ref().ok())?;
        Self::new(Net::load(path)?, tokenizer, template, ends)
    }

    /// Puts a model together. `template` is the reason when there is none.
    ///
    /// # Errors
    /// When the tokenizer does not fit the net.
    pub fn new(
        net: Net,
        tokenizer: Tokenizer,
        template: Result<ChatTemplate, String>,
        ends: EndTokens,
    ) -> Result<Self, LocalError> {
        let tokenizer = Arc::new(tokenizer);
        Self { net: Arc::new(net), tokenizer, template, ends }.checked()
    }

    /// The same model over another net, such as one with [rounded activations](Net::with_rounded_activations).
    ///
    /// # Errors
    /// When the tokenizer does not fit the net.
    pub fn with_net(self, net: Net) -> Result<Self, LocalError> {
        Self { net: Arc::new(net), ..self }.checked()
    }

    fn checked(self) -> Result<Self, LocalError> {
        let (ids, vocabulary) = (self.tokenizer.vocabulary(), self.net.vocabulary());
        if ids > vocabulary {
            return Err(LocalError::TokenizerMisfit { largest: ids - 1, vocabulary });
        }
        Ok(self)
    }

    /// The net.
    pub fn net(&self) -> &Arc<Net> {
        &self.net
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The chat template.
    ///
    /// # Errors
    /// When there is none.
    pub fn template(&self) -> Result<&ChatTemplate, LocalError> {
        self.template.as_ref().map_err(|reason| LocalError::NoTemplate(reason.clone()))
    }

    /// Ids that end an answer.
    pub fn ends(&self) -> &EndTokens {
        &self.ends
    }

    /// Token ids of a conversation, up to where the assistant's answer begins.
    ///
    /// # Errors
    /// When there is no chat template, or it refuses the conversation.
    pub fn prompt(&self, turns: &[Turn<'_>]) -> Result<Vec<u32>, LocalError> {
        Ok(self.template()?.encode(&self.tokenizer, turns, true)?)
    }
}

impl Vocabulary for LocalModel {
    fn bytes_of(&self, id: u32) -> &[u8] {
        self.tokenizer.bytes_of(id)
    }

    fn ends_at(&self, id: u32) -> bool {
        self.ends.ends_at(id)
    }
}

impl Service {
    /// Starts threads that decode with a model.
    ///
    /// # Errors
    /// When there is no memory for the caches, or no threads are to be had.
    pub fn start(model: &Arc<LocalModel>, options: &ServiceOptions) -> Result<Self, LocalError> {
        let vocabulary: Arc<dyn Vocabulary> = Arc::<LocalModel>::clone(model);
        Self::over(model.net(), &vocabulary, options)
    }
}
