//! The sequences of one thread and their steps.
//!
//! A step computes one row of every answer that is being written, together with a piece of the prompts that have just come,
//! so that a long prompt holds nobody up for long; scores are computed in a pass of their own, since they need no logits.
//! Sequences stand in the order of their coming. Where pages run out, the youngest lets its own go and computes them
//! again later, with the same outcome; so the oldest always gets on.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::decode::job::End;
use crate::decode::pages::Pages;
use crate::decode::sampler::Sampler;
use crate::decode::sequence::{Promises, Sequence, Started, Task};
use crate::decode::service::Vocabulary;
use crate::{Forward, NetError, PAGE, Span, Step};

/// Most rows of prompts, and most rows of scored texts, in a step.
const STEP_ROWS: usize = 256;

/// One thread's sequences, pages and cache.
pub(super) struct Batch<F: Forward> {
    forward: Arc<F>,
    vocabulary: Arc<dyn Vocabulary>,
    cache: F::Cache,
    pages: Pages,
    promises: Promises,
    sequences: Vec<Sequence>,
    sampler: Sampler,
    numbers: Vec<f32>,
}

/// Rows of a sequence in the step.
#[derive(Debug, Clone, Copy)]
struct Part {
    sequence: usize,
    rows: usize,
}

impl<F: Forward> Batch<F> {
    /// A batch without sequences over a cache of so many pages.
    ///
    /// # Errors
    /// Where the cache's memory is not there.
    pub fn new(forward: Arc<F>, vocabulary: Arc<dyn Vocabulary>, pages: u32) -> Result<Self, NetError> {
        Ok(Self {
            cache: forward.cache(pages as usize)?,
            forward,
            vocabulary,
            pages: Pages::new(pages),
            promises: HashMap::new(),
            sequences: Vec::new(),
            sampler: Sampler::default(),
            numbers: Vec::new(),
        })
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// One more sequence, the youngest.
    pub fn add(&mut self, sequence: Sequence) {
        self.sequences.push(sequence);
    }

    /// Ends all sequences.
    pub fn end_all(&mut self, end: &End) {
        for mut sequence in self.sequences.drain(..) {
            sequence.stop(&mut self.pages, &mut self.promises);
            sequence.end(end.clone());
        }
    }

    /// Computes one step: every sequence that has pages gets on.
    ///
    /// # Errors
    /// What the net says; the sequences are as they were, and still untold.
    pub fn step(&mut self) -> Result<(), NetError> {
        self.drop_unwanted();
        self.start_waiting();
        let answers = self.plan(|task| matches!(task, Task::Answer(_)));
        // Scores got all their pages when they started, so planning them takes none from an answer.
        let scores = self.plan(|task| matches!(task, Task::Score(_)));
        if answers.is_empty() && scores.is_empty() && !self.sequences.is_empty() {
            // One sequence alone fits the cache, or it would have been refused: there is always one that can get on.
            return Err(NetError::Step("no sequence of the batch could get on".to_owned()));
        }
        let mut ended = self.step_answers(&answers)?;
        ended.extend(self.step_scores(&scores)?);
        ended.sort_unstable();
        for index in ended.into_iter().rev() {
            self.sequences.remove(index).stop(&mut self.pages, &mut self.promises);
        }
        Ok(())
    }

    fn drop_unwanted(&mut self) {
        let (pages, promises) = (&mut self.pages, &mut self.promises);
        self.sequences.retain_mut(|sequence| {
            let is_wanted = sequence.is_wanted();
            if !is_wanted {
                sequence.stop(pages, promises);
                sequence.end(End::GivenUp);
            }
            is_wanted
        });
    }

    /// Starts what waits, the oldest first. Nobody overtakes a sequence that lacks pages.
    fn start_waiting(&mut self) {
        for sequence in self.sequences.iter_mut().filter(|sequence| !sequence.is_running) {
            if sequence.start(&mut self.pages, &mut self.promises) == Started::NoRoom {
                return;
            }
        }
    }

    /// Shares the step's rows among the running sequences of a kind, and gets the pages that they need.
    fn plan(&mut self, is_of_kind: fn(&Task) -> bool) -> Vec<Part> {
        let (mut parts, mut left) = (Vec::new(), STEP_ROWS);
        for index in 0..self.sequences.len() {
            let sequence = &self.sequences[index];
            if !sequence.is_running || !is_of_kind(&sequence.task) {
                continue;
            }
            let rows = match sequence.rows() - sequence.computed {
                1 => 1,
                many => many.min(left),
            };
            if rows == 0 || !self.find_room(index, rows) {
                continue;
            }
            left -= if rows == 1 { 0 } else { rows };
            parts.push(Part { sequence: index, rows });
        }
        parts
    }

    /// Gets the pages for so many more rows, from the youngest sequences if need be. Whether the sequence still runs.
    fn find_room(&mut self, index: usize, rows: usize) -> bool {
        let needed = (self.sequences[index].computed + rows).div_ceil(PAGE);
        while self.sequences[index].pages.len() < needed {
            if let Some(page) = self.pages.take() {
                self.sequences[index].pages.push(page);
                continue;
            }
            let Some(youngest) = self.sequences.iter().rposition(|sequence| sequence.is_running) else { return false };
            self.sequences[youngest].stop(&mut self.pages, &mut self.promises);
            if youngest <= index {
                return false;
            }
        }
        true
    }

    /// Computes rows of answers and draws a token where a sequence is computed to its end. The sequences that ended.
    fn step_answers(&mut self, parts: &[Part]) -> Result<Vec<usize>, NetError> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let mut wanted = Vec::new();
        let mut first = 0;
        for part in parts {
            let sequence = &self.sequences[part.sequence];
            first += part.rows;
            if sequence.computed + part.rows == sequence.rows() {
                wanted.push(first - 1);
            }
        }
        let numbers = &mut self.numbers;
        run(&self.sequences, parts, |step| self.forward.forward(step, &mut self.cache, &wanted, numbers))?;
        let vocabulary = self.forward.vocabulary();
        expect_numbers(self.numbers.len(), wanted.len() * vocabulary)?;
        let mut logits = self.numbers.chunks_exact(vocabulary.max(1));
        let mut ended = Vec::new();
        for part in parts {
            let sequence = &mut self.sequences[part.sequence];
            sequence.advance(part.rows, &mut self.pages, &mut self.promises);
            let Task::Answer(answer) = &mut sequence.task else { continue };
            if sequence.computed < sequence.ids.len() {
                continue;
            }
            let Some(logits) = logits.next() else { continue };
            match answer.draw(logits, &mut self.sampler, self.vocabulary.as_ref()) {
                Ok(id) => sequence.ids.push(id),
                Err(end) => {
                    sequence.end(end);
                    ended.push(part.sequence);
                }
            }
        }
        Ok(ended)
    }

    /// Computes rows of scored texts. The sequences that ended.
    fn step_scores(&mut self, parts: &[Part]) -> Result<Vec<usize>, NetError> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let mut wanted = Vec::new();
        let mut counts: Vec<Range<usize>> = Vec::new();
        let mut first = 0;
        for part in parts {
            let sequence = &self.sequences[part.sequence];
            let positions = sequence.computed..sequence.computed + part.rows;
            let before = wanted.len();
            for position in positions.clone().filter(|position| *position >= sequence.first_wanted()) {
                wanted.push((first + position - positions.start, sequence.ids[position + 1]));
            }
            counts.push(before..wanted.len());
            first += part.rows;
        }
        let numbers = &mut self.numbers;
        run(&self.sequences, parts, |step| self.forward.log_probs(step, &mut self.cache, &wanted, numbers))?;
        expect_numbers(self.numbers.len(), wanted.len())?;
        let mut ended = Vec::new();
        for (part, count) in parts.iter().zip(counts) {
            let sequence = &mut self.sequences[part.sequence];
            sequence.advance(part.rows, &mut self.pages, &mut self.promises);
            let is_done = sequence.computed == sequence.rows();
            let Task::Score(scoring) = &mut sequence.task else { continue };
            scoring.add(&self.numbers[count]);
            if is_done {
                scoring.finish();
                ended.push(part.sequence);
            }
        }
        Ok(ended)
    }
}

/// Packs the rows and hands them over.
fn run(
    sequences: &[Sequence],
    parts: &[Part],
    pass: impl FnOnce(&Step<'_>) -> Result<(), NetError>,
) -> Result<(), NetError> {
    let (mut tokens, mut spans) = (Vec::new(), Vec::new());
    for part in parts {
        let sequence = &sequences[part.sequence];
        let start = sequence.computed;
        tokens.extend_from_slice(&sequence.ids[start..start + part.rows]);
        spans.push(Span { rows: part.rows, start, pages: &sequence.pages });
    }
    pass(&Step { tokens: &tokens, spans: &spans })
}

fn expect_numbers(count: usize, expected: usize) -> Result<(), NetError> {
    if count == expected {
        return Ok(());
    }
    Err(NetError::Step(format!("the net gave {count} numbers where {expected} were wanted")))
}
