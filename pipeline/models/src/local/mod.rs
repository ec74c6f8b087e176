//! The engine whose weights are in this process.
//!
//! The thread that calls `ensure` reads requests, looks each up, and lays what is missing on a [`Desk`](crate::Desk)
//! from which another thread has the weights take it; each answer goes to the call store where it is told. Weights are
//! opened when something is first missing: a run that the store answers needs none.
//!
//! No more than [`LAID_OUT`] requests lie on the desk, and one is laid there only when the budget has room for it and no
//! other pass of this process works on the same.

mod pass;
mod work;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::budget::{Budget, Price};
use crate::claims::Claims;
use crate::config::{ModelConfig, OpenOptions, WeightsOpener};
use crate::error::ModelError;
use crate::key::CallKey;
use crate::known::{Known, Source};
use crate::model::{Ensured, Model, Progress, Recorded};
use crate::request::{ModelId, Request, ScoreRequest};
use crate::weights::{Score, Weights, WeightsError};
use pass::{Event, Pass};
use work::Work;

/// How often the caller's wish to stop, the budget and other passes are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that lie on the desk, so that a finished one is followed at once and scores can be put together by length.
const LAID_OUT: usize = 256;
/// Requests that may wait for another pass; beyond them no more are read.
const MOST_WAITING: usize = 1024;

pub(crate) struct Local {
    known: Known,
    name: String,
    path: PathBuf,
    in_flight: Option<NonZeroU32>,
    opener: Option<WeightsOpener>,
    weights: Mutex<Option<Arc<dyn Weights>>>,
    claims: Claims,
    budget: Arc<Budget>,
    price: Option<Price>,
}

impl Local {
    pub(crate) fn new(
        config: &ModelConfig,
        name: &str,
        folder: &Path,
        known: Known,
        options: &OpenOptions<'_>,
    ) -> Result<Self, ModelError> {
        let path = config.path.as_ref().ok_or_else(|| ModelError::config(name, "engine `local` needs `path`"))?;
        if let Some(price) = &config.price {
            options.budget.agree_on_currency(name, price)?;
        }
        Ok(Self {
            known,
            name: name.to_owned(),
            path: folder.join(path),
            in_flight: config.max_in_flight,
            opener: options.weights.clone(),
            weights: Mutex::default(),
            claims: Claims::default(),
            budget: Arc::clone(&options.budget),
            price: config.price.clone(),
        })
    }

    /// The weights, opened by the first that asks; others wait for it.
    fn weights(&self) -> Result<Arc<dyn Weights>, ModelError> {
        let mut opened = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = opened.as_ref() {
            return Ok(Arc::clone(weights));
        }
        let Some(opener) = &self.opener else {
            return Err(self.failed("this program cannot open weights"));
        };
        if !self.path.exists() {
            return Err(self.failed("not found; put them there, or use recorded answers only (`--offline`)"));
        }
        let weights = opener(&self.path, self.in_flight).map_err(|error| self.failed(&error.0))?;
        *opened = Some(Arc::clone(&weights));
        Ok(weights)
    }

    fn failed(&self, message: &str) -> ModelError {
        ModelError::Weights { model: self.name.clone(), path: self.path.clone(), message: message.to_owned() }
    }

    fn ensure_all<Q: Work>(
        &self,
        requests: &mut dyn Iterator<Item = Q>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.known.calls.refresh()?;
        let (events, inbox) = channel();
        let pass = Pass::new(self, progress.stage(), events);
        let mut feeding = Feeding::new(self, &pass, inbox, progress, cancel);
        let worker = std::thread::scope(|scope| feeding.run(scope, requests));
        progress.update(&feeding.counts);
        if let Some(Err(error)) = worker {
            pass.fail(self.failed(&error.0));
        }
        match pass.error() {
            Some(error) => Err(error),
            None => Ok(feeding.counts),
        }
    }
}

impl Model for Local {
    fn id(&self) -> &ModelId {
        &self.known.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        self.ensure_all(requests, progress, cancel)
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
        self.ensure_all(requests, progress, cancel)
    }

    fn score_of(&self, request: &ScoreRequest) -> Result<Recorded<Score>, ModelError> {
        self.known.answer(request)
    }
}

/// The side of a pass that reads requests and follows what becomes of them.
struct Feeding<'p, 'a, Q: Work> {
    local: &'a Local,
    pass: &'p Pass<'a, Q>,
    inbox: Receiver<Event>,
    progress: &'p dyn Progress,
    cancel: &'p AtomicBool,
    counts: Ensured,
    /// Requests laid out whose outcome was not told yet.
    laid_out: usize,
    /// What another pass, or this one, works on already.
    waiting: VecDeque<(CallKey, Q)>,
    looked: Instant,
    /// What the budget had no room for.
    held: Option<(CallKey, Q)>,
    has_more: bool,
}

/// What became of a request that was to be laid out.
enum Offered {
    Settled,
    NoRoom,
}

type Worker<'scope> = ScopedJoinHandle<'scope, Result<(), WeightsError>>;

impl<'p, 'a, Q: Work> Feeding<'p, 'a, Q> {
    fn new(
        local: &'a Local,
        pass: &'p Pass<'a, Q>,
        inbox: Receiver<Event>,
        progress: &'p dyn Progress,
        cancel: &'p AtomicBool,
    ) -> Self {
        Self {
            local,
            pass,
            inbox,
            progress,
            cancel,
            counts: Ensured::default(),
            laid_out: 0,
            waiting: VecDeque::new(),
            looked: Instant::now(),
            held: None,
            has_more: true,
        }
    }

    /// Feeds the desk until there is nothing more to do; gives how the weights ended if they were needed.
    fn run<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'p>,
        requests: &mut dyn Iterator<Item = Q>,
    ) -> Option<Result<(), WeightsError>> {
        let mut worker: Option<Worker<'scope>> = None;
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                self.pass.cancel();
            }
            if !self.pass.is_stopped()
                && let Err(error) = self.feed(requests)
            {
                self.pass.fail(error);
            }
            if worker.is_none() && self.laid_out > 0 && !self.pass.is_stopped() {
                match self.local.weights() {
                    Ok(weights) => worker = Some(self.start(scope, weights)),
                    Err(error) => self.pass.fail(error),
                }
            }
            self.progress.update(&self.counts);
            let is_over = self.pass.is_stopped() || self.is_fed();
            if is_over {
                self.pass.close();
            }
            if let Some(worker) = worker.take_if(|worker| worker.is_finished()) {
                return Some(self.ended(worker));
            }
            if is_over && worker.is_none() {
                return None;
            }
            self.follow();
        }
    }

    /// Whether nothing more can be laid out.
    fn is_fed(&self) -> bool {
        !self.has_more && self.held.is_none() && self.waiting.is_empty()
    }

    fn start<'scope>(&self, scope: &'scope Scope<'scope, 'p>, weights: Arc<dyn Weights>) -> Worker<'scope> {
        let pass = self.pass;
        scope.spawn(move || Q::work(weights.as_ref(), pass))
    }

    /// Takes in the rest. Weights that end before all is told, without an error of their own, are at fault.
    fn ended(&mut self, worker: Worker<'_>) -> Result<(), WeightsError> {
        let ended = worker.join().unwrap_or_else(|_| Err(WeightsError::new("their thread ended unexpectedly")));
        while let Ok(event) = self.inbox.try_recv() {
            self.take(&event);
        }
        let is_done = self.laid_out == 0 && self.is_fed();
        if ended.is_ok() && !is_done && !self.pass.is_stopped() {
            return Err(WeightsError::new("they ended before every request was answered"));
        }
        ended
    }

    /// Lays out requests as long as there is room.
    fn feed(&mut self, requests: &mut dyn Iterator<Item = Q>) -> Result<(), ModelError> {
        if !self.waiting.is_empty() && (self.laid_out == 0 || self.looked.elapsed() >= LOOK) {
            self.looked = Instant::now();
            for (key, request) in std::mem::take(&mut self.waiting) {
                if self.held.is_some() {
                    self.waiting.push_back((key, request));
                } else {
                    self.offer(key, request)?;
                }
            }
        }
        while self.laid_out < LAID_OUT && self.waiting.len() < MOST_WAITING {
            let next = match self.held.take() {
                Some(held) => Some(held),
                None if !self.has_more => None,
                None => self.local.known.next_missing(requests, &mut self.counts, self.progress, self.cancel)?,
            };
            let Some((key, request)) = next else {
                self.has_more = false;
                return Ok(());
            };
            if matches!(self.offer(key, request)?, Offered::NoRoom) {
                return Ok(());
            }
            self.take_ready();
        }
        Ok(())
    }

    /// Lays a request out, unless it is answered meanwhile, being worked on, or the budget has no room.
    fn offer(&mut self, key: CallKey, request: Q) -> Result<Offered, ModelError> {
        let Some(claim) = self.local.claims.try_take(key) else {
            self.waiting.push_back((key, request));
            return Ok(Offered::Settled);
        };
        if let Some(kind) = self.local.known.calls.verified(&key)? {
            Source::Store(kind).count(&mut self.counts);
            return Ok(Offered::Settled);
        }
        let Some(place) = self.local.budget.try_reserve()? else {
            self.held = Some((key, request));
            return Ok(Offered::NoRoom);
        };
        self.pass.lay_out(key, request, claim, place);
        self.laid_out += 1;
        Ok(Offered::Settled)
    }

    fn take_ready(&mut self) {
        while let Ok(event) = self.inbox.try_recv() {
            self.take(&event);
        }
    }

    fn follow(&mut self) {
        if let Ok(event) = self.inbox.recv_timeout(LOOK) {
            self.take(&event);
            self.take_ready();
        }
    }

    fn take(&mut self, event: &Event) {
        self.laid_out = self.laid_out.saturating_sub(1);
        self.counts.asked += 1;
        match event {
            Event::RowError => self.counts.row_errors += 1,
            Event::Answered { prompt_tokens, completion_tokens, money } => {
                self.counts.prompt_tokens += prompt_tokens;
                self.counts.completion_tokens += completion_tokens;
                self.counts.money += money;
            }
            Event::Unkept => {}
        }
    }
}
