//! Probing: how well each checkpoint solves the problems of a probe set, by Pass@K (report section 2.2.2).
//!
//! Each checkpoint answers each query `n` times, the verifier of the query's domain judges the answers, and Pass@K is
//! estimated from the counts without bias. All checkpoints draw with the same seeds, so differences between them are not
//! those of luck alone.

mod figures;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field};
use pipeline_core::checkpoints::{Checkpoint, of_port};
use pipeline_core::rows::{self, text_at};
use pipeline_core::{
    Env, Example, External, Output, ParamError, Port, Ports, Rejection, Stage, StageError, Step, TableType, Task,
};
use pipeline_models::{ModelSet, Recorded};
use schemars::JsonSchema;
use schemas::{checkpoints, metrics, queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stage_verify::Verdict;

use self::figures::{Figure, Solved, figures};
use crate::calls::{self, FirstPass, Used};
use crate::judging::{self, Looking};
use crate::sample::Sample;
use crate::sample::request::Asking;
use crate::sample::traces::Chunk;
use crate::verify::Verify;
use crate::verify::row::Outcome;
use crate::verify::telling::columns;
use crate::verify::tools::Tools;

/// Port of the checkpoints.
const CHECKPOINTS: &str = "checkpoints";
/// The output with the answers.
const TRACES: &str = "traces";
/// Column of an answer's checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// Answers that are in memory together.
const ANSWERS: usize = 256;

/// Measures Pass@1 and Pass@K of each checkpoint on each domain of a probe set.
///
/// Each checkpoint answers every query `n` times; a query with c correct answers of n has the unbiased estimate
/// 1 - C(n-c, k) / C(n, k). A figure is the mean over queries, with its standard error. The main output, a table of metrics, has for each
/// checkpoint and each domain and for all queries together (`domain` null): `pass@1`, `pass@K`, `distinct_correct` (how
/// many different ways of solving a query are among its correct answers, see below), `mean_tokens` and `truncated` (share
/// of answers that hit `max_tokens`). The output `traces` has all answers with their verdicts.
///
/// Two correct answers to a query count as the same way where their texts, numbers hidden, share at least half of their
/// 3-word shingles, directly or through others.
///
/// A query that no verifier can judge (no label, no tests, chat) falls out with the reason `not_judgeable`. Answers are kept in
/// the call store, so probing again with more samples asks for the new ones alone.
///
/// ```toml
/// [stages.report]
/// kind = "probe"
/// inputs = { rows = "probe_set", checkpoints = "phase1" }
/// n = 16
/// k = 8
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Answers of each checkpoint to each query, at least `k`. Default 16.
    #[serde(default = "sixteen")]
    n: u32,
    /// K of Pass@K. Default 8.
    #[serde(default = "eight")]
    k: u32,
    /// Whether figures are grouped by `domain` (default) or by `subdomain`, written `math/algebra`.
    #[serde(default)]
    by: By,
    /// Sampling temperature. Default 1.
    #[serde(default = "full")]
    temperature: f64,
    /// Share of the probability mass to sample from, above 0 and at most 1. Default 0.95.
    #[serde(default = "nucleus")]
    top_p: f64,
    /// Most tokens of an answer. Default 4096.
    #[serde(default = "max_tokens")]
    max_tokens: u32,
    /// Draws other answers when it is changed.
    #[serde(default)]
    salt: String,
    /// What is asked instead of the query's last user message: a Jinja template, see `sample`.
    #[serde(default)]
    template: Option<String>,
    /// `strict` (default): only a marked final answer counts. `lenient`: without a mark, the last formula or number.
    #[serde(default)]
    extraction: Looking,
}

/// What figures are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Domain.
    #[default]
    Domain,
    /// Domain and subdomain.
    Subdomain,
}

fn sixteen() -> u32 {
    16
}

fn eight() -> u32 {
    8
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

impl Stage for Probe {
    const KIND: &'static str = "probe";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[
        Port::rows(&["queries"], &[queries::QUERY_ID, queries::MESSAGES])
            .named("rows", "the probe set: queries that no checkpoint was trained on")
            .evaluation(),
        Port::rows(&["checkpoints"], &[]).named(CHECKPOINTS, "the checkpoints to measure").many(),
    ];
    const DRAWS: bool = true;

    fn example() -> Example {
        let row = |id: &str, prompt: &str, label: Value| {
            json!({
                "query_id": id, "domain": "math", "prompt": prompt, "label": label,
                "messages": [{"role": "user", "content": prompt}],
            })
        };
        let rows = vec![row("a", "What is 2 + 2?", json!("4")), row("b", "Say something.", Value::Null)];
        let checkpoint = json!({ "checkpoint": "step-10", "step": 10, "digest": "sha256:0" });
        Example::rows(json!({ "n": 2, "k": 2, "max_tokens": 64 }), "rows", &queries::TABLE, rows)
            .with(CHECKPOINTS, &checkpoints::TABLE, vec![checkpoint])
            .gives(10, &["not_judgeable"])
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.k == 0 || self.n < self.k {
            return Err(ParamError::new("n", "`n` must be at least `k`, and `k` at least 1"));
        }
        self.parts().map(|_| ())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        judging::ensure_domain(inputs.expect("rows")?)?;
        let (sample, _) = self.parts()?;
        let answers = sample.outputs(inputs)?.remove(0).rows;
        let answers = answers.fill([traces::VERDICT, traces::VERDICT_REASON, traces::VERIFIER, traces::ANSWER]);
        let answers = answers.with_column(&Field::new(CHECKPOINT, DataType::Utf8View, true))?.fill([CHECKPOINT]);
        let names = metrics::TABLE.columns().map(|column| column.name);
        Ok(vec![Output::counted(TableType::of(&metrics::TABLE, names)), Output::named(TRACES, answers)])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![Step::gather("probe")]
    }

    fn externals(&self, env: &Env, inputs: &Ports) -> Result<Vec<External>, StageError> {
        let (_, verify) = self.parts()?;
        verify.externals(env, inputs)
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let (sample, verify) = self.parts()?;
        let found = of_port(task, CHECKPOINTS)?;
        let models = task.env().services.get::<ModelSet>();
        let models = models.ok_or_else(|| StageError::Internal("no models are registered".to_owned()))?;
        let (used, queries) = (Used::default(), Vec::new());
        let mut probing = Probing { probe: self, sample: &sample, verify: &verify, used, queries };
        for checkpoint in &found {
            let model = models.in_folder(&checkpoint.folder, &checkpoint.digest);
            let model = model.map_err(|error| calls::model_error(&error))?;
            probing.measure(task, &checkpoint.subject, &Asking::new(&sample, task, model)?)?;
        }
        probing.used.count(task);
        probing.finish(task, &found)
    }
}

impl Probe {
    /// How answers are asked for and judged.
    fn parts(&self) -> Result<(Sample, Verify), ParamError> {
        let mut asking = json!({
            "model": CHECKPOINTS, "n": self.n, "temperature": self.temperature, "top_p": self.top_p,
            "max_tokens": self.max_tokens, "salt": self.salt,
        });
        if let Some(template) = &self.template {
            asking["template"] = template.as_str().into();
        }
        let wrong = |error: serde_json::Error| ParamError::new("", error.to_string());
        let sample: Sample = serde_json::from_value(asking).map_err(wrong)?;
        sample.validate()?;
        Ok((sample, serde_json::from_value(json!({ "extraction": self.extraction })).map_err(wrong)?))
    }
}

/// A query of the probe set and how each checkpoint fared with it.
#[derive(Debug, Default)]
struct Query {
    group: String,
    /// Whether its label, tests or constraints were found to be at fault, or no verifier applies.
    is_faulty: bool,
    /// One for each checkpoint so far.
    solved: Vec<Solved>,
}

struct Probing<'a> {
    probe: &'a Probe,
    sample: &'a Sample,
    verify: &'a Verify,
    used: Used,
    /// In the order of the port.
    queries: Vec<Query>,
}

impl Probing<'_> {
    /// Lets a checkpoint answer all queries and judges what it says.
    fn measure(&mut self, task: &mut Task<'_>, subject: &str, asking: &Asking<'_>) -> Result<(), StageError> {
        let at_once = (ANSWERS / self.probe.n as usize).max(1);
        FirstPass::over(task, task.port_batches("rows", None)?).rows_at_once(at_once).run(
            |rows| asking.requests(rows),
            |requests, progress, cancel| asking.model.ensure(requests, progress, cancel),
        )?;
        let tools = Tools::new(self.verify, task)?;
        let mut first_query = 0;
        for batch in task.port_batches("rows", None)? {
            let batch = batch?;
            for first in (0..batch.num_rows()).step_by(at_once) {
                let piece = batch.slice(first, at_once.min(batch.num_rows() - first));
                self.see(&piece, first_query)?;
                self.judge(task, subject, asking, &tools, &piece, first_query)?;
                first_query += piece.num_rows();
            }
        }
        if self.queries.iter().all(|query| query.is_faulty) {
            let message = "no query of the probe set can be judged: look at their labels, tests and domains".to_owned();
            return Err(StageError::Alarm(message));
        }
        Ok(())
    }

    /// Opens a count for each query of some rows.
    fn see(&mut self, piece: &RecordBatch, first_query: usize) -> Result<(), StageError> {
        let (domains, subdomains) = (rows::texts(piece, queries::DOMAIN)?, rows::texts(piece, queries::SUBDOMAIN)?);
        for row in 0..piece.num_rows() {
            if self.queries.len() == first_query + row {
                let domain = text_at(domains, row).unwrap_or_default();
                let group = match text_at(subdomains, row).filter(|_| self.probe.by == By::Subdomain) {
                    Some(subdomain) => format!("{domain}/{subdomain}"),
                    None => domain.to_owned(),
                };
                self.queries.push(Query { group, ..Query::default() });
            }
            self.queries[first_query + row].solved.push(Solved::new(self.probe.n));
        }
        Ok(())
    }

    /// Judges the answers to the queries of some rows, counts them and writes them.
    fn judge(
        &mut self,
        task: &mut Task<'_>,
        subject: &str,
        asking: &Asking<'_>,
        tools: &Tools<'_>,
        piece: &RecordBatch,
        first_query: usize,
    ) -> Result<(), StageError> {
        let mut chunk = Chunk::new(piece);
        let mut of_query = Vec::new();
        for (sample, told) in asking.told(piece, &mut self.used)?.into_iter().enumerate() {
            let row = sample / self.probe.n as usize;
            match told.recorded {
                Recorded::Answer(answer) => {
                    of_query.push(first_query + row);
                    chunk.push(row, asking, told.request, answer);
                }
                // a query that a checkpoint cannot answer is one that it has not solved
                Recorded::RowError { .. } => task.count("refused_answers", 1),
                Recorded::Missing => {
                    let message = format!("checkpoint `{subject}` has not answered every query; run again");
                    return Err(StageError::Transient { message });
                }
            }
        }
        let output = task.outputs().iter().find(|output| output.name == TRACES);
        let output = output.ok_or_else(|| StageError::Internal("the output of traces is not declared".to_owned()))?;
        let answers = chunk.take(self.sample, &output.rows.schema)?;
        let outcomes = tools.judge(&answers, task.cancel())?.first;
        self.count(&answers, &outcomes, &of_query)?;
        let mut added = columns(&outcomes).to_vec();
        added.push((queries::TESTS, new_null_array(&DataType::Utf8View, answers.num_rows())));
        added.push((CHECKPOINT, Arc::new(StringViewArray::from(vec![subject; answers.num_rows()]))));
        task.write_to(TRACES, &rows::with_columns(&answers, &output.rows.schema, &added)?)
    }

    fn count(&mut self, answers: &RecordBatch, outcomes: &[Outcome], of_query: &[usize]) -> Result<(), StageError> {
        let texts = [rows::texts(answers, traces::ANSWER_TEXT)?, rows::texts(answers, traces::RESPONSE)?];
        let tokens = rows::integers(answers, traces::COMPLETION_TOKENS)?;
        let reasons = rows::texts(answers, traces::FINISH_REASON)?;
        for (row, outcome) in outcomes.iter().enumerate() {
            let query = &mut self.queries[of_query[row]];
            let verdict = match outcome {
                Outcome::Found(found) => found.judgement.verdict,
                Outcome::None => Verdict::LabelUnparsable,
                Outcome::Failed(message) => {
                    return Err(StageError::Transient { message: format!("an answer has no verdict: {message}") });
                }
            };
            query.is_faulty |= verdict == Verdict::LabelUnparsable;
            let text = texts.iter().find_map(|texts| text_at(texts, row)).unwrap_or_default();
            let Some(solved) = query.solved.last_mut() else { continue };
            solved.add(verdict == Verdict::Correct, text, tokens.is_valid(row).then(|| tokens.value(row)));
            solved.truncated += u32::from(text_at(reasons, row) == Some("length"));
        }
        Ok(())
    }

    /// Writes the figures of all checkpoints, and the queries that could not be judged as rejects.
    fn finish(self, task: &mut Task<'_>, found: &[Checkpoint]) -> Result<(), StageError> {
        let mut first_query = 0;
        for batch in task.port_batches("rows", None)? {
            let batch = batch?;
            let is_faulty = |row: &usize| self.queries[first_query + row].is_faulty;
            let faulty: Vec<u64> = (0..batch.num_rows()).filter(is_faulty).map(|row| row as u64).collect();
            let rejections = vec![Rejection::new("not_judgeable", None); faulty.len()];
            task.reject(&arrow::compute::take_record_batch(&batch, &UInt64Array::from(faulty))?, &rejections)?;
            task.read(batch.num_rows() as u64);
            task.kept((batch.num_rows() - rejections.len()) as u64);
            first_query += batch.num_rows();
        }
        let mut rows = Vec::new();
        for (index, checkpoint) in found.iter().enumerate() {
            let judged = self.queries.iter().filter(|query| !query.is_faulty);
            let solved: Vec<(&str, &Solved)> =
                judged.filter_map(|query| Some((query.group.as_str(), query.solved.get(index)?))).collect();
            rows.extend(figures(&solved, self.probe.k).into_iter().map(|figure| (checkpoint, figure)));
        }
        task.note("checkpoints", summary(&rows));
        task.write(&table(task, &rows)?)
    }
}

/// Pass@1 and Pass@K over all queries, for people.
fn summary(rows: &[(&Checkpoint, Figure)]) -> Value {
    let mut by_checkpoint: BTreeMap<&str, Value> = BTreeMap::new();
    for (checkpoint, figure) in rows.iter().filter(|(_, figure)| figure.group.is_none()) {
        let entry = by_checkpoint.entry(checkpoint.subject.as_str()).or_insert_with(|| json!({}));
        entry[&figure.metric] = match figure.interval() {
            Some((low, high)) => json!({ "value": figure.value, "interval95": [low, high] }),
            None => json!({ "value": figure.value }),
        };
    }
    json!(by_checkpoint)
}

fn table(task: &Task<'_>, figures: &[(&Checkpoint, Figure)]) -> Result<RecordBatch, StageError> {
    let texts = |value: fn(&(&Checkpoint, Figure)) -> Option<String>| -> ArrayRef {
        Arc::new(figures.iter().map(value).collect::<StringViewArray>())
    };
    let columns: Vec<ArrayRef> = vec![
        texts(|(checkpoint, _)| Some(checkpoint.subject.clone())),
        Arc::new(figures.iter().map(|(checkpoint, _)| Some(checkpoint.step)).collect::<Int64Array>()),
        texts(|(_, figure)| figure.group.clone()),
        texts(|(_, figure)| Some(figure.metric.clone())),
        Arc::new(figures.iter().map(|(_, figure)| figure.value).collect::<Float64Array>()),
        Arc::new(figures.iter().map(|(_, figure)| figure.std_err).collect::<Float64Array>()),
        Arc::new(figures.iter().map(|(_, figure)| i64::try_from(figure.n).ok()).collect::<Int64Array>()),
    ];
    Ok(RecordBatch::try_new(task.schema()?, columns)?)
}

#[cfg(test)]
mod tests;
