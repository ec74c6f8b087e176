//! A set of hashes that is emptied and used again: open addressing, no allocation once it has grown.

/// Hashes seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Hashes, 0 for an empty place; the length is a power of two.
    slots: Vec<u64>,
    mask: usize,
    has_zero: bool,
}

impl Seen {
    /// Empties the set and makes room for `count` hashes.
    pub(super) fn reset(&mut self, count: usize) {
        let places = (count * 2).next_power_of_two().max(64);
        if self.slots.len() < places {
            self.slots.resize(places, 0);
        }
        self.slots[..places].fill(0);
        self.mask = places - 1;
        self.has_zero = false;
    }

    /// Adds a hash; whether it is new. No more hashes go in than there was room made for.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64) -> bool {
        if hash == 0 {
            return !std::mem::replace(&mut self.has_zero, true);
        }
        let place = self.place(hash);
        let is_new = self.slots[place] == 0;
        self.slots[place] = hash;
        is_new
    }

    /// Whether a hash is in the set.
    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        if hash == 0 { self.has_zero } else { self.slots[self.place(hash)] == hash }
    }

    /// Where the hash is, or where it would go.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    fn place(&self, hash: u64) -> usize {
        let mut place = hash as usize & self.mask;
        while self.slots[place] != 0 && self.slots[place] != hash {
            place = (place + 1) & self.mask;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set_that_can_be_used_again(rounds in prop::collection::vec(prop::collection::vec(0_u64..90, 0..70), 1..4)) {
            let mut seen = Seen::default();
            for hashes in rounds {
                seen.reset(hashes.len());
                let mut set = BTreeSet::new();
                for hash in hashes {
                    prop_assert_eq!(seen.insert(hash * 64), set.insert(hash));
                }
                for hash in 0..90 {
                    prop_assert_eq!(seen.contains(hash * 64), set.contains(&hash));
                }
            }
        }
    }
}
