//! Multi-path sampling: several independent traces a query, from one or more models (report section 2.1).
//!
//! Two passes over the rows of a task, see [`crate::calls`]: the first asks, the second makes traces of the answers.

mod passes;
pub(crate) mod request;
pub(crate) mod traces;

use pipeline_core::stage::Estimate;
use pipeline_core::{
    Env, Example, External, Output, ParamError, Port, Ports, Stage, StageError, Step, TableType, Task,
};
use pipeline_models::Message;
use schemars::JsonSchema;
use schemas::{queries, traces as trace};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::asking;
use crate::calls;
use crate::template::Template;
use request::Asking;

/// Asks one or several models for `n` independent answers to each query.
///
/// Answers are kept in the call store by model, messages, sampling and index of the sample: what was asked once is
/// never asked again. Each trace is complete by itself, with the query's columns beside the answer's; tests of code
/// problems are not copied. What only the teacher shall see (`system`, `shots`, `template`) goes to
/// `request_messages` and never to `messages`, which the student is trained on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Name of a model in `[models]`, or a list of names: each gives `n` answers.
    model: Names,
    /// Answers for each query and model, from 1.
    #[serde(default = "one")]
    n: u32,
    /// Sampling temperature, 0 = greedy.
    #[serde(default = "full")]
    temperature: f64,
    /// Share of the probability mass to sample from, above 0 and at most 1.
    #[serde(default = "nucleus")]
    top_p: f64,
    /// Number of most likely tokens to sample from, 0 = all.
    #[serde(default)]
    top_k: u32,
    /// Least probability relative to the most likely token, 0 = no limit.
    #[serde(default)]
    min_p: f64,
    /// Most tokens of an answer.
    #[serde(default = "max_tokens")]
    max_tokens: u32,
    /// Texts that end an answer.
    #[serde(default)]
    stop: Vec<String>,
    /// Whether to ask for log-probabilities of the answer's tokens: `true`, `false`, or `if_given`. With `true` the stage
    /// ends when a server gives none, which some do silently; with `if_given` the columns are null then. They are null
    /// in either case where a server lists other tokens than it counts (counted as `tokens_incomplete`).
    #[serde(default)]
    logprobs: Logprobs,
    /// Draws other answers when it is changed.
    #[serde(default)]
    salt: String,
    /// System prompt for the teacher; it goes before the query's own messages.
    #[serde(default)]
    system: Option<String>,
    /// Example turns for the teacher, before the query's messages.
    #[serde(default)]
    shots: Vec<Shot>,
    /// What is asked instead of the query's last user message: a Jinja template that knows `prompt`, `options`,
    /// `domain` and `subdomain`. The label is not among them.
    #[serde(default)]
    template: Option<String>,
    /// File with such a template, relative to `dag.toml`.
    #[serde(default)]
    template_file: Option<String>,
    /// What becomes of answers that were cut at `max_tokens`: `keep`, `drop`, or `retry`, which asks once more with
    /// `retry_max_tokens` and keeps what comes. A cut one is never judged correct.
    #[serde(default)]
    truncated: Truncated,
    /// Most tokens of an answer that is asked for again; default is twice `max_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_max_tokens: Option<u32>,
}

/// Whether log-probabilities are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Logprobs {
    Wanted(bool),
    Word(IfGiven),
}

/// Log-probabilities are taken where they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum IfGiven {
    IfGiven,
}

impl Default for Logprobs {
    fn default() -> Self {
        Self::Wanted(false)
    }
}

impl Logprobs {
    fn are_asked_for(self) -> bool {
        self != Self::Wanted(false)
    }

    fn are_needed(self) -> bool {
        self == Self::Wanted(true)
    }
}

/// One name or several.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Names {
    One(String),
    Many(Vec<String>),
}

impl Names {
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

/// An example turn.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shot {
    /// `user` or `assistant`.
    role: String,
    /// Text of the turn.
    content: String,
}

/// Policy for answers that were cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Truncated {
    /// They stay, marked by `finish_reason`.
    #[default]
    Keep,
    /// They are left out; a query all of whose answers were cut is rejected.
    Drop,
    /// They are asked for once more, with a larger cap.
    Retry,
}

fn one() -> u32 {
    1
}

fn full() -> f64 {
    1.0
}

fn nucleus() -> f64 {
    0.95
}

fn max_tokens() -> u32 {
    4096
}

/// The parameter of the template, and the name that the recipe gives to its file.
const TEMPLATE: &str = "template";
/// Most samples of one query: those of a row are in memory together.
const MOST_SAMPLES: u32 = 4096;
/// Requests of several rows that are in memory together.
const REQUESTS: usize = 256;

impl Stage for Sample {
    const KIND: &'static str = "sample";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["queries"], &[queries::QUERY_ID, queries::MESSAGES])];
    const DRAWS: bool = true;
    const MODEL_PARAMS: &'static [&'static str] = &["model"];

    fn example() -> Example {
        let row = |id: &str, prompt: &str| {
            json!({
                "query_id": id, "domain": "math", "prompt": prompt, "label": "4",
                "messages": [{"role": "user", "content": prompt}],
            })
        };
        let rows = vec![row("a", "What is 2 + 2?"), row("b", "2 加 2 等于多少？")];
        Example::rows(json!({"model": "teacher", "n": 2, "max_tokens": 64}), "rows", &queries::TABLE, rows)
            .gives(4, &[])
    }

    fn validate(&self) -> Result<(), ParamError> {
        let fail = |path: &str, message: &str| Err(ParamError::new(path, message));
        if self.model.all().is_empty() {
            return fail("model", "`model` names no model");
        }
        if self.n == 0 || self.max_tokens == 0 {
            return fail("n", "`n` and `max_tokens` must be at least 1");
        }
        if self.n > MOST_SAMPLES {
            return fail("n", "`n` must be at most 4096; more of one query is another stage with another `salt`");
        }
        if self.retry_max_tokens.is_some() && self.truncated != Truncated::Retry {
            return fail("retry_max_tokens", "`retry_max_tokens` needs `truncated = \"retry\"`");
        }
        if self.truncated == Truncated::Retry && self.retry_cap() <= self.max_tokens {
            return fail("retry_max_tokens", "`retry_max_tokens` must be larger than `max_tokens`");
        }
        if self.stop.iter().any(String::is_empty) {
            return fail("stop", "`stop` must not hold an empty text: it would end every answer at once");
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return fail("temperature", "`temperature` must be a number from 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fail("top_p", "`top_p` must be above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return fail("min_p", "`min_p` must lie between 0 and 1");
        }
        if self.template.is_some() && self.template_file.is_some() {
            return fail("template_file", "give `template` or `template_file`, not both");
        }
        if let Some(shot) = self.shots.iter().find(|shot| !matches!(shot.role.as_str(), "user" | "assistant")) {
            let message = format!("the role of a shot is `user` or `assistant`, found `{}`", shot.role);
            return Err(ParamError::new("shots", message));
        }
        if let Some(template) = &self.template {
            Template::new(template, TEMPLATE)?;
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let given = inputs.expect("rows")?;
        if let Some(template) = &self.template {
            asking::ensure_columns(&Template::new(template, TEMPLATE)?, given, &[])?;
        }
        let filled = &given.filled;
        let filled: Vec<&str> = filled.iter().map(String::as_str).filter(|name| *name != queries::TESTS).collect();
        let mut rows = TableType::of(&trace::TABLE, filled).fill([
            trace::TRACE_ID,
            trace::MODEL,
            trace::SAMPLE,
            trace::REQUEST_MESSAGES,
            trace::REASONING,
            trace::ANSWER_TEXT,
            trace::RESPONSE,
            trace::FINISH_REASON,
            trace::PROMPT_TOKENS,
            trace::COMPLETION_TOKENS,
            trace::TEMPERATURE,
            trace::TOP_P,
            trace::TOP_K,
            trace::MIN_P,
            trace::MAX_TOKENS,
            trace::SEED,
        ]);
        if self.logprobs.are_asked_for() {
            rows = rows.fill([trace::TOKEN_IDS, trace::TOKEN_LOGPROBS]);
        }
        for field in inputs.expect("rows")?.schema.fields() {
            if rows.schema.field_with_name(field.name()).is_err() {
                rows = rows.with_column(field)?;
            }
        }
        Ok(vec![Output::counted(rows)])
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        let Some(file) = &self.template_file else { return Ok(Vec::new()) };
        let digest = env.digest_of(&env.path(file))?.to_string();
        Ok(vec![External { name: TEMPLATE.to_owned(), digest, sliced: false }])
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        let calls = rows * u64::from(self.n) * self.model.all().len() as u64;
        let retries = if self.truncated == Truncated::Retry { calls } else { 0 };
        let max_tokens = calls * u64::from(self.max_tokens) + retries * u64::from(self.retry_cap());
        Some(Estimate { calls, most_calls: calls + retries, max_tokens, rows: Some(calls) })
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let names = self.model.all().iter();
        let all: Vec<Asking<'_>> =
            names.map(|name| Asking::new(self, task, calls::model(task, name)?)).collect::<Result<_, _>>()?;
        if self.logprobs.are_needed() {
            self.ensure_log_probabilities_come(task, &all)?;
        }
        self.ask(task, &all, Asking::requests)?;
        if self.truncated == Truncated::Retry {
            self.ask(task, &all, Asking::retries)?;
        }
        self.collect(task, &all)
    }
}

impl Sample {
    /// Cap of an answer that is asked for again.
    fn retry_cap(&self) -> u32 {
        self.retry_max_tokens.unwrap_or_else(|| self.max_tokens.saturating_mul(2))
    }

    fn rows_at_once(&self) -> usize {
        (REQUESTS / (self.n as usize).max(1)).max(1)
    }

    /// What the teacher sees before the query's own messages.
    fn preamble(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text.as_str()));
        let shots = self.shots.iter().map(|shot| Message::new(shot.role.as_str(), shot.content.as_str()));
        system.chain(shots).collect()
    }
}

#[cfg(test)]
mod tests;
