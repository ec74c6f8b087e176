//! What was asked of models and what came of it, for a person who tries a stage out.
//!
//! `pipeline try` registers a list as a service; every kind that gets its models by [`crate::calls::model`] then fills
//! it, in the order in which it reads answers, without knowing.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use pipeline_models::{Ensured, Model, ModelError, ModelId, Progress, Recorded, Request, Score, ScoreRequest};

/// One request and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Identity of the model.
    pub model: String,
    /// What was asked.
    pub request: Request,
    /// What came of it.
    pub recorded: Recorded,
}

/// Requests whose answers were read, each once, in order.
#[derive(Debug, Default)]
pub struct Exchanges(Mutex<Vec<Exchange>>);

impl Exchanges {
    /// What was read so far; the list is empty afterwards.
    pub fn taken(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an exchange, or takes the later outcome of one that is there.
    fn add(&self, exchange: Exchange) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|one| one.model == exchange.model && one.request == exchange.request) {
            Some(known) => known.recorded = exchange.recorded,
            None => all.push(exchange),
        }
    }
}

/// A model whose answers are noted as they are read.
pub struct Watched {
    inner: Arc<dyn Model>,
    exchanges: Arc<Exchanges>,
}

impl Watched {
    /// Watches a model.
    pub fn new(inner: Arc<dyn Model>, exchanges: Arc<Exchanges>) -> Self {
        Self { inner, exchanges }
    }
}

impl Model for Watched {
    fn id(&self) -> &ModelId {
        self.inner.id()
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.inner.ensure(requests, progress, cancel)
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        let recorded = self.inner.answer(request)?;
        let model = self.inner.id().to_string();
        self.exchanges.add(Exchange { model, request: request.clone(), recorded: recorded.clone() });
        Ok(recorded)
    }

    fn ensure_scores(
        &self,
        requests: &mut dyn Iterator<Item = ScoreRequest>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.inner.ensure_scores(requests, progress, cancel)
    }

    fn score_of(&self, request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        self.inner.score_of(request)
    }
}

#[cfg(test)]
mod tests {
    use pipeline_models::{Message, Sampling};

    use super::*;

    #[test]
    fn a_request_that_is_read_again_is_noted_once_with_its_last_outcome() {
        let request = |text: &str| Request::new(vec![Message::new("user", text)], Sampling::full(0.0, 8), 0);
        let error = Recorded::RowError { code: "refused".to_owned(), message: String::new() };
        let exchanges = Exchanges::default();
        for (text, recorded) in [("a", Recorded::Missing), ("b", Recorded::Missing), ("a", error.clone())] {
            exchanges.add(Exchange { model: "m".to_owned(), request: request(text), recorded });
        }
        let taken = exchanges.taken();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].recorded, error);
        assert!(exchanges.taken().is_empty());
    }
}
