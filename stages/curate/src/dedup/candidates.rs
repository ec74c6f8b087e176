//! Second step: looks at all keys of a partition and hands on what agrees: queries with several labels, equal texts,
//! and texts that share a band.

use std::collections::HashSet;

use pipeline_core::{StageError, Task};
use rayon::slice::ParallelSliceMut;
use stage_text::ngram::mix;

use super::keys::{BAND, Key, QUERY, TEXT};
use super::{CANDIDATES, KEYS};

/// `sort` of a unit whose query has several labels.
pub const CONFLICT: u64 = 0;
/// `sort` of a unit whose text others have as well; those with the same key and `other` have the same text.
pub const EXACT: u64 = 1;
/// `sort` of a unit that shares a band with those of the same key. Of equal texts only one unit is named.
pub const NEAR: u64 = 2;
/// `sort` of a count of units with a text, which stands in `unit`.
pub const COUNT: u64 = 3;

/// Rows handed on at once.
const BATCH_ROWS: usize = 1 << 16;

/// Looks at one partition.
///
/// # Errors
/// When a file is damaged or the disk refuses.
pub fn run(task: &mut Task<'_>) -> Result<(), StageError> {
    let mut keys: Vec<Key> = Vec::new();
    for batch in task.partition(KEYS)? {
        keys.extend(Key::read(&batch?)?);
    }
    task.check_cancelled()?;
    keys.par_sort_unstable();
    keys.dedup();
    let mut found = Found::default();
    for group in keys.chunk_by(|one, two| (one.sort, one.hash) == (two.sort, two.hash)) {
        match group[0].sort {
            QUERY => found.labels(group),
            TEXT => found.texts(group),
            BAND => found.band(group),
            _ => return Err(StageError::Internal(format!("step `{CANDIDATES}` met a key of no sort"))),
        }
    }
    found.rows.push(Key { sort: COUNT, hash: 0, other: 0, unit: found.count });
    for rows in found.rows.chunks(BATCH_ROWS) {
        task.write(&Key::batch(rows)?)?;
    }
    Ok(())
}

#[derive(Default)]
struct Found {
    rows: Vec<Key>,
    count: u64,
    /// Buckets named already: near-duplicates share many bands, and the bucket is often the same.
    buckets: HashSet<u64>,
}

impl Found {
    fn labels(&mut self, group: &[Key]) {
        let mut labels = group.iter().map(|key| key.other).filter(|label| *label != 0);
        let first = labels.next();
        if labels.any(|label| Some(label) != first) {
            self.rows.extend(group.iter().map(|key| Key { sort: CONFLICT, other: 0, ..*key }));
        }
    }

    fn texts(&mut self, group: &[Key]) {
        for same in group.chunk_by(|one, two| one.other == two.other) {
            self.count += same.len() as u64;
            if same.len() > 1 {
                self.rows.extend(same.iter().map(|key| Key { sort: EXACT, ..*key }));
            }
        }
    }

    fn band(&mut self, group: &[Key]) {
        if group.len() < 2 {
            return;
        }
        let mut units: Vec<u64> = group.chunk_by(|one, two| one.other == two.other).map(|same| same[0].unit).collect();
        if units.len() < 2 {
            return;
        }
        units.sort_unstable();
        let bucket = units.iter().fold(0, |hash, unit| mix(hash ^ unit));
        if self.buckets.insert(bucket) {
            self.rows.extend(units.into_iter().map(|unit| Key { sort: NEAR, hash: bucket, other: 0, unit }));
        }
    }
}
