//! Finds evaluation items inside training text: n-gram overlap, scored by coverage of the item
//! (VibeThinker-3B, quality control of SFT data: 10-grams over normalised text).
//!
//! The score is the share of the *item's* tokens that the document holds, never the share of the document:
//! a question embedded in a long page is as contaminated as a bare one. Numbers are kept: a document
//! that equals an item but for its numbers is a *twin*, another problem, and is counted apart. Items shorter
//! than one n-gram are matched whole. Hashes only propose; a match is confirmed token by token.

mod search;
mod self_test;

use std::collections::HashMap;
use std::num::NonZeroUsize;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::TextError;
use crate::ngram::{ngram_hashes, run_hash};
use crate::view::{TokenKind, View};

pub use search::{Found, Hit, MatchKind, Searcher};

/// One item of an evaluation set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalItem {
    /// Name of the evaluation set.
    pub set: String,
    /// Id of the item in its set.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// Reference answer or solution, where there is one.
    pub answer: Option<String>,
}

/// Which texts of an item are looked for; each is indexed by itself, so that either one is a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parts {
    /// Questions only.
    #[default]
    Question,
    /// Answers only, those of at least one n-gram: a bare `42` identifies nothing.
    Answer,
    /// Both.
    QuestionAndAnswer,
}

/// The text of an item that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Its question.
    Question,
    /// Its answer.
    Answer,
}

/// How items are matched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContaminationRules {
    /// Tokens of an n-gram.
    pub ngram: NonZeroUsize,
    /// Share of the item's tokens from which a long item (8 n-grams and more) counts as found, 0 to 1. Shorter
    /// items need more, up to the whole at 1.5 n-grams: there a shared phrase is already most of the item.
    pub min_coverage: f64,
    /// Which texts of an item are looked for.
    pub parts: Parts,
}

impl Default for ContaminationRules {
    /// 10-grams, half of a long item, questions.
    fn default() -> Self {
        Self { ngram: NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN), min_coverage: 0.5, parts: Parts::Question }
    }
}

impl ContaminationRules {
    /// Coverage that an item of `tokens` tokens needs: `min_coverage` from 8 n-grams on, rising in a straight
    /// line to 1 at 1.5 n-grams and below.
    ///
    /// Short items of one template differ in a word at the end ("the number of ways to arrange the letters of
    /// the word ..."), so that anything below the whole would find the template.
    pub fn required_coverage(&self, tokens: usize) -> f64 {
        let ngrams = tokens as f64 / self.ngram.get() as f64;
        let shortness = ((8.0 - ngrams) / 6.5).clamp(0.0, 1.0);
        self.min_coverage + (1.0 - self.min_coverage) * shortness
    }
}

/// Tokens from which an item shorter than one n-gram is also found inside a document, in scripts with words.
const MIN_CONTAINED_WORDS: usize = 5;

/// The same where most tokens are single characters, which say less than words.
const MIN_CONTAINED_SINGLES: usize = 8;

/// What an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct IndexCounts {
    /// Items given.
    pub items: usize,
    /// Texts of items indexed by n-grams.
    pub by_ngrams: usize,
    /// Texts of items shorter than one n-gram, matched whole.
    pub by_exact_match: usize,
    /// Different n-grams in the index.
    pub ngrams: usize,
    /// Texts without a single token, which can never be found.
    pub empty: usize,
    /// Answers left out because they are shorter than one n-gram.
    pub short_answers: usize,
}

/// One indexed text of an item: its tokens are `tokens[start..end]` of the index.
#[derive(Debug)]
struct Entry {
    item: u32,
    part: Part,
    start: usize,
    end: usize,
    /// Tokens with operators, kept for items that are matched whole.
    with_operators: Vec<u64>,
    is_containable: bool,
}

/// Where an n-gram occurs: entry and token position within it.
type Posting = (u32, u32);

/// Index of the n-grams of evaluation items. Read-only once built and shared between threads.
#[derive(Debug)]
pub struct ContaminationIndex {
    rules: ContaminationRules,
    items: Vec<EvalItem>,
    entries: Vec<Entry>,
    tokens: Vec<u64>,
    is_number: Vec<bool>,
    postings: Vec<Posting>,
    /// N-gram hash to its range of `postings`.
    ngrams: HashMap<u64, (u32, u32)>,
    /// Hash of the first tokens of each short item to its entries.
    heads: HashMap<u64, Vec<u32>>,
    /// Hash of the whole of each short item to its entries.
    wholes: HashMap<u64, Vec<u32>>,
    counts: IndexCounts,
}

impl ContaminationIndex {
    /// Indexes `items`.
    ///
    /// # Errors
    /// [`TextError::Parameter`] when `min_coverage` is outside 0 to 1, [`TextError::EmptyIndex`] when no item
    /// has a text that can be found: an index that can find nothing must not pass for clean data.
    pub fn build(items: Vec<EvalItem>, rules: ContaminationRules) -> Result<Self, TextError> {
        if !(rules.min_coverage > 0.0 && rules.min_coverage <= 1.0) {
            let reason = format!("{} is not above 0 and at most 1", rules.min_coverage);
            return Err(TextError::Parameter { name: "min_coverage", reason });
        }
        let mut index = Self {
            rules,
            items,
            entries: Vec::new(),
            tokens: Vec::new(),
            is_number: Vec::new(),
            postings: Vec::new(),
            ngrams: HashMap::new(),
            heads: HashMap::new(),
            wholes: HashMap::new(),
            counts: IndexCounts::default(),
        };
        index.add_entries();
        index.add_ngrams();
        index.add_short_items();
        let counts = index.counts;
        if counts.ngrams == 0 && counts.by_exact_match == 0 {
            return Err(TextError::EmptyIndex {
                items: counts.items,
                empty: counts.empty,
                short_answers: counts.short_answers,
                ngram: index.rules.ngram.get(),
            });
        }
        Ok(index)
    }

    /// What the index holds.
    pub fn counts(&self) -> IndexCounts {
        self.counts
    }

    /// The rules it was built with.
    pub fn rules(&self) -> &ContaminationRules {
        &self.rules
    }

    /// The items it was built from.
    pub fn items(&self) -> &[EvalItem] {
        &self.items
    }

    /// A searcher with its own working memory; one a thread.
    pub fn searcher(&self) -> Searcher<'_> {
        Searcher::new(self)
    }

    /// All items found in `document`; [`ContaminationIndex::searcher`] is faster for many documents.
    pub fn find(&self, document: &str) -> Found {
        self.searcher().find(document)
    }

    /// Plants items of every set, disguised, and looks for them.
    ///
    /// # Errors
    /// [`TextError::SelfTest`] for a planted item that is not found: the set-up is broken, whatever the data.
    pub fn self_test(&self) -> Result<usize, TextError> {
        self_test::run(self)
    }

    fn add_entries(&mut self) {
        let n = self.rules.ngram.get();
        let texts = texts(&self.items, self.rules.parts);
        let views: Vec<View> = texts.par_iter().map(|(_, _, text)| View::new(text)).collect();
        self.counts.items = self.items.len();
        for ((item, part, text), view) in texts.into_iter().zip(views) {
            let is_short = view.len() < n;
            if view.is_empty() {
                self.counts.empty += 1;
                continue;
            }
            if is_short && part == Part::Answer {
                self.counts.short_answers += 1;
                continue;
            }
            let singles = view.kinds().iter().filter(|kind| **kind == TokenKind::Single).count();
            let least = if singles * 2 > view.len() { MIN_CONTAINED_SINGLES } else { MIN_CONTAINED_WORDS };
            let (from, to) = view.span(0, view.len() - 1);
            // of the tokens' span only, as in a document: what stands before or behind does not count
            let bare = text.get(from..to).filter(|_| is_short).unwrap_or_default();
            let with_operators = search::tokens_with_operators(bare);
            let start = self.tokens.len();
            self.tokens.extend_from_slice(view.tokens());
            self.is_number.extend(view.kinds().iter().map(|kind| *kind == TokenKind::Number));
            let end = self.tokens.len();
            let is_containable = view.len() >= least;
            self.entries.push(Entry { item, part, start, end, with_operators, is_containable });
        }
    }

    fn add_ngrams(&mut self) {
        let n = self.rules.ngram.get();
        let mut grams: Vec<(u64, Posting)> = Vec::new();
        let mut keys = Vec::new();
        for (entry, id) in self.entries.iter().zip(0..) {
            if entry.end - entry.start < n {
                continue;
            }
            self.counts.by_ngrams += 1;
            let range = entry.start..entry.end;
            ngram_keys(&self.tokens[range.clone()], &self.is_number[range], self.rules.ngram, &mut keys);
            grams.extend(keys.iter().zip(0..).map(|(key, at)| (*key, (id, at))));
        }
        grams.par_sort_unstable();
        let mut start = 0_u32;
        for run in grams.chunk_by(|first, second| first.0 == second.0) {
            let end = start + u32::try_from(run.len()).unwrap_or(u32::MAX);
            self.ngrams.insert(run[0].0, (start, end));
            start = end;
        }
        self.postings = grams.into_iter().map(|(_, posting)| posting).collect();
        self.counts.ngrams = self.ngrams.len();
    }

    fn add_short_items(&mut self) {
        for (entry, id) in self.entries.iter().zip(0..) {
            let tokens = &self.tokens[entry.start..entry.end];
            if tokens.len() >= self.rules.ngram.get() {
                continue;
            }
            self.counts.by_exact_match += 1;
            self.wholes.entry(run_hash(tokens)).or_default().push(id);
            if entry.is_containable {
                self.heads.entry(run_hash(&tokens[..MIN_CONTAINED_WORDS])).or_default().push(id);
            }
        }
    }
}

/// The texts of all items that are looked for: item, part, text.
fn texts(items: &[EvalItem], parts: Parts) -> Vec<(u32, Part, &str)> {
    (0..)
        .zip(items)
        .flat_map(|(item, eval)| {
            let question = (parts != Parts::Answer).then_some((item, Part::Question, eval.question.as_str()));
            let answer = eval.answer.as_deref().filter(|_| parts != Parts::Question);
            question.into_iter().chain(answer.map(|answer| (item, Part::Answer, answer)))
        })
        .collect()
}

/// Keys of all n-grams of a token sequence: numbers are masked, so that twins are found too, but where numbers
/// are most of an n-gram it stays as it is (rows of numbers would all be one n-gram).
fn ngram_keys(tokens: &[u64], is_number: &[bool], n: NonZeroUsize, keys: &mut Vec<u64>) {
    let masked: Vec<u64> = tokens
        .iter()
        .zip(is_number)
        .map(|(token, is_number)| if *is_number { crate::view::MASKED_NUMBER } else { *token })
        .collect();
    let mut numbers = is_number.iter().take(n.get()).filter(|is_number| **is_number).count();
    keys.clear();
    for (at, (exact, masked)) in ngram_hashes(tokens, n).zip(ngram_hashes(&masked, n)).enumerate() {
        keys.push(if numbers * 2 > n.get() { exact } else { masked });
        numbers -= usize::from(is_number[at]);
        numbers += usize::from(is_number.get(at + n.get()).copied().unwrap_or(false));
    }
}

#[cfg(test)]
mod tests;
