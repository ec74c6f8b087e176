//! The second half of a pass: batches are looked at until nothing that this pass wants is under way.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::exchange::Failure;
use super::journal::{self, Opened, Submission};
use super::lines::{Ingest, Tally};
use super::provider::Batch;
use super::requests::Requests;
use super::{BatchNote, Followed, MOST_ROUNDS, Work};
use crate::error::{ErrorClass, ModelError};
use crate::key::CallKey;

/// The provider's word for "too much is under way": passing, unlike its other complaints about a whole batch.
const NO_ROOM: &str = "token_limit_exceeded";

impl Work<'_> {
    /// Waits for all batches with requests of this pass, and sends what is left of them out again.
    pub(super) fn collect(&mut self) -> Result<(), ModelError> {
        let is_elsewhere = |key: &&CallKey| self.others.iter().any(|(_, requests)| requests.contains(key));
        let elsewhere = self.wanted.keys().filter(is_elsewhere).count() as u64;
        if elsewhere > 0 {
            self.note(BatchNote::Elsewhere { requests: elsewhere });
        }
        let interval = Duration::from_secs(u64::from(self.batches.config.poll_seconds.get()));
        loop {
            self.release_unwanted();
            if self.wanted.is_empty() || (self.own.is_empty() && self.others.is_empty()) {
                break;
            }
            self.progress.update(&self.counts);
            self.pause(interval)?;
            self.look_at_own()?;
            self.look_at_others()?;
        }
        for key in self.wanted.keys().copied().collect::<Vec<_>>() {
            self.given_up(key, "no batch with this request is left; run again");
        }
        Ok(())
    }

    /// Lets go of submissions without any request of this pass; they stay on disk for whoever wants them.
    fn release_unwanted(&mut self) {
        let wanted = &self.wanted;
        let is_wanted = |requests: &Requests| requests.keys().any(|key| wanted.contains_key(key));
        self.own.retain(|followed| is_wanted(&followed.submission.requests));
        self.others.retain(|(_, requests)| is_wanted(requests));
    }

    fn look_at_own(&mut self) -> Result<(), ModelError> {
        let mut own = std::mem::take(&mut self.own).into_iter();
        while let Some(followed) = own.next() {
            if let Err(error) = self.look_at(followed, true) {
                self.own.extend(own);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Looks at one batch and takes in what it gave if it is over; it is followed further if not. `again`: whether
    /// what it did not answer goes out anew.
    pub(super) fn look_at(&mut self, mut followed: Followed, again: bool) -> Result<(), ModelError> {
        let (provider, name) = (self.provider.clone(), followed.batch());
        let looked = self.run(async move { provider.look(&name).await });
        let outcome = match looked {
            Ok(Ok(batch)) => {
                self.was_reached = true;
                self.tell_progress(&mut followed, &batch);
                if !batch.is_over() {
                    followed.lost_since = None;
                    self.own.push(followed);
                    return Ok(());
                }
                self.take_in(&followed, &batch)
            }
            Ok(Err(Failure::Missing(message))) => Err(self.provider.failed(
                &followed.batch(),
                &format!(
                    "it is not known there any more ({message}); if it is gone for good, remove `{}` to ask its requests \
                     again",
                    followed.submission.folder.display()
                ),
            )),
            Ok(Err(Failure::Error(error))) | Err(error) => Err(error),
        };
        match outcome {
            Ok((batch, tally)) => self.finish(followed, &batch, tally, again),
            Err(error) => {
                let borne = self.bear(&mut followed, error);
                self.own.push(followed);
                borne
            }
        }
    }

    /// Bears a provider that is out of reach for as long as patience lasts, if it was in reach before: a batch takes
    /// hours, and nothing is lost by waiting.
    fn bear(&self, followed: &mut Followed, error: ModelError) -> Result<(), ModelError> {
        let since = *followed.lost_since.get_or_insert_with(Instant::now);
        let is_passing = error.class() == ErrorClass::Unreachable;
        if !is_passing || !self.was_reached || since.elapsed() >= self.batches.server.timing.patience {
            return Err(error);
        }
        self.oddity(&format!("batch `{}` cannot be looked at now, and is again later: {error}", followed.batch()));
        Ok(())
    }

    fn tell_progress(&self, followed: &mut Followed, batch: &Batch) {
        let now = (batch.status.clone(), batch.counts());
        if followed.told.as_ref() != Some(&now) {
            let counts = now.1;
            let total = if counts.total > 0 { counts.total } else { followed.submission.requests.len() };
            self.note(BatchNote::Progress {
                batch: followed.batch(),
                status: batch.status.clone(),
                completed: counts.completed,
                failed: counts.failed,
                total,
            });
            followed.told = Some(now);
        }
    }

    /// Stores what a batch gave.
    fn take_in(&mut self, followed: &Followed, batch: &Batch) -> Result<(Batch, Tally), ModelError> {
        let provider = self.provider.clone();
        let mut ingest = Ingest::new(&provider, &followed.submission);
        let files: Vec<String> = [&batch.output_file_id, &batch.error_file_id].into_iter().flatten().cloned().collect();
        let (tally, gone) = self.run(async move {
            let mut gone = Vec::new();
            for file in files.iter().filter(|file| !file.is_empty()) {
                match provider.download(file, &mut |text| ingest.take(text)).await {
                    Ok(()) => {}
                    Err(Failure::Missing(message)) => gone.push(format!("file `{file}`: {message}")),
                    Err(Failure::Error(error)) => return Err(error),
                }
            }
            Ok((ingest.finish()?, gone))
        })??;
        for message in gone {
            self.oddity(&format!("a result of batch `{}` is gone, {message}", batch.id));
        }
        if tally.unknown > 0 || tally.unreadable > 0 {
            self.oddity(&format!(
                "the results of batch `{}` hold {} lines for requests that are not in it and {} that are no result; \
                 they are ignored",
                batch.id, tally.unknown, tally.unreadable
            ));
        }
        Ok((batch.clone(), tally))
    }

    /// Is done with a batch whose results are stored.
    fn finish(&mut self, followed: Followed, batch: &Batch, tally: Tally, again: bool) -> Result<(), ModelError> {
        let Followed { mut submission, commitment, .. } = followed;
        self.known.calls.sync()?;
        submission.set_stored().map_err(|error| self.batches.error(error))?;
        drop(commitment);
        let is_open = |key: &&CallKey| !self.known.calls.contains(key);
        let open: Vec<CallKey> = submission.requests.keys().filter(is_open).copied().collect();
        let unsettled = open.len() as u64;
        self.note(BatchNote::Ended {
            batch: batch.id.clone(),
            status: batch.status.clone(),
            settled: submission.requests.len() - unsettled,
            unsettled,
        });
        let files = [&submission.file, &batch.output_file_id, &batch.error_file_id];
        for file in files.into_iter().flatten().filter(|file| !file.is_empty()).cloned().collect::<Vec<_>>() {
            self.delete(&file)?;
        }
        let rest: Vec<CallKey> = open.into_iter().filter(|key| self.wanted.contains_key(key)).collect();
        let outcome = self.consequence(batch, tally, &submission, rest, again);
        submission.remove().map_err(|error| self.batches.error(error))?;
        outcome
    }

    /// What follows from a batch that has ended: an error, a further batch, or requests given up.
    fn consequence(
        &mut self,
        batch: &Batch,
        tally: Tally,
        submission: &Submission,
        rest: Vec<CallKey>,
        again: bool,
    ) -> Result<(), ModelError> {
        let complaint = if batch.status == "failed" { batch.error() } else { None };
        let stop = match &complaint {
            Some((code, message)) if code != NO_ROOM => {
                Some(self.provider.failed(&batch.id, &format!("the provider did not take it: {message} ({code})")))
            }
            _ => tally.stop,
        };
        if let Some(error) = stop {
            if again {
                return Err(error);
            }
            // It stems from an earlier run; what was wrong may be set right by now.
            self.oddity(&format!("a batch of an earlier run ended badly: {error}"));
        }
        if rest.is_empty() || !again {
            return Ok(());
        }
        if complaint.is_some() || submission.header.round + 1 >= MOST_ROUNDS {
            let ended =
                complaint.map_or_else(|| format!("its batch ended as {}", batch.status), |(_, message)| message);
            for key in rest {
                let message = tally.failed.get(&key).unwrap_or(&ended).clone();
                self.given_up(key, &message);
            }
            return Ok(());
        }
        self.submit_again(submission, &rest)
    }

    /// Sends the rest of a batch out in a further one.
    fn submit_again(&mut self, submission: &Submission, rest: &[CallKey]) -> Result<(), ModelError> {
        self.note(BatchNote::Again { requests: rest.len() as u64 });
        let _lock = self.lock_folder()?;
        let mut filling = self.filling(submission.header.round + 1, &submission.header.stage);
        for key in rest {
            if let Some(request) = submission.requests.get(key).map_err(|error| self.batches.error(error))?
                && !self.add(&mut filling, *key, &request)?
            {
                break;
            }
        }
        self.submit(filling)
    }

    /// Deletes a file at the provider; that it cannot be is only told.
    pub(super) fn delete(&mut self, file: &str) -> Result<(), ModelError> {
        let (provider, name) = (self.provider.clone(), file.to_owned());
        if let Err(message) = self.run(async move { provider.delete(&name).await })? {
            self.oddity(&format!("file `{file}` stays at the provider: {message}"));
        }
        Ok(())
    }

    fn look_at_others(&mut self) -> Result<(), ModelError> {
        for (folder, requests) in std::mem::take(&mut self.others) {
            match Submission::open(&folder).map_err(|error| ModelError::store(&folder, error))? {
                Opened::Busy => self.others.push((folder, requests)),
                Opened::Gone => self.look_for(&requests)?,
                // Whoever followed it was stopped.
                Opened::Here(submission) => {
                    self.go_on(*submission)?;
                    self.look_for(&requests)?;
                }
            }
        }
        Ok(())
    }

    /// Finds what became of requests that somebody else's batch held: answered, or in a further batch, or neither.
    fn look_for(&mut self, requests: &Requests) -> Result<(), ModelError> {
        self.known.calls.refresh()?;
        let keys: Vec<CallKey> = requests.keys().filter(|key| self.wanted.contains_key(key)).copied().collect();
        let mut open = Vec::new();
        for key in keys {
            match self.known.calls.verified(&key)? {
                Some(kind) => self.settled(key, false, kind),
                None => open.push(key),
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        self.take_up_new()?;
        for key in open {
            if !self.is_under_way(&key) {
                self.given_up(key, "the batch of another stage or process ended without an answer; run again");
            }
        }
        Ok(())
    }

    /// Looks for submissions that were made since the pass began.
    fn take_up_new(&mut self) -> Result<(), ModelError> {
        let _lock = self.lock_folder()?;
        let followed = self.own.iter().map(|followed| &followed.submission.folder);
        let seen: Vec<PathBuf> = followed.chain(self.others.iter().map(|(folder, _)| folder)).cloned().collect();
        for folder in journal::submissions(&self.batches.folder).map_err(|error| self.batches.error(error))? {
            if seen.contains(&folder) {
                continue;
            }
            match Submission::open(&folder).map_err(|error| ModelError::store(&folder, error))? {
                Opened::Gone => {}
                Opened::Busy => self.note_busy(folder)?,
                Opened::Here(submission) => self.go_on(*submission)?,
            }
        }
        Ok(())
    }
}
