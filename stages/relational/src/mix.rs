//! `mix`: several stages' rows in one table, all of them or in set ratios.
//!
//! The report mixes its selection over domains to a set ratio (VibeThinker-3B, section on offline self-distillation).
//! Rows are never repeated to fill a ratio: the scarcest group decides how large the mix can be, unless a total is
//! asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use pipeline_core::{
    Example, Output, ParamError, Port, Ports, Stage, StageError, Step, StepKind, TableType, Task, json_rows, rows,
};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::decisions::{self, Decisions, count};
use crate::keys::{self, Interned};
use crate::ranking::{self, Key};
use crate::shares::{self, Short};

/// Joins the rows of several stages into one table, in the order of `inputs`; with weights, in set ratios.
///
/// Without `weights` nothing is left out. With them each group gives its share: all rows of the group that is
/// scarcest for its weight, and so many of the others that the ratios hold; or shares of `rows` where that is given.
/// Which rows of a group stay is drawn at random by their ids; their order does not change. Rows that are left out
/// are rejected as `over_weight`, rows of groups without a weight as `no_weight`. Columns that only some stages have
/// are empty in the rows of the others.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Share of each group: by values of `by`, `{ math = 0.5, code = 0.3 }`, or by stage in the order of `inputs`,
    /// `[0.5, 0.3]`. Only the ratios matter. Without it all rows stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Weights>,
    /// The column whose values have weights. Default `domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// Rows of the mix; the largest number that keeps the ratios by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    /// What happens when a group has too few rows for its share of `rows`: `error` (the default) fails and names the
    /// group, `shrink` takes the largest mix that keeps the ratios.
    #[serde(default)]
    short: WhenShort,
    /// Any text; another one draws other rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    salt: String,
}

/// Shares of groups.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Weights {
    /// By value of a column.
    Groups(BTreeMap<String, f64>),
    /// By stage, in the order of `inputs`.
    Inputs(Vec<f64>),
}

/// What happens when a group has too few rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenShort {
    /// The stage fails.
    #[default]
    Error,
    /// The mix gets smaller.
    Shrink,
}

const ROWS: &str = "rows";
const LOOK: &str = "look";
const DECIDE: &str = "decide";
const GROUP: &str = "group";
const DRAW: &str = "draw";
const OVER_WEIGHT: &str = "over_weight";
const NO_WEIGHT: &str = "no_weight";
const REASONS: &[&str] = &[OVER_WEIGHT, NO_WEIGHT];

fn look_schema() -> SchemaRef {
    let column = |name: &str, kind| Field::new(name, kind, true);
    let (group, draw) = (column(GROUP, DataType::Utf8View), column(DRAW, DataType::Int64));
    Arc::new(Schema::new(vec![group, column("id", DataType::Utf8View), draw]))
}

impl Mix {
    fn by(&self) -> &str {
        self.by.as_deref().unwrap_or(queries::DOMAIN)
    }

    /// Names and weights of the groups.
    fn groups(&self) -> (Vec<String>, Vec<f64>) {
        match &self.weights {
            None => (Vec::new(), Vec::new()),
            Some(Weights::Groups(groups)) => (groups.keys().cloned().collect(), groups.values().copied().collect()),
            Some(Weights::Inputs(weights)) => {
                ((0..weights.len()).map(|input| input.to_string()).collect(), weights.clone())
            }
        }
    }

    fn look(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let by_column = matches!(self.weights, Some(Weights::Groups(_)));
        let first = task.port(ROWS).first().map(|input| Arc::clone(&input.schema));
        let first = first.ok_or_else(|| StageError::Internal(format!("port `{ROWS}` has no input")))?;
        let mut columns: Vec<&str> = keys::id_column(&first).into_iter().collect();
        if by_column && !columns.contains(&self.by()) {
            columns.push(self.by());
        }
        let mut batches = task.batches_of(&columns)?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let ids = keys::ids(&batch, batches.ordinal())?;
            let draws = keys::draws(&ids, task.seed(), Self::KIND, &self.salt);
            let group = if by_column {
                keys::texts(&batch, self.by())?
            } else {
                let input = batches.input().to_string();
                StringViewArray::from_iter_values(std::iter::repeat_n(&input, batch.num_rows()))
            };
            let columns: Vec<ArrayRef> = vec![Arc::new(group), Arc::new(ids), Arc::new(draws)];
            task.write(&RecordBatch::try_new(look_schema(), columns)?)?;
        }
        Ok(())
    }

    fn decide(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let looked = task.earlier(LOOK)?.collect::<Result<Vec<_>, _>>()?;
        let looked = concat_batches(&look_schema(), &looked)?;
        if looked.num_rows() as u64 > ranking::MOST_ROWS {
            return Err(StageError::Alarm(format!("{} rows are more than `mix` can draw from", looked.num_rows())));
        }
        let draws: &Int64Array = rows::column(&looked, DRAW)?.as_primitive::<Int64Type>();
        let found = Interned::new(rows::texts(&looked, GROUP)?);
        let (names, weights) = self.groups();
        let place: Vec<Option<usize>> = found
            .texts
            .iter()
            .map(|text| names.iter().position(|name| Some(name) == text.as_ref()).filter(|place| weights[*place] > 0.0))
            .collect();
        let mut decisions = Decisions::new(REASONS, looked.num_rows());
        let mut available = vec![0_u64; names.len()];
        for (row, number) in found.numbers.iter().enumerate() {
            match place[*number as usize] {
                Some(place) => available[place] += 1,
                None => decisions.fall(row, NO_WEIGHT, 0.0, 0.0),
            }
        }
        let targets = self.targets(&names, &weights, &available)?;
        let ordered =
            ranking::ordered(decisions.staying(), &found.numbers, Key::Draw(draws), rows::texts(&looked, "id")?)?;
        for group in ranking::by_group(&ordered, &found.numbers) {
            let target = group.first().and_then(|row| place[found.numbers[*row as usize] as usize]);
            let target = target.map_or(0, |place| targets[place]);
            for (rank, row) in (1_u64..).zip(group).filter(|(rank, _)| *rank > target) {
                decisions.fall(*row as usize, OVER_WEIGHT, rank as f64, target as f64);
            }
        }
        let summary = names.iter().zip(available.iter().zip(&targets));
        let summary: Map<_, _> = summary
            .map(|(name, (available, kept))| (name.clone(), json!({ "available": available, "kept": kept })))
            .collect();
        task.note("groups", summary.into());
        decisions.hand_on(task)
    }

    fn targets(&self, names: &[String], weights: &[f64], available: &[u64]) -> Result<Vec<u64>, StageError> {
        let what = if matches!(self.weights, Some(Weights::Inputs(_))) { "input" } else { self.by() };
        if self.rows != Some(0)
            && let Some(empty) = (0..names.len()).find(|group| weights[*group] > 0.0 && available[*group] == 0)
        {
            let name = &names[empty];
            return Err(StageError::Alarm(format!(
                "no row has {what} `{name}`, so no mix has the ratios asked for; give `{name}` the weight 0 or leave it out"
            )));
        }
        shares::targets(weights, available, self.rows, self.short == WhenShort::Shrink).map_err(|short| {
            let Short { group, wanted, available } = short;
            StageError::Alarm(format!(
                "{what} `{}` has {available} rows, its share is {wanted}; lower `rows`, change `weights`, or set `short = \"shrink\"`",
                names[group]
            ))
        })
    }

    fn write(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let schema = task.schema()?;
        let decisions = match self.weights {
            Some(_) => Some(Decisions::shared(task, DECIDE, REASONS)?),
            None => None,
        };
        let mut batches = task.batches()?;
        while let Some(batch) = batches.next() {
            let batch = rows::with_columns(&batch?, &schema, &[])?;
            let Some(decisions) = &decisions else {
                task.write(&batch)?;
                continue;
            };
            let input = batches.input();
            decisions.apply(task, &batch, batches.ordinal(), |row, fall| {
                let group = match self.weights {
                    Some(Weights::Inputs(_)) => json!({ "input": input }),
                    _ => json!({ self.by(): json_rows::value_at(rows::column(&batch, self.by())?.as_ref(), row) }),
                };
                Ok(Some(match fall.reason {
                    OVER_WEIGHT => json!({ "group": group, "rank": count(fall.first), "share": count(fall.second) }),
                    _ => json!({ "group": group }),
                }))
            })?;
        }
        Ok(())
    }
}

/// The columns of all inputs: those of the first, then what the others add.
fn joined(inputs: &[TableType]) -> Result<TableType, ParamError> {
    let Some((first, others)) = inputs.split_first() else {
        return Err(ParamError::new("inputs", format!("port `{ROWS}` has no input")));
    };
    let mut all = first.clone();
    let mut fields: Vec<Field> = all.schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    for other in others {
        if other.name() != all.name() {
            let message = format!("{} and {} are different tables and cannot be mixed", all.name(), other.name());
            return Err(ParamError::new("inputs", message));
        }
        for field in &mut fields {
            // a column that some input lacks is null in its rows
            let lacking = other.schema.field_with_name(field.name()).is_err();
            *field = field.clone().with_nullable(field.is_nullable() || lacking);
        }
        for field in other.schema.fields() {
            let Some(present) = fields.iter_mut().find(|present| present.name() == field.name()) else {
                fields.push(field.as_ref().clone().with_nullable(true));
                continue;
            };
            if present.data_type() != field.data_type() {
                let (one, two) = (present.data_type(), field.data_type());
                let message = format!("column `{}` is {one} in one input and {two} in another", field.name());
                return Err(ParamError::new("inputs", message));
            }
            *present = present.clone().with_nullable(present.is_nullable() || field.is_nullable());
        }
        all.filled.extend(other.filled.iter().cloned());
    }
    all.schema = Arc::new(Schema::new(fields));
    Ok(all)
}

impl Stage for Mix {
    const KIND: &'static str = "mix";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[]).named(ROWS, "the stages to mix").many()];
    const DRAWS: bool = true;

    fn example() -> Example {
        let row = |id: &str, domain: &str| json!({"query_id": id, "domain": domain, "prompt": "2+2=?"});
        Example::rows(
            json!({"weights": {"math": 2, "code": 1}}),
            ROWS,
            &queries::TABLE,
            vec![row("a", "math"), row("b", "math"), row("c", "math")],
        )
        .with(ROWS, &queries::TABLE, vec![row("d", "code"), row("e", "chat")])
        .gives(3, &[OVER_WEIGHT, NO_WEIGHT])
    }

    fn validate(&self) -> Result<(), ParamError> {
        let (_, weights) = self.groups();
        if let Some(wrong) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
            return Err(ParamError::new("weights", format!("a weight is a number from 0 on, found {wrong}")));
        }
        if self.weights.is_some() && weights.iter().all(|weight| *weight == 0.0) {
            return Err(ParamError::new("weights", "at least one weight must be above 0"));
        }
        if self.weights.is_none() && (self.rows.is_some() || self.by.is_some()) {
            let param = if self.rows.is_some() { "rows" } else { "by" };
            return Err(ParamError::new(param, format!("`{param}` needs `weights`")));
        }
        if matches!(self.weights, Some(Weights::Inputs(_))) && self.by.is_some() {
            return Err(ParamError::new("by", "`by` goes with weights by value, not with weights by stage"));
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let given = inputs.all(ROWS);
        let all = joined(given)?;
        match &self.weights {
            Some(Weights::Inputs(weights)) if weights.len() != given.len() => {
                let message = format!("{} weights for {} inputs", weights.len(), given.len());
                return Err(ParamError::new("weights", message));
            }
            Some(Weights::Groups(_)) => {
                keys::ensure_simple("by", self.by(), &all)?;
                if given.iter().any(|input| input.schema.field_with_name(self.by()).is_err()) {
                    let message = format!("not every input has the column `{}`", self.by());
                    return Err(ParamError::new("by", message));
                }
            }
            _ => {}
        }
        Ok(vec![Output::same(all)])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        if self.weights.is_none() {
            return vec![Step::map(ROWS)];
        }
        vec![
            Step::handing_on(LOOK, StepKind::Map, look_schema()),
            Step::handing_on(DECIDE, StepKind::Gather, decisions::schema()),
            Step::map(ROWS),
        ]
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        match step.name {
            LOOK => self.look(task),
            DECIDE => self.decide(task),
            _ => self.write(task),
        }
    }
}

#[cfg(test)]
mod tests;
