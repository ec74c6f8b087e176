//! Learning potential of each trace: how surprising its text still is for the student that is to learn it.
//!
//! S(q, y) = -(1/|y|) sum over t of ln p(`y_t` | q, `y_<t`), with q the row's `messages`, y its `response` and p the
//! student (report section on offline self-distillation). The student is scored on what it is trained on: never on
//! `request_messages`, which hold the teacher's shots and system prompt. A finished response is scored with the token
//! that ends a turn, a cut one without.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use pipeline_core::rows::{self, Conversation, Conversations};
use pipeline_core::stage::Estimate;
use pipeline_core::{Example, Output, ParamError, Port, Ports, Rejection, Stage, StageError, Step, Task};
use pipeline_models::{Message, Model, Recorded, Score, ScoreRequest};
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::calls::{self, Used};

/// Fills `learning_potential`: the mean negative log-likelihood of each response under the student, nats per token.
///
/// The student is a model with `engine = "local"` (or recorded scores of one); servers do not score given texts. The
/// response is scored after the row's `messages`, with the token that ends a turn unless `finish_reason` says that it was cut. Token
/// ids of the row are used as they were sampled where they are the student's own. A row without a response falls out with
/// the reason `no_response`, one without messages with `no_messages`, one that is longer than the student's context with
/// `context_exceeded`. Scores are kept in the call store: what was scored once is never scored again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LearningPotential {
    /// Name of a model in `[models]`: the student.
    model: String,
}

impl Stage for LearningPotential {
    const KIND: &'static str = "learning_potential";
    const VERSION: u32 = 2;
    const PORTS: &'static [Port] = &[Port::rows(&["traces"], &[queries::MESSAGES, traces::RESPONSE])];
    const MODEL_PARAMS: &'static [&'static str] = &["model"];
    const SCORES: bool = true;

    fn example() -> Example {
        let row = |id: &str, prompt: Option<&str>, response: Option<&str>, finish_reason: &str| {
            let messages = prompt.map(|prompt| json!([{"role": "user", "content": prompt}]));
            json!({
                "query_id": id, "trace_id": format!("{id}-0"), "domain": "math", "messages": messages,
                "response": response, "finish_reason": finish_reason,
            })
        };
        let rows = vec![
            row("a", Some("What is 2 + 2?"), Some("2 + 2 = 4. The answer is \\boxed{4}."), "stop"),
            row("b", Some("2 加 2 等于多少？"), Some("等于"), "length"),
            row("c", Some("What is 3 + 3?"), None, "stop"),
            row("d", None, Some("6"), "stop"),
        ];
        let rejected = ["no_response", "no_messages"];
        Example::rows(json!({"model": "student"}), "rows", &traces::TABLE, rows).gives(2, &rejected)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        Ok(vec![Output::same(inputs.expect("rows")?.clone().fill([traces::LEARNING_POTENTIAL]))])
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        Some(Estimate::once(rows, 0))
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let model = calls::model(task, &self.model)?;
        calls::ensure(task, requests, |requests, progress, cancel| model.ensure_scores(requests, progress, cancel))?;
        let (mut read, mut missing, mut used) = (0_u64, 0_u64, Used::default());
        for batch in task.batches()? {
            let batch = batch?;
            read += batch.num_rows() as u64;
            missing += collect(task, model.as_ref(), &batch, &mut used)?;
        }
        used.count(task);
        calls::leave_out(task, missing, read, "traces have no score")
    }
}

/// The requests of all rows of a batch that can be scored.
fn requests(batch: &RecordBatch) -> Result<Vec<ScoreRequest>, StageError> {
    let rows = Conversations::new(batch)?;
    Ok((0..batch.num_rows()).filter_map(|row| request(&rows, row).ok()).collect())
}

/// Writes the rows of a batch with their scores; returns the number of rows that lack one for a passing reason.
fn collect(task: &mut Task<'_>, model: &dyn Model, batch: &RecordBatch, used: &mut Used) -> Result<u64, StageError> {
    let rows = Conversations::new(batch)?;
    let (mut kept, mut potentials) = (Vec::new(), Vec::new());
    let (mut fallen, mut rejections) = (Vec::new(), Vec::new());
    let mut missing = 0;
    for (row, number) in (0_u64..).zip(0..batch.num_rows()) {
        let outcome = match request(&rows, number) {
            Err(rejection) => Err(rejection),
            Ok(request) => {
                let recorded = model.score_of(&request).map_err(|error| calls::model_error(&error))?;
                used.add_score(&recorded);
                match recorded {
                    Recorded::Answer(score) => Ok(potential(score)),
                    Recorded::RowError { code, message } => {
                        Err(Rejection::new(code, Some(json!({"message": message}))))
                    }
                    Recorded::Missing => {
                        missing += 1;
                        continue;
                    }
                }
            }
        };
        match outcome {
            Ok(potential) => {
                kept.push(row);
                potentials.push(potential);
            }
            Err(rejection) => {
                fallen.push(row);
                rejections.push(rejection);
            }
        }
    }
    let taken = arrow::compute::take_record_batch(batch, &UInt64Array::from(kept))?;
    let potentials: ArrayRef = Arc::new(Float64Array::from(potentials));
    let written = rows::with_columns(&taken, &task.schema()?, &[(traces::LEARNING_POTENTIAL, potentials)])?;
    task.write(&written)?;
    task.reject(&arrow::compute::take_record_batch(batch, &UInt64Array::from(fallen))?, &rejections)?;
    Ok(missing)
}

/// S(q, y), in nats per token.
fn potential(score: Score) -> f64 {
    // without `+ 0.0` a certain text would have the potential -0
    -score.log_prob / f64::from(score.tokens) + 0.0
}

/// What is to be scored of a row, or why nothing can be.
fn request(rows: &Conversations<'_>, row: usize) -> Result<ScoreRequest, Rejection> {
    let Conversation { messages, response, is_complete, token_ids, tokenizer } =
        rows.at(row).map_err(|reason| Rejection::new(reason, None))?;
    let messages = messages.into_iter().map(|message| Message {
        role: message.role.to_owned(),
        content: message.content.to_owned(),
        tool_calls: message.tool_calls.map(str::to_owned),
    });
    Ok(ScoreRequest {
        messages: messages.collect(),
        response: response.to_owned(),
        is_complete,
        tokenizer: tokenizer.map(str::to_owned),
        token_ids,
    })
}

#[cfg(test)]
mod tests;
