//! Looks up one document in an index and scores what it holds of each item.

use serde::Serialize;

use super::{ContaminationIndex, Entry, MIN_CONTAINED_WORDS, Part, ngram_keys};
use crate::ngram::{ngram_hashes, run_hash};
use crate::view::{Symbols, TokenKind, View, ViewBuilder};

/// How an item was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchKind {
    /// By n-grams that cover enough of it.
    Ngram,
    /// Whole, since it is shorter than one n-gram.
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
    /// Share of the item's tokens found in the document, 0 to 1; for a twin with numbers hidden.
    pub score: f64,
    /// Byte span (start, end) of the evidence in the document, on character boundaries.
    pub span: (usize, usize),
    /// Tokens of the item found in the document.
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

/// A matched n-gram: entry, token position in the document, token position in the item, same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    entry: u32,
    document: u32,
    item: u32,
    is_exact: bool,
}

/// State of one token of an item while it is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cover {
    None,
    Masked,
    Exact,
}

/// Searches documents one after another in the same working memory.
#[derive(Debug)]
pub struct Searcher<'a> {
    index: &'a ContaminationIndex,
    builder: ViewBuilder,
    is_number: Vec<bool>,
    keys: Vec<u64>,
    matches: Vec<Match>,
    cover: Vec<Cover>,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(index: &'a ContaminationIndex) -> Self {
        Self {
            index,
            builder: ViewBuilder::new(Symbols::Dropped),
            is_number: Vec::new(),
            keys: Vec::new(),
            matches: Vec::new(),
            cover: Vec::new(),
        }
    }

    /// All items found in `document`.
    pub fn find(&mut self, document: &str) -> Found {
        let mut found = Found::default();
        let view = self.builder.build(document);
        self.is_number.clear();
        self.is_number.extend(view.kinds().iter().map(|kind| *kind == TokenKind::Number));
        find_short(self.index, view, document, &mut found);
        collect(self.index, view, &self.is_number, &mut self.keys, &mut self.matches);
        for matches in self.matches.chunk_by(|first, second| first.entry == second.entry) {
            score(self.index, view, matches, &mut self.cover, &mut found);
        }
        for list in [&mut found.hits, &mut found.twins] {
            // a stable sort: equal scores stay in the order of the items
            list.sort_by(|first, second| second.score.total_cmp(&first.score));
        }
        found
    }
}

/// Items shorter than one n-gram: the whole document, or a run inside it where they are long enough.
fn find_short(index: &ContaminationIndex, view: &View, document: &str, found: &mut Found) {
    let tokens = view.tokens();
    let mut hit_entries: Vec<u32> = Vec::new();
    let mut check = |id: u32, at: usize| {
        let Some(entry) = index.entries.get(id as usize) else {
            return;
        };
        let wanted = &index.tokens[entry.start..entry.end];
        if tokens.get(at..at + wanted.len()) != Some(wanted) || hit_entries.contains(&id) {
            return;
        }
        let span = view.span(at, at + wanted.len() - 1);
        let text = document.get(span.0..span.1).unwrap_or_default();
        if tokens_with_operators(text) == entry.with_operators {
            hit_entries.push(id);
            found.hits.push(hit(index, entry, 1.0, span, wanted.len(), MatchKind::Exact, false));
        }
    };
    for id in index.wholes.get(&run_hash(tokens)).into_iter().flatten() {
        if index.entries.get(*id as usize).is_some_and(|entry| entry.end - entry.start == tokens.len()) {
            check(*id, 0);
        }
    }
    let Some(length) = std::num::NonZeroUsize::new(MIN_CONTAINED_WORDS).filter(|_| !index.heads.is_empty()) else {
        return;
    };
    for (at, hash) in ngram_hashes(tokens, length).enumerate() {
        for id in index.heads.get(&hash).into_iter().flatten() {
            check(*id, at);
        }
    }
}

/// Tokens of a short text with its operators, whatever its line breaks.
pub(super) fn tokens_with_operators(text: &str) -> Vec<u64> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    View::with_symbols(&line, Symbols::Operators).tokens().to_vec()
}

/// All n-grams of the document that the index holds, confirmed token by token, sorted.
fn collect(index: &ContaminationIndex, view: &View, is_number: &[bool], keys: &mut Vec<u64>, matches: &mut Vec<Match>) {
    let n = index.rules.ngram.get();
    matches.clear();
    ngram_keys(view.tokens(), is_number, index.rules.ngram, keys);
    for (at, key) in keys.iter().enumerate() {
        let Some((first, last)) = index.ngrams.get(key).copied() else {
            continue;
        };
        for (id, position) in &index.postings[first as usize..last as usize] {
            let Some(entry) = index.entries.get(*id as usize) else {
                continue;
            };
            let start = entry.start + *position as usize;
            let mut is_exact = true;
            let agrees = (0..n).all(|offset| {
                let is_same = index.tokens[start + offset] == view.tokens()[at + offset];
                is_exact &= is_same;
                is_same || (index.is_number[start + offset] && is_number[at + offset])
            });
            if agrees && let Ok(document) = u32::try_from(at) {
                matches.push(Match { entry: *id, document, item: *position, is_exact });
            }
        }
    }
    matches.sort_unstable();
}

/// Scores one entry: the best of the places in the document where its matches lie together.
fn score(index: &ContaminationIndex, view: &View, matches: &[Match], cover: &mut Vec<Cover>, found: &mut Found) {
    let Some(entry) = matches.first().and_then(|first| index.entries.get(first.entry as usize)) else {
        return;
    };
    let (n, length) = (index.rules.ngram.get(), entry.end - entry.start);
    let mut best: Option<Hit> = None;
    let is_near = |first: &Match, second: &Match| (second.document - first.document) as usize <= length.max(n);
    for place in matches.chunk_by(is_near) {
        cover.clear();
        cover.resize(length, Cover::None);
        for matched in place {
            let state = if matched.is_exact { Cover::Exact } else { Cover::Masked };
            let start = matched.item as usize;
            for token in &mut cover[start..start + n] {
                *token = state.max(*token);
            }
        }
        let Some(hit) = judge(index, view, entry, place, cover) else {
            continue;
        };
        let is_better =
            best.as_ref().is_none_or(|best| (!hit.numbers_differ, hit.score) > (!best.numbers_differ, best.score));
        if is_better {
            best = Some(hit);
        }
    }
    match best {
        Some(hit) if hit.numbers_differ => found.twins.push(hit),
        Some(hit) => found.hits.push(hit),
        None => {}
    }
}

/// Whether the covered tokens of an item are enough, and whether its numbers are others.
fn judge(index: &ContaminationIndex, view: &View, entry: &Entry, place: &[Match], cover: &[Cover]) -> Option<Hit> {
    let n = index.rules.ngram.get();
    let required = index.rules.required_coverage(cover.len());
    let masked = cover.iter().filter(|state| **state != Cover::None).count();
    let exact = cover.iter().filter(|state| **state == Cover::Exact).count();
    let share = |count: usize| count as f64 / cover.len() as f64;
    if share(masked) < required {
        return None;
    }
    // a number that no exact n-gram covers has another value in the document, or a neighbour that has; the
    // matches that cover it by alignment decide which
    let numbers_differ = place.iter().filter(|matched| !matched.is_exact).any(|matched| {
        (0..n).any(|offset| {
            let (item, document) = (matched.item as usize + offset, matched.document as usize + offset);
            cover[item] != Cover::Exact && index.tokens[entry.start + item] != view.tokens()[document]
        })
    });
    if !numbers_differ && share(exact) < required {
        return None;
    }
    let matched = if numbers_differ { masked } else { exact };
    let first = place.first().map_or(0, |first| first.document as usize);
    let last = place.last().map_or(0, |last| last.document as usize);
    let span = view.span(first, last + n - 1);
    Some(hit(index, entry, share(matched), span, matched, MatchKind::Ngram, numbers_differ))
}

fn hit(
    index: &ContaminationIndex,
    entry: &Entry,
    score: f64,
    span: (usize, usize),
    matched: usize,
    kind: MatchKind,
    numbers_differ: bool,
) -> Hit {
    let (set, item_id) =
        index.items.get(entry.item as usize).map_or_else(Default::default, |item| (item.set.clone(), item.id.clone()));
    Hit { set, item_id, part: entry.part, score, span, matched, kind, numbers_differ }
}
