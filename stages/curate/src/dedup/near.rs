//! Finds near-duplicates among units: candidates by shared bands, joined where the exact Jaccard index confirms.

use std::collections::HashMap;

use pipeline_core::{StageError, Task};
use rayon::prelude::*;
use stage_text::ngram::run_hash;
use stage_text::shingle::ShingleSet;
use stage_text::union_find::UnionFind;

use super::parts::Parts;
use super::units::Units;
use super::{Dedup, NumberTwins};

/// Near-duplicates among some units, which are named by their position.
#[derive(Debug)]
pub struct Near {
    /// Clusters of verified pairs; the smallest position is a cluster's root.
    pub sets: UnionFind,
    /// Shingles of those that share a band with another.
    candidates: HashMap<u32, Candidate>,
    /// Units that were kept apart from another only because their numbers differ.
    pub number_twins: usize,
}

#[derive(Debug)]
struct Candidate {
    shingles: ShingleSet,
    /// Digest of the numbers, in the order of the text.
    numbers: u64,
    label: Option<u64>,
}

impl Near {
    /// Looks among `members`, best first, each with a text of its own.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn find(
        dedup: &Dedup,
        parts: &Parts,
        task: &Task<'_>,
        units: &Units,
        members: &[u32],
    ) -> Result<Self, StageError> {
        let mut sets = UnionFind::new(u32::try_from(members.len()).unwrap_or(u32::MAX));
        if !dedup.near {
            return Ok(Self { sets, candidates: HashMap::new(), number_twins: 0 });
        }
        let bands = dedup.bands().bands;
        let mut is_candidate = vec![false; members.len()];
        for_each_bucket(units, members, bands, |bucket| {
            for (_, member) in bucket {
                is_candidate[*member as usize] = true;
            }
        });
        let wanted: HashMap<u64, u32> = (0..)
            .zip(members)
            .filter(|(member, _)| is_candidate[*member as usize])
            .map(|(member, unit)| (units.all[*unit as usize].first, member))
            .collect();
        let candidates = read_candidates(dedup, parts, task, &wanted, |member| units.label(members[member as usize]))?;
        let mut verifier = Verifier { dedup, parts, candidates: &candidates, is_twin: vec![false; members.len()] };
        let mut result = Ok(());
        for_each_bucket(units, members, bands, |bucket| {
            if result.is_ok() {
                result = task.check_cancelled();
                join(bucket, &mut sets, |one, two| verifier.is_duplicate(one, two));
            }
        });
        result?;
        let number_twins = verifier.is_twin.iter().filter(|is_twin| **is_twin).count();
        Ok(Self { sets, candidates, number_twins })
    }

    /// Jaccard index of two members; 0 where one of them shares no band with any other.
    pub fn similarity(&self, one: u32, two: u32) -> f64 {
        match (self.candidates.get(&one), self.candidates.get(&two)) {
            (Some(one), Some(two)) => one.shingles.jaccard(&two.shingles),
            _ => 0.0,
        }
    }
}

/// Calls `visit` with each run of two or more members that share a hash in a band, in ascending order.
fn for_each_bucket(units: &Units, members: &[u32], bands: usize, mut visit: impl FnMut(&[(u64, u32)])) {
    let mut column: Vec<(u64, u32)> = Vec::with_capacity(members.len());
    for band in 0..bands {
        column.clear();
        let hashes = (0..)
            .zip(members)
            .filter_map(|(member, unit)| units.bands(*unit, bands).get(band).map(|hash| (*hash, member)));
        column.extend(hashes);
        column.par_sort_unstable();
        column.chunk_by(|one, two| one.0 == two.0).filter(|bucket| bucket.len() > 1).for_each(&mut visit);
    }
}

/// Joins the members of a bucket that `verify` confirms. Members that belong together already are not compared again,
/// which changes no cluster and keeps a bucket of many copies linear.
fn join(bucket: &[(u64, u32)], sets: &mut UnionFind, mut verify: impl FnMut(u32, u32) -> bool) {
    let mut clusters: Vec<Vec<u32>> = Vec::new();
    for (_, member) in bucket {
        let mut home: Option<usize> = None;
        let mut at = 0;
        while at < clusters.len() {
            let is_known = sets.find(clusters[at][0]) == sets.find(*member);
            let is_same = is_known || clusters[at].iter().any(|other| verify(*other, *member));
            if !is_same {
                at += 1;
                continue;
            }
            sets.union(clusters[at][0], *member);
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

struct Verifier<'a> {
    dedup: &'a Dedup,
    parts: &'a Parts,
    candidates: &'a HashMap<u32, Candidate>,
    is_twin: Vec<bool>,
}

impl Verifier<'_> {
    fn is_duplicate(&mut self, one: u32, two: u32) -> bool {
        let (Some(first), Some(second)) = (self.candidates.get(&one), self.candidates.get(&two)) else {
            return false;
        };
        if first.shingles.jaccard(&second.shingles) < self.dedup.threshold {
            return false;
        }
        let has_same_label = self.parts.level.has_label() && first.label.is_some() && first.label == second.label;
        let are_twins =
            self.dedup.number_twins == NumberTwins::Keep && first.numbers != second.numbers && !has_same_label;
        if are_twins {
            self.is_twin[one as usize] = true;
            self.is_twin[two as usize] = true;
        }
        !are_twins
    }
}

/// Reads the texts of the wanted rows, by ordinal, and keeps their shingles.
fn read_candidates(
    dedup: &Dedup,
    parts: &Parts,
    task: &Task<'_>,
    wanted: &HashMap<u64, u32>,
    label: impl Fn(u32) -> Option<u64> + Sync,
) -> Result<HashMap<u32, Candidate>, StageError> {
    let mut candidates = HashMap::with_capacity(wanted.len());
    if wanted.is_empty() {
        return Ok(candidates);
    }
    let mut batches = task.port_batches("rows", Some(&parts.text_columns()))?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let texts = parts.texts(&batch)?;
        let found: Vec<(usize, u32)> = (batches.ordinal()..)
            .zip(0..batch.num_rows())
            .filter_map(|(ordinal, row)| wanted.get(&ordinal).map(|member| (row, *member)))
            .collect();
        let read = found.into_par_iter().with_min_len(32).map_init(Dedup::view_builder, |views, (row, member)| {
            let text = texts.at(row)?;
            let view = views.build_folded(&text);
            let numbers: Vec<u64> = view.view().numbers().collect();
            let shingles = dedup.shingles(view)?;
            Some((member, Candidate { shingles, numbers: run_hash(&numbers), label: label(member) }))
        });
        candidates.extend(read.collect::<Vec<_>>().into_iter().flatten());
    }
    Ok(candidates)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joining_a_bucket_finds_the_connected_sets_of_verified_pairs(
            edges in prop::collection::btree_set((0_u32..12, 0_u32..12), 0..20),
            before in prop::collection::vec((0_u32..12, 0_u32..12), 0..4),
        ) {
            let is_edge = |one, two| edges.contains(&(one, two)) || edges.contains(&(two, one));
            let (mut sets, mut expected) = (UnionFind::new(12), UnionFind::new(12));
            for (one, two) in &before {
                sets.union(*one, *two);
                expected.union(*one, *two);
            }
            for (one, two) in &edges {
                expected.union(*one, *two);
            }
            let bucket: Vec<(u64, u32)> = (0..12).map(|member| (7, member)).collect();
            join(&bucket, &mut sets, is_edge);
            prop_assert_eq!(sets.roots(), expected.roots());
        }
    }

    #[test]
    fn many_copies_are_verified_once_each() {
        let bucket: Vec<(u64, u32)> = (0..1000).map(|member| (7, member)).collect();
        let (mut sets, mut verified) = (UnionFind::new(1000), 0);
        join(&bucket, &mut sets, |_, _| {
            verified += 1;
            true
        });
        assert_eq!((verified, sets.sizes()[0]), (999, 1000));
    }
}
