//! Byte-pair encoding of one piece by its ranked merges.
//!
//! A pair merges at the rank of its own merge, as in `tokenizers`; taking ids for ranks would be right only where ids are
//! ordered as merges are. A piece that is one token is found without merging, but only if merging leads to that token:
//! this is tried for every token of the vocabulary when the table is made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::error::TokensError;

/// A byte for which the vocabulary has no token.
const NONE: u32 = u32::MAX;
/// Longer pieces are merged with a heap: `n log n` instead of `n²`.
const SHORT: usize = 96;

/// Tokens and merges of a byte-level vocabulary.
pub(crate) struct Bpe {
    bytes: [u32; 256],
    pairs: FxHashMap<(u32, u32), Merge>,
    whole: FxHashMap<Box<[u8]>, u32>,
}

#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    into: u32,
}

/// Room that is reused from piece to piece.
#[derive(Default)]
pub(crate) struct Scratch {
    parts: Vec<Part>,
    ids: Vec<u32>,
}

/// A symbol, and the merge of it and its right neighbour.
#[derive(Clone, Copy)]
struct Part {
    id: u32,
    merge: Merge,
}

const NEVER: Merge = Merge { rank: u32::MAX, into: NONE };

impl Bpe {
    /// `vocabulary`: bytes and id of every ordinary token. `merges`: left, right and merged id, first rank first.
    /// `unknown`: what a byte without a token becomes; `None` leaves it out. `take_whole`: a piece that is a token is taken
    /// as it is, whether merging leads to it or not.
    pub(crate) fn new(
        vocabulary: Vec<(Vec<u8>, u32)>,
        merges: &[(u32, u32, u32)],
        unknown: Option<u32>,
        take_whole: bool,
    ) -> Result<Self, TokensError> {
        let mut bytes = [unknown.unwrap_or(NONE); 256];
        for (token, id) in &vocabulary {
            if let [byte] = token[..] {
                bytes[usize::from(byte)] = *id;
            }
        }
        let mut pairs = FxHashMap::with_capacity_and_hasher(merges.len(), rustc_hash::FxBuildHasher);
        for (rank, (left, right, into)) in merges.iter().enumerate() {
            let rank = u32::try_from(rank).ok().filter(|rank| *rank < u32::MAX);
            let rank = rank.ok_or_else(|| TokensError::Tokenizer("it has too many merges".to_owned()))?;
            pairs.insert((*left, *right), Merge { rank, into: *into });
        }
        let mut bpe = Self { bytes, pairs, whole: FxHashMap::default() };
        let mut scratch = Scratch::default();
        let mut whole = FxHashMap::with_capacity_and_hasher(vocabulary.len(), rustc_hash::FxBuildHasher);
        for (token, id) in vocabulary {
            if take_whole || bpe.merged(&token, &mut scratch) == [id] {
                whole.insert(token.into_boxed_slice(), id);
            }
        }
        bpe.whole = whole;
        Ok(bpe)
    }

    /// Bytes that no token stands for.
    pub(crate) fn missing(vocabulary: &[(Vec<u8>, u32)]) -> bool {
        let mut present = [false; 256];
        for (token, _) in vocabulary {
            if let [byte] = token[..] {
                present[usize::from(byte)] = true;
            }
        }
        present.contains(&false)
    }

    /// Calls `each` with the ids of a piece.
    #[inline]
    pub(crate) fn piece(&self, piece: &[u8], scratch: &mut Scratch, each: &mut impl FnMut(u32)) {
        if let Some(id) = self.whole.get(piece) {
            return each(*id);
        }
        for id in self.merged(piece, scratch) {
            if *id != NONE {
                each(*id);
            }
        }
    }

    fn merge(&self, left: u32, right: u32) -> Merge {
        self.pairs.get(&(left, right)).copied().unwrap_or(NEVER)
    }

    fn merged<'s>(&self, piece: &[u8], scratch: &'s mut Scratch) -> &'s [u32] {
        scratch.ids.clear();
        if piece.len() > SHORT {
            self.merge_long(piece, &mut scratch.ids);
        } else {
            self.merge_short(piece, &mut scratch.parts);
            scratch.ids.extend(scratch.parts.iter().map(|part| part.id));
        }
        &scratch.ids
    }

    fn merge_short(&self, piece: &[u8], parts: &mut Vec<Part>) {
        parts.clear();
        parts.extend(piece.iter().map(|byte| Part { id: self.bytes[usize::from(*byte)], merge: NEVER }));
        for left in 1..parts.len() {
            parts[left - 1].merge = self.merge(parts[left - 1].id, parts[left].id);
        }
        loop {
            let mut best = (u32::MAX, 0);
            for (index, part) in parts.iter().enumerate() {
                if part.merge.rank < best.0 {
                    best = (part.merge.rank, index);
                }
            }
            let (rank, at) = best;
            if rank == u32::MAX {
                return;
            }
            parts[at].id = parts[at].merge.into;
            parts.remove(at + 1);
            parts[at].merge = parts.get(at + 1).map_or(NEVER, |right| self.merge(parts[at].id, right.id));
            if at > 0 {
                parts[at - 1].merge = self.merge(parts[at - 1].id, parts[at].id);
            }
        }
    }

    fn merge_long(&self, piece: &[u8], ids: &mut Vec<u32>) {
        const END: usize = usize::MAX;
        let count = piece.len();
        let mut symbols: Vec<u32> = piece.iter().map(|byte| self.bytes[usize::from(*byte)]).collect();
        let mut next: Vec<usize> = (1..=count).map(|index| if index == count { END } else { index }).collect();
        let mut before: Vec<usize> = (0..count).map(|index| index.checked_sub(1).unwrap_or(END)).collect();
        let mut is_gone = vec![false; count];
        let mut heap = BinaryHeap::new();
        let offer = |heap: &mut BinaryHeap<_>, symbols: &[u32], left: usize, right: usize| {
            let merge = self.merge(symbols[left], symbols[right]);
            if merge.rank != u32::MAX {
                heap.push(Reverse((merge.rank, left, symbols[left], symbols[right], merge.into)));
            }
        };
        for left in 0..count - 1 {
            offer(&mut heap, &symbols, left, left + 1);
        }
        while let Some(Reverse((_, left, left_id, right_id, into))) = heap.pop() {
            let right = next[left];
            if is_gone[left] || right == END || symbols[left] != left_id || symbols[right] != right_id {
                continue;
            }
            symbols[left] = into;
            is_gone[right] = true;
            next[left] = next[right];
            if next[left] != END {
                before[next[left]] = left;
                offer(&mut heap, &symbols, left, next[left]);
            }
            if before[left] != END {
                offer(&mut heap, &symbols, before[left], left);
            }
        }
        let mut at = 0;
        while at != END {
            ids.push(symbols[at]);
            at = next[at];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a`, `b`, `c` and merges in an order that is not that of their ids.
    fn small(take_whole: bool) -> Bpe {
        let tokens = [("a", 0), ("b", 1), ("c", 2), ("bc", 3), ("ab", 4), ("abc", 5), ("aa", 6), ("abcabc", 7)];
        let vocabulary = tokens.iter().map(|(text, id)| (text.as_bytes().to_vec(), *id)).collect();
        // `ab` before `bc`, though its id is larger; `abc` from `a` + `bc` alone, so `abc` is never reached
        Bpe::new(vocabulary, &[(0, 1, 4), (1, 2, 3), (0, 3, 5), (0, 0, 6)], None, take_whole).unwrap()
    }

    fn ids(bpe: &Bpe, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        bpe.piece(text.as_bytes(), &mut Scratch::default(), &mut |id| ids.push(id));
        ids
    }

    #[test]
    fn pairs_merge_by_the_rank_of_their_own_merge() {
        assert_eq!(ids(&small(false), "abc"), [4, 2]);
        assert_eq!(ids(&small(false), "bc"), [3]);
        assert_eq!(ids(&small(true), "abc"), [5]);
        assert_eq!(ids(&small(false), "aaa"), [6, 0]);
    }

    #[test]
    fn a_byte_without_a_token_is_left_out_and_parts_its_neighbours() {
        assert_eq!(ids(&small(false), "a?b"), [0, 1]);
    }

    #[test]
    fn long_pieces_merge_as_short_ones() {
        let bpe = small(false);
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let mut state = 7_u32;
        for length in 1..SHORT {
            let text: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b'a' + u8::try_from((state >> 24) % 3).unwrap()
                })
                .collect();
            long.clear();
            bpe.merge_long(&text, &mut long);
            bpe.merge_short(&text, &mut short);
            assert_eq!(short.iter().map(|part| part.id).collect::<Vec<_>>(), long);
        }
    }
}
