//! All that judging a task's rows needs, and the judging of a batch.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::{BooleanArray, RecordBatch};
use pipeline_core::{StageError, Task, rows};
use pipeline_models::Request;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage_verify::stem::Stem;
use stage_verify::{Extraction, Judgement, Verdict, instruct};

use super::agreement::{Opinion, Second};
use super::panel::{Panel, Vote};
use super::programs::Runner;
use super::row::{self, Checker, Columns, Found, Outcome, Row};
use super::shelf::Shelf;
use super::{Verify, kept};
use crate::judging;

/// How constraints are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scoring {
    /// The response as it is.
    #[default]
    Strict,
    /// Any of eight views of the response.
    Loose,
}

impl From<Scoring> for instruct::Scoring {
    fn from(scoring: Scoring) -> Self {
        match scoring {
            Scoring::Strict => Self::Strict,
            Scoring::Loose => Self::Loose,
        }
    }
}

/// Longest text that a judge sees where no answer was found, in characters from its end.
const JUDGED_CHARACTERS: usize = 4000;

/// Why a row waits for the next run.
const JUDGE_SILENT: &str = "the judge did not answer";

/// What a task's rows are judged with.
pub struct Tools<'a> {
    stage: &'a Verify,
    extraction: Extraction,
    second: Option<Second>,
    shelf: Option<Arc<Shelf>>,
    runner: Arc<Runner>,
    /// The judge model, where the stage names one.
    pub panel: Option<Panel>,
    programs: AtomicU64,
    without_tests: AtomicU64,
}

/// The outcomes of a batch.
#[derive(Debug)]
pub struct JudgedBatch {
    /// Of each row.
    pub first: Vec<Outcome>,
    /// Second opinions, where they are asked for.
    pub second: Option<Vec<Option<Opinion>>>,
}

impl JudgedBatch {
    /// The rows that have an outcome; of the others the reasons are added to `failed`.
    ///
    /// # Errors
    /// When the batch cannot be cut.
    pub fn without_failures(
        self,
        batch: &RecordBatch,
        failed: &mut Vec<String>,
    ) -> Result<(RecordBatch, Self), StageError> {
        let before = failed.len();
        failed.extend(self.first.iter().filter_map(|outcome| match outcome {
            Outcome::Failed(message) => Some(message.clone()),
            Outcome::None | Outcome::Found(_) => None,
        }));
        if failed.len() == before {
            return Ok((batch.clone(), self));
        }
        let mask: BooleanArray =
            self.first.iter().map(|outcome| Some(!matches!(outcome, Outcome::Failed(_)))).collect();
        let second = self.second.map(|second| kept(second, &mask));
        Ok((rows::filter(batch, &mask)?, Self { first: kept(self.first, &mask), second }))
    }
}

impl<'a> Tools<'a> {
    /// Opens what the stage needs. The tests of queries are read once a process, the sandbox starts with the first
    /// program.
    ///
    /// # Errors
    /// When the port of queries cannot be read, or the judge cannot be opened.
    pub fn new(stage: &'a Verify, task: &Task<'_>) -> Result<Self, StageError> {
        let has_queries = !task.port(super::QUERIES).is_empty();
        Ok(Self {
            stage,
            extraction: stage.extraction.into(),
            second: stage.second(),
            shelf: has_queries.then(|| task.shared("tests", Shelf::of)).transpose()?,
            runner: task.shared("programs", |task| Runner::new(task.env(), &stage.toolchains))?,
            panel: Panel::new(stage, task)?,
            programs: AtomicU64::new(0),
            without_tests: AtomicU64::new(0),
        })
    }

    /// The outcomes of all rows of a batch.
    ///
    /// # Errors
    /// When the run is interrupted, or something is at fault that no row can be blamed for.
    pub fn judge(&self, batch: &RecordBatch, cancel: &AtomicBool) -> Result<JudgedBatch, StageError> {
        let columns = Columns::new(batch)?;
        let recorded = self.second.as_ref().map(|second| second.recorded(batch)).transpose()?.flatten();
        let numbers = (0..batch.num_rows()).into_par_iter();
        let outcomes: Vec<(Outcome, Option<Opinion>)> = numbers
            .map(|number| {
                if cancel.load(Ordering::Relaxed) {
                    return Err(StageError::Cancelled);
                }
                let row = columns.row(number);
                let by_rule = self.by_rules(&row)?;
                let second = match (&self.second, &recorded) {
                    (_, Some(recorded)) => Ok(recorded[number].map(|verdict| Opinion { verdict, reason: None })),
                    (Some(second), None) => self.second_opinion(second, &row, &by_rule)?,
                    (None, None) => Ok(None),
                };
                match second {
                    Ok(second) => Ok((self.settled(&row, by_rule)?, second)),
                    Err(message) => Ok((Outcome::Failed(message), None)),
                }
            })
            .collect::<Result<_, _>>()?;
        let (first, second) = outcomes.into_iter().unzip();
        Ok(JudgedBatch { first, second: self.second.is_some().then_some(second) })
    }

    /// What the judge is to be asked about the rows of a batch.
    ///
    /// # Errors
    /// When a row's question cannot be put.
    pub fn questions(&self, batch: &RecordBatch) -> Result<Vec<Request>, StageError> {
        let columns = Columns::new(batch)?;
        let asked: Vec<Vec<Request>> = (0..batch.num_rows())
            .into_par_iter()
            .map(|number| {
                let row = columns.row(number);
                if self.order(&row).contains(&Checker::Code) {
                    return Ok(Vec::new()); // settled by tests, which are not run twice
                }
                let outcome = self.by_rules(&row)?;
                let wanted = self.second == Some(Second::Judge) || is_open(&outcome);
                if wanted { self.question(&row, &outcome) } else { Ok(Vec::new()) }
            })
            .collect::<Result<_, StageError>>()?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Zero tests run is never a result: rows of programs without any tests are a fault of the graph.
    ///
    /// # Errors
    /// When all programs of the task lack tests.
    pub fn ensure_tests_were_there(&self) -> Result<(), StageError> {
        let (programs, without) = (self.programs.load(Ordering::Relaxed), self.without_tests.load(Ordering::Relaxed));
        if programs == 0 || without < programs {
            return Ok(());
        }
        let looked = match &self.shelf {
            Some(shelf) => format!("the port `queries` has tests of {} other queries", shelf.len()),
            None => "give the stage that has them: `inputs = { rows = \"...\", queries = \"...\" }`".to_owned(),
        };
        Err(StageError::Alarm(format!("none of {programs} code rows has tests, so nothing was run; {looked}")))
    }

    /// The verifiers of a row in turn.
    fn order(&self, row: &Row<'_>) -> Cow<'_, [Checker]> {
        let given = self.stage.verifier.as_ref().or_else(|| self.stage.verifiers.get(row.domain?));
        match given {
            Some(order) => Cow::Borrowed(order.all()),
            None => row.domain.and_then(Checker::of_domain).map_or(Cow::Borrowed(&[]), |checker| vec![checker].into()),
        }
    }

    /// What the rules say: the first verifier that decides, else the first of all.
    fn by_rules(&self, row: &Row<'_>) -> Result<Outcome, StageError> {
        let mut first = None;
        for checker in self.order(row).iter() {
            let outcome = self.check(*checker, row)?;
            match &outcome {
                Outcome::Found(found) if !matches!(found.judgement.verdict, Verdict::Correct | Verdict::Incorrect) => {
                    first.get_or_insert(outcome);
                }
                _ => return Ok(outcome),
            }
        }
        Ok(first.unwrap_or_else(|| {
            let reason = match row.domain {
                Some("chat") if row.label.is_none() || self.panel.is_none() => return Outcome::None,
                Some(domain) => Cow::Owned(format!("no_verifier: domain `{domain}`")),
                None => Cow::Borrowed("no_verifier: the row has no domain"),
            };
            Outcome::Found(Found { judgement: Judgement::new(Verdict::Undecided, reason, ""), verifier: None })
        }))
    }

    fn check(&self, checker: Checker, row: &Row<'_>) -> Result<Outcome, StageError> {
        match checker {
            Checker::Math | Checker::Stem => {
                let how = Stem { extraction: self.extraction, tolerance: self.stage.tolerance };
                Ok(Outcome::Found(row::answer(checker, row, how)))
            }
            Checker::Instruct => row::instructions(row, self.stage.scoring.into()).map(Outcome::Found),
            Checker::Code => self.run(row),
        }
    }

    /// Runs the program of a row against its tests, its own or those of its query.
    fn run(&self, row: &Row<'_>) -> Result<Outcome, StageError> {
        self.programs.fetch_add(1, Ordering::Relaxed);
        let tests = match (row.tests, &self.shelf) {
            (Some(own), _) => Some(Cow::Borrowed(own)),
            (None, Some(shelf)) => shelf.tests(row.query_id)?.filter(|tests| !tests.trim().is_empty()).map(Cow::Owned),
            (None, None) => None,
        };
        let verifier = Some(Cow::Borrowed(judging::verifier_of("code")));
        let Some(tests) = tests else {
            self.without_tests.fetch_add(1, Ordering::Relaxed);
            let judgement = Judgement::new(Verdict::LabelUnparsable, "no_tests", "");
            return Ok(Outcome::Found(Found { judgement, verifier }));
        };
        if row.is_cut {
            let judgement = Judgement::new(Verdict::NoAnswer, "truncated", "");
            return Ok(Outcome::Found(Found { judgement, verifier }));
        }
        Ok(match self.runner.judge(&tests, row.text, self.extraction)? {
            Ok(judgement) => Outcome::Found(Found { judgement, verifier }),
            Err(message) => Outcome::Failed(message),
        })
    }

    /// The verdict of a row after the judge was asked, where rules left it open.
    fn settled(&self, row: &Row<'_>, outcome: Outcome) -> Result<Outcome, StageError> {
        if !is_open(&outcome) || self.order(row).contains(&Checker::Code) {
            return Ok(outcome);
        }
        let Some(panel) = &self.panel else { return Ok(outcome) };
        let requests = self.question(row, &outcome)?;
        if requests.is_empty() {
            return Ok(outcome);
        }
        let answer = answer_of(&outcome).map(str::to_owned);
        Ok(match panel.verdict(&requests)? {
            Vote::Missing => Outcome::Failed(JUDGE_SILENT.to_owned()),
            Vote::Given(judgement) => Outcome::Found(Found {
                judgement: Judgement { answer, ..judgement },
                verifier: Some(Cow::Owned(panel.verifier().to_owned())),
            }),
        })
    }

    /// What the other judge says, or why it said nothing for now.
    fn second_opinion(
        &self,
        second: &Second,
        row: &Row<'_>,
        first: &Outcome,
    ) -> Result<Result<Option<Opinion>, String>, StageError> {
        match (second, &self.panel) {
            (Second::Checker(checker), _) => Ok(match self.check(*checker, row)? {
                Outcome::Found(found) => Ok(Some(found.judgement.into())),
                Outcome::None => Ok(None),
                Outcome::Failed(message) => Err(message),
            }),
            (Second::Judge, Some(panel)) if !self.order(row).contains(&Checker::Code) => {
                let requests = self.question(row, first)?;
                if requests.is_empty() {
                    return Ok(Ok(None));
                }
                Ok(match panel.verdict(&requests)? {
                    Vote::Missing => Err(JUDGE_SILENT.to_owned()),
                    Vote::Given(judgement) => Ok(Some(judgement.into())),
                })
            }
            _ => Ok(Ok(None)),
        }
    }

    /// The calls to the judge about a row: none without a label, or where there is nothing to judge.
    fn question(&self, row: &Row<'_>, outcome: &Outcome) -> Result<Vec<Request>, StageError> {
        let (Some(panel), Some(label)) = (&self.panel, row.label) else { return Ok(Vec::new()) };
        if row.is_cut || row.text.trim().is_empty() {
            return Ok(Vec::new());
        }
        panel.requests(row, label, answer_of(outcome).unwrap_or_else(|| end_of(row.text)))
    }
}

/// Whether the rules left a row to a judge.
fn is_open(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Found(found) if found.judgement.verdict == Verdict::Undecided)
}

fn answer_of(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Found(found) => found.judgement.answer.as_deref(),
        Outcome::None | Outcome::Failed(_) => None,
    }
}

/// The last characters of a text.
fn end_of(text: &str) -> &str {
    let start = text.char_indices().rev().nth(JUDGED_CHARACTERS - 1).map_or(0, |(start, _)| start);
    &text[start..]
}
