//! Items that are matched whole: those shorter than one n-gram and those made of n-grams that say nothing.
//!
//! A run of the document is compared by a hash that any run gets from two prefix sums, so that a text of one repeated
//! word and an item of thousands of it take no longer than any other two.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use super::MIN_CONTAINED_WORDS;
use super::filter::Filter;
use crate::ngram::{BASE, mix, ngram_hashes, run_hash};
use crate::view::{Symbols, View};

/// Items of at most so many tokens are compared with their operators too.
const WITH_OPERATORS: usize = 64;

/// Comparisons of operators that may fail in one document; a document beyond it is made to be slow.
const FAILURES: usize = 1000;

/// A run of an item's tokens that is matched whole.
#[derive(Debug)]
struct Whole {
    entry: u32,
    start: usize,
    end: usize,
    /// Tokens with operators, unless the run is long.
    with_operators: Option<Vec<u64>>,
    is_containable: bool,
}

/// All runs that are matched whole, while they are put together.
#[derive(Debug, Default)]
pub(super) struct Runs {
    all: Vec<Whole>,
    /// Hash of a run to its positions in `all`.
    by_hash: HashMap<u64, Vec<u32>>,
    /// Hash of the first tokens of the runs that are also found inside a document, to the lengths of these runs.
    lengths: HashMap<u64, Vec<usize>>,
    longest: usize,
}

/// All runs that are matched whole, to be found in documents.
#[derive(Debug, Default)]
pub(super) struct Wholes {
    runs: Runs,
    /// The hashes of `lengths`.
    heads: Filter,
}

/// A run found in a document: entry, first token, number of tokens.
pub(super) type FoundRun = (u32, usize, usize);

impl Runs {
    /// Adds the run `tokens[start..end]` of an entry; `text` is what it stands for. From `least` tokens on it is found
    /// inside documents too.
    pub(super) fn add(&mut self, entry: u32, tokens: &[u64], (start, end): (usize, usize), text: &str, least: usize) {
        let length = end - start;
        let is_containable = length >= least.max(MIN_CONTAINED_WORDS);
        let with_operators = (length <= WITH_OPERATORS).then(|| tokens_with_operators(text));
        let position = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let run = &tokens[start..end];
        self.by_hash.entry(run_hash(run)).or_default().push(position);
        self.longest = self.longest.max(length);
        if is_containable {
            let head = run_hash(&run[..MIN_CONTAINED_WORDS]);
            let lengths = self.lengths.entry(head).or_default();
            if let Err(at) = lengths.binary_search(&length) {
                lengths.insert(at, length);
            }
        }
        self.all.push(Whole { entry, start, end, with_operators, is_containable });
    }
}

impl From<Runs> for Wholes {
    fn from(runs: Runs) -> Self {
        let heads = Filter::of(runs.lengths.keys().copied());
        Self { runs, heads }
    }
}

impl Wholes {
    /// Whether the run of an entry is found inside documents.
    pub(super) fn is_containable(&self, entry: u32) -> bool {
        self.runs.all.iter().any(|run| run.entry == entry && run.is_containable)
    }

    /// Calls `found` once for each entry that stands whole in the document, or is it.
    pub(super) fn find(&self, index: &[u64], view: &View, document: &str, mut found: impl FnMut(FoundRun)) {
        let tokens = view.tokens();
        let Runs { lengths, longest, .. } = &self.runs;
        let mut search = Search { runs: &self.runs, index, view, document, entries: Vec::new(), failures: 0 };
        if tokens.len() <= *longest {
            let is_document = |run: &Whole| run.end - run.start == tokens.len();
            search.check(run_hash(tokens), 0, is_document, &mut found);
        }
        let Some(head) = NonZeroUsize::new(MIN_CONTAINED_WORDS).filter(|_| !lengths.is_empty()) else {
            return;
        };
        let mut sums: Option<PrefixSums> = None;
        for (at, hash) in ngram_hashes(tokens, head).enumerate() {
            if !self.heads.may_hold(hash) {
                continue;
            }
            for length in lengths.get(&hash).into_iter().flatten() {
                if at + length <= tokens.len() {
                    let sums = sums.get_or_insert_with(|| PrefixSums::new(tokens, *longest));
                    let is_inside = |run: &Whole| run.is_containable && run.end - run.start == *length;
                    search.check(sums.run_hash(at, *length), at, is_inside, &mut found);
                }
            }
        }
    }
}

struct Search<'a> {
    runs: &'a Runs,
    index: &'a [u64],
    view: &'a View,
    document: &'a str,
    /// Entries found, ascending.
    entries: Vec<u32>,
    failures: usize,
}

impl Search<'_> {
    fn check(&mut self, hash: u64, at: usize, fits: impl Fn(&Whole) -> bool, found: &mut impl FnMut(FoundRun)) {
        for position in self.runs.by_hash.get(&hash).into_iter().flatten() {
            let Some(run) = self.runs.all.get(*position as usize).filter(|run| fits(run)) else {
                continue;
            };
            let Err(place) = self.entries.binary_search(&run.entry) else {
                continue;
            };
            if self.is_same(run, at) {
                self.entries.insert(place, run.entry);
                found((run.entry, at, run.end - run.start));
            }
        }
    }

    fn is_same(&mut self, run: &Whole, at: usize) -> bool {
        let length = run.end - run.start;
        if self.failures >= FAILURES || self.view.tokens()[at..at + length] != self.index[run.start..run.end] {
            return false;
        }
        let Some(operators) = &run.with_operators else {
            return true;
        };
        let (from, to) = self.view.span(at, at + length - 1);
        let is_same = tokens_with_operators(self.document.get(from..to).unwrap_or_default()) == *operators;
        self.failures += usize::from(!is_same);
        is_same
    }
}

/// Sums of all prefixes of a token sequence, from which the hash of any run follows.
struct PrefixSums {
    sums: Vec<u64>,
    powers: Vec<u64>,
}

impl PrefixSums {
    fn new(tokens: &[u64], longest: usize) -> Self {
        let mut sums = Vec::with_capacity(tokens.len() + 1);
        let mut sum = 0_u64;
        sums.push(sum);
        for token in tokens {
            sum = sum.wrapping_mul(BASE).wrapping_add(*token);
            sums.push(sum);
        }
        let powers = std::iter::successors(Some(1_u64), |power| Some(power.wrapping_mul(BASE)));
        Self { sums, powers: powers.take(longest.min(tokens.len()) + 1).collect() }
    }

    /// Hash of `length` tokens from `at` on, both within the sequence and at most the longest run.
    fn run_hash(&self, at: usize, length: usize) -> u64 {
        mix(self.sums[at + length].wrapping_sub(self.sums[at].wrapping_mul(self.powers[length])))
    }
}

/// Tokens of a short text with its operators, whatever its line breaks.
fn tokens_with_operators(text: &str) -> Vec<u64> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    View::with_symbols(&line, Symbols::Operators).tokens().to_vec()
}

/// Text of the tokens `start..end` of an entry's text, which has the view `view`.
pub(super) fn text_of<'t>(text: &'t str, view: &View, (start, end): (usize, usize)) -> &'t str {
    let (from, to) = view.span(start, end.saturating_sub(1));
    text.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefix_sums_give_the_hash_of_any_run(tokens in prop::collection::vec(any::<u64>(), 1..30), at in 0_usize..30, length in 1_usize..30) {
            let at = at.min(tokens.len() - 1);
            let length = length.min(tokens.len() - at);
            prop_assert_eq!(PrefixSums::new(&tokens, 30).run_hash(at, length), run_hash(&tokens[at..at + length]));
        }
    }
}
