//! Finds evaluation items inside training text: n-gram overlap, scored by coverage of the item
//! (VibeThinker-3B, quality control of SFT data: 10-grams over normalised text).
//!
//! The score is the share of the *item's* tokens that the document holds, never the share of the document:
//! a question embedded in a long page is as contaminated as a bare one. Numbers are kept: a document
//! that equals an item but for its numbers is a *twin*, another problem, and is counted apart. What many items of a
//! set share is its wording and counts for none of them. Items shorter than one n-gram, or without n-grams that say
//! anything, are matched whole. Hashes only propose; a match is confirmed token by token.
//!
//! A look-up takes time in proportion to the document: n-grams in more than a set share of the items are not in the
//! index, each n-gram leads to an item once, and runs that are matched whole are compared by prefix sums.

mod filter;
mod grams;
mod place;
mod search;
mod self_test;
mod table;
mod whole;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::TextError;
use crate::view::{TokenKind, View};
use filter::Filter;
use grams::Role;
use table::Table;
use whole::{Runs, Wholes};

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
    /// Share of the item's tokens from which a long item (6 n-grams and more) counts as found, 0 to 1. Shorter
    /// items need more, up to the whole at 1.5 n-grams: there a shared phrase is already most of the item. The
    /// item's beginning alone is enough from 2 n-grams on.
    pub min_coverage: f64,
    /// Which texts of an item are looked for.
    pub parts: Parts,
    /// Share of the items of a set, 0 to 1, above which an n-gram is the set's wording (an instruction behind every
    /// question, the frame of a template) and counts for no item. Up to five items may always share one.
    pub max_item_share: f64,
}

impl Default for ContaminationRules {
    /// 10-grams, half of a long item, questions, wording from 5 % of the items on.
    fn default() -> Self {
        let ngram = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN);
        Self { ngram, min_coverage: 0.5, parts: Parts::Question, max_item_share: 0.05 }
    }
}

impl ContaminationRules {
    /// Checks every range.
    ///
    /// # Errors
    /// [`TextError::Parameter`] for a share outside 0 to 1, a coverage of 0 and n-grams of more than 1000 tokens.
    pub fn validate(&self) -> Result<(), TextError> {
        if !(self.min_coverage > 0.0 && self.min_coverage <= 1.0) {
            let reason = format!("{} is not above 0 and at most 1", self.min_coverage);
            return Err(TextError::Parameter { name: "min_coverage", reason });
        }
        if !(0.0..=1.0).contains(&self.max_item_share) {
            let reason = format!("{} is not between 0 and 1", self.max_item_share);
            return Err(TextError::Parameter { name: "max_item_share", reason });
        }
        if self.ngram.get() > 1000 {
            let reason = format!("{} is above 1000", self.ngram);
            return Err(TextError::Parameter { name: "ngram", reason });
        }
        Ok(())
    }

    /// Coverage that an item of `tokens` tokens of its own needs: `min_coverage` from 6 n-grams on, rising in a
    /// straight line to 1 at 1.5 n-grams and below.
    ///
    /// Short items of one template differ in a few words ("the number of ways to arrange the letters of the word
    /// ..."), so that anything below the whole would find the template.
    pub fn required_coverage(&self, tokens: usize) -> f64 {
        self.rising(tokens, 6.0)
    }

    /// Coverage without a gap from the item's first token on that is enough as well: `min_coverage` from 2 n-grams on.
    /// A text that begins as an item does and leaves it later is its beginning more often than another problem.
    pub fn required_beginning(&self, tokens: usize) -> f64 {
        self.rising(tokens, 2.0)
    }

    fn rising(&self, tokens: usize, long: f64) -> f64 {
        let ngrams = tokens as f64 / self.ngram.get() as f64;
        let shortness = ((long - ngrams) / (long - 1.5)).clamp(0.0, 1.0);
        self.min_coverage + (1.0 - self.min_coverage) * shortness
    }
}

/// Tokens from which an item that is matched whole is also found inside a document, in scripts with words.
const MIN_CONTAINED_WORDS: usize = 5;

/// The same where most tokens are single characters, which say less than words, and where only the part of an item
/// that is not its set's wording is looked for.
const MIN_CONTAINED_OTHERS: usize = 8;

/// What an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct IndexCounts {
    /// Items given.
    pub items: usize,
    /// Texts of items indexed by n-grams.
    pub by_ngrams: usize,
    /// Texts of items that are matched whole.
    pub by_exact_match: usize,
    /// Different n-grams in the index.
    pub ngrams: usize,
    /// Different n-grams left out since they stand in too many items of a set.
    pub common_ngrams: usize,
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
    set: u32,
    start: usize,
    end: usize,
    /// Tokens that count in its score; 0 where it is matched whole.
    counted: usize,
}

/// Index of the n-grams of evaluation items. Read-only once built and shared between threads.
#[derive(Debug)]
pub struct ContaminationIndex {
    rules: ContaminationRules,
    items: Vec<EvalItem>,
    entries: Vec<Entry>,
    tokens: Vec<u64>,
    kinds: Vec<TokenKind>,
    roles: Vec<Role>,
    /// Tokens of all entries, numbers hidden: an n-gram with any other token is not in the table.
    vocabulary: Filter,
    table: Table,
    wholes: Wholes,
    counts: IndexCounts,
}

impl ContaminationIndex {
    /// Indexes `items`.
    ///
    /// # Errors
    /// [`TextError::Parameter`] for rules outside their ranges, [`TextError::EmptyIndex`] when there is not one n-gram
    /// and [`TextError::EmptySet`] when a set has no text that can be found: an index that can find nothing must not
    /// pass for clean data.
    pub fn build(items: Vec<EvalItem>, rules: ContaminationRules) -> Result<Self, TextError> {
        rules.validate()?;
        let mut index = Self {
            rules,
            items,
            entries: Vec::new(),
            tokens: Vec::new(),
            kinds: Vec::new(),
            roles: Vec::new(),
            vocabulary: Filter::default(),
            table: Table::default(),
            wholes: Wholes::default(),
            counts: IndexCounts::default(),
        };
        let views = index.add_entries()?;
        index.add_ngrams()?;
        index.add_wholes(&views);
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

    /// Cuts the texts of all items into tokens, and gives the views of those that became entries.
    fn add_entries(&mut self) -> Result<Vec<View>, TextError> {
        let n = self.rules.ngram.get();
        let texts = texts(&self.items, self.rules.parts);
        let views: Vec<View> = texts.par_iter().map(|(_, _, text)| View::new(text)).collect();
        self.counts.items = self.items.len();
        let mut sets: HashMap<&str, u32> = HashMap::new();
        let mut entries_of = Vec::new();
        let mut kept = Vec::with_capacity(views.len());
        for ((item, part, _), view) in texts.into_iter().zip(views) {
            let next = u32::try_from(sets.len()).unwrap_or(u32::MAX);
            let set = *sets.entry(&self.items[item as usize].set).or_insert(next);
            entries_of.resize(sets.len(), 0);
            if view.is_empty() {
                self.counts.empty += 1;
            } else if view.len() < n && part == Part::Answer {
                self.counts.short_answers += 1;
            } else {
                entries_of[set as usize] += 1;
                let start = self.tokens.len();
                self.tokens.extend_from_slice(view.tokens());
                self.kinds.extend_from_slice(view.kinds());
                self.entries.push(Entry { item, part, set, start, end: self.tokens.len(), counted: 0 });
                kept.push(view);
            }
        }
        let is_empty = |item: &&EvalItem| sets.get(item.set.as_str()).is_none_or(|set| entries_of[*set as usize] == 0);
        match self.items.iter().find(is_empty) {
            Some(item) if !self.entries.is_empty() => Err(TextError::EmptySet { set: item.set.clone() }),
            _ => Ok(kept),
        }
    }

    fn add_ngrams(&mut self) -> Result<(), TextError> {
        let tokens = grams::Tokens { hashes: &self.tokens, kinds: &self.kinds };
        let grams = grams::choose(&mut self.entries, &tokens, &self.rules);
        if grams.made == 0 {
            return Err(TextError::EmptyIndex {
                items: self.counts.items,
                empty: self.counts.empty,
                short_answers: self.counts.short_answers,
                ngram: self.rules.ngram.get(),
            });
        }
        let masked = self.tokens.iter().zip(&self.kinds).map(|(token, kind)| grams::mask(*token, *kind));
        let vocabulary: HashSet<u64> = masked.collect();
        self.vocabulary = Filter::of(vocabulary.into_iter());
        self.table = Table::new(&grams.postings);
        self.roles = grams.roles;
        self.counts.ngrams = self.table.ngrams();
        self.counts.common_ngrams = grams.common;
        self.counts.by_ngrams = self.entries.iter().filter(|entry| entry.counted > 0).count();
        self.counts.by_exact_match = self.entries.len() - self.counts.by_ngrams;
        Ok(())
    }

    /// Adds the entries that n-grams cannot find, once as they are and once without their set's wording at both ends.
    fn add_wholes(&mut self, views: &[View]) {
        let mut runs = Runs::default();
        for ((id, entry), view) in (0..).zip(&self.entries).zip(views).filter(|((_, entry), _)| entry.counted == 0) {
            let text = self.text(entry);
            let singles = view.kinds().iter().filter(|kind| **kind == TokenKind::Single).count();
            let least = if singles * 2 > view.len() { MIN_CONTAINED_OTHERS } else { MIN_CONTAINED_WORDS };
            let mut add = |(start, end): (usize, usize), least: usize| {
                let run = (entry.start + start, entry.start + end);
                runs.add(id, &self.tokens, run, whole::text_of(text, view, (start, end)), least);
            };
            add((0, view.len()), least);
            let is_own = |role: &Role| *role != Role::Common;
            let roles = &self.roles[entry.start..entry.end];
            if let (Some(first), Some(last)) = (roles.iter().position(is_own), roles.iter().rposition(is_own))
                && last + 1 - first < view.len()
                && last + 1 - first >= MIN_CONTAINED_WORDS
            {
                add((first, last + 1), MIN_CONTAINED_OTHERS);
            }
        }
        self.wholes = runs.into();
    }

    /// The text that an entry was made from.
    fn text(&self, entry: &Entry) -> &str {
        let item = self.items.get(entry.item as usize);
        item.map_or("", |item| match entry.part {
            Part::Question => &item.question,
            Part::Answer => item.answer.as_deref().unwrap_or_default(),
        })
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

#[cfg(test)]
mod tests;
