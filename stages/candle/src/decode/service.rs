//! Threads that decode: each has its own slots, its own pages and its own part of the cache, and takes jobs from one queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::decode::batch::Batch;
use crate::decode::job::{Draw, End, Job, ServiceOptions};
use crate::decode::memory::pages_for;
use crate::decode::queue::Queue;
use crate::decode::sequence::{Answer, ScoreListener, Scoring, Sequence, Task, hash_of};
use crate::local::LocalError;
use crate::{Forward, NetError, PAGE};

/// What decoding needs of a tokenizer.
pub trait Vocabulary: Send + Sync {
    /// Bytes of a token; empty for control tokens and unknown ids.
    fn bytes_of(&self, id: u32) -> &[u8];

    /// Whether the token ends an answer.
    fn ends_at(&self, id: u32) -> bool;
}

/// Given tokens to be scored.
pub struct ScoreJob {
    /// Prompt and text.
    pub ids: Vec<u32>,
    /// Index of the text's first token; at least 1 and below the number of ids.
    pub from: usize,
    /// Whom to tell.
    pub listener: Box<dyn ScoreListener>,
}

/// Decodes jobs, which may come at any time. Dropped, it gives up what is not finished and waits for its threads.
pub struct Service {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    limits: Limits,
    slots: usize,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    vocabulary: usize,
    context: usize,
    pages: usize,
    page_bytes: usize,
}

impl Service {
    /// Starts threads over a net and the vocabulary that its answers are read with.
    ///
    /// # Errors
    /// When there is no memory for the caches, or no threads are to be had.
    pub fn over<F: Forward + 'static>(
        forward: &Arc<F>,
        vocabulary: &Arc<dyn Vocabulary>,
        options: &ServiceOptions,
    ) -> Result<Self, LocalError> {
        let context = options.context.map_or(forward.context(), |context| context.min(forward.context()));
        let (threads, slots) = (options.threads.max(1), options.slots.max(1));
        let pages = pages_for(options, context, forward.page_bytes())?;
        let limits = Limits {
            vocabulary: forward.vocabulary(),
            context,
            pages: pages as usize,
            page_bytes: forward.page_bytes(),
        };
        let mut batches = Vec::new();
        for _ in 0..threads {
            batches.push(Batch::new(Arc::clone(forward), Arc::clone(vocabulary), pages)?);
        }
        let mut service = Self { queue: Arc::new(Queue::new(threads)), threads: Vec::new(), limits, slots };
        for (thread, batch) in batches.into_iter().enumerate() {
            let worker = Worker {
                thread,
                slots,
                pages,
                queue: Arc::clone(&service.queue),
                forward: Arc::clone(forward),
                vocabulary: Arc::clone(vocabulary),
            };
            let builder = Builder::new().name(format!("decode-{thread}"));
            // Where this fails, dropping the service ends the threads that were started.
            let handle = builder.spawn(move || worker.work(batch)).map_err(LocalError::Thread)?;
            service.threads.push(handle);
        }
        Ok(service)
    }

    /// Hands a job over. What can never be answered is refused at once, on the caller's thread.
    pub fn submit(&self, mut job: Job) {
        let checked = job.draw.check().and_then(|()| self.limits.check_answer(&job.prompt, &job.draw));
        let limit = match checked {
            Ok(limit) => limit,
            Err(end) => return job.listener.end(end),
        };
        let group = hash_of(&job.prompt);
        let answer = Answer::new(job.draw, limit, job.listener);
        self.queue.push(group, Sequence::new(job.prompt, Task::Answer(answer)));
    }

    /// Hands a score over. What can never be scored is refused at once, on the caller's thread.
    pub fn submit_score(&self, job: ScoreJob) {
        if let Err(end) = self.limits.check_score(&job.ids, job.from) {
            return job.listener.end(Err(end));
        }
        let group = hash_of(&&job.ids[..job.from]);
        let scoring = Scoring::new(job.from, job.listener);
        self.queue.push(group, Sequence::new(job.ids, Task::Score(scoring)));
    }

    /// Sequences that are decoded at the same time, over all threads.
    pub fn slots(&self) -> usize {
        self.slots * self.threads.len()
    }

    /// Longest sequence, prompt included.
    pub fn context(&self) -> usize {
        self.limits.context
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A thread tells its jobs of its own panic; there is nobody else to tell.
            let _ = thread.join();
        }
    }
}

impl Limits {
    /// Most tokens of the answer.
    fn check_answer(&self, prompt: &[u32], draw: &Draw) -> Result<usize, End> {
        self.check_ids(prompt)?;
        if prompt.len() >= self.context {
            let (tokens, context) = (prompt.len(), self.context);
            let message = format!("the prompt has {tokens} tokens and leaves no room in a context of {context}");
            return Err(End::refused("context_exceeded", message));
        }
        let max_tokens = usize::try_from(draw.max_tokens).unwrap_or(usize::MAX);
        let limit = max_tokens.min(self.context - prompt.len());
        // Nothing is computed from the last token.
        self.check_rows(prompt.len() + limit - 1)?;
        Ok(limit)
    }

    fn check_score(&self, ids: &[u32], from: usize) -> Result<(), End> {
        self.check_ids(ids)?;
        if from == 0 {
            return Err(End::refused("empty_prompt", "there is no token before the text that is to be scored"));
        }
        if from >= ids.len() {
            return Err(End::refused("empty_response", "there is no token to be scored"));
        }
        if ids.len() > self.context {
            let (tokens, context) = (ids.len(), self.context);
            let message = format!("prompt and text have {tokens} tokens, more than the context of {context}");
            return Err(End::refused("context_exceeded", message));
        }
        self.check_rows(ids.len() - 1)
    }

    fn check_ids(&self, ids: &[u32]) -> Result<(), End> {
        if ids.is_empty() {
            return Err(End::refused("empty_prompt", "the prompt has no tokens"));
        }
        match ids.iter().find(|id| **id as usize >= self.vocabulary) {
            None => Ok(()),
            Some(id) => {
                let message = format!("token {id} lies outside the vocabulary of {} tokens", self.vocabulary);
                Err(End::refused("bad_token", message))
            }
        }
    }

    /// A sequence of so many rows must fit a thread's cache when it is alone there.
    fn check_rows(&self, rows: usize) -> Result<(), End> {
        let pages = rows.div_ceil(PAGE);
        if pages <= self.pages {
            return Ok(());
        }
        let message = format!(
            "keys and values of {rows} tokens take {} bytes, and a thread's cache has {}; raise `cache_bytes` or lower \
             `max_tokens`",
            pages.saturating_mul(self.page_bytes),
            self.pages.saturating_mul(self.page_bytes)
        );
        Err(End::refused("cache_exceeded", message))
    }
}

struct Worker<F: Forward> {
    thread: usize,
    slots: usize,
    pages: u32,
    queue: Arc<Queue>,
    forward: Arc<F>,
    vocabulary: Arc<dyn Vocabulary>,
}

impl<F: Forward> Worker<F> {
    /// Decodes until the queue is closed. After a failure the jobs in the slots are told, and the thread goes on with an
    /// empty cache.
    fn work(&self, mut batch: Batch<F>) {
        loop {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.decode(&mut batch)));
            let failure = match outcome {
                Ok(Ok(())) => return batch.end_all(&End::GivenUp),
                Ok(Err(error)) => error.to_string(),
                Err(panic) => format!("decoding panicked: {}", words_of(panic.as_ref())),
            };
            // A listener may have been what panicked: then dropping the batch tells the others.
            let _ = catch_unwind(AssertUnwindSafe(|| batch.end_all(&End::failed(&failure))));
            drop(batch);
            match Batch::new(Arc::clone(&self.forward), Arc::clone(&self.vocabulary), self.pages) {
                Ok(fresh) => batch = fresh,
                Err(error) => {
                    return self.queue.leave(self.thread, &format!("{error}, after an earlier failure: {failure}"));
                }
            }
        }
    }

    fn decode(&self, batch: &mut Batch<F>) -> Result<(), NetError> {
        while let Some(sequences) = self.queue.take(self.thread, batch.len(), self.slots) {
            for sequence in sequences {
                batch.add(sequence);
            }
            batch.step()?;
        }
        Ok(())
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

#[cfg(test)]
mod tests;
