//! Keeps the seeds whose supervision is reliable for their domain.
//!
//! Report, data for SFT, seeds: mathematics needs an explicit final answer or a solving rationale, code needs tests, the
//! sciences an answer or options (recipe section 1.1). Everything later rests on this: a query whose label no verifier
//! can read wastes every answer that is paid for. So each piece of supervision is read here by the very code that will
//! judge traces with it, and what that code cannot read falls out with what it said.

mod supervision;
mod wording;

use std::collections::BTreeMap;

use arrow::array::{ListArray, RecordBatch, StringViewArray};
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{
    Env, Example, External, Judgement, Output, ParamError, Port, Ports, Stage, StageError, Step, Task, rows,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::json;

use supervision::{Query, Supervision};

/// Raised when the same prompt would be taken for another: a figure that it needs, a mere proof.
const WORDING: u32 = 1;

/// Keeps queries with reliable supervision for their domain.
///
/// What counts by default: math: a label that the verifier can read, or a solving rationale; code: tests that can be
/// read, at least one; stem: a label that is an option's letter or text, or, without options, an answer; instruct:
/// constraints that can all be read; chat: nothing. `require` changes it. The first of these rules that a query breaks
/// is its reject reason: `no_domain`, `other_domain`, `no_rule_for_domain`, `no_prompt`, `too_short`, `too_long`,
/// `needs_figure`, `only_proof`, and then what its supervision lacks: `no_label`, `label_unparsable`, `no_options`,
/// `no_rationale`, `no_tests`, `tests_unreadable`, `no_constraints`, `constraint_unreadable`. Two labels of one query
/// are found by `dedup` (`label_conflict`).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelectSeeds {
    /// Domains that are wanted. Default: every domain with a rule.
    #[serde(default)]
    domains: Vec<String>,
    /// For a domain, the supervision that it must have: any one of `label`, `options` (at least two, and no label that
    /// is none of them), `rationale`, `tests` and `constraints`; an empty list asks for none. A domain that is not named
    /// keeps its default, and a domain of your own gets a rule here.
    #[serde(default)]
    require: BTreeMap<String, Vec<Supervision>>,
    /// Keys of `extra` that may hold a solving rationale: text, or a list of texts.
    #[serde(default = "rationale_keys")]
    rationale: Vec<String>,
    /// Least characters of a solving rationale.
    #[serde(default = "shortest_rationale")]
    min_rationale_chars: usize,
    /// Least characters of a prompt.
    #[serde(default = "shortest")]
    min_chars: usize,
    /// Most characters of a prompt.
    #[serde(default = "longest")]
    max_chars: usize,
    /// Whether to drop prompts that point to a figure: drawing code such as `[asy]`, an image, or words such as "as
    /// shown in the figure" and 如图. The text alone is not their problem.
    #[serde(default = "yes")]
    reject_figures: bool,
    /// Whether to drop mathematics that only asks for a proof: no final answer can be compared.
    #[serde(default = "yes")]
    reject_proofs: bool,
}

fn rationale_keys() -> Vec<String> {
    ["solution", "solutions", "rationale", "explanation", "reasoning"].map(str::to_owned).to_vec()
}

fn shortest_rationale() -> usize {
    40
}

fn shortest() -> usize {
    5
}

fn longest() -> usize {
    32_000
}

fn yes() -> bool {
    true
}

/// The supervision that a domain needs unless `require` says otherwise.
fn usual(domain: &str) -> Option<&'static [Supervision]> {
    match domain {
        "math" => Some(&[Supervision::Label, Supervision::Rationale]),
        "stem" => Some(&[Supervision::Label]),
        "code" => Some(&[Supervision::Tests]),
        "instruct" => Some(&[Supervision::Constraints]),
        "chat" => Some(&[]),
        _ => None,
    }
}

impl Stage for SelectSeeds {
    const KIND: &'static str = "select_seeds";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["queries"], &[queries::DOMAIN, queries::PROMPT])];

    fn example() -> Example {
        let row = |id: &str, domain: &str, prompt: &str| json!({"query_id": id, "domain": domain, "prompt": prompt});
        let with = |mut row: serde_json::Value, column: &str, value: serde_json::Value| {
            row[column] = value;
            row
        };
        let rows = vec![
            with(row("a", "math", "How much is 3 + 4?"), "label", json!("7")),
            with(row("b", "math", "What is the area of the triangle in the figure?"), "label", json!("12")),
            with(row("c", "math", "Prove that the square root of 2 is irrational."), "label", json!("proof")),
            row("d", "math", "How much is 3 + 5?"),
            with(row("e", "code", "Add two numbers."), "tests", json!(r#"{"type": "stdin", "cases": []}"#)),
            row("f", "chat", "Tell me about the sea."),
        ];
        let rejected = ["needs_figure", "only_proof", "no_label", "tests_unreadable"];
        Example::rows(json!({}), "rows", &queries::TABLE, rows).gives(2, &rejected)
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.min_chars > self.max_chars {
            return Err(ParamError::new("min_chars", "`min_chars` is greater than `max_chars`: nothing could be kept"));
        }
        if let Some(index) = self.domains.iter().position(|domain| self.required(domain).is_none()) {
            let message = format!("`{}` is a domain without a rule", self.domains[index]);
            let error = ParamError::new(format!("domains[{index}]"), message);
            let hint = "there are math, code, stem, instruct and chat; `require` gives a rule to a domain of your own";
            return Err(error.hint(hint));
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        Ok(vec![Output::same(inputs.expect("rows")?.clone())])
    }

    fn externals(&self, _env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        let mut externals = crate::judging::externals(&["math", "stem", "code", "instruct"]);
        externals.push(External { name: "wording".to_owned(), digest: WORDING.to_string(), sliced: false });
        Ok(externals)
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        for batch in task.batches()? {
            let batch = batch?;
            let columns = Columns::new(&batch)?;
            let judge = |row| self.judge(&columns.query(row));
            let judgements = (0..batch.num_rows()).into_par_iter().with_min_len(16).map(judge).collect();
            write_judged(task, &batch, judgements)?;
        }
        Ok(())
    }
}

impl SelectSeeds {
    /// The supervision that a domain needs; `None` where nothing says.
    fn required(&self, domain: &str) -> Option<&[Supervision]> {
        self.require.get(domain).map(Vec::as_slice).or_else(|| usual(domain))
    }

    fn judge(&self, query: &Query<'_>) -> Judgement {
        let Some(domain) = query.domain else { return Judgement::reject("no_domain") };
        if !self.domains.is_empty() && !self.domains.iter().any(|wanted| wanted == domain) {
            return Judgement::reject_with("other_domain", json!({ "domain": domain }));
        }
        let Some(required) = self.required(domain) else {
            return Judgement::reject_with("no_rule_for_domain", json!({ "domain": domain }));
        };
        self.prompt_fault(query, domain).or_else(|| self.supervision_fault(query, required)).unwrap_or(Judgement::Keep)
    }

    /// What is wrong with the prompt by itself.
    fn prompt_fault(&self, query: &Query<'_>, domain: &str) -> Option<Judgement> {
        let Some(prompt) = query.prompt.filter(|prompt| !prompt.trim().is_empty()) else {
            return Some(Judgement::reject("no_prompt"));
        };
        let characters = prompt.trim().chars().count();
        if characters < self.min_chars {
            return Some(Judgement::reject_with("too_short", json!({ "chars": characters })));
        }
        if characters > self.max_chars {
            return Some(Judgement::reject_with("too_long", json!({ "chars": characters })));
        }
        if let Some(words) = Some(prompt).filter(|_| self.reject_figures).and_then(wording::figure) {
            return Some(Judgement::reject_with("needs_figure", json!({ "words": words })));
        }
        let proof = Some(prompt).filter(|_| self.reject_proofs && domain == "math").and_then(wording::only_proof);
        proof.map(|words| Judgement::reject_with("only_proof", json!({ "words": words })))
    }

    /// Why none of the accepted pieces of supervision is there; the first that is listed gives the reason.
    fn supervision_fault(&self, query: &Query<'_>, required: &[Supervision]) -> Option<Judgement> {
        let mut faults = Vec::with_capacity(required.len());
        for supervision in required {
            let fault = match supervision {
                Supervision::Label => query.label_fault(),
                Supervision::Options => query.options_fault(),
                Supervision::Rationale => query.rationale_fault(&self.rationale, self.min_rationale_chars),
                Supervision::Tests => query.tests_fault(),
                Supervision::Constraints => query.constraints_fault(),
            };
            faults.push(fault?);
        }
        let reason = faults.first()?.reason;
        let all: Vec<_> =
            faults.iter().map(|fault| json!({ "reason": fault.reason, "message": fault.message })).collect();
        Some(Judgement::reject_with(reason, json!({ "faults": all, "label": query.label })))
    }
}

/// The columns of a batch that are read, bound once.
struct Columns<'a> {
    domains: &'a StringViewArray,
    prompts: &'a StringViewArray,
    labels: &'a StringViewArray,
    options: &'a ListArray,
    tests: &'a StringViewArray,
    constraints: rows::Constraints<'a>,
    extra: &'a StringViewArray,
}

impl<'a> Columns<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self, StageError> {
        Ok(Self {
            domains: rows::texts(batch, queries::DOMAIN)?,
            prompts: rows::texts(batch, queries::PROMPT)?,
            labels: rows::texts(batch, queries::LABEL)?,
            options: rows::lists(batch, queries::OPTIONS)?,
            tests: rows::texts(batch, queries::TESTS)?,
            constraints: rows::Constraints::new(batch, queries::CONSTRAINTS)?,
            extra: rows::texts(batch, queries::EXTRA)?,
        })
    }

    fn query(&self, row: usize) -> Query<'a> {
        Query {
            domain: rows::text_at(self.domains, row),
            prompt: rows::text_at(self.prompts, row),
            label: rows::text_at(self.labels, row),
            options: rows::list_texts(self.options, row).unwrap_or_default(),
            tests: rows::text_at(self.tests, row),
            constraints: self.constraints.at(row),
            extra: rows::text_at(self.extra, row),
        }
    }
}

#[cfg(test)]
mod tests;
