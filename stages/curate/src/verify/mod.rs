//! Judges each trace against its label, by the verifier of its domain.
//!
//! Every row is annotated: verdict, reason, verifier and version, and the answer that was found. Failures of other
//! sorts than a wrong answer (no answer, an unreadable label, no verifier) have verdicts of their own, since only
//! `correct` is ever accepted. Report section 2.2.1 (trace correctness, layer c of the quality control).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringViewArray};
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{
    Env, Example, External, Judgement as Kept, Output, ParamError, Port, Ports, Stage, StageError, Step, Task, rows,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stage_verify::{Extraction, Judgement, Verdict};

use crate::judging::{self, Judged, Looking, VerifierName};

/// Judges each trace against its label and fills `verdict`, `verdict_reason`, `verifier` and `answer`.
///
/// The verifier follows from `domain`: `math` compares mathematics exactly, `stem` (and any question with options)
/// compares the chosen option. `code` and `instruct` get the verdict `undecided`, reason `no_verifier`; `chat` gets
/// none. Judged is the answer part (`answer_text`, else `response`): what was only thought never counts, and a trace
/// that hit its token cap is never correct (`no_answer`, reason `truncated`). A row without a label is
/// `label_unparsable`, reason `no_label`: the label is at fault, not the trace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// `strict` (default): only a marked final answer counts (a box, "the answer is", an option's letter). `lenient`:
    /// without a mark, the last formula, number or letter counts.
    #[serde(default)]
    extraction: Looking,
    /// Verifier for all rows, whatever their domain: `math` or `stem`. By default the domain decides.
    #[serde(default)]
    verifier: Option<VerifierName>,
    /// Verdicts whose rows stay; the others fall out with the reason `verdict_...`. `none` stands for rows without a
    /// verdict (chat). By default every row stays.
    #[serde(default)]
    keep: Vec<KeptVerdict>,
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

/// What is stored for one row.
struct Found {
    judgement: Judgement,
    verifier: Option<&'static str>,
}

impl Stage for Verify {
    const KIND: &'static str = "verify";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["traces"], &[])];

    fn example() -> Example {
        let trace = |id: &str, label: &str, answer: &str| json!({ "query_id": "q", "trace_id": id, "domain": "math", "label": label, "answer_text": answer, "finish_reason": "stop" });
        let mut cut = trace("cut", "18", "So she pays \\boxed{18}");
        cut["finish_reason"] = json!("length");
        let rows = vec![
            trace("right", "18", "So she pays \\boxed{\\$18}."),
            trace("wrong", "18", "The answer is 17."),
            trace("unmarked", "18", "Perhaps 18"),
            cut,
            trace("fraction", "\\frac{1}{2}", "So the share is \\boxed{0.5}."),
        ];
        let rejected = ["verdict_incorrect", "verdict_no_answer", "verdict_no_answer"];
        Example::rows(json!({ "keep": ["correct"] }), "rows", &traces::TABLE, rows).gives(2, &rejected)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
        judgeable(rows, self.verifier)?;
        Ok(vec![Output::same(rows.clone().fill(FILLS))])
    }

    fn externals(&self, _env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        Ok(judging::externals())
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let schema = task.schema()?;
        for batch in task.batches()? {
            let batch = batch?;
            let found = self.judge_rows(&batch)?;
            count_verdicts(task, &found);
            let batch = rows::with_columns(&batch, &schema, &columns(&found))?;
            let fates = found.iter().map(|found| self.fate(found.as_ref())).collect();
            write_judged(task, &batch, fates)?;
        }
        Ok(())
    }
}

/// Refuses rows that can never be judged, before anything runs.
///
/// # Errors
/// When no stage fills a text to judge, or neither a domain nor `verifier` says how.
pub fn judgeable(rows: &pipeline_core::TableType, verifier: Option<VerifierName>) -> Result<(), ParamError> {
    if ![traces::ANSWER_TEXT, traces::RESPONSE].iter().any(|name| rows.filled.contains(*name)) {
        return Err(ParamError::new(
            "inputs",
            "no stage before fills `answer_text` or `response`, so there is nothing to judge",
        ));
    }
    if verifier.is_none() && !rows.filled.contains(queries::DOMAIN) {
        let error = ParamError::new("inputs", "no stage before fills `domain`, which decides the verifier");
        return Err(error.hint("give `domain` to the kind `import`, or `verifier = \"math\"` here"));
    }
    Ok(())
}

impl Verify {
    fn judge_rows(&self, batch: &RecordBatch) -> Result<Vec<Option<Found>>, StageError> {
        let judged = Judged::new(batch)?;
        let rows = (0..batch.num_rows()).into_par_iter();
        Ok(rows.map(|row| self.judge_row(&judged, row)).collect())
    }

    /// The verdict of a row, `None` where none applies.
    fn judge_row(&self, judged: &Judged<'_>, row: usize) -> Option<Found> {
        let Some(judged_as) = judged.judged_as(row, self.verifier) else {
            let reason = match judged.domain(row) {
                Some("chat") => return None,
                Some(domain) => Cow::Owned(format!("no_verifier: domain `{domain}`")),
                None => Cow::Borrowed("no_verifier: the row has no domain"),
            };
            return Some(Found { judgement: Judgement::new(Verdict::Undecided, reason, ""), verifier: None });
        };
        let extraction = Extraction::from(self.extraction);
        let (options, text) = (judged.options(row), judged.text(row).unwrap_or_default());
        let judgement = if let Some(label) = judged.label(row) {
            judging::judge(judged_as, label, &options, text, judged.is_cut(row), extraction)
        } else {
            let judgement = Judgement::new(Verdict::LabelUnparsable, "no_label", "");
            let answer = judging::answer_of(judged_as, &options, text, extraction);
            Judgement { answer: answer.filter(|_| !judged.is_cut(row)), ..judgement }
        };
        Some(Found { judgement, verifier: Some(judged_as) })
    }

    fn fate(&self, found: Option<&Found>) -> Kept {
        let verdict = found.map(|found| found.judgement.verdict);
        if self.keep.is_empty() || self.keep.iter().any(|kept| kept.verdict() == verdict) {
            return Kept::Keep;
        }
        let reason = format!("verdict_{}", word(verdict));
        match found {
            Some(found) => {
                let evidence = json!({ "verdict_reason": found.judgement.reason, "answer": found.judgement.answer });
                Kept::reject_with(reason, evidence)
            }
            None => Kept::reject(reason),
        }
    }
}

fn word(verdict: Option<Verdict>) -> &'static str {
    verdict.map_or("none", Verdict::as_str)
}

fn count_verdicts(task: &mut Task<'_>, found: &[Option<Found>]) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut guessed = 0;
    for found in found {
        *counts.entry(word(found.as_ref().map(|found| found.judgement.verdict))).or_default() += 1;
        guessed += u64::from(found.as_ref().is_some_and(|found| found.judgement.weak));
    }
    for (verdict, rows) in counts {
        task.count(&format!("verdict_{verdict}"), rows);
    }
    if guessed > 0 {
        task.count("answers_without_mark", guessed);
    }
}

fn columns(found: &[Option<Found>]) -> [(&'static str, arrow::array::ArrayRef); 4] {
    let names: BTreeMap<&str, String> =
        ["math", "stem"].into_iter().map(|name| (name, judging::verifier_of(name))).collect();
    let each = || found.iter().map(Option::as_ref);
    let verdicts: StringViewArray = each().map(|found| found.map(|found| found.judgement.verdict.as_str())).collect();
    let reasons: StringViewArray = each().map(|found| found.map(|found| found.judgement.reason.as_ref())).collect();
    let verifiers: StringViewArray =
        each().map(|found| found?.verifier.and_then(|name| names.get(name)).map(String::as_str)).collect();
    let answers: StringViewArray = each().map(|found| found?.judgement.answer.as_deref()).collect();
    [
        (traces::VERDICT, Arc::new(verdicts)),
        (traces::VERDICT_REASON, Arc::new(reasons)),
        (traces::VERIFIER, Arc::new(verifiers)),
        (traces::ANSWER, Arc::new(answers)),
    ]
}

#[cfg(test)]
mod tests;
