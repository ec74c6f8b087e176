//! The signatures of all rows in memory, as units: what is kept or dropped together.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use pipeline_core::{StageError, Task, rows};

use super::SIGNATURES;
use super::parts::{Level, Parts};

/// A query id and its label.
#[derive(Debug)]
pub struct Query {
    /// Its id.
    pub id: Arc<str>,
    /// Digest of the first label seen.
    pub label: Option<u64>,
    /// Whether another label was seen, too.
    pub has_conflict: bool,
}

/// A row, or all rows of a query.
#[derive(Debug)]
pub struct Unit {
    /// Index of its query.
    pub query: u32,
    /// Trace id, where that is the row's id.
    trace: Option<Box<str>>,
    /// Ordinal of its first row.
    pub first: u64,
    /// Digest of its text, `None` without one.
    pub content: Option<u128>,
    /// Largest value of the column that decides.
    best: f64,
    /// Where its band hashes begin.
    bands: Option<usize>,
}

/// All units.
#[derive(Debug, Default)]
pub struct Units {
    /// In the order of their first rows.
    pub all: Vec<Unit>,
    /// Query ids with their labels.
    pub queries: Vec<Query>,
    /// Ordinal and unit of each row.
    pub rows: Vec<(u64, u32)>,
    by_id: HashMap<Arc<str>, u32>,
    /// Unit of each query, where units are queries.
    of_query: HashMap<u32, u32>,
    bands: Vec<u64>,
}

impl Units {
    /// Reads the signatures of all rows.
    ///
    /// # Errors
    /// When a file is damaged, or there are more rows than 32 bits can number.
    pub fn read(parts: &Parts, task: &Task<'_>) -> Result<Self, StageError> {
        let mut units = Self::default();
        for batch in task.earlier(SIGNATURES)? {
            units.add(parts, &batch?)?;
        }
        units.rows.sort_unstable();
        Ok(units)
    }

    fn add(&mut self, parts: &Parts, batch: &RecordBatch) -> Result<(), StageError> {
        let ordinals = rows::row_numbers(batch, "ordinal")?;
        let (queries, traces) = (rows::texts(batch, "query")?, rows::texts(batch, "trace")?);
        let (high, low) = (rows::row_numbers(batch, "high")?, rows::row_numbers(batch, "low")?);
        let (labels, best) = (rows::row_numbers(batch, "label")?, rows::floats(batch, "best")?);
        let bands = rows::lists(batch, "bands")?;
        for row in 0..batch.num_rows() {
            let query = self.query(queries.value(row))?;
            self.add_label(query, labels.is_valid(row).then(|| labels.value(row)));
            let content = high.is_valid(row).then(|| u128::from(high.value(row)) << 64 | u128::from(low.value(row)));
            let unit = Unit {
                query,
                trace: rows::text_at(traces, row).map(Box::from),
                first: ordinals.value(row),
                content,
                best: if best.is_valid(row) && !best.value(row).is_nan() { best.value(row) } else { f64::NEG_INFINITY },
                bands: bands.is_valid(row).then_some(self.bands.len()),
            };
            if unit.bands.is_some() {
                self.bands.extend_from_slice(bands.value(row).as_primitive::<UInt64Type>().values());
            }
            let index = self.place(parts, unit)?;
            self.rows.push((ordinals.value(row), index));
        }
        Ok(())
    }

    fn query(&mut self, id: &str) -> Result<u32, StageError> {
        if let Some(index) = self.by_id.get(id) {
            return Ok(*index);
        }
        let index = number(self.queries.len())?;
        let id: Arc<str> = Arc::from(id);
        self.queries.push(Query { id: Arc::clone(&id), label: None, has_conflict: false });
        self.by_id.insert(id, index);
        Ok(index)
    }

    fn add_label(&mut self, query: u32, label: Option<u64>) {
        let query = &mut self.queries[query as usize];
        query.has_conflict |= matches!((query.label, label), (Some(one), Some(two)) if one != two);
        query.label = query.label.or(label);
    }

    /// Adds a unit, or merges it into the unit of its query.
    fn place(&mut self, parts: &Parts, unit: Unit) -> Result<u32, StageError> {
        let next = number(self.all.len())?;
        if parts.level == Level::QueryOfTraces {
            let index = *self.of_query.entry(unit.query).or_insert(next);
            if let Some(present) = self.all.get_mut(index as usize) {
                present.first = present.first.min(unit.first);
                present.content = present.content.or(unit.content);
                present.best = present.best.max(unit.best);
                present.bands = present.bands.or(unit.bands);
                return Ok(index);
            }
        }
        self.all.push(unit);
        Ok(next)
    }

    /// Id of a unit.
    pub fn id(&self, unit: u32) -> &str {
        let unit = &self.all[unit as usize];
        unit.trace.as_deref().unwrap_or(&self.queries[unit.query as usize].id)
    }

    /// Label of a unit, as a digest.
    pub fn label(&self, unit: u32) -> Option<u64> {
        self.queries[self.all[unit as usize].query as usize].label
    }

    /// Band hashes of a unit; empty where it has none.
    pub fn bands(&self, unit: u32, count: usize) -> &[u64] {
        self.all[unit as usize].bands.map_or(&[], |start| &self.bands[start..start + count])
    }

    /// Units whose query has one label at most.
    pub fn without_conflict(&self) -> impl Iterator<Item = u32> + '_ {
        let has_conflict = |unit: &Unit| self.queries[unit.query as usize].has_conflict;
        (0..).zip(&self.all).filter(move |(_, unit)| !has_conflict(unit)).map(|(index, _)| index)
    }

    /// The unit that stays comes first: largest value of the column that decides, then smallest id, then first row.
    pub fn rank(&self, one: u32, two: u32) -> Ordering {
        let (first, second) = (&self.all[one as usize], &self.all[two as usize]);
        second
            .best
            .total_cmp(&first.best)
            .then_with(|| self.id(one).cmp(self.id(two)))
            .then_with(|| first.first.cmp(&second.first))
    }
}

fn number(index: usize) -> Result<u32, StageError> {
    let number = u32::try_from(index).ok().filter(|number| *number < u32::MAX);
    number.ok_or_else(|| {
        StageError::Alarm("more than four billion rows cannot be compared at once; give the stage parts".to_owned())
    })
}
