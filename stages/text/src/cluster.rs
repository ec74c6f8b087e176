//! Joins candidates whose exact Jaccard index is high enough, and nothing else.
//!
//! Candidates come in *buckets*, texts that share a band. Only verified pairs are joined: transitive joins of
//! unverified candidates melt unrelated rows into one cluster. A bucket of many copies costs one comparison a copy. In
//! a bucket larger than [`FULL_BUCKET`] (a template filled a thousand times) texts that may not be joined for their
//! numbers are not compared at all, and what is larger still is compared with its nearest neighbours in an order that
//! brings similar sets together; [`Verified::bounded`] counts those buckets, since recall is not exact there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasherDefault;

use crate::ngram::{PassHasher, mix};
use crate::shingle::{jaccard, jaccard_bound};
use crate::union_find::UnionFind;

/// Members up to which every pair of a bucket is compared.
pub const FULL_BUCKET: usize = 256;
/// Neighbours that a member of a larger bucket is compared with, under each of [`ORDERS`] orders.
const NEIGHBOURS: usize = 24;
/// Orders of the members of a larger bucket. Two sets of Jaccard index J have the same smallest hash under one order
/// with chance J, so a pair at 0.8 is far apart under all of them with chance below 0.2^4.
const ORDERS: u64 = 4;

/// A text that shares a band with another.
#[derive(Debug, Clone, Default)]
pub struct Candidate {
    /// Hashes of its shingles, sorted, each once.
    pub shingles: Vec<u64>,
    /// Digest of its numbers, in the order of the text.
    pub numbers: u64,
    /// Digest of its label; `None` where it has none.
    pub label: Option<u64>,
}

/// When two candidates are joined.
#[derive(Debug, Clone, Copy)]
pub struct JoinRules {
    /// Least Jaccard index, 0 to 1.
    pub threshold: f64,
    /// Whether texts whose numbers differ stay apart unless they have the same label.
    pub keeps_number_twins: bool,
}

/// Clusters of verified pairs.
#[derive(Debug)]
pub struct Verified {
    /// Sets of candidates, by position.
    pub sets: UnionFind,
    /// Candidates that some comparison found similar enough to another but kept apart for the numbers.
    pub is_twin: Vec<bool>,
    /// Buckets in which not every pair was compared.
    pub bounded: u64,
}

/// Clusters `candidates`, which share `buckets` (lists of positions). The same for any order of buckets and of
/// positions in them as long as no bucket is larger than [`FULL_BUCKET`]; beyond that, for any order of buckets.
pub fn verify(candidates: &[Candidate], buckets: &[Vec<u32>], rules: JoinRules) -> Verified {
    let count = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
    let mut joiner = Joiner {
        candidates,
        rules,
        sets: UnionFind::new(count),
        is_twin: vec![false; candidates.len()],
        unlike: HashSet::default(),
        bounded: 0,
    };
    for bucket in buckets {
        joiner.join_bucket(bucket);
    }
    Verified { sets: joiner.sets, is_twin: joiner.is_twin, bounded: joiner.bounded }
}

struct Joiner<'a> {
    candidates: &'a [Candidate],
    rules: JoinRules,
    sets: UnionFind,
    is_twin: Vec<bool>,
    /// Pairs found unlike; near-duplicates share several bands, and so do near misses.
    unlike: HashSet<u64, BuildHasherDefault<PassHasher>>,
    bounded: u64,
}

impl Joiner<'_> {
    fn join_bucket(&mut self, bucket: &[u32]) {
        if bucket.len() <= FULL_BUCKET {
            return self.join_all(bucket);
        }
        if !self.rules.keeps_number_twins {
            return self.join_large(bucket);
        }
        // texts may be joined when they have the same numbers or the same label: look inside those groups only
        let (mut by_numbers, mut by_label) = (BTreeMap::<u64, Vec<u32>>::new(), BTreeMap::<u64, Vec<u32>>::new());
        for member in bucket {
            let candidate = &self.candidates[*member as usize];
            by_numbers.entry(candidate.numbers).or_default().push(*member);
            if let Some(label) = candidate.label {
                by_label.entry(label).or_default().push(*member);
            }
        }
        for group in by_numbers.values().chain(by_label.values()).filter(|group| group.len() > 1) {
            if group.len() <= FULL_BUCKET {
                self.join_all(group);
            } else {
                self.join_large(group);
            }
        }
        self.mark_twins(bucket);
    }

    /// Whether members are twins of anything is seen on one other each: the next one in the round with other numbers.
    fn mark_twins(&mut self, bucket: &[u32]) {
        let mut other: Option<u32> = None;
        let mut following: Option<u32> = None;
        // twice around, so that the last ones have others after them
        for (at, member) in bucket.iter().rev().chain(bucket.iter().rev()).enumerate() {
            let numbers = |of: u32| self.candidates[of as usize].numbers;
            if let Some(following) = following.filter(|following| numbers(*following) != numbers(*member)) {
                other = Some(following);
            }
            following = Some(*member);
            if let Some(other) = other.filter(|_| at >= bucket.len()) {
                self.is_pair(*member, other);
            }
        }
    }

    /// Compares every pair, except those that belong together already: that changes no cluster.
    fn join_all(&mut self, bucket: &[u32]) {
        let mut clusters: Vec<Vec<u32>> = Vec::new();
        for member in bucket {
            let mut home: Option<usize> = None;
            let mut at = 0;
            while at < clusters.len() {
                let is_known = self.sets.find(clusters[at][0]) == self.sets.find(*member);
                let is_same = is_known || clusters[at].iter().any(|other| self.is_pair(*other, *member));
                if !is_same {
                    at += 1;
                    continue;
                }
                self.sets.union(clusters[at][0], *member);
                if let Some(home) = home {
                    let joined = clusters.remove(at);
                    clusters[home].extend(joined);
                } else {
                    home = Some(at);
                    at += 1;
                }
            }
            match home {
                Some(home) => clusters[home].push(*member),
                None => clusters.push(vec![*member]),
            }
        }
    }

    /// Equal sets first, one comparison a copy; then neighbours under several orders.
    fn join_large(&mut self, bucket: &[u32]) {
        let mut first_of: HashMap<u64, u32, BuildHasherDefault<PassHasher>> = HashMap::default();
        let mut distinct = Vec::new();
        for member in bucket {
            let digest = self.candidates[*member as usize].shingles.iter().fold(0, |hash, one| mix(hash ^ one));
            match first_of.get(&digest) {
                Some(first) if self.is_pair(*first, *member) => {
                    self.sets.union(*first, *member);
                }
                Some(_) => distinct.push(*member),
                None => {
                    first_of.insert(digest, *member);
                    distinct.push(*member);
                }
            }
        }
        if distinct.len() <= FULL_BUCKET {
            return self.join_all(&distinct);
        }
        self.bounded += 1;
        for order in 0..ORDERS {
            let smallest = |member: u32| {
                let hashes = self.candidates[member as usize].shingles.iter();
                hashes.map(|hash| mix(hash ^ mix(order + 1))).min().unwrap_or(0)
            };
            let mut ordered: Vec<(u64, u32)> = distinct.iter().map(|member| (smallest(*member), *member)).collect();
            ordered.sort_unstable();
            for (at, (_, one)) in ordered.iter().enumerate() {
                for (_, two) in ordered[at + 1..].iter().take(NEIGHBOURS) {
                    if self.sets.find(*one) != self.sets.find(*two) && self.is_pair(*one, *two) {
                        self.sets.union(*one, *two);
                    }
                }
            }
        }
    }

    fn is_pair(&mut self, one: u32, two: u32) -> bool {
        let (one, two) = (one.min(two), one.max(two));
        let key = u64::from(one) << 32 | u64::from(two);
        if self.unlike.contains(&key) {
            return false;
        }
        let (first, second) = (&self.candidates[one as usize], &self.candidates[two as usize]);
        let threshold = self.rules.threshold;
        let is_similar = jaccard_bound(first.shingles.len(), second.shingles.len()) >= threshold
            && jaccard(&first.shingles, &second.shingles) >= threshold;
        let are_twins = is_similar
            && self.rules.keeps_number_twins
            && first.numbers != second.numbers
            && (first.label.is_none() || first.label != second.label);
        if are_twins {
            self.is_twin[one as usize] = true;
            self.is_twin[two as usize] = true;
        }
        let is_pair = is_similar && !are_twins;
        if !is_pair {
            self.unlike.insert(key);
        }
        is_pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: JoinRules = JoinRules { threshold: 0.8, keeps_number_twins: true };

    fn candidate(items: impl IntoIterator<Item = u64>, numbers: u64, label: Option<u64>) -> Candidate {
        let mut shingles: Vec<u64> = items.into_iter().map(mix).collect();
        shingles.sort_unstable();
        Candidate { shingles, numbers, label }
    }

    fn whole(candidates: &[Candidate]) -> Vec<Vec<u32>> {
        vec![(0..u32::try_from(candidates.len()).unwrap()).collect()]
    }

    #[test]
    fn chains_of_verified_pairs_are_one_cluster_and_candidates_alone_are_none() {
        let part = |start: u64| candidate(start..start + 20, 0, None);
        let candidates = [part(0), part(2), part(4), part(40), part(100)];
        let found = verify(&candidates, &[vec![0, 1, 2, 3, 4], vec![3, 4]], RULES);
        assert_eq!(found.sets.clone().roots(), [0, 0, 0, 3, 4]);
    }

    #[test]
    fn number_twins_stay_apart_unless_their_labels_agree() {
        let text = |numbers, label| candidate(0..20, numbers, label);
        let candidates = [text(1, Some(7)), text(2, Some(8)), text(3, Some(7)), text(1, None), text(4, None)];
        let mut found = verify(&candidates, &whole(&candidates), RULES);
        assert_eq!(found.sets.roots(), [0, 1, 0, 0, 4]);
        assert!(found.is_twin[1] && found.is_twin[4]);
        let drops = JoinRules { keeps_number_twins: false, ..RULES };
        assert_eq!(verify(&candidates, &whole(&candidates), drops).sets.roots(), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_hundred_thousand_copies_and_twins_are_a_matter_of_moments() {
        let copies: Vec<Candidate> = (0..100_000).map(|_| candidate(0..20, 0, None)).collect();
        let mut found = verify(&copies, &whole(&copies), RULES);
        assert_eq!((found.sets.sizes()[0], found.bounded), (100_000, 0));
        let twins: Vec<Candidate> = (0..100_000).map(|number| candidate(0..20, number / 2, Some(number))).collect();
        let mut found = verify(&twins, &whole(&twins), RULES);
        assert!(found.sets.sizes().iter().all(|size| [0, 2].contains(size)));
        assert!(found.is_twin[1..].iter().all(|is_twin| *is_twin));
    }

    #[test]
    fn similar_pairs_are_found_in_a_bucket_too_large_to_compare_all() {
        // 4,000 texts that share three quarters with each other, which is too little, and each with one near copy
        let text = |number: u64, own: u64| {
            let template = 0..60_u64;
            let filling = 1_000 + number * 100..1_000 + number * 100 + 20;
            candidate(template.chain(filling).chain([1 << 40 | own]), 0, None)
        };
        let candidates: Vec<Candidate> = (0..4_000).map(|at| text(at / 2, at)).collect();
        let mut found = verify(&candidates, &whole(&candidates), RULES);
        let sizes = found.sets.sizes();
        let pairs = sizes.iter().filter(|size| **size == 2).count();
        assert!(found.bounded == 1 && pairs >= 1_400, "{pairs} of 2,000");
        assert!(sizes.iter().all(|size| *size <= 2));
    }

    proptest! {
        #[test]
        fn clusters_are_the_connected_sets_of_similar_pairs_that_share_a_bucket(
            texts in prop::collection::vec((0_u64..6, 4_u64..9, 0_u64..2, prop::option::of(0_u64..2)), 1..16),
            buckets in prop::collection::vec(prop::collection::btree_set(0_u32..16, 0..9), 0..6),
            keeps_number_twins in any::<bool>(),
        ) {
            let rules = JoinRules { threshold: 0.5, keeps_number_twins };
            let candidates: Vec<Candidate> =
                texts.iter().map(|(start, count, numbers, label)| candidate(*start..start + count, *numbers, *label)).collect();
            let count = u32::try_from(candidates.len()).unwrap();
            let buckets: Vec<Vec<u32>> =
                buckets.iter().map(|bucket| bucket.iter().copied().filter(|at| *at < count).collect()).collect();
            let mut expected = UnionFind::new(count);
            for bucket in &buckets {
                for one in bucket {
                    for two in bucket.iter().filter(|two| *two > one) {
                        let (first, second) = (&candidates[*one as usize], &candidates[*two as usize]);
                        let may = !keeps_number_twins || first.numbers == second.numbers
                            || (first.label.is_some() && first.label == second.label);
                        if may && jaccard(&first.shingles, &second.shingles) >= 0.5 {
                            expected.union(*one, *two);
                        }
                    }
                }
            }
            let mut backwards: Vec<Vec<u32>> = buckets.iter().rev().cloned().collect();
            for bucket in &mut backwards {
                bucket.reverse();
            }
            prop_assert_eq!(verify(&candidates, &buckets, rules).sets.roots(), expected.roots());
            prop_assert_eq!(verify(&candidates, &backwards, rules).sets.roots(), expected.roots());
        }
    }
}
