//! The two passes of `sample`: asking all models, then making traces of what they said.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use pipeline_core::{Event, ParamError, Rejection, StageError, Task};
use pipeline_models::{Answer, Recorded, Request};
use serde_json::json;

use super::request::{Asking, Told, is_cut};
use super::traces::Chunk;
use super::{Sample, Truncated};
use crate::calls::{self, FirstPass, Used};

/// What came for the samples of a row.
#[derive(Default)]
struct Answers<'a> {
    given: Vec<(&'a Asking<'a>, Request, Answer)>,
    refusal: Option<(String, String)>,
    is_missing: bool,
}

/// Answers that were refused for good.
#[derive(Default)]
struct Refused {
    count: u64,
    first: Option<String>,
}

/// An answer that the server's filter cut is a refusal: what is left of it is nobody's reasoning.
fn filtered(recorded: Recorded) -> Recorded {
    match recorded {
        Recorded::Answer(answer) if answer.finish_reason.as_deref() == Some("content_filter") => {
            let message = "the server's filter cut the answer".to_owned();
            Recorded::RowError { code: "content_filter".to_owned(), message }
        }
        recorded => recorded,
    }
}

/// How one pass makes requests of some rows.
type Requests<'a> = fn(&Asking<'a>, &RecordBatch) -> Result<Vec<Request>, StageError>;

impl Sample {
    /// First pass, over all models at the same time. When one gives up, the others end with what is under way.
    pub(super) fn ask<'a>(
        &self,
        task: &Task<'_>,
        all: &[Asking<'a>],
        requests: Requests<'a>,
    ) -> Result<(), StageError> {
        let stop = AtomicBool::new(false);
        let passes: Vec<FirstPass<'_>> = all.iter().map(|_| FirstPass::new(task)).collect::<Result<_, _>>()?;
        let run = |asking: &Asking<'a>, pass: FirstPass<'_>| {
            let outcome = pass.rows_at_once(self.rows_at_once()).run(
                |rows| requests(asking, rows),
                |requests, progress, cancel| asking.model.ensure(requests, progress, cancel),
            );
            stop.fetch_or(outcome.is_err(), Ordering::Relaxed);
            outcome
        };
        if let [asking] = all {
            return passes.into_iter().try_for_each(|pass| run(asking, pass));
        }
        let outcomes: Vec<Result<(), StageError>> = std::thread::scope(|scope| {
            let asked = all.iter().zip(passes).map(|(asking, pass)| {
                let (run, pass) = (&run, pass.until(&stop));
                scope.spawn(move || run(asking, pass))
            });
            let asked: Vec<_> = asked.collect();
            let broken = || Err(StageError::Internal("a thread that asks a model broke off".to_owned()));
            asked.into_iter().map(|thread| thread.join().unwrap_or_else(|_| broken())).collect()
        });
        outcomes.into_iter().collect()
    }

    /// Asks each model for one answer before all others: a server that gives no log-probabilities is found out before
    /// the stage is paid for.
    pub(super) fn ensure_log_probabilities_come(&self, task: &Task<'_>, all: &[Asking<'_>]) -> Result<(), StageError> {
        for asking in all {
            let mut asked = None;
            FirstPass::new(task)?.rows_at_once(1).at_most(1).run(
                |row| {
                    let first = asking.requests(row)?.into_iter().next();
                    asked.clone_from(&first);
                    Ok(first.into_iter().collect())
                },
                |requests, progress, cancel| asking.model.ensure(requests, progress, cancel),
            )?;
            if let Some(request) = asked {
                let recorded = asking.model.answer(&request).map_err(|error| calls::model_error(&error))?;
                self.ensure_log_probabilities(asking, &recorded)?;
            }
        }
        Ok(())
    }

    fn ensure_log_probabilities(&self, asking: &Asking<'_>, recorded: &Recorded) -> Result<(), StageError> {
        let Recorded::Answer(answer) = recorded else { return Ok(()) };
        // an empty answer has no tokens to speak of; a list with gaps is the fault of one answer
        let is_excused = answer.text.is_empty() || answer.tokens_incomplete;
        if !self.logprobs.are_needed() || answer.token_logprobs.is_some() || is_excused {
            return Ok(());
        }
        let message = format!(
            "model `{}` was asked for log-probabilities and gave an answer without; some servers pass over the request \
             silently, or give none for some answers. Use a server that gives them, or take them where they come with \
             `logprobs = \"if_given\"`",
            asking.model.id()
        );
        Err(StageError::Param(ParamError::new("logprobs", message)))
    }

    /// Second pass: answers become traces, in the order of the rows.
    pub(super) fn collect(&self, task: &mut Task<'_>, asking: &[Asking<'_>]) -> Result<(), StageError> {
        let (mut read, mut missing, mut used) = (0_u64, 0_u64, Used::default());
        let mut refused = Refused::default();
        for batch in task.batches()? {
            let batch = batch?;
            read += batch.num_rows() as u64;
            missing += self.collect_batch(task, asking, &batch, &mut used, &mut refused)?;
        }
        if let Some(first) = refused.first {
            let message = format!(
                "{} answers were refused for good (counted as `refused_answers`), the first: {first}",
                refused.count
            );
            task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
        }
        used.count(task);
        calls::leave_out(task, missing, read, "queries have no complete answer")
    }

    /// Returns the number of queries that lack an answer for a passing reason.
    fn collect_batch(
        &self,
        task: &mut Task<'_>,
        asking: &[Asking<'_>],
        batch: &RecordBatch,
        used: &mut Used,
        refused: &mut Refused,
    ) -> Result<u64, StageError> {
        let mut missing = 0;
        let mut chunk = Chunk::new(batch);
        for first in (0..batch.num_rows()).step_by(self.rows_at_once()) {
            let rows = self.rows_at_once().min(batch.num_rows() - first);
            let piece = batch.slice(first, rows);
            let mut told = Vec::with_capacity(asking.len());
            for asking in asking {
                told.push((asking, asking.told(&piece, used)?.into_iter()));
            }
            for row in first..first + rows {
                let of_row = told
                    .iter_mut()
                    .flat_map(|(asking, told)| told.by_ref().take(self.n as usize).map(|told| (&**asking, told)));
                let row_of = self.row(task, of_row, refused)?;
                missing += u64::from(self.collect_row(task, &mut chunk, row, row_of)?);
            }
        }
        chunk.flush(task, self)?;
        Ok(missing)
    }

    /// Sorts what is known about the samples of a row.
    fn row<'a>(
        &self,
        task: &mut Task<'_>,
        told: impl Iterator<Item = (&'a Asking<'a>, Told)>,
        refused: &mut Refused,
    ) -> Result<Answers<'a>, StageError> {
        let mut row = Answers::default();
        for (asking, Told { request, recorded }) in told {
            self.ensure_log_probabilities(asking, &recorded)?;
            let (is_cut, is_retry) = (is_cut(&recorded), request.attempt > 0);
            if is_retry {
                task.count("truncated_retried", 1);
            }
            match filtered(recorded) {
                Recorded::Answer(_) if is_cut && self.truncated == Truncated::Drop => {
                    task.count("truncated_dropped", 1);
                    row.refusal.get_or_insert(("truncated".to_owned(), "every answer was cut".to_owned()));
                }
                Recorded::Answer(answer) => {
                    if self.logprobs.are_asked_for() && answer.tokens_incomplete {
                        task.count("tokens_incomplete", 1);
                    }
                    row.given.push((asking, request, answer));
                }
                Recorded::RowError { code, message } => {
                    task.count("refused_answers", 1);
                    refused.count += 1;
                    refused.first.get_or_insert_with(|| format!("{code}: {message}"));
                    row.refusal = Some((code, message));
                }
                Recorded::Missing => row.is_missing = true,
            }
        }
        Ok(row)
    }

    /// Puts the traces of a row into a chunk, or rejects it; returns whether an answer is missing.
    fn collect_row(
        &self,
        task: &mut Task<'_>,
        chunk: &mut Chunk<'_>,
        row: usize,
        answers: Answers<'_>,
    ) -> Result<bool, StageError> {
        if answers.is_missing {
            return Ok(true);
        }
        if answers.given.is_empty() {
            let (code, message) = answers.refusal.unwrap_or_else(|| ("no_answer".to_owned(), String::new()));
            chunk.flush(task, self)?;
            let rejected = chunk.batch().slice(row, 1);
            task.reject(&rejected, &[Rejection::new(code, Some(json!({"message": message})))])?;
            return Ok(false);
        }
        task.kept(1);
        for (asking, request, answer) in answers.given {
            chunk.push(row, asking, request, answer);
        }
        if chunk.is_full() {
            chunk.flush(task, self)?;
        }
        Ok(false)
    }
}
