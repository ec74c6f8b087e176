//! Hashes runs of tokens without making a string of each run.
//!
//! A run of n token hashes `t_0 .. t_{n-1}` has the polynomial hash `sum t_i B^(n-1-i)` modulo 2^64, which
//! rolls in constant time a step, followed by a bit mixer because the low bits of such a sum are weak.

use std::hash::Hasher;
use std::num::NonZeroUsize;

/// Base of the polynomial.
pub(crate) const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes of all runs of `n` tokens, in order; empty when there are fewer than `n` tokens.
pub fn ngram_hashes(tokens: &[u64], n: NonZeroUsize) -> NgramHashes<'_> {
    let n = n.get();
    let leading = (1..n).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let sum = if tokens.len() < n { 0 } else { sum(&tokens[..n]) };
    NgramHashes { tokens, n, leading, sum, next: 0 }
}

/// Calls `visit` with the position and the hash of each run of `n` of `length` tokens that `token` gives.
#[inline]
pub(crate) fn for_each_run(
    length: usize,
    n: NonZeroUsize,
    token: impl Fn(usize) -> u64,
    visit: impl FnMut(usize, u64),
) {
    for_each_run_of(length, n, token, |_| true, visit);
}

/// The same for the runs of tokens that are all wanted.
#[inline]
pub(crate) fn for_each_run_of(
    length: usize,
    n: NonZeroUsize,
    token: impl Fn(usize) -> u64,
    is_wanted: impl Fn(u64) -> bool,
    mut visit: impl FnMut(usize, u64),
) {
    let n = n.get();
    let leading = (0..n).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let (mut sum, mut wanted) = (0_u64, 0);
    for at in 0..length {
        let entering = token(at);
        let leaving = if at >= n { token(at - n) } else { 0 };
        sum = sum.wrapping_mul(BASE).wrapping_add(entering).wrapping_sub(leaving.wrapping_mul(leading));
        wanted = if is_wanted(entering) { wanted + 1 } else { 0 };
        if wanted >= n {
            visit(at + 1 - n, mix(sum));
        }
    }
}

/// Hash of one run of tokens, equal to what [`ngram_hashes`] gives for the same run.
pub fn run_hash(tokens: &[u64]) -> u64 {
    mix(sum(tokens))
}

/// Spreads every bit of the input over the output; a bijection (the finaliser of `MurmurHash3`).
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let value = (value ^ (value >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    value ^ (value >> 33)
}

/// Hashes a key that is a hash already: only its bits are spread once.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassHasher(u64);

impl Hasher for PassHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }
}

fn sum(tokens: &[u64]) -> u64 {
    tokens.iter().fold(0, |sum, token| sum.wrapping_mul(BASE).wrapping_add(*token))
}

/// Iterator of [`ngram_hashes`].
#[derive(Debug, Clone)]
pub struct NgramHashes<'a> {
    tokens: &'a [u64],
    n: usize,
    leading: u64,
    sum: u64,
    next: usize,
}

impl Iterator for NgramHashes<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let end = self.next + self.n;
        if end > self.tokens.len() {
            return None;
        }
        let hash = mix(self.sum);
        if let Some(entering) = self.tokens.get(end) {
            let leaving = self.tokens[self.next].wrapping_mul(self.leading);
            self.sum = self.sum.wrapping_sub(leaving).wrapping_mul(BASE).wrapping_add(*entering);
        }
        self.next += 1;
        Some(hash)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.tokens.len() + 1).saturating_sub(self.next + self.n);
        (left, Some(left))
    }
}

impl ExactSizeIterator for NgramHashes<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_rolled_hash_is_the_hash_of_its_run(tokens in prop::collection::vec(any::<u64>(), 0..40), n in 1_usize..12) {
            let rolled: Vec<u64> = ngram_hashes(&tokens, NonZeroUsize::new(n).unwrap()).collect();
            let direct: Vec<u64> = tokens.windows(n).map(run_hash).collect();
            let mut visited = Vec::new();
            for_each_run(tokens.len(), NonZeroUsize::new(n).unwrap(), |at| tokens[at], |_, hash| visited.push(hash));
            prop_assert_eq!(&visited, &direct);
            let (is_wanted, mut visited) = (|token: u64| !token.is_multiple_of(8), Vec::new());
            for_each_run_of(tokens.len(), NonZeroUsize::new(n).unwrap(), |at| tokens[at], is_wanted, |at, hash| visited.push((at, hash)));
            let wanted = tokens.windows(n).enumerate().filter(|(_, run)| run.iter().all(|token| is_wanted(*token)));
            prop_assert_eq!(visited, wanted.map(|(at, run)| (at, run_hash(run))).collect::<Vec<_>>());
            prop_assert_eq!(rolled, direct);
        }
    }

    #[test]
    fn order_matters() {
        assert_ne!(run_hash(&[1, 2]), run_hash(&[2, 1]));
    }
}
