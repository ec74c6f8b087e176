//! Where each n-gram of the evaluation items occurs: an open-addressing table behind a bit filter.
//!
//! Nearly every n-gram of ordinary text is in no item. The filter, 16 to 32 bits for each n-gram and small enough for
//! the cache, answers for nearly all of them; only the others look into the table, which costs a cache miss.

use super::filter::Filter;

/// Where an n-gram occurs: entry and token position within it.
pub(super) type Posting = (u32, u32);

/// Postings by n-gram. Read-only once built.
#[derive(Debug, Default)]
pub(super) struct Table {
    filter: Filter,
    /// Hash and number of an n-gram; a number of `u32::MAX` is an empty slot.
    slots: Vec<(u64, u32)>,
    /// First posting of each n-gram, and one more for the end of the last.
    starts: Vec<u32>,
    postings: Vec<Posting>,
}

const EMPTY: u32 = u32::MAX;

impl Table {
    /// A table of postings that are sorted by their hashes. More than 2^32 - 2 postings do not fit; the rest is cut
    /// off, which no set of items reaches.
    pub(super) fn new(sorted: &[(u64, Posting)]) -> Self {
        let sorted = &sorted[..sorted.len().min(EMPTY as usize - 1)];
        let mut table = Self { postings: sorted.iter().map(|(_, posting)| *posting).collect(), ..Self::default() };
        let ngrams = sorted.chunk_by(|one, two| one.0 == two.0).count();
        table.slots = vec![(0, EMPTY); (ngrams * 2).next_power_of_two().max(2)];
        table.filter = Filter::with_room(ngrams);
        table.starts.reserve(ngrams + 1);
        table.starts.push(0);
        let mut end = 0;
        for (run, ngram) in sorted.chunk_by(|one, two| one.0 == two.0).zip(0..) {
            end += u32::try_from(run.len()).unwrap_or(EMPTY);
            table.starts.push(end);
            table.insert(run[0].0, ngram);
        }
        table
    }

    fn insert(&mut self, hash: u64, ngram: u32) {
        self.filter.insert(hash);
        let mut slot = self.first_slot(hash);
        while self.slots[slot].1 != EMPTY {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = (hash, ngram);
    }

    /// Number of different n-grams.
    pub(super) fn ngrams(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Number of the n-gram of that hash.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        if self.filter.may_hold(hash) { self.find_slot(hash) } else { None }
    }

    fn find_slot(&self, hash: u64) -> Option<u32> {
        let mut slot = self.first_slot(hash);
        loop {
            let (found, ngram) = self.slots[slot];
            if ngram == EMPTY {
                return None;
            }
            if found == hash {
                return Some(ngram);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Where an n-gram occurs.
    pub(super) fn postings(&self, ngram: u32) -> &[Posting] {
        let at = ngram as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(start), Some(end)) => &self.postings[*start as usize..*end as usize],
            _ => &[],
        }
    }

    fn first_slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_table_answers_as_a_map_does(
            mut postings in prop::collection::vec((0_u64..50, (0_u32..9, 0_u32..9)), 0..80),
            is_spread in any::<bool>(),
        ) {
            let hash = |key: u64| if is_spread { crate::ngram::mix(key) } else { key };
            for posting in &mut postings {
                posting.0 = hash(posting.0);
            }
            postings.sort_unstable();
            let mut map: BTreeMap<u64, Vec<Posting>> = BTreeMap::new();
            for (hash, posting) in &postings {
                map.entry(*hash).or_default().push(*posting);
            }
            let table = Table::new(&postings);
            prop_assert_eq!(table.ngrams(), map.len());
            for key in (0..60).map(hash) {
                let found = table.find(key).map(|ngram| table.postings(ngram).to_vec());
                prop_assert_eq!(found, map.get(&key).cloned());
            }
        }
    }
}
