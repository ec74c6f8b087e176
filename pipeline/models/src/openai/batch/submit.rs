//! The first half of a pass: batches that are under way are taken up, and what nothing answers goes out.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::journal::{self, Draft, Opened, Submission};
use super::requests::Requests;
use super::{BatchNote, Followed, Work, input};
use crate::budget::Commitment;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::openai::keep::estimated_prompt;
use crate::request::{Asked, Request};
use crate::store::{Reply, StoredCall, now_ms};

/// Most bytes of one input file; the least of what providers allow.
const MOST_BYTES: u64 = 100_000_000;

/// Requests on their way into a batch.
pub(super) struct Filling {
    draft: Option<Draft>,
    bytes: u64,
    commitment: Commitment,
    /// How often these requests went out before.
    round: u32,
    /// Stage that asked first.
    stage: String,
}

impl Work<'_> {
    /// Takes up what is under way, then reads all requests and submits those that neither the call store nor a batch
    /// has.
    pub(super) fn submit_missing(&mut self, requests: &mut dyn Iterator<Item = Request>) -> Result<(), ModelError> {
        let mut first = None;
        if !self.batches.folder.is_dir() {
            // Nothing is under way: where nothing is missing, nothing is locked or written.
            first = self.known.next_missing(requests, &mut self.counts, self.progress, self.cancel)?;
            if first.is_none() {
                return Ok(());
            }
        }
        let _lock = self.lock_folder()?;
        self.take_up()?;
        self.known.calls.refresh()?;
        let mut filling = self.filling(0, self.progress.stage());
        loop {
            let next = match first.take() {
                Some(next) => Some(next),
                None => self.known.next_missing(requests, &mut self.counts, self.progress, self.cancel)?,
            };
            let Some((key, request)) = next else { break };
            if let Some(times) = self.wanted.get_mut(&key) {
                *times += 1;
            } else if self.is_under_way(&key) {
                self.wanted.insert(key, 1);
            } else if !self.add(&mut filling, key, &request)? {
                break;
            }
        }
        self.submit(filling)
    }

    pub(super) fn filling(&self, round: u32, stage: &str) -> Filling {
        let commitment = Commitment::new(&self.batches.server.budget);
        Filling { draft: None, bytes: 0, commitment, round, stage: stage.to_owned() }
    }

    /// Puts one request into the next batch, which goes out when it is full; `false` when the budget has no room.
    pub(super) fn add(&mut self, filling: &mut Filling, key: CallKey, request: &Request) -> Result<bool, ModelError> {
        let length = match self.batches.body(request) {
            Ok(body) => input::line_length(&body) as u64,
            Err(message) => {
                self.refuse(key, request, "bad_request", &message)?;
                return Ok(true);
            }
        };
        if length > MOST_BYTES {
            let message = format!("its {length} bytes are more than the {MOST_BYTES} of a batch's file");
            self.refuse(key, request, "request_too_large", &message)?;
            return Ok(true);
        }
        let most = self.batches.config.requests.get() as usize;
        let is_full =
            filling.bytes + length > MOST_BYTES || filling.draft.as_ref().is_some_and(|draft| draft.len() >= most);
        if is_full {
            let next = self.filling(filling.round, &filling.stage);
            self.submit(std::mem::replace(filling, next))?;
        }
        let tokens = estimated_prompt(request);
        let server = &self.batches.server;
        let money = server.price.as_ref().map_or(0.0, |price| price.cost(tokens, 0, 0));
        if let Err(error) = filling.commitment.extend(tokens, money) {
            self.ending.get_or_insert(error);
            return Ok(false);
        }
        let draft = match &mut filling.draft {
            Some(draft) => draft,
            none => none.insert(Draft::begin(&self.batches.folder).map_err(|error| self.batches.error(error))?),
        };
        draft.push(key, request).map_err(|error| self.batches.error(error))?;
        filling.bytes += length;
        self.wanted.entry(key).or_insert(1);
        Ok(true)
    }

    /// Sends what has been put together, if anything.
    pub(super) fn submit(&mut self, filling: Filling) -> Result<(), ModelError> {
        let Some(draft) = filling.draft else {
            return Ok(());
        };
        let sealed = draft.seal(&self.batches.address, &filling.stage, filling.round);
        let submission = sealed.map_err(|error| self.batches.error(error))?;
        self.send(submission, Some(filling.commitment))
    }

    /// Uploads a submission and has a batch made of it.
    fn send(&mut self, mut submission: Submission, commitment: Option<Commitment>) -> Result<(), ModelError> {
        let path = submission.upload_path();
        let length = input::write(&path, &submission.id, &submission.requests, |request| self.batches.body(request))
            .map_err(|error| self.batches.error(error))?;
        let (provider, upload, id) = (self.provider.clone(), path.clone(), submission.id.clone());
        let file = self.run(async move { provider.upload(&upload, length, &id).await })??;
        submission.set_uploaded(&file).map_err(|error| self.batches.error(error))?;
        fs::remove_file(&path).map_err(|error| self.batches.error(error))?;
        self.create(submission, commitment, &file)
    }

    fn create(
        &mut self,
        mut submission: Submission,
        commitment: Option<Commitment>,
        file: &str,
    ) -> Result<(), ModelError> {
        let (provider, file, id) = (self.provider.clone(), file.to_owned(), submission.id.clone());
        let window = self.batches.config.window.clone();
        let batch = self.run(async move { provider.create(&file, &window, &id).await })??;
        submission.set_created(&batch.id).map_err(|error| self.batches.error(error))?;
        self.was_reached = true;
        self.note(BatchNote::Submitted { batch: batch.id, requests: submission.requests.len() });
        self.own.push(Followed::new(submission, commitment));
        Ok(())
    }

    /// Goes on with a submission that its pass has left, from wherever that was.
    pub(super) fn go_on(&mut self, submission: Submission) -> Result<(), ModelError> {
        match (&submission.batch, submission.file.clone()) {
            _ if submission.is_stored => submission.remove().map_err(|error| self.batches.error(error)),
            _ if submission.header.server != self.batches.address => Ok(()),
            (Some(_), _) => {
                self.own.push(Followed::new(submission, None));
                Ok(())
            }
            (None, None) => self.send(submission, None),
            (None, Some(file)) => match self.found(submission, &file)? {
                Ok(followed) => {
                    self.own.push(followed);
                    Ok(())
                }
                Err(submission) => self.create(submission, None, &file),
            },
        }
    }

    /// Looks for the batch whose name was not learned; without one the submission comes back.
    fn found(&mut self, mut submission: Submission, file: &str) -> Result<Result<Followed, Submission>, ModelError> {
        let (provider, name, id) = (self.provider.clone(), file.to_owned(), submission.id.clone());
        let Some(batch) = self.run(async move { provider.find(&name, &id).await })?? else {
            return Ok(Err(submission));
        };
        submission.set_created(&batch.id).map_err(|error| self.batches.error(error))?;
        Ok(Ok(Followed::new(submission, None)))
    }

    /// Looks at every submission on disk: what is over is stored, what runs is followed, and what was never sent is
    /// dropped, since its requests come again if they are still wanted.
    fn take_up(&mut self) -> Result<(), ModelError> {
        for folder in journal::submissions(&self.batches.folder).map_err(|error| self.batches.error(error))? {
            match Submission::open(&folder).map_err(|error| ModelError::store(&folder, error))? {
                Opened::Gone => {}
                Opened::Busy => self.note_busy(folder)?,
                Opened::Here(submission) => self.take_up_one(*submission)?,
            }
        }
        Ok(())
    }

    /// Remembers the requests of a submission that somebody else follows.
    pub(super) fn note_busy(&mut self, folder: PathBuf) -> Result<(), ModelError> {
        match Requests::open(&folder) {
            Ok(requests) => self.others.push((folder, requests)),
            // It has just been done with; its answers are in the store.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ModelError::store(folder, error)),
        }
        Ok(())
    }

    fn take_up_one(&mut self, submission: Submission) -> Result<(), ModelError> {
        if submission.header.server != self.batches.address {
            self.oddity(&format!(
                "a batch of this model was submitted to {} and is left alone; set `base_url` back to fetch its answers",
                submission.header.server
            ));
            return Ok(());
        }
        let followed = match (&submission.batch, submission.file.clone()) {
            _ if submission.is_stored => return submission.remove().map_err(|error| self.batches.error(error)),
            (None, None) => return submission.remove().map_err(|error| self.batches.error(error)),
            (Some(_), _) => Followed::new(submission, None),
            (None, Some(file)) => match self.found(submission, &file)? {
                Ok(followed) => followed,
                Err(submission) => {
                    self.delete(&file)?;
                    return submission.remove().map_err(|error| self.batches.error(error));
                }
            },
        };
        self.note(BatchNote::TakenUp { batch: followed.batch(), requests: followed.submission.requests.len() });
        self.look_at(followed, false)
    }

    /// Whether a request is in a batch already.
    pub(super) fn is_under_way(&self, key: &CallKey) -> bool {
        self.own.iter().any(|followed| followed.submission.requests.contains(key))
            || self.others.iter().any(|(_, requests)| requests.contains(key))
    }

    /// Stores that a request can never be sent.
    fn refuse(&mut self, key: CallKey, request: &Request, code: &str, message: &str) -> Result<(), ModelError> {
        let server = &self.batches.server;
        let call = StoredCall {
            model: server.id.clone(),
            request: Asked::Answer(request.clone()),
            reply: Reply::RowError { code: code.to_owned(), message: message.to_owned() },
            stage: self.progress.stage().to_owned(),
            host: server.host.clone(),
            time_ms: now_ms(),
            latency_ms: 0,
        };
        server.calls.append(&key, &call)?;
        self.counts.asked += 1;
        self.counts.row_errors += 1;
        Ok(())
    }
}
