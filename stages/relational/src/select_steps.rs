//! The three steps of `select` when rows compete: look at narrow columns, decide, apply to whole rows.
//!
//! `look` evaluates the condition where the columns are, so that a text it measures never leaves its task. `decide`
//! holds, for each row, an id, a group and a score or a draw.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray, new_null_array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use pipeline_core::{StageError, Task, json_rows, rows};
use serde_json::json;

use crate::condition::Condition;
use crate::decisions::{Decisions, count};
use crate::keys::{self, Interned};
use crate::ranking::{self, Key};
use crate::select::{Order, Select, reason};

/// First step: narrow columns of each row.
pub const LOOK: &str = "look";
/// Second step: what becomes of each row.
pub const DECIDE: &str = "decide";

const HELD: &str = "held";
const ID: &str = "id";
const SCORE: &str = "score";
const DRAW: &str = "draw";
const GROUP: &str = "group";
const QUOTA: &str = "quota";

/// What `look` hands on, one row for each row of the port. Columns that a choice does not need are null.
pub fn look_schema() -> SchemaRef {
    let column = |name: &str, kind| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        column(HELD, DataType::Boolean),
        column(ID, DataType::Utf8View),
        column(SCORE, DataType::Float64),
        column(DRAW, DataType::Int64),
        column(GROUP, DataType::Utf8View),
        column(QUOTA, DataType::Utf8View),
    ]))
}

/// What `look` found, of all rows.
struct Looked {
    held: BooleanArray,
    ids: StringViewArray,
    scores: Float64Array,
    draws: Int64Array,
    groups: StringViewArray,
    quotas: StringViewArray,
}

impl Select {
    fn draws_lots(&self) -> bool {
        self.sample.is_some() || (self.quota.is_some() && self.by.is_none())
    }

    pub(crate) fn look(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let condition = self.read_condition()?;
        let schema = task.port("rows").first().map(|input| Arc::clone(&input.schema));
        let schema = schema.ok_or_else(|| StageError::Internal("port `rows` has no input".to_owned()))?;
        let mut columns: Vec<&str> = condition.iter().flat_map(Condition::columns).map(String::as_str).collect();
        columns.extend(self.by.as_deref());
        columns.extend(self.group.iter().map(String::as_str));
        columns.extend(self.quota.as_ref().map(|quota| quota.column.as_str()));
        columns.extend(keys::id_column(&schema));
        columns.sort_unstable();
        columns.dedup();
        let mut batches = task.batches_of(&columns)?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let rows = batch.num_rows();
            let ids = keys::ids(&batch, batches.ordinal())?;
            let held = match &condition {
                Some(condition) => condition.mask(&batch)?,
                None => BooleanArray::from(vec![true; rows]),
            };
            let score: ArrayRef = match &self.by {
                Some(by) => Arc::new(keys::numbers(&batch, by)?),
                None => new_null_array(&DataType::Float64, rows),
            };
            let draw: ArrayRef = if self.draws_lots() {
                Arc::new(keys::draws(&ids, task.seed(), "select", &self.salt))
            } else {
                new_null_array(&DataType::Int64, rows)
            };
            let group: ArrayRef = if self.group.is_empty() {
                new_null_array(&DataType::Utf8View, rows)
            } else {
                Arc::new(keys::groups(&batch, &self.group)?)
            };
            let quota: ArrayRef = match &self.quota {
                Some(quota) => Arc::new(keys::texts(&batch, &quota.column)?),
                None => new_null_array(&DataType::Utf8View, rows),
            };
            let columns: Vec<ArrayRef> = vec![Arc::new(held), Arc::new(ids), score, draw, group, quota];
            task.write(&RecordBatch::try_new(look_schema(), columns)?)?;
        }
        Ok(())
    }

    pub(crate) fn decide(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let looked = Looked::read(task)?;
        let rows = looked.held.len();
        if rows as u64 > ranking::MOST_ROWS {
            return Err(StageError::Alarm(format!("{rows} rows are more than `select` can rank at once")));
        }
        let mut decisions = Decisions::new(reason::ALL, rows);
        for row in 0..rows {
            if !looked.held.value(row) {
                decisions.fall(row, reason::WHERE, 0.0, 0.0);
            } else if self.by.is_some() && arrow::array::Array::is_null(&looked.scores, row) {
                decisions.fall(row, reason::NULL_SCORE, 0.0, 0.0);
            }
        }
        task.check_cancelled()?;
        let groups = Interned::new(&looked.groups).numbers;
        if let Some(edges) = self.percentile {
            drop_outside(edges, &looked, &groups, &mut decisions)?;
        }
        task.check_cancelled()?;
        if let Some((most, reason, key)) = self.best(&looked) {
            let ordered = ranking::ordered(decisions.staying(), &groups, key, &looked.ids)?;
            for group in ranking::by_group(&ordered, &groups) {
                for (rank, row) in (1_u64..).zip(group).filter(|(rank, _)| *rank > most) {
                    decisions.fall(*row as usize, reason, rank as f64, group.len() as f64);
                }
            }
        }
        task.check_cancelled()?;
        self.drop_over_quota(&looked, &mut decisions)?;
        decisions.hand_on(task)
    }

    /// How many rows of a group stay, why the others fall, and by what they are ordered.
    fn best<'a>(&self, looked: &'a Looked) -> Option<(u64, &'static str, Key<'a>)> {
        let by_score = self.top.map(|most| (most, reason::BELOW_TOP, self.by_score(looked)));
        by_score.or_else(|| self.sample.map(|most| (most, reason::NOT_DRAWN, Key::Draw(&looked.draws))))
    }

    fn by_score<'a>(&self, looked: &'a Looked) -> Key<'a> {
        match self.order {
            Order::Descending => Key::Descending(&looked.scores),
            Order::Ascending => Key::Ascending(&looked.scores),
        }
    }

    fn drop_over_quota(&self, looked: &Looked, decisions: &mut Decisions) -> Result<(), StageError> {
        let Some(quota) = &self.quota else { return Ok(()) };
        let values = Interned::new(&looked.quotas);
        let caps: Vec<Option<u64>> = values
            .texts
            .iter()
            .map(|value| value.as_ref().and_then(|value| quota.rows.get(value)).copied().or(quota.others))
            .collect();
        let key = if self.by.is_some() { self.by_score(looked) } else { Key::Draw(&looked.draws) };
        let ordered = ranking::ordered(decisions.staying(), &values.numbers, key, &looked.ids)?;
        for group in ranking::by_group(&ordered, &values.numbers) {
            let Some(cap) = group.first().and_then(|row| caps[values.numbers[*row as usize] as usize]) else {
                continue;
            };
            for (rank, row) in (1_u64..).zip(group).filter(|(rank, _)| *rank > cap) {
                decisions.fall(*row as usize, reason::OVER_QUOTA, rank as f64, cap as f64);
            }
        }
        Ok(())
    }

    pub(crate) fn apply(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let decisions = Decisions::shared(task, DECIDE, reason::ALL)?;
        let condition = self.read_condition()?;
        let mut batches = task.batches()?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let value = |name: Option<&str>, row: usize| {
                let column = name.and_then(|name| batch.column_by_name(name));
                column.map_or(serde_json::Value::Null, |column| json_rows::value_at(column.as_ref(), row))
            };
            decisions.apply(task, &batch, batches.ordinal(), |row, fall| {
                let score = || value(self.by.as_deref(), row);
                let (first, second) = (fall.first, fall.second);
                Ok(match fall.reason {
                    reason::WHERE => condition.as_ref().map(|seen| seen.evidence(&batch, row)).transpose()?,
                    reason::NULL_SCORE => Some(json!({ "by": self.by })),
                    reason::OUTSIDE_PERCENTILE => Some(json!({ "score": score(), "low": first, "high": second })),
                    reason::BELOW_TOP => Some(json!({ "score": score(), "rank": count(first), "of": count(second) })),
                    reason::NOT_DRAWN => Some(json!({ "rank": count(first), "of": count(second) })),
                    _ => {
                        let column = self.quota.as_ref().map(|quota| quota.column.as_str());
                        Some(json!({ "value": value(column, row), "rank": count(first), "quota": count(second) }))
                    }
                })
            })?;
        }
        Ok(())
    }
}

/// Lets the rows fall whose score lies outside two percentiles of its group.
fn drop_outside(
    [low, high]: [f64; 2],
    looked: &Looked,
    groups: &[u32],
    decisions: &mut Decisions,
) -> Result<(), StageError> {
    let key = Key::Ascending(&looked.scores);
    let ordered = ranking::ordered(decisions.staying(), groups, key, &looked.ids)?;
    for group in ranking::by_group(&ordered, groups) {
        let sorted: Vec<f64> = group.iter().map(|row| looked.scores.value(*row as usize)).collect();
        let edges = ranking::nearest_rank(&sorted, low).zip(ranking::nearest_rank(&sorted, high));
        let Some((least, most)) = edges else { continue };
        for (row, _) in group.iter().zip(sorted).filter(|(_, score)| *score < least || *score > most) {
            decisions.fall(*row as usize, reason::OUTSIDE_PERCENTILE, least, most);
        }
    }
    Ok(())
}

impl Looked {
    fn read(task: &Task<'_>) -> Result<Self, StageError> {
        let batches = task.earlier(LOOK)?.collect::<Result<Vec<_>, _>>()?;
        let all = concat_batches(&look_schema(), &batches)?;
        drop(batches);
        let scores = rows::column(&all, SCORE)?.as_primitive::<Float64Type>().clone();
        let draws = rows::column(&all, DRAW)?.as_primitive::<Int64Type>().clone();
        Ok(Self {
            held: rows::booleans(&all, HELD)?.clone(),
            ids: rows::texts(&all, ID)?.clone(),
            scores,
            draws,
            groups: rows::texts(&all, GROUP)?.clone(),
            quotas: rows::texts(&all, QUOTA)?.clone(),
        })
    }
}
