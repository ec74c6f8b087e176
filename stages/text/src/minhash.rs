//! Sketches a set of shingles so that the share of equal components estimates the Jaccard index.
//!
//! The sketch is `SuperMinHash` (Ertl 2017, arXiv 1706.05698), which on the short sets of queries is more exact
//! than classic or densified one-permutation sketches: the components of one set are drawn without
//! replacement, so the variance is below J (1 - J) / components for small sets.

use std::hash::BuildHasherDefault;
use std::num::NonZeroUsize;

use probminhash::superminhasher2::{NoHashHasher, SuperMinHash2};

use crate::ngram::mix;
use crate::shingle::ShingleSet;

/// Components of a sketch unless set otherwise.
pub const DEFAULT_COMPONENTS: usize = 128;

/// Makes sketches of a fixed number of components. Equal sets have equal sketches, in any order of calls.
pub trait Sketcher {
    /// Components of each sketch.
    fn components(&self) -> usize;

    /// Writes the sketch of `shingles` into `out`, replacing what it held.
    fn sketch(&mut self, shingles: &ShingleSet, out: &mut Vec<u64>);
}

/// `SuperMinHash` with 64-bit components.
pub struct SuperMinHash {
    inner: SuperMinHash2<u64, u64, NoHashHasher>,
    components: usize,
    seed: u64,
}

impl SuperMinHash {
    /// A sketcher of `components` components; sketches of two seeds cannot be compared.
    pub fn new(components: NonZeroUsize, seed: u64) -> Self {
        let components = components.get();
        Self { inner: SuperMinHash2::new(components, BuildHasherDefault::default()), components, seed: mix(seed) }
    }
}

impl Sketcher for SuperMinHash {
    fn components(&self) -> usize {
        self.components
    }

    fn sketch(&mut self, shingles: &ShingleSet, out: &mut Vec<u64>) {
        self.inner.reinit();
        for hash in shingles.hashes() {
            // the sketch of one item cannot fail: the error type is that of the slice form on an empty slice
            let _ = self.inner.sketch(&mix(hash ^ self.seed));
        }
        out.clear();
        out.extend_from_slice(self.inner.get_hsketch());
    }
}

/// Share of equal components of two sketches, an estimate of the Jaccard index; 0 for sketches of two lengths.
pub fn estimate_jaccard(first: &[u64], second: &[u64]) -> f64 {
    if first.len() != second.len() || first.is_empty() {
        return 0.0;
    }
    let equal = first.iter().zip(second).filter(|(first, second)| first == second).count();
    equal as f64 / first.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketcher() -> SuperMinHash {
        SuperMinHash::new(NonZeroUsize::new(DEFAULT_COMPONENTS).unwrap(), 17)
    }

    fn sketch(sketcher: &mut SuperMinHash, hashes: Vec<u64>) -> Vec<u64> {
        let mut out = Vec::new();
        sketcher.sketch(&ShingleSet::from_hashes(hashes).unwrap(), &mut out);
        out
    }

    #[test]
    fn the_estimate_is_close_to_the_exact_index() {
        let mut sketcher = sketcher();
        for (shared, own) in [(80_u64, 10_u64), (50, 25), (20, 40), (400, 50)] {
            let first = (0..shared + own).map(mix).collect();
            let second = (0..shared).chain(10_000..10_000 + own).map(mix).collect();
            let exact = shared as f64 / (shared + 2 * own) as f64;
            let estimate = estimate_jaccard(&sketch(&mut sketcher, first), &sketch(&mut sketcher, second));
            assert!((estimate - exact).abs() < 0.15, "{estimate} for {exact}");
        }
    }

    #[test]
    fn another_seed_gives_other_sketches_and_the_same_seed_the_same() {
        let hashes: Vec<u64> = (0..40).map(mix).collect();
        let mut other = SuperMinHash::new(NonZeroUsize::new(DEFAULT_COMPONENTS).unwrap(), 18);
        assert_eq!(sketch(&mut sketcher(), hashes.clone()), sketch(&mut sketcher(), hashes.clone()));
        assert_ne!(sketch(&mut sketcher(), hashes.clone()), sketch(&mut other, hashes));
    }

    #[test]
    fn a_sketch_of_one_component_works() {
        let mut one = SuperMinHash::new(NonZeroUsize::MIN, 1);
        assert_eq!(sketch(&mut one, vec![1, 2, 3]).len(), 1);
    }

    proptest! {
        #[test]
        fn a_sketch_does_not_depend_on_order_or_on_earlier_sketches(
            hashes in prop::collection::vec(any::<u64>(), 1..60).prop_shuffle(),
            before in prop::collection::vec(any::<u64>(), 1..60),
        ) {
            // the order in which items reach the sketch itself, not only the sorted set
            let build = || SuperMinHash2::<u64, u64, NoHashHasher>::new(32, BuildHasherDefault::default());
            let (mut forward, mut backward) = (build(), build());
            for hash in &hashes {
                forward.sketch(hash).unwrap();
            }
            for hash in hashes.iter().rev() {
                backward.sketch(hash).unwrap();
            }
            prop_assert_eq!(forward.get_hsketch(), backward.get_hsketch());

            let mut used = sketcher();
            sketch(&mut used, before);
            prop_assert_eq!(sketch(&mut used, hashes.clone()), sketch(&mut sketcher(), hashes));
        }
    }
}
