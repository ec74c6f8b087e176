//! What the candidates say, in memory: numbers only, as many as there are candidates, however many rows there are.

use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use pipeline_core::{StageError, Task, rows};
use schemas::{queries, traces};
use stage_text::union_find::UnionFind;

use super::CANDIDATES;
use super::candidates::{CONFLICT, COUNT, EXACT, NEAR};
use super::keys::Key;
use super::parts::{Level, Parts};

/// Who must be compared with whom.
#[derive(Debug, Default)]
pub struct Plan {
    /// Units whose query has several labels, sorted.
    pub conflicts: Vec<u64>,
    /// Units of the same text, those with conflicts left out, two or more, sorted by the smallest.
    pub exact: Vec<Vec<u64>>,
    /// Units with a text.
    pub texts: u64,
    /// Units that share a band with another, sorted; of equal texts the smallest.
    pub members: Vec<u64>,
    /// Positions in `members` of those that share a band.
    buckets: Vec<Vec<u32>>,
    /// For each member the smallest of all that it hangs together with through buckets.
    components: Vec<u32>,
}

impl Plan {
    /// Reads the candidates.
    ///
    /// # Errors
    /// When a file is damaged, or there are more candidates than 32 bits can number.
    pub fn read(task: &Task<'_>) -> Result<Self, StageError> {
        let mut plan = Self::default();
        let (mut exact, mut near) = (Vec::new(), Vec::new());
        for batch in task.earlier(CANDIDATES)? {
            for key in Key::read(&batch?)? {
                match key.sort {
                    CONFLICT => plan.conflicts.push(key.unit),
                    EXACT => exact.push((key.hash, key.other, key.unit)),
                    NEAR => near.push((key.hash, key.unit)),
                    COUNT => plan.texts += key.unit,
                    _ => return Err(StageError::Internal(format!("step `{CANDIDATES}` handed on a row of no sort"))),
                }
            }
        }
        plan.conflicts.sort_unstable();
        plan.conflicts.dedup();
        exact.sort_unstable();
        near.sort_unstable();
        near.dedup();
        let stand_ins = plan.add_exact(&exact);
        plan.add_near(&near, &stand_ins)?;
        Ok(plan)
    }

    fn has_conflict(&self, unit: u64) -> bool {
        self.conflicts.binary_search(&unit).is_ok()
    }

    /// Adds groups of equal texts and says who stands for each of their units; `None` where all fall out.
    fn add_exact(&mut self, exact: &[(u64, u64, u64)]) -> HashMap<u64, Option<u64>> {
        let mut stand_ins = HashMap::with_capacity(exact.len());
        for group in exact.chunk_by(|one, two| (one.0, one.1) == (two.0, two.1)) {
            let units: Vec<u64> =
                group.iter().map(|(_, _, unit)| *unit).filter(|unit| !self.has_conflict(*unit)).collect();
            stand_ins.extend(group.iter().map(|(_, _, unit)| (*unit, units.first().copied())));
            if units.len() > 1 {
                self.exact.push(units);
            }
        }
        self.exact.sort_unstable();
        stand_ins
    }

    fn add_near(&mut self, near: &[(u64, u64)], stand_ins: &HashMap<u64, Option<u64>>) -> Result<(), StageError> {
        let stand_in = |unit: u64| match stand_ins.get(&unit) {
            Some(stand_in) => *stand_in,
            None => Some(unit).filter(|unit| !self.has_conflict(*unit)),
        };
        let buckets: Vec<Vec<u64>> = near
            .chunk_by(|one, two| one.0 == two.0)
            .map(|bucket| bucket.iter().filter_map(|(_, unit)| stand_in(*unit)).collect::<Vec<u64>>())
            .filter(|bucket| bucket.len() > 1)
            .collect();
        self.members = buckets.iter().flatten().copied().collect();
        self.members.sort_unstable();
        self.members.dedup();
        if u32::try_from(self.members.len()).is_err() {
            let message = "more than four billion texts share a band with another; raise `threshold`";
            return Err(StageError::Alarm(message.to_owned()));
        }
        let mut sets = UnionFind::new(u32::try_from(self.members.len()).unwrap_or(u32::MAX));
        for bucket in buckets {
            let mut bucket: Vec<u32> = bucket.into_iter().filter_map(|unit| self.position(unit)).collect();
            bucket.sort_unstable();
            for pair in bucket.windows(2) {
                sets.union(pair[0], pair[1]);
            }
            self.buckets.push(bucket);
        }
        self.components = sets.roots();
        // the buckets of a component stand together
        self.buckets.sort_unstable_by(|one, two| {
            (self.components[one[0] as usize], one).cmp(&(self.components[two[0] as usize], two))
        });
        self.buckets.dedup();
        Ok(())
    }

    /// Position of a unit among the members.
    pub fn position(&self, unit: u64) -> Option<u32> {
        self.members.binary_search(&unit).ok().and_then(|position| u32::try_from(position).ok())
    }

    /// The component of a member.
    pub fn component(&self, member: u32) -> u32 {
        self.components[member as usize]
    }

    /// Buckets of a component.
    pub fn buckets(&self, component: u32) -> &[Vec<u32>] {
        let of = |bucket: &Vec<u32>| self.components[bucket[0] as usize];
        let start = self.buckets.partition_point(|bucket| of(bucket) < component);
        let end = self.buckets.partition_point(|bucket| of(bucket) <= component);
        &self.buckets[start..end]
    }

    /// The units that have a unit's text, itself included, given the smallest of them.
    pub fn same_text(&self, smallest: u64) -> Vec<u64> {
        let found = self.exact.binary_search_by_key(&smallest, |group| group[0]);
        found.map_or_else(|_| vec![smallest], |group| self.exact[group].clone())
    }
}

/// Id of a unit, and the number that decides which unit of a cluster stays.
#[derive(Debug)]
struct Name {
    id: Box<str>,
    best: f64,
}

/// Names of all units that are in question.
#[derive(Debug, Default)]
pub struct Names(HashMap<u64, Name>);

impl Names {
    /// Reads ids and numbers, no texts.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn read(parts: &Parts, plan: &Plan, task: &Task<'_>) -> Result<Self, StageError> {
        let mut wanted: Vec<u64> = plan.exact.iter().flatten().chain(&plan.members).copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut names = Self::default();
        if wanted.is_empty() {
            return Ok(names);
        }
        let mut columns = vec![queries::QUERY_ID];
        columns.extend((parts.level == Level::Trace).then_some(traces::TRACE_ID));
        columns.extend(parts.best.as_deref());
        columns.sort_unstable();
        columns.dedup();
        let mut batches = task.port_batches("rows", Some(&columns))?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let id = if parts.level == Level::Trace { traces::TRACE_ID } else { queries::QUERY_ID };
            let (ids, best) = (rows::texts(&batch, id)?, best(parts, &batch)?);
            for (row, unit) in parts.units(&batch, batches.ordinal())?.into_iter().enumerate() {
                if wanted.binary_search(&unit).is_err() {
                    continue;
                }
                let best = best.get(row).copied().flatten().filter(|best| !best.is_nan()).unwrap_or(f64::NEG_INFINITY);
                let name = names.0.entry(unit).or_insert_with(|| Name { id: Box::from(ids.value(row)), best });
                name.best = name.best.max(best);
            }
        }
        Ok(names)
    }

    /// Id of a unit.
    pub fn id(&self, unit: u64) -> &str {
        self.0.get(&unit).map_or("", |name| &name.id)
    }

    /// The unit that stays comes first: largest value of the column that decides, then smallest id, then first row.
    pub fn rank(&self, one: u64, two: u64) -> Ordering {
        let best = |unit| self.0.get(&unit).map_or(f64::NEG_INFINITY, |name| name.best);
        best(two).total_cmp(&best(one)).then_with(|| self.id(one).cmp(self.id(two))).then_with(|| one.cmp(&two))
    }

    /// The unit that stays.
    pub fn survivor(&self, units: impl IntoIterator<Item = u64>) -> Option<u64> {
        units.into_iter().min_by(|one, two| self.rank(*one, *two))
    }
}

/// Values of the column that decides; empty where none is given.
fn best(parts: &Parts, batch: &RecordBatch) -> Result<Vec<Option<f64>>, StageError> {
    let Some(name) = &parts.best else {
        return Ok(Vec::new());
    };
    let column = rows::column(batch, name)?;
    if let Some(integers) = column.as_primitive_opt::<Int64Type>() {
        return Ok(integers.iter().map(|value| value.map(|value| value as f64)).collect());
    }
    Ok(rows::floats(batch, name)?.iter().collect())
}
