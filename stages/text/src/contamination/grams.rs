//! The n-grams of evaluation items that say something about one item, and how much of each item they cover.
//!
//! Two sorts of n-grams are no evidence. Those with fewer than three different tokens besides numbers (rows of a
//! matrix, twelve zeros, one word over and over) are alike everywhere. Those that stand in many items of a set are its
//! wording, such as an instruction behind each question; what they cover does not count as a part of any item.

use std::num::NonZeroUsize;

use rayon::prelude::*;

use super::table::Posting;
use super::{ContaminationRules, Entry};
use crate::ngram::for_each_run;
use crate::view::{MASKED_NUMBER, TokenKind};

/// Different tokens besides numbers that an n-gram needs to say something.
const MIN_DISTINCT: usize = 3;

/// Items of a set that may always share an n-gram, however small the set is.
const MIN_COMMON_ITEMS: usize = 5;

/// Share of an item's own tokens that n-grams must be able to cover; an item of numbers for the most part is matched
/// whole.
const MIN_COVERABLE_SHARE: f64 = 0.5;

/// What came of all n-grams.
#[derive(Debug, Default)]
pub(super) struct Grams {
    /// Postings of the informative n-grams of entries that are matched by n-grams, sorted by hash.
    pub(super) postings: Vec<(u64, Posting)>,
    /// All n-grams there were.
    pub(super) made: usize,
    /// Different n-grams left out as common wording.
    pub(super) common: usize,
    /// Role of each token of all entries.
    pub(super) roles: Vec<Role>,
}

/// Tokens of all entries, one behind the other.
pub(super) struct Tokens<'a> {
    pub(super) hashes: &'a [u64],
    pub(super) kinds: &'a [TokenKind],
}

/// Chooses the n-grams, and writes into each entry how many of its tokens count and which are common wording.
pub(super) fn choose(entries: &mut [Entry], tokens: &Tokens<'_>, rules: &ContaminationRules) -> Grams {
    let n = rules.ngram;
    let grams = entries.par_iter().enumerate().flat_map_iter(|(id, entry)| grams_of(id, entry, tokens, n));
    let mut postings: Vec<(u64, Posting)> = grams.collect();
    let made = entries.iter().map(|entry| (entry.end - entry.start + 1).saturating_sub(n.get())).sum();
    postings.par_sort_unstable();
    let limits = Limits::new(entries, rules.max_item_share);
    let mut roles = vec![Role::None; tokens.hashes.len()];
    let mut is_kept = vec![true; postings.len()];
    let mut common = 0;
    let mut at = 0;
    for run in postings.chunk_by(|one, two| one.0 == two.0) {
        let kept = &mut is_kept[at..at + run.len()];
        at += run.len();
        common += usize::from(limits.mark_common(run, entries, kept));
        for ((_, (entry, position)), is_kept) in run.iter().zip(kept) {
            let start = entries[*entry as usize].start + *position as usize;
            let role = if *is_kept { Role::Own } else { Role::Common };
            for token in &mut roles[start..start + n.get()] {
                *token = role.max(*token);
            }
        }
    }
    for entry in &mut *entries {
        entry.counted = counted(&roles[entry.start..entry.end], n);
    }
    let mut flags = is_kept.into_iter();
    postings.retain(|(_, (entry, _))| flags.next() == Some(true) && entries[*entry as usize].counted > 0);
    Grams { postings, made, common, roles }
}

/// What a token of an item is covered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// No n-gram that says anything.
    None,
    /// N-grams of the item.
    Own,
    /// Common wording.
    Common,
}

/// Tokens of an entry that only its own n-grams cover; 0 where these are too few, and it is matched whole.
fn counted(roles: &[Role], n: NonZeroUsize) -> usize {
    let count = |role: Role| roles.iter().filter(|token| **token == role).count();
    let (own, common) = (count(Role::Own), count(Role::Common));
    let is_coverable = own as f64 >= (roles.len() - common) as f64 * MIN_COVERABLE_SHARE;
    if own >= n.get() && is_coverable { own } else { 0 }
}

/// The informative n-grams of an entry, each at its first position.
fn grams_of(id: usize, entry: &Entry, tokens: &Tokens<'_>, n: NonZeroUsize) -> Vec<(u64, Posting)> {
    let (hashes, kinds) = (&tokens.hashes[entry.start..entry.end], &tokens.kinds[entry.start..entry.end]);
    let id = u32::try_from(id).unwrap_or(u32::MAX);
    let mut grams: Vec<(u64, Posting)> = Vec::new();
    let masked = |at: usize| mask(hashes[at], kinds[at]);
    for_each_run(hashes.len(), n, masked, |at, key| {
        if is_informative(&hashes[at..at + n.get()], &kinds[at..at + n.get()]) {
            grams.push((key, (id, u32::try_from(at).unwrap_or(u32::MAX))));
        }
    });
    grams.sort_unstable();
    grams.dedup_by_key(|gram| gram.0);
    grams
}

/// Numbers are hidden in the keys of n-grams, so that items with other numbers are found too and can be told apart.
#[inline]
pub(super) fn mask(token: u64, kind: TokenKind) -> u64 {
    if kind == TokenKind::Number { MASKED_NUMBER } else { token }
}

fn is_informative(hashes: &[u64], kinds: &[TokenKind]) -> bool {
    let wanted = MIN_DISTINCT.min(hashes.len());
    let mut distinct = [0; MIN_DISTINCT];
    let mut found = 0;
    for (hash, kind) in hashes.iter().zip(kinds) {
        if *kind != TokenKind::Number && !distinct[..found].contains(hash) {
            distinct[found] = *hash;
            found += 1;
            if found == wanted {
                return true;
            }
        }
    }
    false
}

/// How many entries of each set may share an n-gram.
struct Limits {
    by_set: Vec<usize>,
    all: usize,
}

impl Limits {
    fn new(entries: &[Entry], share: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
        let limit = |count: usize| MIN_COMMON_ITEMS.max((count as f64 * share) as usize);
        let sets = entries.iter().map(|entry| entry.set as usize + 1).max().unwrap_or(0);
        let mut counts = vec![0; sets];
        for entry in entries {
            counts[entry.set as usize] += 1;
        }
        Self { by_set: counts.into_iter().map(limit).collect(), all: limit(entries.len()) }
    }

    /// Clears the flags of those postings of one n-gram that are common in their set, or in all sets together.
    fn mark_common(&self, run: &[(u64, Posting)], entries: &[Entry], kept: &mut [bool]) -> bool {
        if run.len() <= MIN_COMMON_ITEMS {
            return false;
        }
        if run.len() > self.all {
            kept.fill(false);
            return true;
        }
        let set = |posting: &(u64, Posting)| entries[posting.1.0 as usize].set;
        let mut sets: Vec<u32> = run.iter().map(set).collect();
        sets.sort_unstable();
        let common: Vec<u32> = sets
            .chunk_by(|one, two| one == two)
            .filter(|same| same.len() > self.by_set[same[0] as usize])
            .map(|same| same[0])
            .collect();
        for (posting, kept) in run.iter().zip(kept) {
            *kept = !common.contains(&set(posting));
        }
        !common.is_empty()
    }
}
