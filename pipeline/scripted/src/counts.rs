//! What happened: counted as it happens, readable at `GET /stats` and from the library.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Counts since the start of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Chat requests that were read to their end.
    pub requests: u64,
    /// Requests of batches, and of everything else but `/stats` and `/health`.
    pub other_requests: u64,
    /// Chat requests whose good answer (status 200, nothing missing) was handed to the connection as a whole.
    pub answers: u64,
    /// Answers of batches, counted where a client fetched the file that holds them for the first time.
    pub batch_answers: u64,
    /// Good answers to a request whose bytes had been answered before, batches included.
    pub repeated: u64,
    /// Chat requests whose bytes had come before, whatever came of them.
    pub asked_again: u64,
    /// Replies by status, chat and others.
    pub by_status: BTreeMap<u16, u64>,
    /// Faults by name, those that were met.
    pub faults: BTreeMap<String, u64>,
    /// Share of chat requests that got 429.
    pub refused_share: f64,
    /// Chat requests being worked on.
    pub in_flight: u64,
    /// Most of them at one time.
    pub peak_in_flight: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Chat requests whose client went away before the answer was handed over.
    pub aborted: u64,
    /// Chat requests that were answered in each minute since the first one came; where the limits have another length of
    /// window, in each of these.
    pub by_minute: Vec<u64>,
    /// Files that were uploaded.
    pub files: u64,
    /// Batches that were created.
    pub batches: u64,
}

#[derive(Default)]
struct Tally {
    stats: Stats,
    refused: u64,
    first: Option<Instant>,
    asked: HashMap<u64, Asked>,
}

#[derive(Default, Clone, Copy)]
struct Asked {
    times: u32,
    is_answered: bool,
}

/// The counters.
pub(crate) struct Counts {
    tally: Mutex<Tally>,
    /// Stretch of time that counts as a minute.
    minute: Duration,
}

/// The place of a request among all and among its equals, both from 0.
pub(crate) struct Arrival {
    pub(crate) number: u64,
    pub(crate) attempt: u32,
    pub(crate) in_flight: u64,
}

/// How a chat request ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ending {
    /// The reply was handed over.
    Sent { status: u16, is_answer: bool },
    /// A fault closed the connection.
    Closed,
    /// The client went.
    Aborted,
}

impl Counts {
    pub(crate) fn new(minute: Duration) -> Self {
        Self { tally: Mutex::default(), minute }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connected(&self) {
        self.tally().stats.connections += 1;
    }

    /// A chat request is there.
    pub(crate) fn arrive(&self, hash: u64) -> Arrival {
        let mut tally = self.tally();
        let asked = tally.asked.entry(hash).or_default();
        let attempt = asked.times;
        asked.times = asked.times.saturating_add(1);
        tally.first.get_or_insert_with(Instant::now);
        let stats = &mut tally.stats;
        stats.asked_again += u64::from(attempt > 0);
        let number = stats.requests;
        stats.requests += 1;
        stats.in_flight += 1;
        stats.peak_in_flight = stats.peak_in_flight.max(stats.in_flight);
        Arrival { number, attempt, in_flight: stats.in_flight }
    }

    /// A request of another kind is there; says how often the same came before.
    pub(crate) fn arrive_other(&self, hash: u64) -> u32 {
        let mut tally = self.tally();
        tally.stats.other_requests += 1;
        let asked = tally.asked.entry(hash).or_default();
        asked.times = asked.times.saturating_add(1);
        asked.times - 1
    }

    /// The reply to a chat request is about to be handed over whole: the client may ask again the moment it has it,
    /// so the count goes before the bytes.
    pub(crate) fn leave(&self) {
        let mut tally = self.tally();
        tally.stats.in_flight = tally.stats.in_flight.saturating_sub(1);
    }

    /// How a chat request ends; says whether it is the first good answer to these bytes.
    pub(crate) fn end(&self, hash: u64, ending: Ending) -> bool {
        let mut tally = self.tally();
        match ending {
            Ending::Aborted => tally.stats.aborted += 1,
            Ending::Closed => {}
            Ending::Sent { status, is_answer } => {
                tally.status(status);
                if status == 429 {
                    tally.refused += 1;
                }
                if is_answer {
                    tally.stats.answers += 1;
                    tally.minute(self.minute);
                    return tally.answered(hash);
                }
            }
        }
        false
    }

    /// Takes back what [`Self::end`] counted, because the bytes could not be sent.
    pub(crate) fn undo(&self, hash: u64, ending: Ending, is_first: bool) {
        let Ending::Sent { status, is_answer } = ending else {
            return;
        };
        let mut tally = self.tally();
        if let Some(count) = tally.stats.by_status.get_mut(&status) {
            *count -= 1;
        }
        tally.refused -= u64::from(status == 429);
        if is_answer {
            tally.stats.answers -= 1;
            if let Some(count) = tally.stats.by_minute.last_mut() {
                *count = count.saturating_sub(1);
            }
            if is_first {
                tally.asked.entry(hash).or_default().is_answered = false;
            } else {
                tally.stats.repeated -= 1;
            }
        }
    }

    pub(crate) fn other_status(&self, status: u16) {
        self.tally().status(status);
    }

    pub(crate) fn fault(&self, fault: Fault) {
        let mut tally = self.tally();
        if let Some(count) = tally.stats.faults.get_mut(fault.name()) {
            *count += 1;
        } else {
            tally.stats.faults.insert(fault.name().to_owned(), 1);
        }
    }

    pub(crate) fn file(&self) {
        self.tally().stats.files += 1;
    }

    pub(crate) fn batch(&self) {
        self.tally().stats.batches += 1;
    }

    /// Answers of a batch were fetched.
    pub(crate) fn batch_answers(&self, hashes: &[u64]) {
        let mut tally = self.tally();
        for hash in hashes {
            tally.stats.batch_answers += 1;
            tally.answered(*hash);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let tally = self.tally();
        let mut stats = tally.stats.clone();
        if stats.requests > 0 {
            stats.refused_share = tally.refused as f64 / stats.requests as f64;
        }
        stats
    }
}

impl Tally {
    fn status(&mut self, status: u16) {
        *self.stats.by_status.entry(status).or_default() += 1;
    }

    fn minute(&mut self, length: Duration) {
        const MOST: u128 = 1 << 20;
        let elapsed = self.first.map(|first| first.elapsed()).unwrap_or_default();
        let minute = (elapsed.as_nanos() / length.as_nanos().max(1)).min(MOST);
        let minute = usize::try_from(minute).unwrap_or_default();
        let minutes = &mut self.stats.by_minute;
        if minutes.len() <= minute {
            minutes.resize(minute + 1, 0);
        }
        minutes[minute] += 1;
    }

    /// Whether it is the first answer to these bytes.
    fn answered(&mut self, hash: u64) -> bool {
        let asked = self.asked.entry(hash).or_default();
        let is_first = !asked.is_answered;
        asked.is_answered = true;
        self.stats.repeated += u64::from(!is_first);
        is_first
    }
}
