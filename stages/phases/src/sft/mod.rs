//! Supervised fine-tuning (report section 2.2): one phase of the curriculum.
//!
//! Rows are rendered once, by the student's own tokenizer and template, into a file of ids; from then on a phase is a
//! function of that file, the parameters and the seed. What a kill would lose is in the folder `state`: weights, moments,
//! the place in the data and the figures so far, written whole or not at all, so that a resumed run gives the bits of one
//! that was not interrupted.

mod examples;
mod figures;
mod run;

use pipeline_core::{Example, Output, ParamError, Port, Ports, Stage, StageError, Step, TableType, Task};
use schemars::JsonSchema;
use schemas::{metrics, queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::artifact;
use crate::storage::StoredAs;
use run::Phase;

/// Port of the rows that the loss is measured on.
const VALIDATION: &str = "validation";
/// The output with the figures of each step.
const METRICS: &str = "metrics";

/// Fine-tunes a model on traces: one phase of the curriculum. Phases follow each other as stages, each starting from what
/// the one before has made.
///
/// Trained on are `messages` and `response`, reasoning included, rendered by the model's own chat template; texts never
/// become control tokens, and a complete response ends with one supervised end of turn. Only the response is supervised.
/// Stored token ids are used where they are the model's own. Rows are packed into windows; no row sees another. The loss of
/// a step is the mean over all its supervised tokens, so it does not matter how they are split.
///
/// The optimizer is `AdamW` with weights, moments and gradients in 32 bits; the learning rate rises over `warm_up` of the
/// steps and falls in half a cosine to `min_learning_rate`. The defaults are the report's.
///
/// The main output has a row for each checkpoint, whose weights lie in `checkpoints/<name>` of the stage's folder as
/// `transformers` loads them. The output `metrics` has loss, entropy, gradient norm, learning rate and supervised tokens of
/// each step, and `validation_loss` of each checkpoint. A row that cannot be trained on falls out with its reason:
/// `no_messages`, `no_response`, `too_long` (it is never cut), `template_refused`, `template_failed`, `nothing_supervised`,
/// `end_inside`. A loss or gradient that is not finite ends the stage, and the message names the rows.
///
/// ```toml
/// [models.base]
/// engine = "local"
/// path = "models/base"
///
/// [models.broad]
/// engine = "local"
/// stage = "phase1"                 # the last checkpoint of phase 1
///
/// [stages.phase1]
/// kind = "sft"
/// inputs = { rows = "traces", validation = "held_out" }
/// model = "base"
///
/// [stages.phase2]
/// kind = "sft"
/// inputs = "hard_traces"           # `select` keeps long traces of queries with a high error rate
/// model = "broad"
/// epochs = 2
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sft {
    /// Name of a model in `[models]` with engine `local`: the weights that training starts from.
    model: String,
    /// Passes over the rows. Default 5.
    #[serde(default = "five")]
    epochs: u64,
    /// Windows of a step. Default 128.
    #[serde(default = "batch")]
    batch: usize,
    /// Tokens of a window; longer rows fall out. Default: the model's context, at most 65,536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<usize>,
    /// Highest learning rate. Default 5e-5.
    #[serde(default = "peak")]
    learning_rate: f64,
    /// Learning rate of the last step. Default 8e-8.
    #[serde(default = "minimum")]
    min_learning_rate: f64,
    /// Share of the steps in which the learning rate rises, 0 to 1. Default 0.05.
    #[serde(default = "warm_up")]
    warm_up: f64,
    /// Share of a matrix that a step takes away, times the learning rate. Default 0.
    #[serde(default)]
    weight_decay: f64,
    /// Share of the mean gradient that is kept from step to step. Default 0.9.
    #[serde(default = "beta1")]
    beta1: f64,
    /// Share of the mean squared gradient that is kept. Default 0.999.
    #[serde(default = "beta2")]
    beta2: f64,
    /// Largest norm of the gradient; a longer one is shortened to it. Default 1.
    #[serde(default = "one")]
    clip: f64,
    /// Steps between two checkpoints; the last step always makes one. Default: the steps of one epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint_every: Option<u64>,
    /// Whether each layer is computed a second time instead of being kept between forward and backward: less memory for
    /// a third more time. The result is the same. Default true.
    #[serde(default = "yes")]
    recompute: bool,
    /// Number format of the checkpoints: `f32` (default) or `bf16`.
    #[serde(default)]
    stored_as: StoredAs,
    /// Draws another order of windows when it is changed.
    #[serde(default)]
    salt: String,
    /// Share of rows, 0 to 1, that may be unusable for other reasons than their length before the stage stops: a template
    /// that refuses half of the data is a mistake, not data. Default 0.1.
    #[serde(default = "tenth")]
    max_unusable: f64,
}

fn five() -> u64 {
    5
}

fn batch() -> usize {
    128
}

fn peak() -> f64 {
    5e-5
}

fn minimum() -> f64 {
    8e-8
}

fn warm_up() -> f64 {
    0.05
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn tenth() -> f64 {
    0.1
}

impl Stage for Sft {
    const KIND: &'static str = "sft";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[
        Port::rows(&["traces"], &[queries::MESSAGES, traces::RESPONSE]),
        Port::rows(&["traces"], &[queries::MESSAGES, traces::RESPONSE])
            .named(VALIDATION, "traces that the loss of each checkpoint is measured on")
            .optional()
            .evaluation(),
    ];
    const DRAWS: bool = true;
    const MODEL_PARAMS: &'static [&'static str] = &["model"];
    const WEIGHTS: bool = true;

    fn example() -> Example {
        let row = |id: &str, prompt: &str, response: &str| {
            json!({
                "query_id": id, "trace_id": format!("{id}-0"), "domain": "math", "response": response,
                "messages": [{"role": "user", "content": prompt}], "finish_reason": "stop",
            })
        };
        let rows = vec![
            row("a", "2+2?", "\\boxed{4}"),
            row("b", "2加3？", "\\boxed{5}"),
            row("c", "Count.", &"1 ".repeat(100)),
        ];
        let params = json!({
            "model": "student", "epochs": 2, "batch": 1, "window": 64, "learning_rate": 1e-3, "checkpoint_every": 2,
        });
        Example::rows(params, "rows", &traces::TABLE, rows).gives(2, &["too_long"])
    }

    fn validate(&self) -> Result<(), ParamError> {
        let fail = |name: &str, message: &str| Err(ParamError::new(name, format!("`{name}` {message}")));
        if self.epochs == 0 || self.batch == 0 {
            return fail(if self.epochs == 0 { "epochs" } else { "batch" }, "must be at least 1");
        }
        if self.window == Some(0) || self.checkpoint_every == Some(0) {
            return fail(if self.window == Some(0) { "window" } else { "checkpoint_every" }, "must be at least 1");
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return fail("learning_rate", "must be a number above 0");
        }
        if !(0.0..=self.learning_rate).contains(&self.min_learning_rate) {
            return fail("min_learning_rate", "must lie between 0 and `learning_rate`");
        }
        if !(0.0..=1.0).contains(&self.warm_up) {
            return fail("warm_up", "must lie between 0 and 1");
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            return fail("weight_decay", "must be a number from 0");
        }
        for (name, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return fail(name, "must lie between 0 and 1, without 1");
            }
        }
        if !(self.clip > 0.0 && self.clip.is_finite()) {
            return fail("clip", "must be a number above 0");
        }
        if !(0.0..=1.0).contains(&self.max_unusable) {
            return fail("max_unusable", "must lie between 0 and 1");
        }
        Ok(())
    }

    fn outputs(&self, _inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let names = metrics::TABLE.columns().map(|column| column.name);
        Ok(vec![artifact::output(), Output::named(METRICS, TableType::of(&metrics::TABLE, names))])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![Step::gather("train")]
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let phase = Phase::prepare(self, task)?;
        match phase {
            Some(phase) => phase.run(task),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
