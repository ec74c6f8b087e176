//! `select`: keeps rows by a condition, by rank or percentile inside groups, by chance, and by quota.
//!
//! Selection by learning potential (VibeThinker-3B, section on offline self-distillation) is `where` for the shortest
//! traces, `percentile` inside (domain x length bucket) and `top` or a later `mix`: ranks are never global there, since
//! scores of short and of long traces do not compare. The hard-reasoning stage of SFT is two `where`: traces of 5,000
//! tokens and more, queries with `pass_rate <= 0.25`.
//!
//! A condition alone works row by row. With ranks the rows' narrow columns are looked at first, one place decides, and
//! the whole rows then pass through; see `select_steps.rs`.

use std::collections::BTreeMap;

use pipeline_core::row_kinds::{Judgement, write_judged};
use pipeline_core::{Example, Output, ParamError, Port, Ports, Stage, StageError, Step, StepKind, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::condition::Condition;
use crate::keys::{ensure_number, ensure_simple};
use crate::{decisions, select_steps};

/// Keeps rows: by a condition, by rank or percentile of a score inside groups, by chance, by quota.
///
/// The parts that are given work one after the other, each on what the one before left: `where`, then `percentile`,
/// then `top` or `sample`, then `quota`. The order of rows does not change. Ties are broken by the row's id
/// (`trace_id`, else `query_id`) and then by its place, so the same rows stay however the work is cut.
///
/// Rows fall out as `where`, `null_score`, `outside_percentile`, `below_top`, `not_drawn` or `over_quota`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// An SQL condition over the columns of a row: `pass_rate BETWEEN 0.1 AND 0.9 AND domain = 'math'`. Null counts
    /// as false. Texts stand in single quotes; `length(prompt)` counts characters. It looks at one row at a time, so
    /// aggregates and windows are refused.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
    /// The number column that `percentile` and `top` go by, such as `learning_potential`. Rows without a value fall
    /// out as `null_score`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// Whether `top` and `quota` prefer high values of `by` (`descending`, the default) or low ones (`ascending`).
    #[serde(default)]
    pub(crate) order: Order,
    /// Columns whose values together make a group, such as `["domain", "length_bucket"]` or `["query_id"]`.
    /// `percentile`, `top` and `sample` work inside each group. Without it all rows are one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) group: Vec<String>,
    /// Keeps rows whose value of `by` lies between two percentiles of its group, both included, such as `[50, 99]`.
    /// A percentile is the smallest value that at least so many percent of the group do not exceed (nearest rank).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) percentile: Option<[f64; 2]>,
    /// Keeps the first so many rows of each group, by `by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) top: Option<u64>,
    /// Keeps so many rows of each group, drawn at random; a row's luck depends on the seed, on `salt` and on its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sample: Option<u64>,
    /// Caps the rows of some values of a column over the whole table:
    /// `quota = { column = "domain", rows = { math = 100, code = 50 }, others = 0 }`. Rows over a cap are the last by
    /// `by`, or drawn at random without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<Quota>,
    /// Any text; another one draws other rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) salt: String,
}

/// Which values come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// High values.
    #[default]
    Descending,
    /// Low values.
    Ascending,
}

/// Caps on the values of a column.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The column, such as `domain`.
    pub(crate) column: String,
    /// Most rows of each value.
    pub(crate) rows: BTreeMap<String, u64>,
    /// Most rows of each value that `rows` does not name, null among them; no cap by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) others: Option<u64>,
}

/// Reasons of a rejected row.
pub(crate) mod reason {
    pub const WHERE: &str = "where";
    pub const NULL_SCORE: &str = "null_score";
    pub const OUTSIDE_PERCENTILE: &str = "outside_percentile";
    pub const BELOW_TOP: &str = "below_top";
    pub const NOT_DRAWN: &str = "not_drawn";
    pub const OVER_QUOTA: &str = "over_quota";
    pub const ALL: &[&str] = &[WHERE, NULL_SCORE, OUTSIDE_PERCENTILE, BELOW_TOP, NOT_DRAWN, OVER_QUOTA];
}

const ROWS: &str = "rows";

impl Select {
    /// Whether each row is judged by itself.
    fn is_row_wise(&self) -> bool {
        self.percentile.is_none() && self.top.is_none() && self.sample.is_none() && self.quota.is_none()
    }

    /// The condition, read; it was checked before the run.
    pub(crate) fn read_condition(&self) -> Result<Option<Condition>, ParamError> {
        self.condition.as_deref().map(Condition::read).transpose()
    }

    fn filter(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let Some(condition) = self.read_condition()? else {
            return Err(StageError::Internal("`select` without a condition has more steps".to_owned()));
        };
        for batch in task.batches()? {
            let batch = batch?;
            let mask = condition.mask(&batch)?;
            let judgements = (0..batch.num_rows())
                .map(|row| {
                    if mask.value(row) {
                        return Ok(Judgement::Keep);
                    }
                    Ok(Judgement::reject_with(reason::WHERE, condition.evidence(&batch, row)?))
                })
                .collect::<Result<Vec<_>, StageError>>()?;
            write_judged(task, &batch, judgements)?;
        }
        Ok(())
    }
}

impl Stage for Select {
    const KIND: &'static str = "select";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[])];
    const DRAWS: bool = true;

    fn example() -> Example {
        let row = |id: &str, domain: &str, score: Option<f64>| json!({"query_id": id, "domain": domain, "prompt": "2+2=?", "judge_score": score});
        Example::rows(
            json!({"where": "domain <> 'chat'", "by": "judge_score", "group": ["domain"], "top": 1}),
            ROWS,
            &schemas::queries::TABLE,
            vec![
                row("a", "math", Some(0.5)),
                row("b", "math", Some(0.9)),
                row("c", "code", Some(0.1)),
                row("d", "chat", Some(1.0)),
                row("e", "code", None),
            ],
        )
        .gives(2, &[reason::BELOW_TOP, reason::WHERE, reason::NULL_SCORE])
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.condition.is_none() && self.is_row_wise() {
            return Err(ParamError::new("", "nothing to select by")
                .hint("give `where`, `percentile`, `top`, `sample` or `quota`"));
        }
        if self.by.is_none() && (self.top.is_some() || self.percentile.is_some()) {
            let param = if self.top.is_some() { "top" } else { "percentile" };
            return Err(ParamError::new(param, format!("`{param}` needs a score column"))
                .hint("add `by = \"learning_potential\"`, or use `sample` for a random choice"));
        }
        if self.by.is_some() && self.is_row_wise() {
            return Err(ParamError::new("by", "`by` needs `percentile`, `top` or `quota`"));
        }
        if self.top.is_some() && self.sample.is_some() {
            return Err(ParamError::new("sample", "`top` and `sample` exclude each other")
                .hint("use two stages, one after the other"));
        }
        if !self.group.is_empty() && self.top.is_none() && self.sample.is_none() && self.percentile.is_none() {
            return Err(ParamError::new("group", "`group` needs `percentile`, `top` or `sample`"));
        }
        if let Some([low, high]) = self.percentile
            && !(0.0 <= low && low <= high && high <= 100.0)
        {
            let message = format!("two percentiles from 0 to 100 are needed, the lower first; found [{low}, {high}]");
            return Err(ParamError::new("percentile", message));
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect(ROWS)?;
        if let Some(text) = &self.condition {
            Condition::check(text, rows)?;
        }
        if let Some(by) = &self.by {
            ensure_number("by", by, rows)?;
        }
        for (index, name) in self.group.iter().enumerate() {
            ensure_simple(&format!("group[{index}]"), name, rows)?;
        }
        if let Some(quota) = &self.quota {
            ensure_simple("quota.column", &quota.column, rows)?;
        }
        Ok(vec![Output::same(rows.clone())])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        if self.is_row_wise() {
            return vec![Step::map(ROWS)];
        }
        vec![
            Step::handing_on(select_steps::LOOK, StepKind::Map, select_steps::look_schema()),
            Step::handing_on(select_steps::DECIDE, StepKind::Gather, decisions::schema()),
            Step::map(ROWS),
        ]
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        match step.name {
            select_steps::LOOK => self.look(task),
            select_steps::DECIDE => self.decide(task),
            _ if self.is_row_wise() => self.filter(task),
            _ => self.apply(task),
        }
    }
}

#[cfg(test)]
mod tests;
