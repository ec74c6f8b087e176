//! Trace correctness beyond the final answer, part of layer c of the quality control (report section 2.1): traces with
//! invalid steps, that break off, or that lean on an answer they were not to know; and the rubric for chat.
//!
//! What needs no model is decided first: a trace that hit its token cap, and one that says in so many words that it was
//! given the answer. The rest is rated by models, see [`crate::rubric`].

use arrow::array::RecordBatch;
use pipeline_core::rows::{self, text_at};
use pipeline_core::stage::Estimate;
use pipeline_core::{Env, Example, External, Output, ParamError, Port, Ports, Stage, StageError, Step, Task};
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::asking::BuiltIn;
use crate::judging;
use crate::rubric::{Bench, ColumnNames, Judges, Sorted};

/// Lets one or several models judge the steps of traces, and drops those that fail.
///
/// Without a model fall: traces that hit their token cap (`truncated`), and traces that say that they were given the answer
/// (`label_leaked`: "the reference answer", "参考答案" and the like, unless the question says so itself). Of the others each
/// judge gives a reason and rates `valid_steps`, `finished` and `no_leak` from 1 to 5; traces of domain `chat` are rated by
/// `helpfulness`, `coherence`, `adherence` and `no_redundancy` instead. With `criteria` every trace is rated by those. A
/// judge fails a trace when a criterion is below `min_score`; a trace stays when more than half of the judges pass it. One
/// that falls has the reason `fails_` with the criterion that most judges failed, and the judges' words as evidence. Filled
/// are `trace_score` (mean rating), `trace_reason`, `trace_scores` (every judge's ratings and reason, JSON text),
/// `trace_agreement` (share of the judges on the side that decided) and `trace_flaw` (null where the trace passes). This
/// kind gives no verdict on the final answer: that is `verify`. A judge must have room for the whole trace.
///
/// ```toml
/// [stages.sound]
/// kind = "judge_traces"
/// inputs = "verified"
/// model = "judge"
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct JudgeTraces(Judges);

/// Criteria of traces that reason towards an answer.
const REASONING: &BuiltIn = &[
    (
        "valid_steps",
        "every step follows from what stands before it or from known facts, calculations are right, and the conclusion \
         rests on these steps",
    ),
    ("finished", "the answer is carried through to its end: it does not break off, and it answers what was asked"),
    (
        "no_leak",
        "the conclusion is reached from the question alone: the answer never speaks of a given, expected or reference \
         answer, and never jumps to a result that its steps do not give",
    ),
];

/// Criteria of domain `chat` (the rubric of report section 2.4 for open prompts).
const CHAT: &BuiltIn = &[
    ("helpfulness", "it gives what the question asks for, correctly and in enough depth to be of use"),
    ("coherence", "it is clear, well ordered and free of contradictions"),
    ("adherence", "it does what it was told: form, length, language, role and limits that the question sets"),
    ("no_redundancy", "it says nothing twice and has no filler, no needless preamble and no empty closing words"),
];

/// Both, for `criteria`.
fn built_in() -> Vec<(&'static str, &'static str)> {
    REASONING.iter().chain(CHAT).copied().collect()
}

const WORDS: &str = include_str!("question.md.jinja");

const COLUMNS: ColumnNames = ColumnNames {
    score: "trace_score",
    reason: "trace_reason",
    scores: "trace_scores",
    agreement: "trace_agreement",
    flaw: "trace_flaw",
};

/// Words of a writer who was given the answer.
const LEAKS: [&str; 14] = [
    "the given answer",
    "the provided answer",
    "the reference answer",
    "the correct answer is given",
    "the answer is given as",
    "the answer key",
    "the ground truth answer",
    "the ground-truth answer",
    "the gold answer",
    "the expected answer",
    "参考答案",
    "标准答案",
    "给定的答案",
    "给出的答案",
];

impl Stage for JudgeTraces {
    const KIND: &'static str = "judge_traces";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["traces"], &[queries::PROMPT])];
    const DRAWS: bool = true;
    const MODEL_PARAMS: &'static [&'static str] = &["model"];

    fn example() -> Example {
        let row = |id: &str, response: &str, finish: &str| {
            json!({
                "query_id": "q", "trace_id": id, "domain": "math", "prompt": "What is 2 + 3?", "label": "5",
                "response": response, "finish_reason": finish,
            })
        };
        let rows = vec![
            row("sound", "2 + 3 = 5, so \\boxed{5}.", "stop"),
            row("cut", "We begin with 2 and", "length"),
            row("leaked", "The reference answer is 5, so \\boxed{5}.", "stop"),
        ];
        Example::rows(json!({ "model": "teacher", "min_score": 1 }), "rows", &traces::TABLE, rows)
            .gives(1, &["truncated", "label_leaked"])
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.0.validate(&built_in(), WORDS)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
        judging::ensure_text(rows)?;
        self.0.ensure_columns(rows, WORDS)?;
        Ok(vec![Output::same(COLUMNS.added_to(rows)?)])
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        self.0.externals(env, WORDS)
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        Some(self.0.estimate(Self::KIND, rows))
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let rubrics = if self.0.has_own_criteria() {
            vec![self.0.rubric(&built_in())?]
        } else {
            vec![self.0.rubric(REASONING)?, self.0.rubric(CHAT)?]
        };
        let chat = rubrics.len() - 1;
        let bench = Bench { judges: &self.0, kind: Self::KIND, rubrics, words: WORDS, columns: COLUMNS };
        bench.run(task, |batch| sort(batch, chat))
    }
}

/// What needs no model, and the rubric for the rest; `chat` is the number of the rubric for chat.
fn sort(batch: &RecordBatch, chat: usize) -> Result<Vec<Sorted>, StageError> {
    let column = |name| rows::texts(batch, name);
    let (prompts, domains) = (column(queries::PROMPT)?, column(queries::DOMAIN)?);
    let (reasonings, answers) = (column(traces::REASONING)?, column(traces::ANSWER_TEXT)?);
    let (responses, finishes) = (column(traces::RESPONSE)?, column(traces::FINISH_REASON)?);
    let sorted = |row| {
        if let Some(reason) = text_at(finishes, row).filter(|reason| traces::says_cut(reason)) {
            return Sorted::Flawed("truncated", json!({ "finish_reason": reason }));
        }
        let prompt = text_at(prompts, row).unwrap_or_default();
        let texts = [text_at(reasonings, row), text_at(answers, row), text_at(responses, row)];
        if let Some((phrase, excerpt)) = texts.into_iter().flatten().find_map(|text| leak(prompt, text)) {
            return Sorted::Flawed("label_leaked", json!({ "phrase": phrase, "text": excerpt }));
        }
        Sorted::To(if text_at(domains, row) == Some("chat") { chat } else { 0 })
    };
    Ok((0..batch.num_rows()).map(sorted).collect())
}

/// The first phrase of a writer who was given the answer that the question itself does not use, and what stands around it.
fn leak(prompt: &str, text: &str) -> Option<(&'static str, String)> {
    const AROUND: usize = 60;
    // only ASCII is folded, so that places in both texts are the same
    let (prompt, folded) = (prompt.to_ascii_lowercase(), text.to_ascii_lowercase());
    let found = LEAKS.iter().filter(|phrase| !prompt.contains(**phrase));
    let (at, phrase) = found.filter_map(|phrase| Some((folded.find(*phrase)?, *phrase))).min()?;
    let before: Vec<char> = text[..at].chars().rev().take(AROUND).collect();
    let after = text[at..].chars().take(AROUND + phrase.len());
    Some((phrase, before.into_iter().rev().chain(after).collect()))
}

#[cfg(test)]
mod tests;
