//! Drops exact and near duplicates, and queries whose labels contradict each other.
//!
//! Near-duplicates are found as the report's deduplication of queries asks for (VibeThinker-3B, data for SFT): `MinHash`
//! sketches of shingle sets propose pairs, and each proposed pair is verified by the exact Jaccard index
//! |A and B| / |A or B| before two rows are joined. Unverified joins would melt unrelated rows into one cluster.
//!
//! Six steps, none of which holds more than a slice's texts or a partition's numbers: *keys* (each slice) sends digests
//! and band hashes to partitions; *candidates* (each partition) finds those that agree; *shingles* (each slice) sends
//! the shingles of candidates to where those that hang together meet; *verified* (each partition) compares and clusters
//! them; *decisions* (one task, ids only) says which rows fall out and why; *rows* (each slice) lets the wide rows
//! through or rejects them.

mod apply;
mod candidates;
mod decide;
mod keys;
mod parts;
mod plan;
mod shingles;
mod verified;

use std::num::NonZeroUsize;

use pipeline_core::error::ensure_share;
use pipeline_core::{Example, Output, ParamError, Port, Ports, Stage, StageError, Step, StepKind, Task};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stage_text::Symbols;
use stage_text::lsh::{Bands, weighted_bands_for};
use stage_text::minhash::{DEFAULT_COMPONENTS, SketchMethod};
use stage_text::shingle::{Shingler, Shingling};

use self::parts::Parts;

/// Name of the step that sends keys.
const KEYS: &str = "keys";
/// Name of the step that finds candidates.
const CANDIDATES: &str = "candidates";
/// Name of the step that sends shingles.
const SHINGLES: &str = "shingles";
/// Name of the step that compares them.
const VERIFIED: &str = "verified";
/// Name of the step that hands decisions on.
const DECISIONS: &str = "decisions";
/// Name of the output that shows who is in a cluster with whom.
const CLUSTERS: &str = "clusters";

/// Weight of a missed pair when bands are chosen, against one less this of a needless candidate: that is compared and
/// dropped, and costs time only.
const MISSED_WEIGHT: f64 = 0.99;

/// Least chance that a pair exactly at the threshold becomes a candidate; pairs above it have a higher one.
const FOUND_AT_THRESHOLD: f64 = 0.98;

/// What becomes of texts that say the same with other numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumberTwins {
    /// They are different problems, unless both have the same label.
    #[default]
    Keep,
    /// Numbers do not count: one of them stays.
    Drop,
}

/// Drops duplicates: of each cluster one row stays.
///
/// Equal texts are exact duplicates (`exact_duplicate`). Texts whose sets of shingles overlap by `threshold` or more
/// are near-duplicates, joined in chains, and all but one fall out (`near_duplicate`); case, layout and punctuation
/// do not count, arithmetic operators do. Multiple-choice options are part of the prompt's text. Rows without a text
/// are never duplicates of each other. All rows of a query id that comes with two different labels fall out
/// (`label_conflict`): which label is right cannot be known here.
///
/// The output `clusters` (`inputs = "stage.clusters"`, `pipeline show dag.toml stage.clusters`) has a row for each row
/// that is in a cluster, with the id that stays and the beginning of the text.
///
/// For traces, `column = "prompt"` works on queries: the traces of a query stay or go together. With
/// `column = "response"` traces of the same query are compared. The evidence names the surviving row (`of`) and the
/// Jaccard index with it (`similarity`), which in a chain can be below the threshold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dedup {
    /// Text column that is compared. Default `prompt`.
    #[serde(default = "prompt")]
    column: String,
    /// Whether near-duplicates are looked for; otherwise only equal texts are dropped. Default true.
    #[serde(default = "yes")]
    near: bool,
    /// Jaccard index from which two texts are near-duplicates, between 0 and 1 (both excluded). Default 0.8.
    #[serde(default = "threshold")]
    threshold: f64,
    /// What the sets consist of. Default `{ unit = "word", size = 5 }`: runs of five words, in Chinese of five
    /// characters. A text shorter than that is one shingle.
    #[serde(default)]
    shingle: Shingling,
    /// Components of a sketch. More of them propose fewer needless candidates. Default 128.
    #[serde(default = "components")]
    components: NonZeroUsize,
    /// How sketches are made: `one_permutation` (default) is the fast one, `super_min_hash` the one of `probminhash`.
    #[serde(default)]
    sketch: SketchMethod,
    /// `keep` (default): texts whose numbers differ are different problems, unless both have the same label; among
    /// traces always. `drop`: numbers do not count.
    #[serde(default)]
    number_twins: NumberTwins,
    /// Number column whose largest value decides which row of a cluster stays; ties go to the smallest id. Without it
    /// the smallest id stays.
    #[serde(default)]
    best: Option<String>,
    /// Text column: only rows with the same value are compared. Default: none, but `query_id` where the column belongs
    /// to the trace, such as `response`.
    #[serde(default)]
    within: Option<String>,
    /// Compares all rows even where the column belongs to the trace. Default false.
    #[serde(default)]
    across: bool,
    /// Largest share of the texts that one cluster may hold, 0 to 1; more ends the stage with an alarm, since a rule
    /// that melts most of the data into one row is broken. Looked at from 100 texts on. Default 0.5.
    #[serde(default = "half")]
    max_cluster_share: f64,
}

fn prompt() -> String {
    queries::PROMPT.to_owned()
}

fn yes() -> bool {
    true
}

fn threshold() -> f64 {
    0.8
}

fn half() -> f64 {
    0.5
}

fn components() -> NonZeroUsize {
    NonZeroUsize::new(DEFAULT_COMPONENTS).unwrap_or(NonZeroUsize::MIN)
}

impl Stage for Dedup {
    const KIND: &'static str = "dedup";
    const VERSION: u32 = 2;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[queries::QUERY_ID])];

    fn example() -> Example {
        let text = "Tom has 5 pens and buys 7 more pens in the shop near the school. How many pens does he have now?";
        let row = |id: &str, prompt: &str, label: &str| json!({ "query_id": id, "prompt": prompt, "label": label });
        let rows = vec![
            row("a1", text, "12"),
            row("a2", text, "12"),
            row("a3", &format!("Please solve: {text}"), "12"),
            row("b1", &text.replace('5', "6"), "13"),
            row("c1", "How many sides has a cube?", "6"),
            row("c1", "How many sides has a cube?", "12"),
        ];
        let rejected = ["exact_duplicate", "near_duplicate", "label_conflict", "label_conflict"];
        Example::rows(json!({}), "rows", &queries::TABLE, rows).gives(2, &rejected)
    }

    fn validate(&self) -> Result<(), ParamError> {
        ensure_share("max_cluster_share", self.max_cluster_share)?;
        if !(self.threshold > 0.0 && self.threshold < 1.0) {
            let message = format!("`threshold` must lie between 0 and 1, found {}", self.threshold);
            return Err(ParamError::new("threshold", message).hint("`near = false` drops equal texts only"));
        }
        if self.components.get() > 4096 || self.shingle.size.get() > 1000 {
            let message = "`components` may be at most 4096 and the size of a shingle at most 1000";
            return Err(ParamError::new("components", message));
        }
        if self.across && self.within.is_some() {
            return Err(ParamError::new("across", "`across` compares all rows, `within` only some: give one of them"));
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let given = inputs.expect("rows")?;
        self.ensure_columns(given)?;
        Ok(vec![Output::same(given.clone()), Output::named(CLUSTERS, apply::clusters())])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![
            Step::handing_on(KEYS, StepKind::Exchange, keys::schema()),
            Step::handing_on(CANDIDATES, StepKind::Reduce, keys::schema()),
            Step::handing_on(SHINGLES, StepKind::Exchange, shingles::schema()),
            Step::handing_on(VERIFIED, StepKind::Reduce, verified::schema()),
            Step::handing_on(DECISIONS, StepKind::Gather, decide::schema()),
            Step::map("rows"),
        ]
    }

    fn run(&self, step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let parts = Parts::of(self, task)?;
        match step.name {
            KEYS => keys::run(self, &parts, task),
            CANDIDATES => candidates::run(task),
            SHINGLES => shingles::run(self, &parts, task),
            VERIFIED => verified::run(self, &parts, task),
            DECISIONS => decide::run(self, &parts, task),
            _ => apply::run(&parts, task),
        }
    }
}

impl Dedup {
    /// Bands of a sketch.
    fn bands(&self) -> Result<Bands, StageError> {
        let components = self.components.get();
        let bands = weighted_bands_for(self.threshold, components, MISSED_WEIGHT, FOUND_AT_THRESHOLD);
        bands.map_err(|error| StageError::Internal(error.to_string()))
    }

    /// What the manifest says of the bands: the chance that a pair becomes a candidate, by its Jaccard index.
    fn curve(&self) -> Result<Value, StageError> {
        let bands = self.bands()?;
        let points: Vec<Value> = (1..=20_u32)
            .map(|step| f64::from(step) / 20.0)
            .map(|similarity| json!({ "jaccard": similarity, "found": bands.probability(similarity) }))
            .collect();
        let at = bands.probability(self.threshold);
        Ok(json!({ "bands": bands.bands, "rows": bands.rows, "found_at_threshold": at, "curve": points }))
    }

    fn shingler(&self) -> Shingler {
        Shingler::new(self.shingle, Symbols::Operators, self.number_twins == NumberTwins::Drop)
    }
}

#[cfg(test)]
mod tests;
