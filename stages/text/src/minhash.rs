//! Sketches a set of shingles so that the share of equal components estimates the Jaccard index.
//!
//! Two sketchers stand behind one trait. [`OnePermutation`] puts each shingle into one component and keeps the
//! smallest of each; what stays empty is filled by further rounds over the set (fast similarity sketching: Dahlgaard,
//! Knudsen and Thorup 2017, arXiv 1704.04370). One round is enough for long texts, and a short text costs about
//! k ln k steps for k components, so the time hardly depends on the number of components. [`SuperMinHash`] is the one
//! of Ertl (2017, arXiv 1706.05698) in the crate `probminhash`. Both draw the components of a small set almost without
//! replacement, so their variance is at most the J (1 - J) / k of classic `MinHash`, and below it for short texts.

use std::hash::BuildHasherDefault;
use std::num::NonZeroUsize;

use probminhash::superminhasher2::{NoHashHasher, SuperMinHash2};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ngram::mix;

/// Components of a sketch unless set otherwise.
pub const DEFAULT_COMPONENTS: usize = 128;

/// Makes sketches of a fixed number of components. Equal sets have equal sketches, in any order of calls.
pub trait Sketcher {
    /// Components of each sketch.
    fn components(&self) -> usize;

    /// Writes the sketch of a set of well-mixed hashes into `out`, replacing what it held. Hashes may come in any order
    /// and more than once; without any hash `out` is empty.
    fn sketch(&mut self, hashes: &[u64], out: &mut Vec<u64>);
}

/// Which sketcher makes the sketches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SketchMethod {
    /// [`OnePermutation`]: the fast one.
    #[default]
    OnePermutation,
    /// [`SuperMinHash`].
    SuperMinHash,
}

impl SketchMethod {
    /// A sketcher of `components` components; sketches of two seeds or two methods cannot be compared.
    pub fn sketcher(self, components: NonZeroUsize, seed: u64) -> Box<dyn Sketcher + Send> {
        match self {
            Self::OnePermutation => Box::new(OnePermutation::new(components, seed)),
            Self::SuperMinHash => Box::new(SuperMinHash::new(components, seed)),
        }
    }
}

/// One-permutation sketches without empty components.
#[derive(Debug, Clone)]
pub struct OnePermutation {
    components: usize,
    seed: u64,
    is_filled: Vec<bool>,
}

/// Value of a component that nothing fell into yet. That a real value equals it has chance 2^-64 and costs nothing.
const EMPTY: u64 = u64::MAX;

impl OnePermutation {
    /// A sketcher of `components` components; sketches of two seeds cannot be compared.
    pub fn new(components: NonZeroUsize, seed: u64) -> Self {
        let components = components.get();
        Self { components, seed: mix(seed), is_filled: vec![false; components] }
    }

    /// Hash function number `round`; the first is the shingle's own hash, which is mixed already.
    fn salt(&self, round: usize) -> u64 {
        self.seed ^ (round as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn component_of(&self, value: u64) -> usize {
        component(value, self.components)
    }

    /// Throws the whole set once more at the components; only those that were empty before take a value.
    fn refill(&mut self, round: usize, hashes: &[u64], out: &mut [u64]) -> usize {
        for (is_filled, value) in self.is_filled.iter_mut().zip(out.iter()) {
            *is_filled = *value != EMPTY;
        }
        let salt = self.salt(round);
        let mut filled = 0;
        for hash in hashes {
            let value = mix(hash ^ salt);
            let component = self.component_of(value);
            if !self.is_filled[component] {
                filled += usize::from(out[component] == EMPTY);
                out[component] = out[component].min(value);
            }
        }
        filled
    }
}

/// The upper half of a product spreads values evenly over any number of components.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is below the number of components")]
fn component(value: u64, components: usize) -> usize {
    ((u128::from(value) * components as u128) >> 64) as usize
}

impl Sketcher for OnePermutation {
    fn components(&self) -> usize {
        self.components
    }

    fn sketch(&mut self, hashes: &[u64], out: &mut Vec<u64>) {
        out.clear();
        if hashes.is_empty() {
            return;
        }
        out.resize(self.components, EMPTY);
        for hash in hashes {
            let value = hash ^ self.seed;
            let slot = &mut out[component(value, self.components)];
            *slot = value.min(*slot);
        }
        let mut empty = out.iter().filter(|value| **value == EMPTY).count();
        for round in 1..self.components {
            if empty == 0 {
                return;
            }
            empty -= self.refill(round, hashes, out);
        }
        for (component, value) in out.iter_mut().enumerate().filter(|(_, value)| **value == EMPTY) {
            let salt = self.salt(self.components + component);
            *value = hashes.iter().map(|hash| mix(hash ^ salt)).min().unwrap_or(EMPTY);
        }
    }
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

    fn sketch(&mut self, hashes: &[u64], out: &mut Vec<u64>) {
        out.clear();
        if hashes.is_empty() {
            return;
        }
        self.inner.reinit();
        for hash in hashes {
            // the sketch of one item cannot fail: the error type is that of the slice form on an empty slice
            let _ = self.inner.sketch(&mix(hash ^ self.seed));
        }
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

    const METHODS: [SketchMethod; 2] = [SketchMethod::OnePermutation, SketchMethod::SuperMinHash];

    fn sketch_with(method: SketchMethod, components: usize, seed: u64, hashes: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        method.sketcher(NonZeroUsize::new(components).unwrap(), seed).sketch(hashes, &mut out);
        out
    }

    fn sketch(method: SketchMethod, hashes: &[u64]) -> Vec<u64> {
        sketch_with(method, DEFAULT_COMPONENTS, 17, hashes)
    }

    /// Two sets of the given sizes of what they share and what each has alone.
    fn pair(salt: u64, shared: u64, own: u64) -> (Vec<u64>, Vec<u64>) {
        let hash = |item: u64| mix(item ^ salt.wrapping_mul(0xA24B_AED4_963E_E407));
        let first = (0..shared + own).map(hash).collect();
        let second = (0..shared).chain(1 << 40..(1 << 40) + own).map(hash).collect();
        (first, second)
    }

    #[test]
    fn the_error_of_the_estimate_is_at_most_that_of_theory() {
        // 300 pairs a case: the mean error and the root of the mean square are known to about 4 percent
        for method in METHODS {
            for (shared, own) in [(4_u64, 1_u64), (10, 5), (40, 5), (80, 10), (50, 25), (20, 40), (900, 50), (400, 400)]
            {
                let exact = shared as f64 / (shared + 2 * own) as f64;
                let errors: Vec<f64> = (0..300)
                    .map(|salt| {
                        let (first, second) = pair(salt, shared, own);
                        estimate_jaccard(&sketch(method, &first), &sketch(method, &second)) - exact
                    })
                    .collect();
                let bias = errors.iter().sum::<f64>() / errors.len() as f64;
                let root = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
                let theory = (exact * (1.0 - exact) / DEFAULT_COMPONENTS as f64).sqrt();
                assert!(bias.abs() < 4.0 * theory / 300_f64.sqrt(), "{method:?} {shared} {own}: bias {bias}");
                assert!(root < 1.15 * theory, "{method:?} {shared} {own}: {root} against {theory}");
            }
        }
    }

    #[test]
    fn another_seed_gives_other_sketches_and_the_same_seed_the_same() {
        let hashes: Vec<u64> = (0..40).map(mix).collect();
        for method in METHODS {
            assert_eq!(sketch(method, &hashes), sketch(method, &hashes));
            assert_ne!(sketch(method, &hashes), sketch_with(method, DEFAULT_COMPONENTS, 18, &hashes));
        }
    }

    #[test]
    fn sketches_of_one_component_and_of_one_shingle_are_full() {
        for method in METHODS {
            assert_eq!(sketch_with(method, 1, 1, &[1, 2, 3]).len(), 1);
            let single = sketch(method, &[mix(7)]);
            assert!(single.len() == DEFAULT_COMPONENTS && single.iter().all(|value| *value != EMPTY));
            assert!(estimate_jaccard(&single, &sketch(method, &[mix(8)])) <= 0.0);
            assert!(sketch(method, &[]).is_empty());
        }
    }

    proptest! {
        #[test]
        fn a_sketch_depends_on_the_set_alone(
            hashes in prop::collection::vec(any::<u64>(), 1..60),
            before in prop::collection::vec(any::<u64>(), 1..60),
            repeats in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            components in 1_usize..200,
        ) {
            let mut again: Vec<u64> = hashes.iter().rev().copied().collect();
            again.extend(repeats.iter().map(|at| hashes[at.index(hashes.len())]));
            for method in METHODS {
                let mut used = method.sketcher(NonZeroUsize::new(components).unwrap(), 17);
                let (mut first, mut second) = (Vec::new(), Vec::new());
                used.sketch(&before, &mut first);
                used.sketch(&again, &mut first);
                method.sketcher(NonZeroUsize::new(components).unwrap(), 17).sketch(&hashes, &mut second);
                prop_assert_eq!(first, second);
            }
        }
    }
}
