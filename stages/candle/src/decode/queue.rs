//! Jobs that wait for a slot, and which thread takes which.
//!
//! A thread takes no more than its share of the work, so that none is idle while another has two jobs. Within that, jobs
//! with the same prompt go to the thread that had the prompt before, since its pages are there; but nobody waits for ever:
//! a job that was passed over often enough goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::decode::job::End;
use crate::decode::sequence::Sequence;

/// Jobs from the front that a thread chooses among.
const WINDOW: usize = 256;
/// How often a job is passed over.
const PATIENCE: u32 = 256;
/// Prompts whose thread is remembered.
const REMEMBERED: usize = 4096;

/// What all threads share.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Sequences in the slots of each thread; `None` once the thread has ended.
    active: Vec<Option<usize>>,
    /// The thread that last took a prompt, by its hash.
    owners: HashMap<u64, usize>,
    is_closed: bool,
    /// Why the last thread failed.
    failure: Option<String>,
}

struct Waiting {
    /// Hash of the prompt.
    group: u64,
    sequence: Sequence,
    passed: u32,
}

impl Queue {
    /// A queue for so many threads.
    pub fn new(threads: usize) -> Self {
        let queue = Self::default();
        queue.lock().active = vec![Some(0); threads];
        queue
    }

    /// One more job. It is ended at once when no thread is left.
    pub fn push(&self, group: u64, mut sequence: Sequence) {
        let mut state = self.lock();
        if state.active.iter().all(Option::is_none) {
            let failure = state.failure.clone().unwrap_or_else(|| "the service has no threads".to_owned());
            drop(state);
            sequence.end(End::failed(failure));
            return;
        }
        state.waiting.push_back(Waiting { group, sequence, passed: 0 });
        drop(state);
        self.bell.notify_all();
    }

    /// Jobs for a thread that has `active` sequences in its `slots`. Waits while it has none and there are none; `None`
    /// when the queue is closed.
    pub fn take(&self, thread: usize, active: usize, slots: usize) -> Option<Vec<Sequence>> {
        let mut state = self.lock();
        state.active[thread] = Some(active);
        loop {
            if state.is_closed {
                return None;
            }
            let mut taken = Vec::new();
            while let Some(sequence) = state.next(thread, slots) {
                taken.push(sequence);
            }
            if active > 0 || !taken.is_empty() {
                return Some(taken);
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No more jobs: threads end what they have, and what waits is given up.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.bell.notify_all();
        end_all(waiting, &End::GivenUp);
    }

    /// A thread ends and takes no more jobs. When it was the last one, what waits fails.
    pub fn leave(&self, thread: usize, failure: &str) {
        let mut state = self.lock();
        state.active[thread] = None;
        if state.active.iter().any(Option::is_some) {
            drop(state);
            // Its share goes to the others.
            self.bell.notify_all();
            return;
        }
        state.failure = Some(failure.to_owned());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        end_all(waiting, &End::failed(failure));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked here left whole values behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next job for a thread, if its slots and its share allow one.
    fn next(&mut self, thread: usize, slots: usize) -> Option<Sequence> {
        let mine = self.active[thread]?;
        let threads = self.active.iter().flatten().count();
        let all = self.active.iter().flatten().sum::<usize>() + self.waiting.len();
        if mine >= slots || mine >= all.div_ceil(threads) {
            return None;
        }
        let index = self.choose(thread)?;
        for passed in self.waiting.iter_mut().take(index) {
            passed.passed += 1;
        }
        let Waiting { group, sequence, .. } = self.waiting.remove(index)?;
        if self.owners.len() >= REMEMBERED {
            self.owners.clear();
        }
        self.owners.insert(group, thread);
        self.active[thread] = Some(mine + 1);
        Some(sequence)
    }

    fn choose(&self, thread: usize) -> Option<usize> {
        if self.waiting.front()?.passed >= PATIENCE {
            return Some(0);
        }
        let owner = |job: &Waiting| self.owners.get(&job.group).copied();
        let window = || self.waiting.iter().take(WINDOW);
        let own = window().position(|job| owner(job) == Some(thread));
        own.or_else(|| window().position(|job| owner(job).is_none())).or(Some(0))
    }
}

fn end_all(waiting: VecDeque<Waiting>, end: &End) {
    for mut job in waiting {
        job.sequence.end(end.clone());
    }
}
