//! Drops what overlaps with the evaluation sets that the model will be tested with.
//!
//! The report removes overlap with evaluation sets by 10-grams over normalised text (VibeThinker-3B, data for SFT, and
//! again for RL prompts). The index of all evaluation items is built once a process and first proves itself on planted
//! items: a set-up that can find nothing must not pass for clean data. A row is found by its prompt, which every
//! trace of a query carries, so a contaminated query goes with all its traces.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field};
use pipeline_core::row_kinds::write_judged;
use pipeline_core::{Example, Judgement, Output, ParamError, Port, Ports, Stage, StageError, Step, Task, rows};
use rayon::prelude::*;
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stage_text::contamination::{ContaminationIndex, ContaminationRules, EvalItem, Found};

use crate::text_column::{self, excerpt};

/// Column that `mode = "mark"` adds.
const MARK: &str = "contamination";

/// Port of the evaluation sets.
const EVAL: &str = "eval";

/// What becomes of a contaminated row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It falls out with the reason `contaminated`.
    #[default]
    Reject,
    /// It stays, with the evidence as JSON text in the column `contamination`, which is null for the others.
    Mark,
}

/// Drops rows that hold an item of an evaluation set.
///
/// Texts are compared without case, layout and punctuation, and never changed. An item counts as found when enough of
/// it (not of the row) stands in the row; one shorter than an n-gram must be there whole. A row that equals an item
/// but for its numbers is another problem: it stays and is counted as a number twin. What many items of a set share,
/// such as an instruction behind each question, counts for none of them, and neither do n-grams of numbers. The
/// evidence names the item, its set, the share found and the matching text; counters tell the rows found for each
/// set. All traces of a query carry its prompt, so they go together.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decontaminate {
    /// Text column that is searched. Default `prompt`; `response` looks for items that a model recited.
    #[serde(default = "prompt")]
    column: String,
    /// `reject` (default) or `mark`.
    #[serde(default)]
    mode: Mode,
    #[serde(flatten)]
    rules: ContaminationRules,
}

fn prompt() -> String {
    queries::PROMPT.to_owned()
}

impl Stage for Decontaminate {
    const KIND: &'static str = "decontaminate";
    const VERSION: u32 = 2;
    const PORTS: &'static [Port] = &[
        Port::rows(&[], &[]),
        Port::rows(&["queries"], &[queries::PROMPT]).named(EVAL, "evaluation sets to look for").many().evaluation(),
    ];

    fn example() -> Example {
        let item =
            "A gardener plants 12 rows of tulips with 15 bulbs in each row. How many bulbs does the gardener plant?";
        let row = |id: &str, prompt: String| json!({ "query_id": id, "prompt": prompt });
        let rows = vec![
            row("other", "How many legs do 7 spiders have?".to_owned()),
            row("copied", item.to_uppercase()),
            row("embedded", format!("Read with care. {item} Answer with a number.")),
            row("twin", item.replace("12", "31")),
        ];
        let eval = vec![json!({ "query_id": "e1", "prompt": item, "label": "180", "source": "garden-test" })];
        Example::rows(json!({}), "rows", &queries::TABLE, rows)
            .with(EVAL, &queries::TABLE, eval)
            .gives(2, &["contaminated", "contaminated"])
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.rules.validate().map_err(text_column::param_error)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let given = inputs.expect("rows")?;
        text_column::ensure(given, &self.column)?;
        let given = given.clone();
        Ok(vec![Output::same(match self.mode {
            Mode::Reject => given,
            Mode::Mark => given.with_column(&Field::new(MARK, DataType::Utf8View, true))?,
        })])
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let index = task.shared("index", |task| Prepared::build(task, &self.rules))?;
        task.note("index", index.summary.clone());
        for batch in task.batches()? {
            let batch = batch?;
            let evidence = self.search(&index.index, &batch)?;
            count(task, &evidence);
            match self.mode {
                Mode::Reject => write_judged(task, &batch, evidence.into_iter().map(Outcome::judgement).collect())?,
                Mode::Mark => {
                    let marks: StringViewArray = evidence.into_iter().map(Outcome::mark).collect();
                    let marks: ArrayRef = Arc::new(marks);
                    task.write(&rows::with_columns(&batch, &task.schema()?, &[(MARK, marks)])?)?;
                }
            }
        }
        Ok(())
    }
}

impl Decontaminate {
    fn search(&self, index: &ContaminationIndex, batch: &RecordBatch) -> Result<Vec<Outcome>, StageError> {
        let texts = rows::texts(batch, &self.column)?;
        let rows = (0..batch.num_rows()).into_par_iter().with_min_len(16);
        let outcomes = rows.map_init(
            || index.searcher(),
            |searcher, row| {
                rows::text_at(texts, row).map_or(Outcome::Clean, |text| Outcome::new(text, &searcher.find(text)))
            },
        );
        Ok(outcomes.collect())
    }
}

/// Counts rows found, and rows that are twins only, for each evaluation set (that of the best hit of a row).
fn count(task: &mut Task<'_>, outcomes: &[Outcome]) {
    for outcome in outcomes {
        match outcome {
            Outcome::Clean => {}
            Outcome::Twin { set } => {
                task.count("number_twins", 1);
                task.count(&format!("number_twins of {set}"), 1);
            }
            Outcome::Contaminated { set, .. } => task.count(&format!("contaminated by {set}"), 1),
        }
    }
}

/// What the search says of one row.
#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    Clean,
    /// An item of that set but for its numbers.
    Twin {
        set: String,
    },
    /// Evidence of an item of that set.
    Contaminated {
        set: String,
        evidence: Value,
    },
}

impl Outcome {
    fn new(text: &str, found: &Found) -> Self {
        let Some(best) = found.best() else {
            return found.twins.first().map_or(Self::Clean, |twin| Self::Twin { set: twin.set.clone() });
        };
        let evidence = json!({
            "item": best.item_id,
            "set": best.set,
            "part": best.part,
            "coverage": best.score,
            "span": [best.span.0, best.span.1],
            "matched_tokens": best.matched,
            "match": best.kind,
            "items_found": found.hits.len(),
            "text": excerpt(text, best.span),
        });
        Self::Contaminated { set: best.set.clone(), evidence }
    }

    fn judgement(self) -> Judgement {
        match self {
            Self::Clean | Self::Twin { .. } => Judgement::Keep,
            Self::Contaminated { evidence, .. } => Judgement::reject_with("contaminated", evidence),
        }
    }

    fn mark(self) -> Option<String> {
        match self {
            Self::Clean | Self::Twin { .. } => None,
            Self::Contaminated { evidence, .. } => Some(evidence.to_string()),
        }
    }
}

/// An index that has found what was planted, and what it holds.
struct Prepared {
    index: ContaminationIndex,
    summary: Value,
}

impl Prepared {
    fn build(task: &Task<'_>, rules: &ContaminationRules) -> Result<Self, StageError> {
        let items = read_items(task)?;
        let mut sets: BTreeMap<&str, usize> = BTreeMap::new();
        for item in &items {
            *sets.entry(&item.set).or_default() += 1;
        }
        let sets = json!(sets);
        let alarm = |error: stage_text::TextError| StageError::Alarm(format!("nothing can be decontaminated: {error}"));
        let index = ContaminationIndex::build(items, rules.clone()).map_err(alarm)?;
        let planted = index
            .self_test()
            .map_err(|error| StageError::Alarm(format!("the contamination index is broken: failed to {error}")))?;
        let counts = index.counts();
        let summary = json!({
            "items": counts.items,
            "sets": sets,
            "ngrams": counts.ngrams,
            "common_ngrams": counts.common_ngrams,
            "texts_by_ngrams": counts.by_ngrams,
            "texts_matched_whole": counts.by_exact_match,
            "not_indexable": counts.empty + counts.short_answers,
            "planted_and_found": planted,
        });
        Ok(Self { index, summary })
    }
}

/// All items of the port; a set is named by its rows' `source`, else by its position among the inputs.
fn read_items(task: &Task<'_>) -> Result<Vec<EvalItem>, StageError> {
    let inputs = task.port(EVAL);
    for (position, input) in (1..).zip(inputs) {
        if input.rows() == 0 {
            let message = format!("evaluation set {position} of {} has no rows: nothing could be found", inputs.len());
            return Err(StageError::Alarm(message));
        }
    }
    let columns = [queries::QUERY_ID, queries::PROMPT, queries::LABEL, queries::SOURCE];
    let mut batches = task.port_batches(EVAL, Some(&columns))?;
    let mut items = Vec::new();
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let [ids, prompts, labels, sources] = columns.map(|column| rows::texts(&batch, column));
        let (ids, prompts, labels, sources) = (ids?, prompts?, labels?, sources?);
        let position = format!("eval-{}", batches.input() + 1);
        items.extend((0..batch.num_rows()).map(|row| EvalItem {
            set: rows::text_at(sources, row).unwrap_or(&position).to_owned(),
            id: ids.value(row).to_owned(),
            question: rows::text_at(prompts, row).unwrap_or_default().to_owned(),
            answer: rows::text_at(labels, row).map(str::to_owned),
        }));
    }
    Ok(items)
}

#[cfg(test)]
mod tests;
