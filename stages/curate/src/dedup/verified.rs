//! Fourth step: compares the texts of a partition exactly, joins verified pairs, and says who stays of each cluster.
//!
//! Texts that hang together through candidates are together in one partition, so its clusters are whole. A partition
//! whose shingles exceed [`MEMORY`] is read several times, each time for another share of its components.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{StageError, Task, rows};
use rayon::prelude::*;
use stage_text::cluster::{Candidate, JoinRules, verify};
use stage_text::ngram::mix;
use stage_text::shingle::jaccard;

use super::parts::Parts;
use super::plan::{Names, Plan};
use super::{Dedup, NumberTwins, SHINGLES, shingles};

/// Bytes of shingles that a task holds at once, unless a single component has more.
const MEMORY: usize = 128 << 20;
/// Most bits of a component's hash that divide a partition.
const MOST_BITS: u32 = 16;

/// Bytes of shingles that a task holds at once.
fn memory() -> usize {
    #[cfg(test)]
    if let Some(bytes) = LESS_MEMORY.get() {
        return bytes;
    }
    MEMORY
}

#[cfg(test)]
thread_local! {
    static LESS_MEMORY: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// Runs `work` with another [`MEMORY`] on this thread.
#[cfg(test)]
pub fn with_memory<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    LESS_MEMORY.set(Some(bytes));
    let result = work();
    LESS_MEMORY.set(None);
    result
}

/// Findings about members, in the order of the schema's columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finding {
    /// `unit` is in one cluster with `survivor`, to which it has this Jaccard index; so are those with the same text.
    Near {
        /// The unit.
        unit: u64,
        /// The unit that stays.
        survivor: u64,
        /// Jaccard index with that, 0 to 1.
        similarity: f64,
    },
    /// `unit` was kept apart from another for its numbers.
    Twin(u64),
    /// So many buckets were too large to compare every pair.
    Bounded(u64),
}

/// Columns of a finding.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("finding", DataType::UInt64, false),
            Field::new("unit", DataType::UInt64, false),
            Field::new("survivor", DataType::UInt64, false),
            Field::new("similarity", DataType::Float64, false),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// Findings as rows.
fn batch(findings: &[Finding]) -> Result<RecordBatch, StageError> {
    let rows = findings.iter().map(|finding| match *finding {
        Finding::Near { unit, survivor, similarity } => (0, unit, survivor, similarity),
        Finding::Twin(unit) => (1, unit, 0, 0.0),
        Finding::Bounded(count) => (2, count, 0, 0.0),
    });
    let rows: Vec<(u64, u64, u64, f64)> = rows.collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<UInt64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<UInt64Array>()),
        Arc::new(rows.iter().map(|row| row.2).collect::<UInt64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.3)).collect::<Float64Array>()),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// Findings of a batch.
///
/// # Errors
/// When a column is missing.
pub fn read(batch: &RecordBatch) -> Result<Vec<Finding>, StageError> {
    let (sorts, units) = (rows::row_numbers(batch, "finding")?, rows::row_numbers(batch, "unit")?);
    let (survivors, similarities) = (rows::row_numbers(batch, "survivor")?, rows::floats(batch, "similarity")?);
    let finding = |row: usize| match sorts.value(row) {
        0 => Finding::Near {
            unit: units.value(row),
            survivor: survivors.value(row),
            similarity: similarities.value(row),
        },
        1 => Finding::Twin(units.value(row)),
        _ => Finding::Bounded(units.value(row)),
    };
    Ok((0..batch.num_rows()).map(finding).collect())
}

/// The texts that hang together, by component: position among the members, and shingles.
type Components = BTreeMap<u32, Vec<(u32, Candidate)>>;

/// Compares what one partition holds.
///
/// # Errors
/// When a file is damaged or the disk refuses.
pub fn run(dedup: &Dedup, parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let plan = task.shared("plan", Plan::read)?;
    let names = task.shared("names", |task| Names::read(parts, &plan, task))?;
    let rules = JoinRules { threshold: dedup.threshold, keeps_number_twins: dedup.number_twins == NumberTwins::Keep };
    // shares of the partition that are still to be read: components whose hash ends in these bits
    let mut shares = vec![(0_u32, 0_u64)];
    while let Some((bits, ending)) = shares.pop() {
        let components = read_share(task, memory(), (bits, ending), &mut shares)?;
        task.check_cancelled()?;
        let components: Vec<(u32, Vec<(u32, Candidate)>)> = components.into_iter().collect();
        let found: Vec<Vec<Finding>> = components
            .into_par_iter()
            .map(|(component, members)| compare(&plan, &names, rules, component, members))
            .collect();
        task.write(&batch(&found.concat())?)?;
    }
    Ok(())
}

/// Reads a share of the partition. When it is too large its rest is put back as further shares.
fn read_share(
    task: &Task<'_>,
    memory: usize,
    (mut bits, ending): (u32, u64),
    shares: &mut Vec<(u32, u64)>,
) -> Result<Components, StageError> {
    let is_in = |component: u32, bits: u32, ending: u64| {
        // the lowest bits chose the partition
        (mix(u64::from(component)) >> 32) & ((1 << bits) - 1) == ending
    };
    let (mut components, mut held) = (Components::new(), 0);
    for batch in task.partition(SHINGLES)? {
        let add = |component, member, candidate: Candidate| {
            held += candidate.shingles.len() * size_of::<u64>();
            let members: &mut Vec<(u32, Candidate)> = components.entry(component).or_default();
            members.push((member, candidate));
        };
        shingles::for_each(&batch?, |component| is_in(component, bits, ending), add)?;
        while held > memory && components.len() > 1 && bits < MOST_BITS {
            shares.push((bits + 1, ending | 1 << bits));
            bits += 1;
            components.retain(|component, _| is_in(*component, bits, ending));
            let shingles = components.values().flatten().map(|(_, candidate)| candidate.shingles.len());
            held = shingles.sum::<usize>() * size_of::<u64>();
        }
    }
    Ok(components)
}

/// Clusters the members of one component.
fn compare(
    plan: &Plan,
    names: &Names,
    rules: JoinRules,
    component: u32,
    mut members: Vec<(u32, Candidate)>,
) -> Vec<Finding> {
    members.sort_unstable_by_key(|(member, _)| *member);
    members.dedup_by_key(|(member, _)| *member);
    let (members, candidates): (Vec<u32>, Vec<Candidate>) = members.into_iter().unzip();
    let place = |member: &u32| members.binary_search(member).ok().and_then(|at| u32::try_from(at).ok());
    let buckets: Vec<Vec<u32>> =
        plan.buckets(component).iter().map(|bucket| bucket.iter().filter_map(place).collect()).collect();
    let mut verified = verify(&candidates, &buckets, rules);
    let mut clusters: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, root) in verified.sets.roots().into_iter().enumerate() {
        clusters.entry(root).or_default().push(at);
    }
    let unit = |at: usize| plan.members[members[at] as usize];
    let mut findings = Vec::new();
    for cluster in clusters.values().filter(|cluster| cluster.len() > 1) {
        // the best of each group of equal texts, then the best of those
        let best = cluster.iter().filter_map(|at| Some((names.survivor(plan.same_text(unit(*at)))?, *at)));
        let Some((survivor, stays)) = best.min_by(|one, two| names.rank(one.0, two.0)) else {
            continue;
        };
        findings.extend(cluster.iter().map(|at| Finding::Near {
            unit: unit(*at),
            survivor,
            similarity: jaccard(&candidates[*at].shingles, &candidates[stays].shingles),
        }));
    }
    let twins = verified.is_twin.iter().enumerate().filter(|(_, is_twin)| **is_twin);
    findings.extend(twins.map(|(at, _)| Finding::Twin(unit(at))));
    findings.extend((verified.bounded > 0).then_some(Finding::Bounded(verified.bounded)));
    findings
}
