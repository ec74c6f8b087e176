//! A set of hashes that answers from the cache: never wrongly no, seldom wrongly yes.

/// A blocked Bloom filter: each hash sets three bits of one word, 16 to 32 bits of memory for each hash. Fewer than
/// three in two hundred hashes that are not in it seem to be.
#[derive(Debug, Default)]
pub(super) struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// A filter with room for `count` hashes.
    pub(super) fn with_room(count: usize) -> Self {
        Self { words: vec![0; count.saturating_mul(16).div_ceil(64).next_power_of_two()] }
    }

    /// A filter of well-mixed hashes.
    pub(super) fn of(hashes: impl ExactSizeIterator<Item = u64>) -> Self {
        let mut filter = Self::with_room(hashes.len());
        for hash in hashes {
            filter.insert(hash);
        }
        filter
    }

    /// Adds a well-mixed hash.
    pub(super) fn insert(&mut self, hash: u64) {
        let (word, bits) = self.place(hash);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bits;
        }
    }

    /// Whether a hash may be in it.
    #[inline]
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        self.words.get(word).is_some_and(|word| word & bits == bits)
    }

    #[inline]
    fn place(&self, hash: u64) -> (usize, u64) {
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63);
        ((hash >> 18) as usize & self.words.len().wrapping_sub(1), bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ngram::mix;

    #[test]
    fn what_was_added_is_held_and_little_else() {
        let hashes: Vec<u64> = (0..5_000).map(mix).collect();
        let filter = Filter::of(hashes.iter().copied());
        assert!(hashes.iter().all(|hash| filter.may_hold(*hash)));
        let others = (5_000..105_000).filter(|hash| filter.may_hold(mix(*hash))).count();
        assert!(others < 1_500, "{others} of 100,000");
        assert!(!Filter::default().may_hold(7));
    }
}
