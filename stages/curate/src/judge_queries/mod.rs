//! Query quality, layer b of the quality control (report section 2.1): a model drops queries that are incomplete,
//! unreasonable, logically invalid, or that do not test what they claim to.
//!
//! The four criteria are the report's; their wording, the scale and the vote of several judges are ours, see
//! [`crate::rubric`].

use pipeline_core::stage::Estimate;
use pipeline_core::{Env, Example, External, Output, ParamError, Port, Ports, Stage, StageError, Step, Task};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::asking::BuiltIn;
use crate::rubric::{Bench, ColumnNames, Judges, Sorted};

/// Lets one or several models judge the quality of queries, and drops those that fail.
///
/// Each judge gives a reason and rates `complete`, `reasonable`, `logically_valid` and `tests_knowledge_point` from 1 to 5
/// (`tests_knowledge_point` against what `expand` said the query is for, else against `subdomain`). A judge fails a query
/// when a criterion is below `min_score`; a query stays when more than half of the judges pass it. One that falls has the
/// reason `fails_` with the criterion that most judges failed, and the judges' words as evidence. Filled are `judge_score`
/// (mean rating), `judge_reason`, `judge_scores` (every judge's ratings and reason, JSON text), `judge_agreement` (share of
/// the judges on the side that decided) and `judge_flaw` (null where the query passes). A rating outside of 1 to 5 is asked
/// for again; a query about which no judge gives a usable answer falls out (`answer_unusable`, `truncated`).
///
/// ```toml
/// [stages.sound]
/// kind = "judge_queries"
/// inputs = "expanded"
/// model = ["judge_a", "judge_b", "judge_c"]
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct JudgeQueries(Judges);

/// The report's criteria, in the order in which they are asked for.
const CRITERIA: &BuiltIn = &[
    (
        "complete",
        "everything needed to answer stands in the problem: no missing value, figure, table, definition, option or \
         question, no sentence that breaks off, no reference to another text",
    ),
    (
        "reasonable",
        "a sensible person could ask it: quantities and situations are possible, the question has a point, the wording \
         is clear, and the effort it takes is in proportion",
    ),
    (
        "logically_valid",
        "its statements do not contradict each other or known facts, and they lead to an answer that is determined: \
         neither none nor several that differ, unless the problem asks for all of them",
    ),
    (
        "tests_knowledge_point",
        "answering it takes the knowledge or skill it claims to test (or, where it claims none, some definite one); it \
         cannot be answered without it, by copying from the problem or by guessing",
    ),
];

const WORDS: &str = include_str!("question.md.jinja");

const COLUMNS: ColumnNames = ColumnNames {
    score: queries::JUDGE_SCORE,
    reason: queries::JUDGE_REASON,
    scores: "judge_scores",
    agreement: "judge_agreement",
    flaw: "judge_flaw",
};

impl Stage for JudgeQueries {
    const KIND: &'static str = "judge_queries";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["queries"], &[queries::PROMPT])];
    const DRAWS: bool = true;
    const MODEL_PARAMS: &'static [&'static str] = &["model"];

    fn example() -> Example {
        let row = |id: &str, prompt: &str| json!({ "query_id": id, "prompt": prompt, "subdomain": "arithmetic" });
        let rows = vec![row("a", "What is 2 + 3?"), row("b", "小明有一些苹果，吃了 2 个，还剩几个？")];
        Example::rows(json!({ "model": "teacher", "min_score": 1 }), "rows", &queries::TABLE, rows).gives(2, &[])
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.0.validate(CRITERIA, WORDS)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
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
        let bench = Bench {
            judges: &self.0,
            kind: Self::KIND,
            rubrics: vec![self.0.rubric(CRITERIA)?],
            words: WORDS,
            columns: COLUMNS,
        };
        bench.run(task, |batch| Ok((0..batch.num_rows()).map(|_| Sorted::To(0)).collect()))
    }
}

#[cfg(test)]
mod tests;
