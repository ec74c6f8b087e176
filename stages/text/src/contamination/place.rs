//! Scores how much of one item stands together in a document, place by place.
//!
//! Matches of an item arrive in the order of the document. Those that lie closer together than the item is long make
//! a place; a place of more than two lengths is scored in overlapping pieces, so that memory stays at the item's size
//! however often a document repeats it.

use super::grams::Role;
use super::search::{Hit, MatchKind};
use super::{ContaminationIndex, Entry};
use crate::view::{TokenKind, View};

/// A matched n-gram: token position in the document and in the item.
type Match = (u32, u32);

/// State of one token of an item while it is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cover {
    None,
    OtherNumber,
    Same,
}

/// The matches of one entry on their way through a document.
#[derive(Debug)]
pub(super) struct Places<'a> {
    index: &'a ContaminationIndex,
    entry: &'a Entry,
    matches: Vec<Match>,
    best: Option<Hit>,
}

impl<'a> Places<'a> {
    pub(super) fn new(index: &'a ContaminationIndex, entry: &'a Entry) -> Self {
        Self { index, entry, matches: Vec::new(), best: None }
    }

    /// Takes the next match; those of one entry come in the order of the document.
    pub(super) fn add(&mut self, view: &View, cover: &mut Scratch, matched: Match) {
        let length = u32::try_from(self.entry.end - self.entry.start).unwrap_or(u32::MAX);
        if let (Some(first), Some(last)) = (self.matches.first(), self.matches.last()) {
            if matched.0 - last.0 > length {
                self.score(view, cover);
                self.matches.clear();
            } else if matched.0 - first.0 > length.saturating_mul(2) {
                self.score(view, cover);
                self.matches.retain(|before| matched.0 - before.0 <= length);
            }
        }
        self.matches.push(matched);
    }

    /// The best place: one with the same numbers before any other, then the one that covers most.
    pub(super) fn finish(mut self, view: &View, cover: &mut Scratch) -> Option<Hit> {
        self.score(view, cover);
        self.best
    }

    fn score(&mut self, view: &View, cover: &mut Scratch) {
        let Some(hit) = self.judge(view, cover) else { return };
        let is_better =
            self.best.as_ref().is_none_or(|best| (!hit.numbers_differ, hit.score) > (!best.numbers_differ, best.score));
        if is_better {
            self.best = Some(hit);
        }
    }

    /// Whether the covered tokens of the item are enough, and whether its numbers are others.
    fn judge(&self, view: &View, scratch: &mut Scratch) -> Option<Hit> {
        let (n, entry) = (self.index.rules.ngram.get(), self.entry);
        let rules = &self.index.rules;
        let share = |count: usize| count as f64 / entry.counted as f64;
        if share(self.matches.len() * n) < rules.required_beginning(entry.counted) {
            return None;
        }
        let cover = &mut scratch.0;
        cover.clear();
        cover.resize(entry.end - entry.start, Cover::None);
        // matches that follow each other token by token share all but one token
        let mut done = (0, 0);
        for (document, item) in &self.matches {
            let (document, item) = (*document as usize, *item as usize);
            let is_next = document.wrapping_sub(item) == done.0 && item < done.1;
            let from = if is_next { done.1 } else { item };
            for (at, cover) in cover.iter_mut().enumerate().take(item + n).skip(from) {
                *cover = (*cover).max(self.compare(view, at, document + at - item));
            }
            done = (document.wrapping_sub(item), item + n);
        }
        let roles = &self.index.roles[entry.start..entry.end];
        let own = || cover.iter().zip(roles).filter(|(_, role)| **role == Role::Own).map(|(cover, _)| *cover);
        let matched = own().filter(|cover| *cover != Cover::None).count();
        let beginning = own().take_while(|cover| *cover != Cover::None).count();
        let is_found = share(matched) >= rules.required_coverage(entry.counted)
            || share(beginning) >= rules.required_beginning(entry.counted);
        let numbers_differ = cover.contains(&Cover::OtherNumber);
        let (first, last) = (self.matches.first()?.0 as usize, self.matches.last()?.0 as usize);
        let span = view.span(first, last + n - 1);
        let score = share(matched);
        is_found.then(|| hit(self.index, entry, score, span, matched, MatchKind::Ngram, numbers_differ))
    }

    /// Compares a token of the item with one of the document: another number, the same, or (where two n-grams happen
    /// to have one hash) nothing of the kind.
    fn compare(&self, view: &View, item: usize, document: usize) -> Cover {
        let at = self.entry.start + item;
        let (Some(token), Some(kind)) = (view.tokens().get(document), view.kinds().get(document)) else {
            return Cover::None;
        };
        if self.index.tokens[at] == *token {
            Cover::Same
        } else if self.index.kinds[at] == TokenKind::Number && *kind == TokenKind::Number {
            Cover::OtherNumber
        } else {
            Cover::None
        }
    }
}

/// Working memory for scores.
#[derive(Debug, Default)]
pub(super) struct Scratch(Vec<Cover>);

/// A hit on an entry.
pub(super) fn hit(
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
