//! Merging: the specialists of the domains become one model (Diversity-Exploring Distillation, report section 2.2.2).
//!
//! The specialist of a domain is the checkpoint with the highest Pass@K on its probe set, not the one with the lowest loss.
//! `M = sum_i w_i M_i`, with `w_i >= 0` and `sum_i w_i = 1`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow::array::Array as _;
use pipeline_core::checkpoints::{Checkpoint, of_port};
use pipeline_core::rows::{self, text_at};
use pipeline_core::{Example, Output, ParamError, Port, Ports, Stage, StageError, Step, Task};
use schemars::JsonSchema;
use schemas::checkpoints;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::artifact::{self, Told};
use crate::fault::of_training;
use crate::storage::StoredAs;

const CHECKPOINTS: &str = "checkpoints";
const REPORT: &str = "report";
/// Name of the only checkpoint.
const NAME: &str = "merged";

/// Merges checkpoints by the weighted mean of their parameters.
///
/// With a `report` (the output of `probe`), each domain sends its specialist: the checkpoint with the highest `metric`
/// there, of equal ones the one with more steps. A checkpoint that is the specialist of several domains counts once for
/// each. Without a report all checkpoints take part. Weights are 1/N unless `weights` gives them, and are divided by their
/// sum; the manifest says who took part with which weight, and which figure each specialist has. Merging equal models gives
/// their bytes. Models of different shapes, tokenizers or chat templates are refused, and so is a weight that is NaN.
///
/// ```toml
/// [stages.merged]
/// kind = "merge"
/// inputs = { checkpoints = "phase1", report = "report" }
/// metric = "pass@8"
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// Metric of the report by which specialists are chosen. Default: the `pass@K` with the largest K in it.
    #[serde(default)]
    metric: Option<String>,
    /// Weights by domain (with a report) or by checkpoint (without), from 0; what is not named has weight 1.
    #[serde(default)]
    weights: BTreeMap<String, f64>,
    /// Number format of the merged weights: `f32` (default) or `bf16`.
    #[serde(default)]
    stored_as: StoredAs,
}

impl Stage for Merge {
    const KIND: &'static str = "merge";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[
        Port::rows(&["checkpoints"], &[]).named(CHECKPOINTS, "the checkpoints to choose from").many(),
        Port::rows(&["metrics"], &[]).named(REPORT, "Pass@K of the checkpoints, from `probe`").many().optional(),
    ];

    fn example() -> Example {
        Example::rows(json!({ "metric": "pass@8" }), CHECKPOINTS, &checkpoints::TABLE, Vec::new())
    }

    fn validate(&self) -> Result<(), ParamError> {
        match self.weights.iter().find(|(_, weight)| !(**weight >= 0.0 && weight.is_finite())) {
            Some((name, weight)) => {
                Err(ParamError::new(format!("weights.{name}"), format!("a weight is a number from 0, found {weight}")))
            }
            None => Ok(()),
        }
    }

    fn outputs(&self, _inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        Ok(vec![artifact::output()])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![Step::gather("merge")]
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let all = of_port(task, CHECKPOINTS)?;
        task.read(all.len() as u64);
        task.kept(all.len() as u64);
        if all.is_empty() {
            return Ok(());
        }
        let chosen = self.choose(&all, &figures(task)?)?;
        let models: Vec<(PathBuf, f64)> =
            chosen.iter().map(|one| (all[one.model].folder.clone(), one.weight)).collect();
        let folder = task.folder().join(NAME);
        let merged = stage_train::merge(&models, &folder, self.stored_as.into()).map_err(of_training)?;
        let who = chosen.iter().zip(&merged.weights).map(|(one, weight)| {
            json!({ "checkpoint": all[one.model].subject, "domain": one.domain, "figure": one.figure, "weight": weight })
        });
        task.note("merged", who.collect());
        let step = chosen.iter().filter_map(|one| u64::try_from(all[one.model].step).ok()).max().unwrap_or(0);
        artifact::leave(task, [(NAME, folder.as_path(), &Told { step, ..Told::default() })])
    }
}

/// A figure of the report.
struct Figure {
    subject: String,
    domain: Option<String>,
    metric: String,
    value: f64,
}

/// A model that takes part.
#[derive(Debug, Clone, PartialEq)]
struct Chosen {
    model: usize,
    domain: Option<String>,
    figure: Option<f64>,
    weight: f64,
}

fn figures(task: &Task<'_>) -> Result<Vec<Figure>, StageError> {
    let mut all = Vec::new();
    for batch in task.port_batches(REPORT, None)? {
        let batch = batch?;
        let (subjects, domains) = (rows::texts(&batch, "subject")?, rows::texts(&batch, "domain")?);
        let (names, values) = (rows::texts(&batch, "metric")?, rows::floats(&batch, "value")?);
        for row in (0..batch.num_rows()).filter(|row| values.is_valid(*row)) {
            all.push(Figure {
                subject: subjects.value(row).to_owned(),
                domain: text_at(domains, row).map(str::to_owned),
                metric: names.value(row).to_owned(),
                value: values.value(row),
            });
        }
    }
    Ok(all)
}

impl Merge {
    fn choose(&self, all: &[Checkpoint], figures: &[Figure]) -> Result<Vec<Chosen>, StageError> {
        let chosen = if figures.is_empty() { Self::everyone(all) } else { self.specialists(all, figures)? };
        let known: Vec<String> =
            chosen.iter().map(|one| one.domain.clone().unwrap_or_else(|| all[one.model].subject.clone())).collect();
        if let Some(name) = self.weights.keys().find(|name| !known.contains(name)) {
            let message = format!("nothing is called `{name}`; there are: {}", known.join(", "));
            return Err(StageError::Param(ParamError::new("weights", message)));
        }
        let weights = known.iter().map(|name| self.weights.get(name).copied().unwrap_or(1.0));
        Ok(chosen.into_iter().zip(weights).map(|(one, weight)| Chosen { weight, ..one }).collect())
    }

    fn everyone(all: &[Checkpoint]) -> Vec<Chosen> {
        (0..all.len()).map(|model| Chosen { model, domain: None, figure: None, weight: 1.0 }).collect()
    }

    /// For each domain the checkpoint with the highest figure.
    fn specialists(&self, all: &[Checkpoint], figures: &[Figure]) -> Result<Vec<Chosen>, StageError> {
        let metric = self.metric(figures)?;
        let of_metric = figures.iter().filter(|figure| figure.metric == metric);
        let mut best: BTreeMap<Option<&str>, Chosen> = BTreeMap::new();
        for figure in of_metric {
            let Some(model) = all.iter().position(|one| one.subject == figure.subject) else { continue };
            let found = Chosen { model, domain: figure.domain.clone(), figure: Some(figure.value), weight: 1.0 };
            let rank = |one: &Chosen| (one.figure.unwrap_or(f64::MIN), all[one.model].step);
            let now = best.entry(figure.domain.as_deref()).or_insert_with(|| found.clone());
            if rank(&found) > rank(now) {
                *now = found;
            }
        }
        let of_domains: Vec<Chosen> =
            best.iter().filter(|(domain, _)| domain.is_some()).map(|(_, one)| one.clone()).collect();
        // a report without domains is about all queries together
        let chosen = if of_domains.is_empty() { best.into_values().collect() } else { of_domains };
        if chosen.is_empty() {
            let message =
                format!("the report has `{metric}` of none of these checkpoints; probe the ones that are merged");
            return Err(StageError::Alarm(message));
        }
        Ok(chosen)
    }

    fn metric(&self, figures: &[Figure]) -> Result<String, StageError> {
        let k = |name: &str| name.strip_prefix("pass@").and_then(|k| k.parse::<u64>().ok());
        let mut names: Vec<&str> = figures.iter().map(|figure| figure.metric.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let found = match &self.metric {
            Some(wanted) => names.iter().find(|name| *name == wanted),
            None => names.iter().filter(|name| k(name).is_some()).max_by_key(|name| k(name)),
        };
        found.map(|name| (*name).to_owned()).ok_or_else(|| {
            let wanted = self.metric.as_deref().unwrap_or("pass@K");
            let message = format!("the report has no `{wanted}`; it has: {}", names.join(", "));
            StageError::Param(ParamError::new("metric", message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> Vec<Checkpoint> {
        [("step-1", 1), ("step-2", 2), ("step-3", 3)]
            .map(|(subject, step)| Checkpoint {
                subject: subject.to_owned(),
                step,
                folder: PathBuf::from(subject),
                digest: String::new(),
            })
            .into()
    }

    fn figure(subject: &str, domain: Option<&str>, metric: &str, value: f64) -> Figure {
        Figure { subject: subject.to_owned(), domain: domain.map(str::to_owned), metric: metric.to_owned(), value }
    }

    fn merge(params: serde_json::Value) -> Merge {
        serde_json::from_value(params).unwrap()
    }

    #[test]
    fn each_domain_sends_its_best_by_pass_at_k() {
        let figures = [
            figure("step-1", Some("code"), "pass@8", 0.9),
            figure("step-2", Some("code"), "pass@8", 0.5),
            figure("step-2", Some("math"), "pass@8", 0.7),
            figure("step-3", Some("math"), "pass@8", 0.7),
            figure("step-1", Some("math"), "pass@1", 1.0),
            figure("step-1", None, "pass@8", 1.0),
        ];
        let chosen = merge(json!({ "weights": { "math": 3.0 } })).choose(&models(), &figures).unwrap();
        let names: Vec<(&str, usize, f64)> =
            chosen.iter().map(|one| (one.domain.as_deref().unwrap(), one.model, one.weight)).collect();
        assert_eq!(names, [("code", 0, 1.0), ("math", 2, 3.0)]);
    }

    #[test]
    fn without_a_report_all_take_part() {
        let chosen = merge(json!({ "weights": { "step-2": 0.0 } })).choose(&models(), &[]).unwrap();
        assert_eq!(chosen.iter().map(|one| one.weight).collect::<Vec<_>>(), [1.0, 0.0, 1.0]);
    }

    #[test]
    fn names_that_nobody_has_are_refused() {
        let figures = [figure("step-1", Some("math"), "pass@8", 0.9)];
        let refused = |params, figures: &[Figure]| merge(params).choose(&models(), figures).unwrap_err().to_string();
        assert!(refused(json!({ "weights": { "maths": 1.0 } }), &figures).contains("there are: math"));
        assert!(refused(json!({ "metric": "pass@4" }), &figures).contains("it has: pass@8"));
        let others = [figure("other", Some("math"), "pass@8", 0.9)];
        assert!(refused(json!({}), &others).contains("none of these checkpoints"));
    }
}
