//! Pseudo-labels: the answer that most traces of a query agree on becomes its label.
//!
//! Classes of equal answers are counted, not spellings: 1/2 and 0.5 are one answer. A trace without a final answer
//! never wins, however many there are, and a tie is never settled by the order of the traces. Report section 2.2.1
//! (each expanded query is answered several times independently, and the majority answer becomes its label).

mod election;
mod exchange;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringViewArray, UInt64Array};
use pipeline_core::error::ensure_share;
use pipeline_core::seed::partition_of;
use pipeline_core::{
    Env, Example, External, Output, ParamError, Port, Ports, Rejection, Stage, StageError, Step, StepKind, Task, rows,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stage_verify::stem::Stem;
use stage_verify::{Extraction, Label, Verdict};

use self::election::{Ballot, Election, Tie, elect};
use self::exchange::{answers_schema, compacted, for_each_election, labels_batch, labels_schema};
use crate::by_query::{self, Finding, Findings, OutputRows, ShareHistogram};
use crate::judging::{self, Judged, Looking, VerifierName};

/// Labels each query with the answer that most of its traces agree on, and fills `vote_share`.
///
/// Final answers are taken from the answer part of each trace (`answer_text`, else `response`; a trace that hit its
/// token cap has none) and grouped by equality of mathematics or by option. `vote_share` is the winner's votes divided
/// by all traces that have a final answer. The label is the winner's most frequent spelling. Queries fall out with the
/// reasons `no_answers` (no trace has one, or the domain's answers cannot be compared, as in `code` and `chat`),
/// `too_few_votes`, `tie`, `low_share` and `label_conflict`; the evidence names the leading answers with their votes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vote {
    /// `queries` (default): one row for each query, in the order of their first traces. `traces`: every trace.
    #[serde(default)]
    rows: OutputRows,
    /// `strict` (default): only a marked final answer votes. `lenient`: without a mark, the last formula, number or
    /// letter votes.
    #[serde(default)]
    extraction: Looking,
    /// How to compare answers of all rows, whatever their domain: `math` or `stem`. By default the domain decides.
    #[serde(default)]
    verifier: Option<VerifierName>,
    /// When several answers have most votes: `reject` (default) drops the query, `smallest` takes the one whose label
    /// comes first in byte order; the counter `ties_resolved` says how often.
    #[serde(default)]
    tie: Tie,
    /// Least share of the votes that the winner must have, 0 (default) to 1.
    #[serde(default)]
    min_share: f64,
    /// Least number of traces with a final answer. Default 1.
    #[serde(default = "one")]
    min_votes: u32,
    /// `true` (default): the winner replaces a label that is there (counters `gold_agrees` and `gold_differs` say how
    /// often they agree). `false`: a label that is there stays, `vote_share` is the share of votes for it, and ties do
    /// not matter.
    #[serde(default = "yes")]
    overwrite: bool,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

const FILLS: [&str; 2] = [queries::LABEL, queries::VOTE_SHARE];

impl Stage for Vote {
    const KIND: &'static str = "vote";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["traces"], &[])];

    fn example() -> Example {
        let trace = |query: &str, sample: u32, answer: &str| json!({ "query_id": query, "trace_id": format!("{query}{sample}"), "sample": sample, "domain": "math", "answer_text": answer });
        let rows = vec![
            trace("half", 0, "So it is \\boxed{0.5}."),
            trace("half", 1, "So it is \\boxed{\\frac{1}{2}}."),
            trace("split", 0, "The answer is 3."),
            trace("half", 2, "So it is \\boxed{2}."),
            trace("half", 3, "I cannot tell."),
            trace("split", 1, "The answer is 4."),
            trace("silent", 0, "I cannot tell."),
            trace("half", 4, "So it is \\boxed{\\frac{1}{2}}."),
        ];
        Example::rows(json!({ "min_share": 0.6 }), "rows", &traces::TABLE, rows).gives(1, &["tie", "tie", "no_answers"])
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.min_votes == 0 {
            return Err(ParamError::new("min_votes", "`min_votes` must be at least 1"));
        }
        ensure_share("min_share", self.min_share)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
        judging::ensure_text(rows)?;
        if self.verifier.is_none() {
            judging::ensure_domain(rows)?;
        }
        by_query::outputs(inputs, self.rows, &FILLS)
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![
            Step::handing_on("answers", StepKind::Exchange, answers_schema()),
            Step::handing_on("labels", StepKind::Reduce, labels_schema()),
            Step::map("rows"),
        ]
    }

    fn externals(&self, _env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        Ok(judging::externals(&["math", "stem"]))
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        match step.name {
            "answers" => self.send_answers(task),
            "labels" => self.elect_labels(task),
            _ => self.write_rows(task),
        }
    }
}

/// The vote of one trace.
#[derive(Debug, Clone, Default)]
struct Cast {
    answer: Option<String>,
    agrees: bool,
}

impl Vote {
    fn send_answers(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let columns: Vec<&str> = [queries::QUERY_ID].into_iter().chain(judging::COLUMNS).collect();
        let mut batches = task.batches_of(&columns)?;
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let judged = Judged::new(&batch)?;
            let casts: Vec<Cast> = (0..batch.num_rows()).into_par_iter().map(|row| self.cast(&judged, row)).collect();
            let ids = rows::texts(&batch, queries::QUERY_ID)?;
            let first = batches.ordinal();
            let columns: Vec<ArrayRef> = vec![
                Arc::new(ids.clone()),
                Arc::new(UInt64Array::from_iter_values(first..first + batch.num_rows() as u64)),
                Arc::new(casts.iter().map(|cast| cast.answer.as_deref()).collect::<StringViewArray>()),
                Arc::new((0..batch.num_rows()).map(|row| judged.label(row)).collect::<StringViewArray>()),
                Arc::new(casts.iter().map(|cast| Some(cast.agrees)).collect::<BooleanArray>()),
            ];
            let partitions =
                (0..ids.len()).map(|row| partition_of(ids.value(row).as_bytes(), task.partitions())).collect();
            // views of wide texts are not kept alive until the task ends
            task.send(partitions, compacted(&RecordBatch::try_new(answers_schema(), columns)?))?;
        }
        Ok(())
    }

    /// The final answer of a trace, and whether it is the label.
    fn cast(&self, judged: &Judged<'_>, row: usize) -> Cast {
        let (Some(judged_as), Some(text)) = (judged.judged_as(row, self.verifier), judged.text(row)) else {
            return Cast::default();
        };
        if judged.is_cut(row) {
            return Cast::default();
        }
        let (options, extraction) = (judged.options(row), Extraction::from(self.extraction));
        let answer = judging::answer_of(judged_as, &options, text, extraction);
        let agrees = answer.is_some()
            && judged.label(row).is_some_and(|label| {
                let label = Label { text: label, options: &options };
                let how = Stem { extraction, tolerance: None };
                judging::judge(judged_as, &label, text, false, how).verdict == Verdict::Correct
            });
        Cast { answer, agrees }
    }

    fn elect_labels(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let mut ballots: BTreeMap<String, Ballot> = BTreeMap::new();
        for batch in task.partition("answers")? {
            let batch = batch?;
            let (ids, ordinals) = (rows::texts(&batch, queries::QUERY_ID)?, rows::row_numbers(&batch, "ordinal")?);
            let (answers, labels) = (rows::texts(&batch, "answer")?, rows::texts(&batch, "label")?);
            let agrees = rows::booleans(&batch, "agrees")?;
            for row in 0..batch.num_rows() {
                if !ballots.contains_key(ids.value(row)) {
                    ballots.insert(ids.value(row).to_owned(), Ballot::new());
                }
                if let Some(ballot) = ballots.get_mut(ids.value(row)) {
                    ballot.add(
                        ordinals.value(row),
                        rows::text_at(answers, row),
                        rows::text_at(labels, row),
                        agrees.value(row),
                    );
                }
            }
        }
        let ballots: Vec<(String, Ballot)> = ballots.into_iter().collect();
        task.check_cancelled()?;
        let elections: Vec<Election> =
            ballots.par_iter().map(|(_, ballot)| elect(ballot, self.tie, self.overwrite)).collect();
        for (name, count) in election::counters(&ballots, &elections) {
            task.count(name, count);
        }
        let ids = ballots.iter().map(|(query, _)| query.as_str());
        task.write(&labels_batch(ids, &elections)?)
    }

    fn write_rows(&self, task: &mut Task<'_>) -> Result<(), StageError> {
        let labels = task.shared("labels", |task| self.read_labels(task))?;
        task.note("vote_shares", labels.1.clone());
        labels.0.write(task, self.rows, |election| self.rejection(election), |_, elections| Ok(columns(elections)))
    }

    fn read_labels(&self, task: &Task<'_>) -> Result<(Findings<Election>, Value), StageError> {
        let (mut elections, mut histogram) = (HashMap::new(), ShareHistogram::default());
        for batch in task.earlier("labels")? {
            for_each_election(&batch?, |query, election| {
                if self.rejection(&election).is_none() {
                    histogram.add(election.votes, election.answered);
                }
                elections.insert(by_query::key(query), election);
            })?;
        }
        let histogram = serde_json::to_value(histogram).map_err(|error| StageError::Internal(error.to_string()))?;
        Ok((Findings(elections), histogram))
    }

    fn rejection(&self, election: &Election) -> Option<Rejection> {
        let reason = if election.has_conflict {
            "label_conflict"
        } else if election.answered == 0 {
            "no_answers"
        } else if election.answered < u64::from(self.min_votes) {
            "too_few_votes"
        } else if election.label.is_none() {
            "tie"
        } else if election.share() < self.min_share {
            "low_share"
        } else {
            return None;
        };
        let leading: Value = serde_json::from_str(&election.leading).unwrap_or_default();
        let evidence = json!({ "votes": election.answered, "without_answer": election.unanswered, "leading": leading });
        Some(Rejection::new(reason, Some(evidence)))
    }
}

impl Finding for Election {
    fn first(&self) -> u64 {
        self.first
    }
}

fn columns(elections: &[&Election]) -> Vec<(&'static str, ArrayRef)> {
    let labels: StringViewArray = elections.iter().map(|election| election.label.as_deref()).collect();
    let shares: Float64Array = elections.iter().map(|election| Some(election.share())).collect();
    vec![(queries::LABEL, Arc::new(labels)), (queries::VOTE_SHARE, Arc::new(shares))]
}

#[cfg(test)]
mod tests;
