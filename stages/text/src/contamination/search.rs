//! Looks up one document in an index and scores what it holds of each item.

use serde::Serialize;

use super::grams::mask;
use super::place::{Places, Scratch, hit};
use super::{ContaminationIndex, Part};
use crate::ngram::for_each_run_of;
use crate::view::{Symbols, ViewBuilder};

/// How an item was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchKind {
    /// By n-grams that cover enough of it.
    Ngram,
    /// Whole, since it has no n-grams that say anything.
    Exact,
}

/// One item found in a document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    /// Evaluation set of the item.
    pub set: String,
    /// Id of the item in its set.
    pub item_id: String,
    /// Which text of the item was found.
    pub part: Part,
    /// Share of the item's own tokens found in the document, 0 to 1; for a twin with numbers hidden.
    pub score: f64,
    /// Byte span (start, end) of the evidence in the document, on character boundaries.
    pub span: (usize, usize),
    /// Own tokens of the item found in the document.
    pub matched: usize,
    /// How it was found.
    pub kind: MatchKind,
    /// Whether item and document agree but for their numbers: a twin, not contamination.
    pub numbers_differ: bool,
}

/// What was found in one document.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Found {
    /// Contamination: items whose text the document holds, best score first, then in the order of the items.
    pub hits: Vec<Hit>,
    /// Items that the document equals but for numbers, in the same order. Not contamination.
    pub twins: Vec<Hit>,
}

impl Found {
    /// The hit with the best score.
    pub fn best(&self) -> Option<&Hit> {
        self.hits.first()
    }

    /// Whether the document holds an evaluation item.
    pub fn is_contaminated(&self) -> bool {
        !self.hits.is_empty()
    }
}

/// Searches documents one after another in the same working memory.
#[derive(Debug)]
pub struct Searcher<'a> {
    index: &'a ContaminationIndex,
    builder: ViewBuilder,
    /// N-grams of the index in the document: token position, number of the n-gram.
    matches: Vec<(u32, u32)>,
    ngrams: Vec<u32>,
    entries: Vec<u32>,
    cover: Scratch,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(index: &'a ContaminationIndex) -> Self {
        Self {
            index,
            builder: ViewBuilder::new(Symbols::Dropped),
            matches: Vec::new(),
            ngrams: Vec::new(),
            entries: Vec::new(),
            cover: Scratch::default(),
        }
    }

    /// All items found in `document`.
    pub fn find(&mut self, document: &str) -> Found {
        let mut found = Found::default();
        let index = self.index;
        let view = self.builder.build(document);
        index.wholes.find(&index.tokens, view, document, |(entry, at, length)| {
            let span = view.span(at, at + length - 1);
            let entry = &index.entries[entry as usize];
            found.hits.push(hit(index, entry, 1.0, span, length, MatchKind::Exact, false));
        });
        let (tokens, kinds) = (view.tokens(), view.kinds());
        let matches = &mut self.matches;
        matches.clear();
        for_each_run_of(
            tokens.len(),
            index.rules.ngram,
            |at| mask(tokens[at], kinds[at]),
            |token| index.vocabulary.may_hold(token),
            |at, key| {
                if let Some(ngram) = index.table.find(key)
                    && let Ok(at) = u32::try_from(at)
                {
                    matches.push((at, ngram));
                }
            },
        );
        if !self.matches.is_empty() {
            self.propose();
            self.score(&mut found);
        }
        for list in [&mut found.hits, &mut found.twins] {
            // equal scores stay in the order of the items
            list.sort_by(|first, second| second.score.total_cmp(&first.score));
        }
        found
    }

    /// Leaves in `entries` those that have enough different n-grams in the document, in ascending order.
    fn propose(&mut self) {
        let index = self.index;
        self.ngrams.clear();
        self.ngrams.extend(self.matches.iter().map(|(_, ngram)| *ngram));
        self.ngrams.sort_unstable();
        self.ngrams.dedup();
        self.entries.clear();
        for ngram in &self.ngrams {
            self.entries.extend(index.table.postings(*ngram).iter().map(|(entry, _)| *entry));
        }
        self.entries.sort_unstable();
        let mut proposed = 0;
        let mut at = 0;
        while let Some(entry) = self.entries.get(at).copied() {
            let count = self.entries[at..].iter().take_while(|other| **other == entry).count();
            let counted = index.entries[entry as usize].counted;
            let reach = (count * index.rules.ngram.get()) as f64 / counted as f64;
            if reach >= index.rules.required_beginning(counted) {
                self.entries[proposed] = entry;
                proposed += 1;
            }
            at += count;
        }
        self.entries.truncate(proposed);
    }

    fn score(&mut self, found: &mut Found) {
        let (index, view) = (self.index, self.builder.last());
        let mut places: Vec<Places<'_>> =
            self.entries.iter().map(|entry| Places::new(index, &index.entries[*entry as usize])).collect();
        if places.is_empty() {
            return;
        }
        for (document, ngram) in &self.matches {
            for (entry, item) in index.table.postings(*ngram) {
                if let Ok(at) = self.entries.binary_search(entry) {
                    places[at].add(view, &mut self.cover, (*document, *item));
                }
            }
        }
        for hit in places.into_iter().filter_map(|place| place.finish(view, &mut self.cover)) {
            if hit.numbers_differ {
                found.twins.push(hit);
            } else {
                found.hits.push(hit);
            }
        }
    }
}
