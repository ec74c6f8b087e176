//! A local model as the engine `local` sees it: it writes answers and scores given ones.

use std::path::Path;
use std::sync::Arc;

use pipeline_models::{CallKey, Desk, Generation, Message, Request, Score, ScoreRequest, Weights, WeightsError};
use stage_tokens::{Response, Turn};

use crate::decode::{Draw, End, Job, Listener, Piece, ScoreJob, ScoreListener, Service, ServiceOptions};
use crate::desk::{self, Reporter};
use crate::local::{LocalError, LocalModel};

/// Scores taken and not told: enough that those of one query meet and share its prompt.
const SCORE_WINDOW: usize = 64;

/// A model with its decoding threads.
pub struct LocalWeights {
    model: Arc<LocalModel>,
    service: Service,
}

impl LocalWeights {
    /// Opens a `.gguf` file or a Hugging Face folder and starts its threads.
    ///
    /// # Errors
    /// When the model cannot be opened, or there is no memory for the cache.
    pub fn open(path: &Path, options: &ServiceOptions) -> Result<Self, LocalError> {
        Self::new(Arc::new(LocalModel::open(path)?), options)
    }

    /// Starts threads for a model that is open.
    ///
    /// # Errors
    /// When there is no memory for the cache, or no threads are to be had.
    pub fn new(model: Arc<LocalModel>, options: &ServiceOptions) -> Result<Self, LocalError> {
        Ok(Self { service: Service::start(&model, options)?, model })
    }

    /// The model.
    pub fn model(&self) -> &Arc<LocalModel> {
        &self.model
    }

    fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, End> {
        let mut turns = Vec::new();
        for Message { role, content, tool_calls } in messages {
            turns.push(Turn { role, content, tool_calls: tool_calls.as_deref() });
        }
        self.model.prompt(&turns).map_err(|error| match error {
            LocalError::Tokens(error) => End::refused("template_refused", error.to_string()),
            other => End::failed(other.to_string()),
        })
    }

    fn submit(&self, key: CallKey, request: Request, reporter: Reporter<Generation>) {
        let prompt = match self.prompt(&request.messages) {
            Ok(prompt) => prompt,
            Err(end) => return reporter.tell(Err(end)),
        };
        let draw = draw_of(key, request);
        let generation = Generation {
            text: String::new(),
            is_complete: false,
            prompt_tokens: u32::try_from(prompt.len()).unwrap_or(u32::MAX),
            token_ids: Vec::new(),
            token_logprobs: draw.top_logprobs.map(|_| Vec::new()),
            tokenizer: self.model.tokenizer().digest().to_owned(),
            template: self.model.template().map(|template| template.digest().to_owned()).unwrap_or_default(),
        };
        let listener = Box::new(Recorder { generation, reporter });
        self.service.submit(Job { prompt, draw, listener });
    }

    fn submit_score(&self, request: &ScoreRequest, reporter: Reporter<Score>) {
        match self.prompt(&request.messages) {
            Ok(prompt) => {
                let (from, ids) = (prompt.len(), self.with_response(prompt, request));
                self.service.submit_score(ScoreJob { ids, from, listener: Box::new(ScoreRecorder(reporter)) });
            }
            Err(end) => reporter.tell(Err(end)),
        }
    }

    /// Prompt and response, the end of the turn behind a complete one.
    fn with_response(&self, mut ids: Vec<u32>, request: &ScoreRequest) -> Vec<u32> {
        let response = Response {
            text: &request.response,
            is_complete: request.is_complete,
            token_ids: request.token_ids.as_deref(),
            tokenizer: request.tokenizer.as_deref(),
        };
        ids.extend(response.ids(self.model.tokenizer(), self.model.ends()));
        ids
    }
}

impl Weights for LocalWeights {
    fn generate(&self, desk: &dyn Desk<Request, Generation>) -> Result<(), WeightsError> {
        let most = 2 * self.service.slots();
        desk::serve(desk, most, &|key, request, reporter| self.submit(key, request, reporter))
    }

    fn score(&self, desk: &dyn Desk<ScoreRequest, Score>) -> Result<(), WeightsError> {
        let most = SCORE_WINDOW.max(4 * self.service.slots());
        desk::serve(desk, most, &|_, request, reporter| self.submit_score(&request, reporter))
    }
}

/// How a request is drawn. Without a seed, its key is one: the hash of everything that decides the answer.
fn draw_of(key: CallKey, request: Request) -> Draw {
    let sampling = request.sampling;
    let [a, b, c, d, e, f, g, h, ..] = key.0;
    Draw {
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: sampling.top_k.unwrap_or(0),
        min_p: sampling.min_p.unwrap_or(0.0),
        max_tokens: sampling.max_tokens,
        stop: sampling.stop,
        seed: sampling.seed.unwrap_or(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        top_logprobs: sampling.logprobs.then_some(0),
    }
}

/// Puts an answer together.
struct Recorder {
    generation: Generation,
    reporter: Reporter<Generation>,
}

impl Listener for Recorder {
    fn piece(&mut self, piece: &Piece<'_>) -> bool {
        let generation = &mut self.generation;
        generation.text.push_str(piece.text);
        for token in piece.tokens {
            generation.token_ids.push(token.id);
            if let Some(logprobs) = &mut generation.token_logprobs {
                logprobs.extend(token.logprob);
            }
        }
        self.reporter.is_wanted()
    }

    fn end(&mut self, end: End) {
        self.generation.is_complete = end == End::Complete;
        self.reporter.tell(match end {
            End::Complete | End::Cut => Ok(self.generation.clone()),
            other => Err(other),
        });
    }

    fn is_wanted(&self) -> bool {
        self.reporter.is_wanted()
    }
}

struct ScoreRecorder(Reporter<Score>);

impl ScoreListener for ScoreRecorder {
    fn end(self: Box<Self>, outcome: Result<Vec<f32>, End>) {
        let score = |log_probs: Vec<f32>| Score {
            log_prob: log_probs.iter().map(|log_prob| f64::from(*log_prob)).sum(),
            tokens: u32::try_from(log_probs.len()).unwrap_or(u32::MAX),
        };
        self.0.tell(outcome.map(score));
    }

    fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }
}

#[cfg(test)]
mod tests;
