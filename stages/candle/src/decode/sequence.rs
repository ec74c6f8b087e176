//! One sequence in a slot: its tokens, its pages, and what it is for, an answer or a score.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::PAGE;
use crate::decode::job::{Draw, Drawn, End, Listener, Piece};
use crate::decode::pages::{Name, Pages, ROOT};
use crate::decode::sampler::{Sampler, likeliest};
use crate::decode::service::Vocabulary;
use crate::decode::stops::TextCutter;
use crate::log_softmax_at;

/// Tokens with a purpose.
pub(super) struct Sequence {
    /// Prompt and what was drawn or is scored.
    pub ids: Vec<u32>,
    /// What for.
    pub task: Task,
    /// Page table.
    pub pages: Vec<u32>,
    /// Positions whose keys and values are in the pages.
    pub computed: usize,
    /// Whether it holds pages; otherwise it waits for them, or for another sequence that computes the same prefix.
    pub is_running: bool,
    /// Prefixes of whole pages that others may share, by hash.
    chain: Vec<u64>,
    /// Which of them this sequence is about to compute.
    promised: Range<usize>,
    /// Pages that are known, and the name of the prefix that they are.
    published: (usize, Name),
}

/// What a sequence is for.
pub(super) enum Task {
    /// An answer that is drawn.
    Answer(Answer),
    /// A score of given tokens.
    Score(Scoring),
}

/// Prefixes that some sequence of the thread is about to compute, by hash, with the number of sequences.
pub(super) type Promises = HashMap<u64, u32>;

/// What came of an attempt to get pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    /// It has pages for all its rows.
    Running,
    /// Another sequence is about to compute a prefix of it.
    Deferred,
    /// There are too few pages.
    NoRoom,
}

impl Sequence {
    /// A sequence that holds nothing yet; `ids` is not empty.
    pub fn new(ids: Vec<u32>, task: Task) -> Self {
        let mut sequence = Self {
            ids,
            task,
            pages: Vec::new(),
            computed: 0,
            is_running: false,
            chain: Vec::new(),
            promised: 0..0,
            published: (0, ROOT),
        };
        let mut hash = 0;
        for page in sequence.ids.chunks_exact(PAGE).take(sequence.first_wanted() / PAGE) {
            hash = hash_of(&(hash, page));
            sequence.chain.push(hash);
        }
        sequence
    }

    /// Rows that must be computed for the next result.
    pub fn rows(&self) -> usize {
        match &self.task {
            Task::Answer(_) => self.ids.len(),
            // Nothing is predicted from the last token.
            Task::Score(_) => self.ids.len() - 1,
        }
    }

    /// The first row whose output is needed; rows before it need not be computed when others have.
    pub fn first_wanted(&self) -> usize {
        match &self.task {
            Task::Answer(_) => self.ids.len() - 1,
            Task::Score(scoring) => scoring.next() - 1,
        }
    }

    /// Takes shared pages for the prefix that is there and new ones for the rest.
    pub fn start(&mut self, pages: &mut Pages, promises: &mut Promises) -> Started {
        let shareable = self.first_wanted() / PAGE;
        let mut name = ROOT;
        for tokens in self.ids.chunks_exact(PAGE).take(shareable) {
            let Some((page, longer)) = pages.find(name, tokens) else { break };
            self.pages.push(page);
            name = longer;
        }
        let found = self.pages.len();
        if self.chain.get(found).is_some_and(|hash| promises.contains_key(hash)) {
            self.pages.clear();
            return Started::Deferred;
        }
        for page in &self.pages {
            pages.hold(*page);
        }
        let missing = self.rows().div_ceil(PAGE) - found;
        if pages.available() < missing {
            pages.let_go(&mut self.pages);
            return Started::NoRoom;
        }
        self.pages.extend((0..missing).filter_map(|_| pages.take()));
        self.computed = found * PAGE;
        self.published = (found, name);
        self.promised = found.min(self.chain.len())..self.chain.len();
        for hash in &self.chain[self.promised.clone()] {
            *promises.entry(*hash).or_default() += 1;
        }
        self.is_running = true;
        Started::Running
    }

    /// Lets all pages go; the sequence can be started again and then goes on as if nothing had happened.
    pub fn stop(&mut self, pages: &mut Pages, promises: &mut Promises) {
        pages.let_go(&mut self.pages);
        while !self.promised.is_empty() {
            self.keep_promise(promises);
        }
        self.computed = 0;
        self.is_running = false;
    }

    /// Rows have been computed: what is full becomes known to others.
    pub fn advance(&mut self, rows: usize, pages: &mut Pages, promises: &mut Promises) {
        self.computed += rows;
        while (self.published.0 + 1) * PAGE <= self.computed {
            let (count, before) = self.published;
            let tokens = &self.ids[count * PAGE..(count + 1) * PAGE];
            let Some(name) = pages.publish(self.pages[count], before, tokens) else { break };
            self.published = (count + 1, name);
            if self.promised.start == count && !self.promised.is_empty() {
                self.keep_promise(promises);
            }
        }
    }

    /// Whether somebody still wants the result.
    pub fn is_wanted(&self) -> bool {
        match &self.task {
            Task::Answer(answer) => answer.audience.0.as_ref().is_some_and(|listener| listener.is_wanted()),
            Task::Score(scoring) => scoring.audience.0.as_ref().is_some_and(|listener| listener.is_wanted()),
        }
    }

    /// Tells the end. Told once; later ends are dropped.
    pub fn end(&mut self, end: End) {
        match &mut self.task {
            Task::Answer(answer) => answer.audience.end(end),
            Task::Score(scoring) => scoring.audience.end(end),
        }
    }

    fn keep_promise(&mut self, promises: &mut Promises) {
        let hash = self.chain[self.promised.start];
        self.promised.start += 1;
        if let Some(count) = promises.get_mut(&hash) {
            *count -= 1;
            if *count == 0 {
                promises.remove(&hash);
            }
        }
    }
}

/// Same value, same hash, within one process.
pub(super) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Who is told an end, once, whatever happens: when it is dropped untold, a failure is told.
pub(super) struct Audience<L: Told>(Option<L>);

/// A listener of either kind.
pub(super) trait Told {
    /// Tells the end.
    fn told(self, end: End);
}

impl Told for Box<dyn Listener> {
    fn told(mut self, end: End) {
        self.as_mut().end(end);
    }
}

impl Told for Box<dyn ScoreListener> {
    fn told(self, end: End) {
        self.end(Err(end));
    }
}

impl<L: Told> Audience<L> {
    /// Nobody has been told yet.
    pub fn new(listener: L) -> Self {
        Self(Some(listener))
    }

    /// Tells the end, unless one was told.
    pub fn end(&mut self, end: End) {
        if let Some(listener) = self.0.take() {
            listener.told(end);
        }
    }
}

impl<L: Told> Drop for Audience<L> {
    fn drop(&mut self) {
        if let Some(listener) = self.0.take() {
            // Dropped untold means that a thread unwinds; a second panic would abort the program.
            let failure = End::failed("the thread that decoded it ended");
            let _ = catch_unwind(AssertUnwindSafe(|| listener.told(failure)));
        }
    }
}

/// An answer as it grows.
pub(super) struct Answer {
    draw: Draw,
    /// Most tokens: `max_tokens`, or what is left of the context.
    limit: usize,
    audience: Audience<Box<dyn Listener>>,
    cutter: TextCutter,
    drawn: usize,
    /// Bytes of the tokens so far.
    bytes: usize,
    /// Tokens that are not told yet, each with the number of bytes up to its end.
    untold: Vec<Drawn>,
    untold_ends: Vec<usize>,
}

impl Answer {
    /// An answer of at most `limit` tokens.
    pub fn new(mut draw: Draw, limit: usize, listener: Box<dyn Listener>) -> Self {
        let cutter = TextCutter::new(std::mem::take(&mut draw.stop));
        let audience = Audience::new(listener);
        Self { draw, limit, audience, cutter, drawn: 0, bytes: 0, untold: Vec::new(), untold_ends: Vec::new() }
    }

    /// Draws the next token and tells what it settles. The answer's end, if this was the last one.
    pub fn draw(&mut self, logits: &[f32], sampler: &mut Sampler, vocabulary: &dyn Vocabulary) -> Result<u32, End> {
        let Some(id) = sampler.draw(logits, &self.draw, self.drawn as u64) else {
            let message =
                format!("the net gave logits that are no finite numbers for token {} of the answer", self.drawn);
            return Err(End::refused("bad_logits", message));
        };
        self.drawn += 1;
        self.untold.push(self.described(logits, id));
        let is_end = vocabulary.ends_at(id);
        let bytes = if is_end { &[] } else { vocabulary.bytes_of(id) };
        self.bytes += bytes.len();
        self.untold_ends.push(self.bytes);
        let mut text = self.cutter.push(bytes);
        let end = if is_end || self.cutter.is_stopped() {
            Some(End::Complete)
        } else if self.drawn >= self.limit {
            Some(End::Cut)
        } else {
            None
        };
        if end.is_some() {
            text.push_str(&self.cutter.finish());
        }
        let is_wanted = self.tell(&text, end.is_some());
        match end {
            Some(end) => Err(end),
            None if is_wanted => Ok(id),
            None => Err(End::GivenUp),
        }
    }

    fn described(&self, logits: &[f32], id: u32) -> Drawn {
        let Some(count) = self.draw.top_logprobs else { return Drawn { id, logprob: None, top: Vec::new() } };
        let top = likeliest(logits, usize::from(count)).into_iter();
        let top = top.map(|other| (other, log_softmax_at(logits, other))).collect();
        Drawn { id, logprob: Some(log_softmax_at(logits, id)), top }
    }

    /// Tells settled text and its tokens, all of them with the last text. Whether more is wanted.
    fn tell(&mut self, text: &str, is_last: bool) -> bool {
        let settled = self.cutter.settled();
        let complete = self.untold_ends.iter().take_while(|end| is_last || **end <= settled).count();
        if text.is_empty() && complete == 0 {
            return true;
        }
        let piece = Piece { text, tokens: &self.untold[..complete] };
        let is_wanted = self.audience.0.as_mut().is_some_and(|listener| listener.piece(&piece));
        self.untold.drain(..complete);
        self.untold_ends.drain(..complete);
        is_wanted
    }
}

/// Told what becomes of a score, on the thread that computes it: it must not block.
pub trait ScoreListener: Send {
    /// The natural log-probabilities of the text's tokens, in order, all finite; or what became of the job instead. Called
    /// once.
    fn end(self: Box<Self>, outcome: Result<Vec<f32>, End>);

    /// Whether the job is still wanted. Asked once a step.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// A score as it grows.
pub(super) struct Scoring {
    /// Position of the first token that is scored.
    from: usize,
    log_probs: Vec<f32>,
    audience: Audience<Box<dyn ScoreListener>>,
}

impl Scoring {
    /// Scores the tokens from position `from` on, which is not 0.
    pub fn new(from: usize, listener: Box<dyn ScoreListener>) -> Self {
        Self { from, log_probs: Vec::new(), audience: Audience::new(listener) }
    }

    /// Position of the next token to be scored.
    fn next(&self) -> usize {
        self.from + self.log_probs.len()
    }

    /// Adds log-probabilities of the next tokens, in order.
    pub fn add(&mut self, log_probs: &[f32]) {
        self.log_probs.extend_from_slice(log_probs);
    }

    /// Tells the log-probabilities.
    pub fn finish(&mut self) {
        if let Some(place) = self.log_probs.iter().position(|log_prob| !log_prob.is_finite()) {
            let message =
                format!("the net gave {} as log-probability of token {place} of the text", self.log_probs[place]);
            self.audience.end(End::refused("bad_logits", message));
        } else if let Some(listener) = self.audience.0.take() {
            listener.end(Ok(std::mem::take(&mut self.log_probs)));
        }
    }
}
