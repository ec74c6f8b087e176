//! A model on disk as the engine behind the protocol.

use std::path::Path;
use std::sync::Arc;

use stage_candle::LocalModel;
use stage_candle::decode::{Job, Service, ServiceOptions, Vocabulary as _};
use stage_tokens::Turn;

use crate::engine::Engine;
use crate::error::ServeError;

/// Digits of the weights' digest in `system_fingerprint`.
const DIGITS: usize = 12;

/// A `.gguf` file or a Hugging Face folder with the threads that decode it.
pub struct Local {
    model: Arc<LocalModel>,
    service: Service,
    fingerprint: String,
}

impl Local {
    /// Opens a model. `digest` is that of its weights, `sha256:` and digits.
    ///
    /// # Errors
    /// When the model cannot be opened, or there is no memory for the cache.
    pub fn open(path: &Path, digest: &str, options: &ServiceOptions) -> Result<Self, ServeError> {
        let open_error = |error: stage_candle::LocalError| ServeError::Open {
            model: path.display().to_string(),
            message: error.to_string(),
        };
        let model = Arc::new(LocalModel::open(path).map_err(open_error)?);
        let service = Service::start(&model, options).map_err(open_error)?;
        let digits: String = digest.trim_start_matches("sha256:").chars().take(DIGITS).collect();
        Ok(Self { model, service, fingerprint: format!("{digits}_f32") })
    }
}

impl Engine for Local {
    fn context(&self) -> usize {
        self.service.context()
    }

    fn vocabulary(&self) -> usize {
        self.model.tokenizer().vocabulary()
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn chat(&self, turns: &[Turn<'_>]) -> Result<Vec<u32>, ServeError> {
        self.model.prompt(turns).map_err(|error| ServeError::Prompt(error.to_string()))
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        self.model.tokenizer().encode(text)
    }

    fn bytes_of(&self, token: u32) -> &[u8] {
        self.model.bytes_of(token)
    }

    fn submit(&self, job: Job) {
        self.service.submit(job);
    }
}
