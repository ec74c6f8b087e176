//! Pass rate of each query: the share of its rollouts that are correct, p = c / n.
//!
//! The rollouts come from the reference model (kind `sample`), their verdicts from `verify`. The second stage of
//! supervised training keeps queries with an error rate of 0.75 or more among 8 rollouts, and each reinforcement
//! phase drops those at exactly 0 or 1 (report sections 2.2.2 and 2.2.3); both are conditions on `pass_rate`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::seed::partition_of;
use pipeline_core::{
    Digest, Example, Output, ParamError, Port, Ports, Rejection, Stage, StageError, Step, StepKind, Task, rows,
};
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::by_query::{self, Finding, Findings, OutputRows, ShareHistogram};

/// Fills `pass_rate` (share of correct rollouts) and `rollouts` (how many count) of each query.
///
/// A rollout counts when its verdict is `correct`, `incorrect` or `no_answer`; those without a verdict, `undecided` or
/// with an unreadable label say nothing about the model and do not count. A query none of whose rollouts counts falls
/// out with the reason `no_verdict`, one with two different labels with `label_conflict`. All traces given here are
/// rollouts: give it the reference model's alone.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difficulty {
    /// `queries` (default): one row for each query, in the order of their first traces. `traces`: every trace.
    #[serde(default)]
    rows: OutputRows,
    /// Least number of rollouts that must count; queries with fewer fall out with the reason `too_few_rollouts`.
    /// Default 1.
    #[serde(default = "one")]
    min_rollouts: u32,
}

fn one() -> u32 {
    1
}

const FILLS: [&str; 2] = [queries::PASS_RATE, queries::ROLLOUTS];

/// Rollouts of one query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tally {
    first: u64,
    traces: u64,
    counted: u64,
    correct: u64,
    /// 64 bits of the label's digest, enough to see that two labels differ.
    label: Option<u64>,
    has_conflict: bool,
}

impl Finding for Tally {
    fn first(&self) -> u64 {
        self.first
    }
}

impl Tally {
    fn merge(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.traces += other.traces;
        self.counted += other.counted;
        self.correct += other.correct;
        let differs = matches!((self.label, other.label), (Some(one), Some(two)) if one != two);
        self.has_conflict |= other.has_conflict || differs;
        self.label = self.label.or(other.label);
    }
}

impl Stage for Difficulty {
    const KIND: &'static str = "difficulty";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["traces"], &[traces::VERDICT])];

    fn example() -> Example {
        let rollout = |query: &str, sample: u32, verdict: Option<&str>| json!({ "query_id": query, "trace_id": format!("{query}{sample}"), "sample": sample, "label": "5", "verdict": verdict });
        let rows = vec![
            rollout("even", 0, Some("correct")),
            rollout("hard", 0, Some("no_answer")),
            rollout("even", 1, Some("incorrect")),
            rollout("hard", 1, Some("incorrect")),
            rollout("unknown", 0, Some("undecided")),
            rollout("hard", 2, Some("undecided")),
            rollout("short", 0, Some("correct")),
        ];
        let rejected = ["no_verdict", "too_few_rollouts"];
        Example::rows(json!({ "min_rollouts": 2 }), "rows", &traces::TABLE, rows).gives(2, &rejected)
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.min_rollouts == 0 {
            return Err(ParamError::new("min_rollouts", "`min_rollouts` must be at least 1"));
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        by_query::outputs(inputs, self.rows, &FILLS)
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![
            Step::handing_on("rollouts", StepKind::Exchange, tally_schema()),
            Step::handing_on("rates", StepKind::Reduce, tally_schema()),
            Step::map("rows"),
        ]
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        match step.name {
            "rollouts" => send_tallies(task),
            "rates" => merge_tallies(task),
            _ => self.write_rows(task),
        }
    }
}

impl Difficulty {
    fn write_rows(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let rates = task.shared("rates", |task| self.read_rates(task))?;
        task.note("pass_rates", rates.1.clone());
        rates.0.write(task, self.rows, |tally| self.rejection(tally), |_, tallies| Ok(columns(tallies)))
    }

    fn read_rates(&self, task: &Task<'_>) -> Result<(Findings<Tally>, serde_json::Value), StageError> {
        let (mut tallies, mut histogram) = (HashMap::new(), ShareHistogram::default());
        for batch in task.earlier("rates")? {
            for_each_tally(&batch?, |query, tally| {
                if self.rejection(&tally).is_none() {
                    histogram.add(tally.correct, tally.counted);
                }
                tallies.insert(by_query::key(query), tally);
            })?;
        }
        let histogram = serde_json::to_value(histogram).map_err(|error| StageError::Internal(error.to_string()))?;
        Ok((Findings(tallies), histogram))
    }

    fn rejection(&self, tally: &Tally) -> Option<Rejection> {
        let reason = if tally.has_conflict {
            "label_conflict"
        } else if tally.counted == 0 {
            "no_verdict"
        } else if tally.counted < u64::from(self.min_rollouts) {
            "too_few_rollouts"
        } else {
            return None;
        };
        Some(Rejection::new(
            reason,
            Some(json!({ "traces": tally.traces, "rollouts": tally.counted, "correct": tally.correct })),
        ))
    }
}

/// Whether a verdict counts, and as what.
fn outcome(verdict: Option<&str>) -> Result<Option<bool>, StageError> {
    match verdict {
        Some("correct") => Ok(Some(true)),
        Some("incorrect" | "no_answer") => Ok(Some(false)),
        Some("undecided" | "label_unparsable") | None => Ok(None),
        Some(other) => {
            Err(StageError::column(traces::VERDICT, format!("`{other}` is no verdict; run the kind `verify` first")))
        }
    }
}

fn send_tallies(task: &mut Task<'_>) -> Result<(), StageError> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut batches = task.batches_of(&[queries::QUERY_ID, queries::LABEL, traces::VERDICT])?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let ids = rows::texts(&batch, queries::QUERY_ID)?;
        let labels = rows::texts(&batch, queries::LABEL)?;
        let verdicts = rows::texts(&batch, traces::VERDICT)?;
        for (first, row) in (batches.ordinal()..).zip(0..batch.num_rows()) {
            let found = outcome(rows::text_at(verdicts, row))?;
            let rollout = Tally {
                first,
                traces: 1,
                counted: u64::from(found.is_some()),
                correct: u64::from(found == Some(true)),
                label: rows::text_at(labels, row).map(label_bits),
                has_conflict: false,
            };
            add(&mut tallies, ids.value(row), rollout);
        }
    }
    let partitions = tallies.keys().map(|query| partition_of(query.as_bytes(), task.partitions())).collect();
    task.send(partitions, tally_batch(&tallies)?)
}

fn merge_tallies(task: &mut Task<'_>) -> Result<(), StageError> {
    let mut tallies = BTreeMap::new();
    for batch in task.partition("rollouts")? {
        for_each_tally(&batch?, |query, tally| add(&mut tallies, query, tally))?;
    }
    task.write(&tally_batch(&tallies)?)
}

fn add(tallies: &mut BTreeMap<String, Tally>, query: &str, tally: Tally) {
    match tallies.get_mut(query) {
        Some(present) => present.merge(&tally),
        None => {
            tallies.insert(query.to_owned(), tally);
        }
    }
}

fn label_bits(label: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&Digest::of(label.as_bytes()).bytes()[..8]);
    u64::from_le_bytes(bytes)
}

fn tally_schema() -> SchemaRef {
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    Arc::new(Schema::new(vec![
        Field::new(queries::QUERY_ID, DataType::Utf8View, false),
        number("first"),
        number("traces"),
        number("counted"),
        number("correct"),
        Field::new("label", DataType::UInt64, true),
        Field::new("has_conflict", DataType::Boolean, false),
    ]))
}

fn tally_batch(tallies: &BTreeMap<String, Tally>) -> Result<RecordBatch, StageError> {
    let numbers = |read: fn(&Tally) -> u64| Arc::new(tallies.values().map(read).collect::<UInt64Array>()) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(tallies.keys().map(Some).collect::<StringViewArray>()),
        numbers(|tally| tally.first),
        numbers(|tally| tally.traces),
        numbers(|tally| tally.counted),
        numbers(|tally| tally.correct),
        Arc::new(tallies.values().map(|tally| tally.label).collect::<UInt64Array>()),
        Arc::new(tallies.values().map(|tally| Some(tally.has_conflict)).collect::<BooleanArray>()),
    ];
    Ok(RecordBatch::try_new(tally_schema(), columns)?)
}

fn for_each_tally(batch: &RecordBatch, mut take: impl FnMut(&str, Tally)) -> Result<(), StageError> {
    use arrow::array::Array as _;
    let ids = rows::texts(batch, queries::QUERY_ID)?;
    let number = |name: &str| rows::row_numbers(batch, name);
    let (first, traces, counted, correct) =
        (number("first")?, number("traces")?, number("counted")?, number("correct")?);
    let (labels, conflicts) = (number("label")?, rows::booleans(batch, "has_conflict")?);
    for row in 0..batch.num_rows() {
        let tally = Tally {
            first: first.value(row),
            traces: traces.value(row),
            counted: counted.value(row),
            correct: correct.value(row),
            label: labels.is_valid(row).then(|| labels.value(row)),
            has_conflict: conflicts.value(row),
        };
        take(ids.value(row), tally);
    }
    Ok(())
}

fn columns(tallies: &[&Tally]) -> Vec<(&'static str, ArrayRef)> {
    let rates: Float64Array = tallies.iter().map(|tally| Some(tally.correct as f64 / tally.counted as f64)).collect();
    let counts: Int64Array = tallies.iter().map(|tally| i64::try_from(tally.counted).ok()).collect();
    vec![(queries::PASS_RATE, Arc::new(rates)), (queries::ROLLOUTS, Arc::new(counts))]
}

#[cfg(test)]
mod tests;
