//! Turns a view into its set of shingles and compares two such sets exactly.
//!
//! The Jaccard index of two sets is |A and B| / |A or B|. A text shorter than a shingle is one shingle by
//! itself (else all short texts would share the empty set and count as duplicates of each other), and a
//! text without tokens has no set at all.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::ngram::{for_each_run, mix, run_hash};
use crate::view::{FoldedView, Symbols, TokenKind, View, ViewBuilder};

/// What a shingle is a run of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShingleUnit {
    /// Tokens of the view.
    #[default]
    Word,
    /// Characters of the folded text.
    Char,
}

/// Unit and length of a shingle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shingling {
    /// Words or characters.
    pub unit: ShingleUnit,
    /// How many of them a shingle has.
    pub size: NonZeroUsize,
}

impl Default for Shingling {
    /// Word 5-grams.
    fn default() -> Self {
        Self { unit: ShingleUnit::Word, size: NonZeroUsize::new(5).unwrap_or(NonZeroUsize::MIN) }
    }
}

/// Hashes the shingles of one text after another in the same memory.
#[derive(Debug, Clone, Default)]
pub struct Shingler {
    shingling: Shingling,
    is_masked: bool,
    views: ViewBuilder,
    tokens: Vec<u64>,
    folded: String,
    hashes: Vec<u64>,
}

/// The shingles of a text as [`Shingler`] finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shingles<'a> {
    /// Hash of each shingle in the order of the text, repeats included; none for a text without tokens, one for a text
    /// shorter than a shingle.
    pub hashes: &'a [u64],
    /// Digest of the text's numbers, in order.
    pub numbers: u64,
}

impl Shingler {
    /// A shingler over views with `symbols`, which hides every number if `is_masked`, so that texts which differ in
    /// their numbers only have equal sets.
    pub fn new(shingling: Shingling, symbols: Symbols, is_masked: bool) -> Self {
        Self { shingling, is_masked, views: ViewBuilder::new(symbols), ..Self::default() }
    }

    /// The shingles of a text; those of the text before are gone.
    pub fn shingles(&mut self, text: &str) -> Shingles<'_> {
        self.hashes.clear();
        let size = self.shingling.size;
        let view = match self.shingling.unit {
            ShingleUnit::Word => {
                let view = self.views.build(text);
                if self.is_masked {
                    view.number_masked(&mut self.tokens);
                    of_tokens(&self.tokens, size, &mut self.hashes);
                } else {
                    of_tokens(view.tokens(), size, &mut self.hashes);
                }
                view
            }
            ShingleUnit::Char => {
                let view = self.views.build_folded(text);
                if self.is_masked {
                    masked_text(view, &mut self.folded);
                    of_characters(&self.folded, size, &mut self.hashes);
                } else {
                    of_characters(view.text(), size, &mut self.hashes);
                }
                view.view()
            }
        };
        let numbers = view.numbers().fold(0_u64, |digest, number| mix(digest.rotate_left(23) ^ number));
        Shingles { hashes: &self.hashes, numbers }
    }
}

/// Folded text with a 0 for every number.
fn masked_text(view: &FoldedView, out: &mut String) {
    out.clear();
    for (index, kind) in view.view().kinds().iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(if *kind == TokenKind::Number { "0" } else { view.token_text(index) });
    }
}

fn of_tokens(tokens: &[u64], size: NonZeroUsize, out: &mut Vec<u64>) {
    if tokens.len() < size.get() && !tokens.is_empty() {
        out.push(run_hash(tokens));
    }
    out.reserve(tokens.len());
    for_each_run(tokens.len(), size, |at| tokens[at], |_, hash| out.push(hash));
}

fn of_characters(folded: &str, size: NonZeroUsize, out: &mut Vec<u64>) {
    let ends = folded.char_indices().map(|(at, character)| at + character.len_utf8()).skip(size.get() - 1);
    let starts = folded.char_indices().map(|(at, _)| at);
    out.extend(starts.zip(ends).map(|(start, end)| xxh3_64(&folded.as_bytes()[start..end])));
    if out.is_empty() && !folded.is_empty() {
        out.push(xxh3_64(folded.as_bytes()));
    }
}

/// The shingles of one text: hashes, sorted, each once, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShingleSet(Vec<u64>);

impl ShingleSet {
    /// Shingles of a view; `None` when it has no token.
    pub fn new(view: &FoldedView, shingling: Shingling) -> Option<Self> {
        let mut hashes = Vec::new();
        match shingling.unit {
            ShingleUnit::Word => of_tokens(view.view().tokens(), shingling.size, &mut hashes),
            ShingleUnit::Char => of_characters(view.text(), shingling.size, &mut hashes),
        }
        Self::from_hashes(hashes)
    }

    /// The same with every number hidden.
    pub fn number_masked(view: &FoldedView, shingling: Shingling) -> Option<Self> {
        let mut hashes = Vec::new();
        match shingling.unit {
            ShingleUnit::Word => {
                let mut tokens = Vec::new();
                view.view().number_masked(&mut tokens);
                of_tokens(&tokens, shingling.size, &mut hashes);
            }
            ShingleUnit::Char => {
                let mut folded = String::new();
                masked_text(view, &mut folded);
                of_characters(&folded, shingling.size, &mut hashes);
            }
        }
        Self::from_hashes(hashes)
    }

    /// A set of any hashes; `None` when there are none.
    pub fn from_hashes(mut hashes: Vec<u64>) -> Option<Self> {
        hashes.sort_unstable();
        hashes.dedup();
        (!hashes.is_empty()).then_some(Self(hashes))
    }

    /// The hashes, sorted, each once.
    pub fn hashes(&self) -> &[u64] {
        &self.0
    }

    /// Exact Jaccard index with another set, 0 to 1.
    pub fn jaccard(&self, other: &Self) -> f64 {
        jaccard(&self.0, &other.0)
    }
}

/// Exact Jaccard index |A and B| / |A or B| of two sorted lists without repeats; 0 for two empty ones.
pub fn jaccard(first: &[u64], second: &[u64]) -> f64 {
    let shared = intersection(first, second);
    let all = first.len() + second.len() - shared;
    if all == 0 { 0.0 } else { shared as f64 / all as f64 }
}

/// Highest Jaccard index that two sets of these sizes can have.
pub fn jaccard_bound(first: usize, second: usize) -> f64 {
    first.min(second) as f64 / first.max(second).max(1) as f64
}

/// Whether the numbers of two texts differ, as multisets. Near-duplicates whose numbers differ are two problems.
pub fn numbers_differ(first: &View, second: &View) -> bool {
    let sorted = |view: &View| {
        let mut numbers: Vec<u64> = view.numbers().collect();
        numbers.sort_unstable();
        numbers
    };
    sorted(first) != sorted(second)
}

/// Whether two texts say the same with other numbers: equal shingles once numbers are hidden, other numbers.
pub fn are_number_twins(first: &FoldedView, second: &FoldedView, shingling: Shingling) -> bool {
    let masked = ShingleSet::number_masked(first, shingling);
    masked.is_some()
        && masked == ShingleSet::number_masked(second, shingling)
        && numbers_in_order_differ(first.view(), second.view())
}

/// Two problems with the same numbers at other places are two problems as well.
fn numbers_in_order_differ(first: &View, second: &View) -> bool {
    !first.numbers().eq(second.numbers())
}

fn intersection(first: &[u64], second: &[u64]) -> usize {
    let (mut left, mut right, mut shared) = (0, 0, 0);
    while let (Some(a), Some(b)) = (first.get(left), second.get(right)) {
        shared += usize::from(a == b);
        left += usize::from(a <= b);
        right += usize::from(b <= a);
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn words(text: &str) -> Option<ShingleSet> {
        ShingleSet::new(&FoldedView::new(text), Shingling::default())
    }

    #[test]
    fn short_texts_are_one_shingle_each_and_differ() {
        let (cat, dog) = (words("cat").unwrap(), words("dog").unwrap());
        assert_eq!(cat.hashes().len(), 1);
        assert!(cat.jaccard(&dog) <= 0.0);
        assert!(cat.jaccard(&words("Cat!").unwrap()) >= 1.0);
    }

    #[test]
    fn a_text_without_tokens_has_no_set() {
        assert_eq!(words(""), None);
        assert_eq!(words(" ?! "), None);
    }

    #[test]
    fn characters_of_unspaced_text_make_shingles() {
        let shingling = Shingling { unit: ShingleUnit::Char, size: NonZeroUsize::new(3).unwrap() };
        let set = ShingleSet::new(&FoldedView::new("小明买了一本书"), shingling).unwrap();
        assert_eq!(set.hashes().len(), 5);
        assert_eq!(ShingleSet::new(&FoldedView::new("书"), shingling).unwrap().hashes().len(), 1);
    }

    #[test]
    fn number_twins_share_everything_but_numbers() {
        let view = |text| FoldedView::new(text);
        let first = view("Tom has 5 pens and buys 7 more. How many pens does he have?");
        let second = view("Tom has 8 pens and buys 9 more. How many pens does he have?");
        let third = view("Tim has 8 pens and buys 9 more. How many pens does he have?");
        for unit in [ShingleUnit::Word, ShingleUnit::Char] {
            let shingling = Shingling { unit, ..Shingling::default() };
            assert!(are_number_twins(&first, &second, shingling));
            assert!(!are_number_twins(&first, &first, shingling));
            assert!(!are_number_twins(&second, &third, shingling));
        }
        assert!(numbers_differ(first.view(), second.view()) && !numbers_differ(second.view(), third.view()));
    }

    #[test]
    fn other_operators_are_other_shingles_when_the_view_keeps_them() {
        let set = |text| ShingleSet::new(&FoldedView::with_symbols(text, Symbols::Operators), Shingling::default());
        assert_ne!(set("What is 12 + 7?"), set("What is 12 - 7?"));
    }

    proptest! {
        #[test]
        fn jaccard_is_symmetric_and_agrees_with_sets(
            first in prop::collection::vec(0_u64..40, 1..40),
            second in prop::collection::vec(0_u64..40, 1..40),
        ) {
            let (a, b): (BTreeSet<u64>, BTreeSet<u64>) = (first.iter().copied().collect(), second.iter().copied().collect());
            let expected = a.intersection(&b).count() as f64 / a.union(&b).count() as f64;
            let (a, b) = (ShingleSet::from_hashes(first).unwrap(), ShingleSet::from_hashes(second).unwrap());
            prop_assert_eq!(a.jaccard(&b).to_bits(), b.jaccard(&a).to_bits());
            prop_assert!((a.jaccard(&b) - expected).abs() < 1e-12);
            prop_assert!(a.jaccard(&a) >= 1.0);
        }

        #[test]
        fn any_text_has_shingles_unless_it_has_no_token(text in "\\PC{0,60}", size in 1_usize..8, is_char in any::<bool>()) {
            let unit = if is_char { ShingleUnit::Char } else { ShingleUnit::Word };
            let shingling = Shingling { unit, size: NonZeroUsize::new(size).unwrap() };
            let view = FoldedView::new(&text);
            prop_assert_eq!(ShingleSet::new(&view, shingling).is_none(), view.view().is_empty());
            prop_assert_eq!(ShingleSet::number_masked(&view, shingling).is_none(), view.view().is_empty());
            for is_masked in [false, true] {
                let mut shingler = Shingler::new(shingling, Symbols::Dropped, is_masked);
                shingler.shingles("an earlier text leaves nothing behind 12");
                let found = ShingleSet::from_hashes(shingler.shingles(&text).hashes.to_vec());
                let whole = if is_masked { ShingleSet::number_masked(&view, shingling) } else { ShingleSet::new(&view, shingling) };
                prop_assert_eq!(found, whole);
            }
        }
    }
}
