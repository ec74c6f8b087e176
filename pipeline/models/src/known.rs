//! What is known of one model without asking: the call store first, then the recordings.
//!
//! Requests for an answer and for a score are looked up the same way. Every engine reads its requests through
//! [`Known::next_missing`] and differs only in what it does about those that come out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::answer::{Answer, parse_answer};
use crate::error::ModelError;
use crate::key::{CallKey, KeysInRow};
use crate::model::{Ensured, Progress, Recorded};
use crate::recordings::Recordings;
use crate::request::{Asked, ModelId, Request, ScoreRequest};
use crate::store::{CallStore, Kind, Reply};
use crate::weights::Score;

/// Known requests in a row after which the counts are told.
const UPDATE_EVERY: u64 = 256;

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

/// A request that can be stored and recorded.
pub(crate) trait Question: Clone {
    /// What a model gives for it.
    type Answer;

    fn key(&self, model: &ModelId) -> CallKey;

    /// The same key, for requests that come one after the other.
    fn key_in_row(&self, model: &ModelId, _keys: &mut KeysInRow, _before: Option<&Self>) -> CallKey {
        self.key(model)
    }

    fn is_recorded(&self, recordings: &Recordings) -> bool;

    fn recording(&self, recordings: &Recordings) -> Result<Recorded<Self::Answer>, ModelError>;

    /// What a stored reply says.
    fn read(reply: Reply) -> Recorded<Self::Answer>;

    /// As the call store holds it.
    fn asked(&self) -> Asked;

    /// The request in a line.
    fn describe(&self) -> String;
}

impl Known {
    /// Reads requests up to the next one that nothing answers, and counts the others; `None` when there are no more.
    ///
    /// # Errors
    /// [`ModelError::Cancelled`], or a store that cannot be read.
    pub(crate) fn next_missing<Q: Question>(
        &self,
        requests: &mut dyn Iterator<Item = Q>,
        counts: &mut Ensured,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Option<(CallKey, Q)>, ModelError> {
        let (mut keys, mut before) = (KeysInRow::default(), None);
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(ModelError::Cancelled);
            }
            let Some(request) = requests.next() else {
                return Ok(None);
            };
            let key = request.key_in_row(&self.id, &mut keys, before.as_ref());
            let Some(source) = self.find(&key, &request)? else {
                return Ok(Some((key, request)));
            };
            source.count(counts);
            if counts.seen().is_multiple_of(UPDATE_EVERY) {
                progress.update(counts);
            }
            before = Some(request);
        }
    }

    /// Where the answer to a request is, if it is known and readable.
    fn find<Q: Question>(&self, key: &CallKey, request: &Q) -> Result<Option<Source>, ModelError> {
        if let Some(kind) = self.calls.verified(key)? {
            return Ok(Some(Source::Store(kind)));
        }
        Ok(request.is_recorded(&self.recordings).then_some(Source::Recordings))
    }

    /// What is known about many requests, in their order.
    pub(crate) fn answers<Q: Question>(&self, requests: &[Q]) -> Result<Vec<Recorded<Q::Answer>>, ModelError> {
        let (mut in_row, mut before) = (KeysInRow::default(), None);
        let keys: Vec<CallKey> =
            requests.iter().map(|request| request.key_in_row(&self.id, &mut in_row, before.replace(request))).collect();
        let replies = self.calls.replies(&keys)?.into_iter();
        let read = |(reply, request): (Option<Reply>, &Q)| match reply {
            Some(reply) => Ok(Q::read(reply)),
            None => request.recording(&self.recordings),
        };
        replies.zip(requests).map(read).collect()
    }

    /// What is known about one request.
    pub(crate) fn answer<Q: Question>(&self, request: &Q) -> Result<Recorded<Q::Answer>, ModelError> {
        match self.calls.reply(&request.key(&self.id))? {
            Some(reply) => Ok(Q::read(reply)),
            None => request.recording(&self.recordings),
        }
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

impl Question for Request {
    type Answer = Answer;

    fn key(&self, model: &ModelId) -> CallKey {
        CallKey::of(model, self)
    }

    fn key_in_row(&self, model: &ModelId, keys: &mut KeysInRow, before: Option<&Self>) -> CallKey {
        keys.of(model, self, before)
    }

    fn is_recorded(&self, recordings: &Recordings) -> bool {
        recordings.contains(self)
    }

    fn recording(&self, recordings: &Recordings) -> Result<Recorded, ModelError> {
        recordings.get(self)
    }

    fn read(reply: Reply) -> Recorded {
        match reply {
            Reply::RowError { code, message } => Recorded::RowError { code, message },
            Reply::Answer(raw) => match parse_answer(&raw) {
                Ok(answer) => Recorded::Answer(answer),
                // It was readable when it came: a stricter parser must not make the run ask again.
                Err(error) => Recorded::RowError { code: "answer_unparsable".to_owned(), message: error.to_string() },
            },
            // Keys of scores and answers never agree.
            Reply::Score(_) => Recorded::Missing,
        }
    }

    fn asked(&self) -> Asked {
        Asked::Answer(self.clone())
    }

    fn describe(&self) -> String {
        let text = self.messages.last().map(|message| message.content.as_str()).unwrap_or_default();
        let sampling = &self.sampling;
        format!(
            "sample {} of {} (temperature {}, top_p {}, max_tokens {})",
            self.sample,
            beginning(text),
            sampling.temperature,
            sampling.top_p,
            sampling.max_tokens
        )
    }
}

impl Question for ScoreRequest {
    type Answer = Score;

    fn key(&self, model: &ModelId) -> CallKey {
        CallKey::of_score(model, self)
    }

    fn is_recorded(&self, recordings: &Recordings) -> bool {
        recordings.contains_score(self)
    }

    fn recording(&self, recordings: &Recordings) -> Result<Recorded<Score>, ModelError> {
        recordings.get_score(self)
    }

    fn read(reply: Reply) -> Recorded<Score> {
        match reply {
            Reply::RowError { code, message } => Recorded::RowError { code, message },
            Reply::Score(score) => Recorded::Answer(score),
            Reply::Answer(_) => Recorded::Missing,
        }
    }

    fn asked(&self) -> Asked {
        Asked::Score(self.clone())
    }

    fn describe(&self) -> String {
        let text = self.messages.last().map(|message| message.content.as_str()).unwrap_or_default();
        format!("score of {} after {}", beginning(&self.response), beginning(text))
    }
}

/// The beginning of a text, quoted.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("{shown:?}")
}
