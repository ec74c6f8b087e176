//! The engine that never asks: answers and scores from the call store and from recordings only.
//!
//! Also what every other engine is while the program runs offline. All missing answers of a pass are
//! counted before it fails, so that one run tells how much is to be recorded.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::ModelError;
use crate::known::{Known, Question};
use crate::model::{Ensured, Model, Progress, Recorded};
use crate::recordings::Recordings;
use crate::request::{ModelId, Request, ScoreRequest};
use crate::store::CallStore;
use crate::weights::Score;

pub(crate) struct Replay {
    known: Known,
}

impl Replay {
    pub(crate) fn new(id: ModelId, calls: Arc<CallStore>, recordings: Recordings) -> Self {
        Self { known: Known { id, calls, recordings } }
    }

    fn look<Q: Question>(
        &self,
        requests: &mut dyn Iterator<Item = Q>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.known.calls.refresh()?;
        let mut counts = Ensured::default();
        let mut missing = 0;
        let mut first = None;
        while let Some((key, request)) = self.known.next_missing(requests, &mut counts, progress, cancel)? {
            missing += 1;
            first.get_or_insert_with(|| format!("{}, key {key}", request.describe()));
        }
        progress.update(&counts);
        match first {
            None => Ok(counts),
            Some(first) => Err(ModelError::NotRecorded {
                model: self.known.id.to_string(),
                count: missing,
                first,
                hint: self.known.recordings.hint(),
            }),
        }
    }
}

impl Model for Replay {
    fn id(&self) -> &ModelId {
        &self.known.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.look(requests, progress, cancel)
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        self.known.answer(request)
    }

    fn answers(&self, requests: &[Request]) -> Result<Vec<Recorded>, ModelError> {
        self.known.answers(requests)
    }

    fn ensure_scores(
        &self,
        requests: &mut dyn Iterator<Item = ScoreRequest>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.look(requests, progress, cancel)
    }

    fn score_of(&self, request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        self.known.answer(request)
    }
}
