//! `attach`: columns of another stage, joined to the rows by a key.
//!
//! It brings, say, the reference model's pass rate (VibeThinker-3B, section on SFT: the hard-reasoning stage) to a
//! teacher's traces. The other stage's key and the wanted columns are held in memory once for all tasks of a process;
//! the rows stream past them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, RecordBatch, UInt64Array, new_empty_array};
use arrow::compute::{concat, take};
use arrow::datatypes::{Field, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use pipeline_core::{
    Digest, Example, Output, ParamError, Port, Ports, Rejection, Stage, StageError, Step, TableType, Task, json_rows,
    rows,
};
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::keys::ensure_simple;

/// Adds columns of another stage's rows, found by a key.
///
/// Each row gets the values of the row of `other` that has the same key. Several rows of `other` may share a key as
/// long as they agree in the wanted columns (traces of one query, say); if they do not, the stage fails and names the
/// key. A column that the rows already have is replaced.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The column that both have and that must be equal; a null equals nothing. Default `query_id`.
    #[serde(default = "query_id")]
    on: String,
    /// The columns to add: `["pass_rate", "rollouts"]`, or with names of their own
    /// `{ reference_pass_rate = "pass_rate" }` (new name = name in `other`).
    columns: Columns,
    /// What becomes of a row that `other` has no partner for: `null` (the default) leaves the columns empty, `reject`
    /// drops the row as `no_match`.
    #[serde(default)]
    missing: Missing,
}

/// Columns to add.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Columns {
    /// Under the names they have.
    Same(Vec<String>),
    /// New name = name in `other`.
    Renamed(BTreeMap<String, String>),
}

/// What becomes of rows without a partner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// They stay, with empty columns.
    #[default]
    Null,
    /// They fall out.
    Reject,
}

const ROWS: &str = "rows";
const OTHER: &str = "other";
const NO_MATCH: &str = "no_match";

fn query_id() -> String {
    queries::QUERY_ID.to_owned()
}

impl Columns {
    /// Pairs of new name and name in `other`.
    fn pairs(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Same(names) => names.iter().map(|name| (name.as_str(), name.as_str())).collect(),
            Self::Renamed(names) => names.iter().map(|(new, name)| (new.as_str(), name.as_str())).collect(),
        }
    }
}

/// The other stage's rows, one for each key.
struct Partners {
    converter: RowConverter,
    by_key: HashMap<Box<[u8]>, u64>,
    columns: Vec<ArrayRef>,
}

/// Partners while they are read.
#[derive(Default)]
struct Found {
    by_key: HashMap<Box<[u8]>, u64>,
    /// Digest of each partner's columns.
    contents: Vec<[u8; 16]>,
    /// Columns in parts, one for each batch.
    kept: Vec<Vec<ArrayRef>>,
}

impl Found {
    /// Adds rows of a batch; gives the rows whose key is new, or else the row that contradicts an earlier one.
    fn add(&mut self, keys: &Rows, contents: &Rows, rows: impl Iterator<Item = usize>) -> Result<UInt64Array, usize> {
        let mut first = Vec::new();
        for row in rows {
            let content = content_of(contents, row);
            match self.by_key.entry(keys.row(row).as_ref().into()) {
                Entry::Vacant(entry) => {
                    entry.insert(self.contents.len() as u64);
                    self.contents.push(content);
                    first.push(row as u64);
                }
                Entry::Occupied(entry) => {
                    let before = usize::try_from(*entry.get()).unwrap_or(usize::MAX);
                    if self.contents.get(before) != Some(&content) {
                        return Err(row);
                    }
                }
            }
        }
        Ok(UInt64Array::from(first))
    }
}

impl Attach {
    fn partners(&self, task: &Task<'_>) -> Result<Partners, StageError> {
        let pairs = self.columns.pairs();
        let input = task.port(OTHER).first();
        let schema = input.map(|input| Arc::clone(&input.schema));
        let schema = schema.ok_or_else(|| StageError::Internal(format!("port `{OTHER}` has no input")))?;
        let kind = |name: &str| Ok::<_, StageError>(schema.field_with_name(name)?.data_type().clone());
        let converter = RowConverter::new(vec![SortField::new(kind(&self.on)?)])?;
        let fields =
            pairs.iter().map(|(_, name)| Ok(SortField::new(kind(name)?))).collect::<Result<_, StageError>>()?;
        let values = RowConverter::new(fields)?;
        let mut wanted: Vec<&str> = pairs.iter().map(|(_, name)| *name).chain([self.on.as_str()]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = Found { kept: vec![Vec::new(); pairs.len()], ..Found::default() };
        for batch in task.port_batches(OTHER, Some(&wanted))? {
            let batch = batch?;
            let key = rows::column(&batch, &self.on)?;
            let columns =
                pairs.iter().map(|(_, name)| rows::column(&batch, name).cloned()).collect::<Result<Vec<_>, _>>()?;
            let keys = converter.convert_columns(&[Arc::clone(key)])?;
            let contents = values.convert_columns(&columns)?;
            let present = |row: &usize| key.is_valid(*row);
            let first = found.add(&keys, &contents, (0..batch.num_rows()).filter(present));
            let first = first.map_err(|row| self.conflict(key, row))?;
            for (kept, column) in found.kept.iter_mut().zip(&columns) {
                kept.push(compact(&take(column, &first, None)?));
            }
        }
        let columns = found.kept.iter().zip(&pairs).map(|(parts, (_, name))| {
            let parts: Vec<&dyn arrow::array::Array> = parts.iter().map(AsRef::as_ref).collect();
            if parts.is_empty() { Ok(new_empty_array(&kind(name)?)) } else { Ok(concat(&parts)?) }
        });
        let columns = columns.collect::<Result<Vec<_>, StageError>>()?;
        Ok(Partners { converter, by_key: found.by_key, columns })
    }

    fn conflict(&self, key: &ArrayRef, row: usize) -> StageError {
        let names: Vec<&str> = self.columns.pairs().into_iter().map(|(_, name)| name).collect();
        StageError::Alarm(format!(
            "`{OTHER}` has rows with `{}` = {} that differ in `{}`; a row to attach must be the only one of its key",
            self.on,
            json_rows::value_at(key.as_ref(), row),
            names.join("`, `")
        ))
    }

    fn reject(&self, task: &mut Task<'_>, batch: &RecordBatch, matched: &BooleanArray) -> Result<(), StageError> {
        let fallen = rows::filter(batch, &arrow::compute::not(matched)?)?;
        let key = rows::column(&fallen, &self.on)?;
        let evidence = |row| json!({ "on": self.on, "key": json_rows::value_at(key.as_ref(), row) });
        let rejections: Vec<Rejection> =
            (0..fallen.num_rows()).map(|row| Rejection::new(NO_MATCH, Some(evidence(row)))).collect();
        task.reject(&fallen, &rejections)
    }
}

/// What tells the values of a row from others: equal rows have equal digests.
fn content_of(rows: &Rows, row: usize) -> [u8; 16] {
    let mut content = [0; 16];
    content.copy_from_slice(&Digest::of(rows.row(row).as_ref()).bytes()[..16]);
    content
}

/// Texts in buffers of their own, so that the pages they were read from can go.
fn compact(array: &ArrayRef) -> ArrayRef {
    match array.as_string_view_opt() {
        Some(texts) => Arc::new(texts.gc()),
        None => Arc::clone(array),
    }
}

impl Partners {
    /// The partner of each row, null where there is none.
    fn of(&self, key: &ArrayRef) -> Result<UInt64Array, StageError> {
        let keys = self.converter.convert_columns(&[Arc::clone(key)])?;
        let partner =
            |row: usize| key.is_valid(row).then(|| self.by_key.get(keys.row(row).as_ref())).flatten().copied();
        Ok((0..key.len()).map(partner).collect())
    }
}

impl Stage for Attach {
    const KIND: &'static str = "attach";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] =
        &[Port::rows(&[], &[]), Port::rows(&[], &[]).named(OTHER, "the rows that have the columns to add")];

    fn example() -> Example {
        let trace = |id: &str, query: &str| json!({"trace_id": id, "query_id": query, "response": "4"});
        Example::rows(
            json!({"columns": {"reference_pass_rate": "pass_rate"}, "missing": "reject"}),
            ROWS,
            &traces::TABLE,
            vec![trace("t1", "q1"), trace("t2", "q2"), trace("t3", "q9")],
        )
        .with(
            OTHER,
            &queries::TABLE,
            vec![
                json!({"query_id": "q1", "prompt": "2+2=?", "pass_rate": 0.25}),
                json!({"query_id": "q2", "prompt": "3+3=?", "pass_rate": null}),
            ],
        )
        .gives(2, &[NO_MATCH])
    }

    fn validate(&self) -> Result<(), ParamError> {
        let pairs = self.columns.pairs();
        if pairs.is_empty() {
            return Err(ParamError::new("columns", "at least one column is needed"));
        }
        for (index, (new, _)) in pairs.iter().enumerate() {
            if pairs[..index].iter().any(|(before, _)| before == new) {
                return Err(ParamError::new("columns", format!("`{new}` is there twice")));
            }
            if [queries::QUERY_ID, traces::TRACE_ID, self.on.as_str()].contains(new) {
                return Err(ParamError::new("columns", format!("`{new}` names the row and cannot be replaced"))
                    .hint(format!("give it a name of its own: `{{ other_{new} = \"{new}\" }}`")));
            }
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let (rows, other) = (inputs.expect(ROWS)?, inputs.expect(OTHER)?);
        let (here, there) = (ensure_simple("on", &self.on, rows)?, ensure_simple("on", &self.on, other)?);
        if here != there {
            let message = format!("column `{}` is {here} in `{ROWS}` and {there} in `{OTHER}`", self.on);
            return Err(ParamError::new("on", message));
        }
        let mut rows: TableType = rows.clone();
        for (new, name) in self.columns.pairs() {
            let Ok(field) = other.schema.field_with_name(name) else {
                return Err(ParamError::new("columns", format!("`{OTHER}` has no column `{name}`")));
            };
            if !other.filled.contains(name) {
                return Err(ParamError::new("columns", format!("no stage fills column `{name}` of `{OTHER}`")));
            }
            if rows.schema.field_with_name(new).is_ok_and(|present| !present.is_nullable()) {
                return Err(ParamError::new("columns", format!("column `{new}` must have a value in every row")));
            }
            let field = Field::new(new, field.data_type().clone(), true);
            rows = rows.with_column(&field).map_err(|error| ParamError { path: "columns".to_owned(), ..error })?;
        }
        Ok(vec![Output::same(rows)])
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let partners = task.shared(OTHER, |task| self.partners(task))?;
        let (schema, pairs): (SchemaRef, _) = (task.schema()?, self.columns.pairs());
        for batch in task.batches()? {
            let batch = batch?;
            let indices = partners.of(rows::column(&batch, &self.on)?)?;
            let added = pairs
                .iter()
                .zip(&partners.columns)
                .map(|((new, _), column)| Ok((*new, take(column, &indices, None)?)))
                .collect::<Result<Vec<_>, StageError>>()?;
            let filled = rows::with_columns(&batch, &schema, &added)?;
            task.count("unmatched", indices.null_count() as u64);
            if self.missing == Missing::Null || indices.null_count() == 0 {
                task.write(&filled)?;
                continue;
            }
            let matched: BooleanArray = indices.iter().map(|index| Some(index.is_some())).collect();
            task.write(&rows::filter(&filled, &matched)?)?;
            self.reject(task, &batch, &matched)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
