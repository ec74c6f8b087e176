//! What `judge_queries` and `judge_traces` share: criteria that one or several models rate, and what follows from it.
//!
//! A judge first gives its reason and then rates each criterion from 1 to 5, so that the ratings follow from what it
//! wrote. A judge fails a row when any criterion is below `min_score`: a good mean does not make up for a problem that
//! cannot be solved. More than half of the judges must pass a row; with an even split it falls. The ratings stand on a
//! scale of whole numbers: what lies outside is asked for again and never moved into it.

mod ballot;
mod judges;

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewArray};
use arrow::datatypes::Field;
use minijinja::value::Serde;
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{Judgement, ParamError, Rejection, StageError, TableType, Task, rows};
use pipeline_models::{Message, Request, Structured};
use schemas::Type;
use serde_json::{Map, Value, json};

use self::ballot::{Ballot, Count};
pub use self::judges::{Judges, Mode};
use crate::asking::{self, Asker, Described, Fate, Form, Found};
use crate::calls;
use crate::template::Template;

/// Lowest and highest rating.
const SCALE: (i64, i64) = (1, 5);

/// Names of the columns that judging fills.
#[derive(Debug, Clone, Copy)]
pub struct ColumnNames {
    /// Mean rating over criteria and judges, 1 to 5.
    pub score: &'static str,
    /// The reason that counts most.
    pub reason: &'static str,
    /// Every judge's ratings and reason, JSON text.
    pub scores: &'static str,
    /// Share of the judges on the side that decided, 0.5 to 1.
    pub agreement: &'static str,
    /// Reason for which the row fails; null where it passes.
    pub flaw: &'static str,
}

impl ColumnNames {
    fn all(&self) -> [(&'static str, Type); 5] {
        [
            (self.score, Type::Float),
            (self.reason, Type::Text),
            (self.scores, Type::Text),
            (self.agreement, Type::Float),
            (self.flaw, Type::Text),
        ]
    }

    /// The rows with these columns.
    ///
    /// # Errors
    /// When a column is there with another type.
    pub fn added_to(&self, rows: &TableType) -> Result<TableType, ParamError> {
        let mut added = rows.clone();
        for (name, kind) in self.all() {
            added = added.with_column(&Field::new(name, kind.arrow(), true))?;
        }
        Ok(added)
    }
}

/// A set of criteria, and what a judge is asked about them.
#[derive(Debug, Clone)]
pub struct Rubric {
    /// What is rated.
    pub criteria: Vec<Described>,
}

/// What is to be done about a row.
#[derive(Debug)]
pub enum Sorted {
    /// It goes to the judges under the rubric of this number.
    To(usize),
    /// It fails without a judge.
    Flawed(&'static str, Value),
}

/// A stage of judges at work.
pub struct Bench<'a> {
    /// Its parameters.
    pub judges: &'a Judges,
    /// The kind, for seeds.
    pub kind: &'static str,
    /// What is rated: one set of criteria, or several for different rows.
    pub rubrics: Vec<Rubric>,
    /// The program's own template.
    pub words: &'static str,
    /// Where the findings go.
    pub columns: ColumnNames,
}

impl Bench<'_> {
    /// Judges all rows of a task. `sort` says for each row of a batch what is to be done about it.
    ///
    /// # Errors
    /// When a batch cannot be read or a model gives up.
    pub fn run(
        &self,
        task: &mut Task<'_>,
        sort: impl Fn(&RecordBatch) -> Result<Vec<Sorted>, StageError>,
    ) -> Result<(), StageError> {
        let template = self.judges.words(self.words).template(task)?;
        let mut panels: Vec<Vec<Asker>> = Vec::new();
        for (number, rubric) in self.rubrics.iter().enumerate() {
            let mut panel = Vec::new();
            for name in self.judges.model.all() {
                let asker = Asker::new(task, name, form(rubric)?, self.judges.manner(self.kind))?;
                asker.ask(task, |batch| {
                    let mine = sort(batch)?.into_iter().enumerate();
                    let mine = mine.filter(|(_, sorted)| matches!(sorted, Sorted::To(to) if *to == number));
                    mine.map(|(row, _)| question(&asker, &template, rubric, batch, row)).collect()
                })?;
                panel.push(asker);
            }
            panels.push(panel);
        }
        let (mut read, mut missing) = (0, 0);
        for batch in task.batches()? {
            let batch = batch?;
            read += batch.num_rows() as u64;
            missing += self.judge(task, &panels, &template, &batch, sort(&batch)?)?;
        }
        calls::leave_out(task, missing, read, "rows lack the answer of a judge")
    }

    /// Judges a batch; returns the number of rows that lack an answer for a passing reason.
    fn judge(
        &self,
        task: &mut Task<'_>,
        panels: &[Vec<Asker>],
        template: &Template,
        batch: &RecordBatch,
        sorted: Vec<Sorted>,
    ) -> Result<u64, StageError> {
        let mut fates = Vec::with_capacity(batch.num_rows());
        for (row, sorted) in sorted.into_iter().enumerate() {
            fates.push(match sorted {
                Sorted::Flawed(flaw, evidence) => Fate::Kept(Count::flawed(flaw, evidence)),
                Sorted::To(number) => {
                    let (Some(rubric), Some(panel)) = (self.rubrics.get(number), panels.get(number)) else {
                        return Err(StageError::Internal(format!("there is no rubric {number}")));
                    };
                    let ballots = ballots(task, panel, |asker| question(asker, template, rubric, batch, row))?;
                    match ballots {
                        Fate::Kept(ballots) => Fate::Kept(Count::new(rubric, &ballots, self.judges.min_score)),
                        Fate::Rejected(rejection) => Fate::Rejected(rejection),
                        Fate::Missing => Fate::Missing,
                    }
                }
            });
        }
        let (staying, counts, missing) = asking::settle(task, batch, fates)?;
        for count in &counts {
            task.count("votes", count.votes);
            task.count("votes_with_the_majority", count.with_majority);
        }
        let fates = counts.iter().map(|count| self.fate(count)).collect();
        let judged = rows::with_columns(&staying, &task.schema()?, &self.filled(&counts))?;
        write_judged(task, &judged, fates)?;
        Ok(missing)
    }

    fn fate(&self, count: &Count) -> Judgement {
        match &count.flaw {
            Some(flaw) if self.judges.mode == Mode::Reject => {
                Judgement::reject_with(flaw.clone(), count.evidence.clone())
            }
            _ => Judgement::Keep,
        }
    }

    fn filled(&self, counts: &[Count]) -> [(&'static str, ArrayRef); 5] {
        let texts = |text: fn(&Count) -> Option<&str>| -> ArrayRef {
            Arc::new(counts.iter().map(text).collect::<StringViewArray>())
        };
        let numbers = |number: fn(&Count) -> Option<f64>| -> ArrayRef {
            Arc::new(counts.iter().map(number).collect::<Float64Array>())
        };
        [
            (self.columns.score, numbers(|count| count.score)),
            (self.columns.reason, texts(|count| count.reason.as_deref())),
            (self.columns.scores, texts(|count| count.scores.as_deref())),
            (self.columns.agreement, numbers(Count::agreement)),
            (self.columns.flaw, texts(|count| count.flaw.as_deref())),
        ]
    }
}

/// What the judges say about a row. A judge without a usable answer has no vote; where none has, the row falls out.
fn ballots(
    task: &mut Task<'_>,
    panel: &[Asker],
    question: impl Fn(&Asker) -> Result<Request, StageError>,
) -> Result<Fate<Vec<Ballot>>, StageError> {
    let (mut ballots, mut unusable) = (Vec::new(), None);
    for asker in panel {
        match asker.found(task, &question(asker)?)? {
            Found::Usable(answer) => ballots.push(Ballot { judge: asker.model(), answer }),
            Found::Unusable(rejection) => unusable = unusable.or(Some(rejection)),
            Found::Missing => return Ok(Fate::Missing),
        }
    }
    Ok(match unusable {
        Some(rejection) if ballots.is_empty() => Fate::Rejected(rejection),
        Some(_) => {
            task.count("rows_with_fewer_judges", 1);
            Fate::Kept(ballots)
        }
        None if ballots.is_empty() => Fate::Rejected(Rejection::new("no_judge", None)),
        None => Fate::Kept(ballots),
    })
}

fn question(
    asker: &Asker,
    template: &Template,
    rubric: &Rubric,
    batch: &RecordBatch,
    row: usize,
) -> Result<Request, StageError> {
    let mut variables = asking::variables(batch, row, template);
    variables.insert("criteria".to_owned(), json!(rubric.criteria));
    let text = template.render(Serde(variables).into())?;
    Ok(asker.question(vec![Message::new("user", text)]))
}

/// What a judge's answer must be. What is sent is stricter than what is accepted: a judge that adds a total is not asked
/// again for it.
fn form(rubric: &Rubric) -> Result<Form, StageError> {
    let wrong = |error: pipeline_models::SchemaError| StageError::Internal(error.to_string());
    let structured = Structured::new(&schema(rubric, true)).map_err(wrong)?;
    Ok(Form::Json { structured: Box::new(structured), sent: schema(rubric, false).to_string() })
}

fn schema(rubric: &Rubric, others: bool) -> Value {
    let rating = json!({ "type": "integer", "minimum": SCALE.0, "maximum": SCALE.1 });
    let names: Vec<&str> = rubric.criteria.iter().map(|criterion| criterion.name.as_str()).collect();
    let ratings: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), rating.clone())).collect();
    json!({
        "type": "object",
        "properties": {
            "reason": { "type": "string" },
            "criteria": {
                "type": "object", "properties": ratings, "required": names, "additionalProperties": others,
            },
        },
        "required": ["reason", "criteria"],
        "additionalProperties": others,
    })
}
