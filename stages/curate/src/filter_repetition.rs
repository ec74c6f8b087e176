//! Drops texts that run in circles or answer with their own prompt.
//!
//! The report's first layer of quality control looks for anomalous repetition and template degeneration
//! (VibeThinker-3B, data for SFT). The rules are plain functions of `stage-text`; this kind applies them row by row
//! and keeps what a rule found as evidence, so that its thresholds can be judged on the rejected rows.

use arrow::array::{RecordBatch, StringViewArray};
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{Example, Judgement, Output, ParamError, Port, Ports, Stage, StageError, Step, Task, rows};
use rayon::prelude::*;
use schemars::JsonSchema;
use schemas::{queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stage_text::repetition::{Finder, Finding, RepetitionRules};

use crate::text_column::{self, excerpt};

/// Drops rows whose text repeats itself, is empty, only refuses, or never leaves its reasoning block.
///
/// The first rule that a text breaks is the reject reason: `empty_response` (a missing text is an empty one),
/// `unfinished_think`, `refusal` (a short boilerplate refusal, English or Chinese), `tail_loop`, `ngram_repetition`,
/// `duplicate_lines` or, for a trace, `prompt_repeat` (it answers with its own prompt). A trace that was cut at the token
/// cap is not dropped for that; it is when its reasoning block never closes and `reject_unfinished_think` is on. Code
/// fences, arrays and tables are no prose and are left out of the shares.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterRepetition {
    /// Text column to look at. Default: `response` for traces, `prompt` for queries.
    #[serde(default)]
    column: Option<String>,
    #[serde(flatten)]
    rules: RepetitionRules,
}

impl Stage for FilterRepetition {
    const KIND: &'static str = "filter_repetition";
    const VERSION: u32 = 2;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[])];

    fn example() -> Example {
        let trace = |id: &str, response: String| json!({ "query_id": "q", "trace_id": id, "prompt": "How much is 3 + 4?", "response": response });
        let rows = vec![
            trace("plain", r"Three and four make seven. The answer is \boxed{7}.".to_owned()),
            trace("loop", format!("Let me see. {}", "So the answer is again the same number. ".repeat(40))),
            trace("empty", "<think>seven</think>\n".to_owned()),
            trace("unfinished", "<think>three and then".to_owned()),
            trace("refusal", "I'm sorry, but I can't assist with that.".to_owned()),
        ];
        let rejected = ["tail_loop", "empty_response", "unfinished_think", "refusal"];
        Example::rows(json!({}), "rows", &traces::TABLE, rows).gives(1, &rejected)
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.rules.validate().map_err(text_column::param_error)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let given = inputs.expect("rows")?;
        text_column::ensure(given, &self.column(given.schema.column_with_name(traces::RESPONSE).is_some()))?;
        Ok(vec![Output::same(given.clone())])
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        for batch in task.batches()? {
            let batch = batch?;
            let judgements = self.judge(&batch)?;
            write_judged(task, &batch, judgements)?;
        }
        Ok(())
    }
}

impl FilterRepetition {
    fn column(&self, is_traces: bool) -> String {
        let natural = if is_traces { traces::RESPONSE } else { queries::PROMPT };
        self.column.clone().unwrap_or_else(|| natural.to_owned())
    }

    fn judge(&self, batch: &RecordBatch) -> Result<Vec<Judgement>, StageError> {
        let column = self.column(batch.column_by_name(traces::RESPONSE).is_some());
        let texts = rows::texts(batch, &column)?;
        let prompts = prompts_of(batch, &column)?;
        let judge = |finder: &mut Finder<'_>, row: usize| {
            let text = rows::text_at(texts, row).unwrap_or_default();
            let prompt = prompts.and_then(|prompts| rows::text_at(prompts, row));
            match finder.find(text, prompt) {
                None => Judgement::Keep,
                Some(finding) => Judgement::reject_with(finding.rule, evidence(&column, text, &finding)),
            }
        };
        let rows = (0..batch.num_rows()).into_par_iter().with_min_len(16);
        Ok(rows.map_init(|| Finder::new(&self.rules), judge).collect())
    }
}

/// What the texts answer; a prompt answers nothing.
fn prompts_of<'a>(batch: &'a RecordBatch, column: &str) -> Result<Option<&'a StringViewArray>, StageError> {
    if column == queries::PROMPT || batch.column_by_name(queries::PROMPT).is_none() {
        return Ok(None);
    }
    rows::texts(batch, queries::PROMPT).map(Some)
}

fn evidence(column: &str, text: &str, finding: &Finding) -> serde_json::Value {
    json!({
        "rule": finding.rule,
        "column": column,
        "span": [finding.span.0, finding.span.1],
        "figure": finding.figure,
        "text": excerpt(text, finding.span),
    })
}

#[cfg(test)]
mod tests {
    use pipeline_core::StageEntry;
    use pipeline_core::testing::{Cut, Trial, conformance};

    use super::*;

    const ENTRY: StageEntry = StageEntry::stage::<FilterRepetition>();

    #[test]
    fn it_conforms() {
        conformance(&ENTRY);
    }

    #[test]
    fn a_truncated_trace_is_not_repetition() {
        let cut = json!({ "query_id": "q", "trace_id": "t", "prompt": "Why?", "finish_reason": "length",
            "response": "Because the sum of the first two terms is larger than the" });
        let outcome = Trial::new(&ENTRY, json!({})).rows("rows", &traces::TABLE, vec![cut]).run(&Cut::WHOLE).unwrap();
        assert_eq!(outcome.kept, 1);
    }

    #[test]
    fn a_response_that_is_its_prompt_is_degenerate_and_the_evidence_shows_where() {
        let prompt = "A farmer who lives near the river counts every goose in the meadow and then every duck on the \
            pond, and wonders how many birds there are in all before the evening comes and the fox wakes up again";
        let row = json!({ "query_id": "q", "trace_id": "t", "prompt": prompt, "response": prompt });
        let outcome = Trial::new(&ENTRY, json!({})).rows("rows", &traces::TABLE, vec![row]).run(&Cut::WHOLE).unwrap();
        assert_eq!(outcome.reasons(), ["prompt_repeat"]);
        let evidence = outcome.rejects[0]["reject_evidence"].as_str().unwrap();
        let evidence: serde_json::Value = serde_json::from_str(evidence).unwrap();
        assert_eq!(evidence["column"], "response");
        assert!(evidence["text"].as_str().unwrap().starts_with("A farmer"));
    }

    #[test]
    fn queries_are_judged_by_their_prompt_and_rules_can_be_set() {
        let row = json!({ "query_id": "q", "prompt": "哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈" });
        let run = |params| Trial::new(&ENTRY, params).rows("rows", &queries::TABLE, vec![row.clone()]).run(&Cut::WHOLE);
        assert_eq!(run(json!({})).unwrap().kept, 1);
        assert_eq!(run(json!({ "tail_short_tokens": 10 })).unwrap().reasons(), ["tail_loop"]);
        assert!(run(json!({ "tail_min_repeats": 1 })).is_err());
        assert!(run(json!({ "column": "no_such_column" })).is_err());
        assert!(run(json!({ "column": "vote_share" })).is_err());
    }
}
