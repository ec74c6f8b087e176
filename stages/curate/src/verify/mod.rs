//! Judges each trace by the verifier of its domain, and by a judge model what rules cannot settle.
//!
//! Every row is annotated: verdict, reason, verifier and version, and the answer that was found. Failures of other
//! sorts than a wrong answer (no answer, an unreadable label, no verifier) have verdicts of their own, since only
//! `correct` is ever accepted; a failure of the machinery is no verdict at all. Report section 2.2.1 (trace
//! correctness, layer c of the quality control).

mod agreement;
mod panel;
mod programs;
pub(crate) mod row;
pub(crate) mod shelf;
pub(crate) mod telling;
pub(crate) mod tools;

use std::collections::BTreeMap;

use arrow::array::BooleanArray;
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{
    Env, Estimate, Event, Example, External, Judgement as Kept, Output, ParamError, Port, Ports, Stage, StageError,
    Step, TableType, Task, rows,
};
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stage_verify::Verdict;

use self::agreement::Second;
use self::row::{Order, Outcome};
use self::shelf::QUERIES;
use self::telling::{Faults, columns, count_verdicts, word};
use self::tools::Tools;
use crate::calls;
use crate::judging::{self, Looking};

pub use self::programs::Programs;

/// Judges each trace against its label and fills `verdict`, `verdict_reason`, `verifier` and `answer`.
///
/// The verifier follows from `domain`: `math` compares mathematics exactly, `stem` (and any question with options)
/// compares the chosen option or a number with its unit, `code` runs the program of the trace against the tests of its
/// query in a sandbox, `instruct` checks the constraints of its query. `chat` has no verdict; any other domain needs
/// `verifiers` or a judge. Judged is the answer part (`answer_text`, else `response`): what was only thought never
/// counts, and a trace that hit its token cap is never correct (`no_answer`, reason `truncated`). A row without label,
/// tests or constraints is `label_unparsable` (`no_label`, `no_tests`, `no_constraints`): the query is at fault, not
/// the trace. For code the reason begins with what happened: `wrong_answer`, `runtime_error`, `time_limit`,
/// `memory_limit`, `output_limit` or `compile_error`. Where the sandbox itself fails there is no verdict: the row waits
/// for the next run.
///
/// ```toml
/// [stages.verified]
/// kind = "verify"
/// inputs = { rows = "paths", queries = "seeds" }   # tests of code problems are looked up in `seeds`
/// keep = ["correct"]
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// `strict` (default): only a marked final answer counts (a box, "the answer is", an option's letter, a fenced
    /// program). `lenient`: without a mark, the last formula, number or letter, or the whole text as program, counts.
    #[serde(default)]
    extraction: Looking,
    /// Verifier for all rows, whatever their domain: `math`, `stem`, `code` or `instruct`, or several that are tried in
    /// turn until one decides. By default the domain decides.
    #[serde(default)]
    verifier: Option<Order>,
    /// Verifiers by domain, for domains of your own or another order: `{ physics = "stem", math = ["math", "stem"] }`.
    #[serde(default)]
    verifiers: BTreeMap<String, Order>,
    /// How constraints are scored: `strict` (default), or `loose`, where a constraint holds if it holds for one of eight
    /// views of the response (without first line, last line, both; with and without asterisks).
    #[serde(default)]
    scoring: tools::Scoring,
    /// Largest difference of an open numeric answer of domain `stem` from the label, as a share of the label, 0 to 0.5. By
    /// default 0.01 where the label has decimals or a unit, and none for a bare whole number.
    #[serde(default)]
    tolerance: Option<f64>,
    /// Languages of programs beside Python and C++, or other commands for those: see `Toolchain`.
    #[serde(default)]
    toolchains: BTreeMap<String, programs::Commands>,
    /// Name of a model in `[models]` that is asked about answers which no rule could settle (`undecided`).
    #[serde(default)]
    judge: Option<String>,
    /// What the judge is asked: a Jinja template that knows `prompt`, `options`, `domain`, `label`, `answer` and
    /// `response`. Its answer must end with `VERDICT: CORRECT`, `VERDICT: INCORRECT` or `VERDICT: UNSURE`.
    #[serde(default)]
    judge_template: Option<String>,
    /// File with such a template, relative to `dag.toml`.
    #[serde(default)]
    judge_template_file: Option<String>,
    /// Votes of the judge for each row, 1 to 64; most votes win, a tie stays undecided. Default 1.
    #[serde(default = "one")]
    judge_votes: u32,
    /// Temperature of the judge, 0 (default) = greedy.
    #[serde(default)]
    judge_temperature: f64,
    /// Most tokens of an answer of the judge; a cut answer counts for nothing. Default 1024.
    #[serde(default = "judge_tokens")]
    judge_max_tokens: u32,
    /// A second opinion to hold the verdicts against: another verifier, `judge` (asked about every answer), or verdicts
    /// that came with the data: a column, or `extra.NAME` for a column of your files (true/false, 1/0 or a verdict's
    /// word). Adds the columns `second_verdict`, `second_reason` and `agrees`, and the output `disagreements`.
    #[serde(default)]
    second: Option<String>,
    /// Verdicts whose rows stay; the others fall out with the reason `verdict_...`. `none` stands for rows without a
    /// verdict (chat). By default every row stays.
    #[serde(default)]
    keep: Vec<KeptVerdict>,
}

fn one() -> u32 {
    1
}

fn judge_tokens() -> u32 {
    1024
}

/// A verdict that `keep` may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptVerdict {
    /// The answer equals the label.
    Correct,
    /// The answer differs from the label.
    Incorrect,
    /// Neither was shown.
    Undecided,
    /// The trace states no final answer.
    NoAnswer,
    /// The label is at fault.
    LabelUnparsable,
    /// No verdict applies.
    None,
}

impl KeptVerdict {
    fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Correct => Some(Verdict::Correct),
            Self::Incorrect => Some(Verdict::Incorrect),
            Self::Undecided => Some(Verdict::Undecided),
            Self::NoAnswer => Some(Verdict::NoAnswer),
            Self::LabelUnparsable => Some(Verdict::LabelUnparsable),
            Self::None => None,
        }
    }
}

const FILLS: [&str; 4] = [traces::VERDICT, traces::VERDICT_REASON, traces::VERIFIER, traces::ANSWER];

impl Stage for Verify {
    const KIND: &'static str = "verify";
    const VERSION: u32 = 2;
    const PORTS: &'static [Port] = &[
        Port::rows(&["traces"], &[]),
        Port::rows(&["queries", "traces"], &[queries::QUERY_ID, queries::TESTS])
            .named(QUERIES, "the queries whose tests traces of code problems are run against")
            .optional(),
    ];
    const MODEL_PARAMS: &'static [&'static str] = &["judge"];

    fn example() -> Example {
        let trace = |id: &str, label: &str, answer: &str| json!({ "query_id": "q", "trace_id": id, "domain": "math", "label": label, "answer_text": answer, "finish_reason": "stop" });
        let mut cut = trace("cut", "18", "So she pays \\boxed{18}");
        cut["finish_reason"] = json!("length");
        let mut shouted = trace("shouted", "", "all small, as it was asked.");
        shouted["domain"] = json!("instruct");
        shouted["constraints"] = json!([{ "id": "punctuation:no_comma", "kwargs": "{}" }]);
        let rows = vec![
            trace("right", "18", "So she pays \\boxed{\\$18}."),
            trace("wrong", "18", "The answer is 17."),
            trace("unmarked", "18", "Perhaps 18"),
            cut,
            trace("fraction", "\\frac{1}{2}", "So the share is \\boxed{0.5}."),
            shouted,
        ];
        let rejected = ["verdict_incorrect", "verdict_no_answer", "verdict_no_answer", "verdict_incorrect"];
        Example::rows(json!({ "keep": ["correct"] }), "rows", &traces::TABLE, rows).gives(2, &rejected)
    }

    fn validate(&self) -> Result<(), ParamError> {
        let orders = self.verifiers.iter().map(|(domain, order)| (format!("verifiers.{domain}"), order));
        for (place, order) in orders.chain(self.verifier.iter().map(|order| ("verifier".to_owned(), order))) {
            if order.all().is_empty() {
                return Err(ParamError::new(place, "the list of verifiers is empty"));
            }
        }
        if self.tolerance.is_some_and(|tolerance| !(0.0..=0.5).contains(&tolerance)) {
            return Err(ParamError::new("tolerance", "`tolerance` must lie between 0 and 0.5"));
        }
        if self.second() == Some(Second::Judge) && self.judge.is_none() {
            return Err(ParamError::new("second", "there is no judge to ask; add `judge = \"...\"`"));
        }
        programs::validate(&self.toolchains)?;
        panel::validate(self)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
        judging::ensure_text(rows)?;
        if self.verifier.is_none() {
            judging::ensure_domain(rows)?;
        }
        let only_code = self.verifier.as_ref().is_some_and(|order| order.all() == [row::Checker::Code]);
        if only_code && !may_run_code(inputs) {
            return Err(ParamError::new("inputs", "no stage before fills `tests`, so there is nothing to run")
                .hint("give the queries with their tests: `inputs = { rows = \"...\", queries = \"...\" }`"));
        }
        let filled = rows.clone().fill(FILLS);
        match self.second() {
            Some(second) => {
                second.ensure(rows)?;
                agreement::outputs(filled)
            }
            None => Ok(vec![Output::same(filled)]),
        }
    }

    fn externals(&self, env: &Env, inputs: &Ports) -> Result<Vec<External>, StageError> {
        let mut externals = judging::externals(&["math", "stem"]);
        let has = |column: &str| inputs.first("rows").is_some_and(|rows| rows.filled.contains(column));
        if has(queries::CONSTRAINTS) {
            externals.extend(judging::externals(&["instruct"]));
        }
        if may_run_code(inputs) {
            externals.extend(judging::externals(&["code"]));
            externals.extend(programs::externals(env, &self.toolchains)?);
        }
        if self.judge.is_some() {
            externals.push(panel::external());
        }
        if let Some(file) = &self.judge_template_file {
            let digest = env.digest_of(&env.path(file))?.to_string();
            externals.push(External { name: "judge_template".to_owned(), digest, sliced: false });
        }
        Ok(externals)
    }

    fn is_deterministic(&self, inputs: &Ports) -> bool {
        // a program near its time limit may pass once and not again
        self.judge.is_none() && !may_run_code(inputs)
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        self.judge.as_ref()?;
        Some(Estimate::once(rows * u64::from(self.judge_votes), self.judge_max_tokens))
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let tools = Tools::new(self, task)?;
        if let Some(panel) = &tools.panel {
            calls::ensure(
                task,
                |batch| tools.questions(batch),
                |requests, progress, cancel| panel.model.ensure(requests, progress, cancel),
            )?;
        }
        let schema = task.schema()?;
        let (mut read, mut failed, mut faults, mut compared) = (0_u64, Vec::new(), Faults::default(), 0);
        for batch in task.batches()? {
            let batch = batch?;
            read += batch.num_rows() as u64;
            let judged = tools.judge(&batch, task.cancel())?;
            let (batch, judged) = judged.without_failures(&batch, &mut failed)?;
            faults.add(count_verdicts(task, &judged.first));
            let mut columns = columns(&judged.first).to_vec();
            if let Some(second) = &judged.second {
                columns.extend(agreement::columns(&judged.first, second));
            }
            let batch = rows::with_columns(&batch, &schema, &columns)?;
            if judged.second.is_some() {
                compared += agreement::report(task, &batch)?;
            }
            let fates = judged.first.iter().map(|outcome| self.fate(outcome)).collect();
            write_judged(task, &batch, fates)?;
        }
        if let Some(panel) = &tools.panel {
            panel.used().count(task);
        }
        tools.ensure_tests_were_there()?;
        faults.tell(task, read);
        if let (Some(second), 0, 1..) = (&self.second, compared, read) {
            let message =
                format!("none of {read} verdicts could be compared with `{second}`: no row has a verdict there");
            task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
        }
        let what = failed.first().map(|first| format!("traces have no verdict ({first})"));
        calls::leave_out(task, failed.len() as u64, read, what.as_deref().unwrap_or_default())
    }
}

impl Verify {
    fn second(&self) -> Option<Second> {
        self.second.as_deref().map(Second::read)
    }

    fn fate(&self, outcome: &Outcome) -> Kept {
        let verdict = agreement::verdict(outcome);
        if self.keep.is_empty() || self.keep.iter().any(|kept| kept.verdict() == verdict) {
            return Kept::Keep;
        }
        let reason = format!("verdict_{}", word(verdict));
        match outcome {
            Outcome::Found(found) => {
                let evidence = json!({ "verdict_reason": found.judgement.reason, "answer": found.judgement.answer });
                Kept::reject_with(reason, evidence)
            }
            Outcome::None | Outcome::Failed(_) => Kept::reject(reason),
        }
    }
}

/// Whether rows may bring programs to run: some stage before fills `tests`.
fn may_run_code(inputs: &Ports) -> bool {
    let has_tests = |rows: &TableType| rows.filled.contains(queries::TESTS);
    inputs.first("rows").is_some_and(has_tests) || inputs.first(QUERIES).is_some_and(has_tests)
}

/// The rows for which `keep` says true, and those outcomes.
fn kept<T>(items: Vec<T>, mask: &BooleanArray) -> Vec<T> {
    items.into_iter().zip(mask).filter_map(|(item, keep)| keep.unwrap_or(false).then_some(item)).collect()
}

#[cfg(test)]
mod judged;
#[cfg(test)]
mod tests;
