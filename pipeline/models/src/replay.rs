//! The engine that never asks: answers from the call store and from recordings only.
//!
//! Also what an `openai` model is while the program runs offline. All missing answers of a pass are
//! counted before it fails, so that one run tells how much is to be recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::answer::parse_answer;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::model::{Ensured, Model, Progress, Recorded};
use crate::recordings::Recordings;
use crate::request::{ModelId, Request};
use crate::store::{CallStore, Kind, Reply};

const UPDATE_EVERY: u64 = 256;

pub(crate) struct Replay {
    known: Known,
}

/// What is known of one model without asking.
pub(crate) struct Known {
    pub(crate) id: ModelId,
    pub(crate) calls: Arc<CallStore>,
    pub(crate) recordings: Recordings,
}

/// Where a known answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Store(Kind),
    Recordings,
}

impl Known {
    /// Where the answer to a request is, if it is known and readable.
    pub(crate) fn find(&self, key: &CallKey, request: &Request) -> Result<Option<Source>, ModelError> {
        if let Some(kind) = self.calls.verified(key)? {
            return Ok(Some(Source::Store(kind)));
        }
        Ok(self.recordings.contains(request).then_some(Source::Recordings))
    }

    pub(crate) fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        let Some(call) = self.calls.get(&CallKey::of(&self.id, request))? else {
            return self.recordings.get(request);
        };
        Ok(match call.reply {
            Reply::RowError { code, message } => Recorded::RowError { code, message },
            Reply::Answer(raw) => match parse_answer(&raw) {
                Ok(answer) => Recorded::Answer(answer),
                // It was readable when it came: a stricter parser must not make the run ask again.
                Err(error) => Recorded::RowError { code: "answer_unparsable".to_owned(), message: error.to_string() },
            },
        })
    }
}

impl Source {
    /// Counts a known answer.
    pub(crate) fn count(self, counts: &mut Ensured) {
        match self {
            Self::Store(kind) => {
                counts.from_store += 1;
                counts.row_errors += u64::from(kind == Kind::RowError);
            }
            Self::Recordings => counts.from_recordings += 1,
        }
    }
}

impl Replay {
    pub(crate) fn new(id: ModelId, calls: Arc<CallStore>, recordings: Recordings) -> Self {
        Self { known: Known { id, calls, recordings } }
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
        self.known.calls.refresh()?;
        let mut counts = Ensured::default();
        let mut missing = 0;
        let mut first = None;
        for request in requests {
            if cancel.load(Ordering::Relaxed) {
                return Err(ModelError::Cancelled);
            }
            let key = CallKey::of(&self.known.id, &request);
            if let Some(source) = self.known.find(&key, &request)? {
                source.count(&mut counts);
            } else {
                missing += 1;
                first.get_or_insert_with(|| describe(&key, &request));
            }
            if (counts.seen() + missing).is_multiple_of(UPDATE_EVERY) {
                progress.update(&counts);
            }
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

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        self.known.answer(request)
    }
}

/// One request in a line: sample, beginning of the last message, sampling, key.
fn describe(key: &CallKey, request: &Request) -> String {
    const SHOWN: usize = 80;
    let text = request.messages.last().map(|message| message.content.as_str()).unwrap_or_default();
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    let sampling = &request.sampling;
    format!(
        "sample {} of {shown:?} (temperature {}, top_p {}, max_tokens {}), key {key}",
        request.sample, sampling.temperature, sampling.top_p, sampling.max_tokens
    )
}
