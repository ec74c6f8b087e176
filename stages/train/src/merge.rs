//! The mean of several models of one shape: specialists become one generalist.
//!
//! `M = sum_i w_i M_i` with `w_i >= 0` and `sum_i w_i = 1` (1.5B report, section 3.2). Weights are read in parts of a
//! tensor, so that memory does not grow with the models; sums are taken in `f64`, so that equal models give their own bits.

use std::path::{Path, PathBuf};

use stage_candle::Shards;
use stage_tokens::{ChatTemplate, Tokenizer};

use crate::folder::{create_weights, write_whole};
use crate::{ModelFiles, Storage, TrainError};

/// Elements that are merged at once.
const PART: usize = 1 << 20;

/// What was merged.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The weight of each model, in the given order; their sum is 1.
    pub weights: Vec<f64>,
    /// Tensors.
    pub tensors: usize,
    /// Elements of one model.
    pub elements: usize,
}

/// A model that takes part.
struct Part {
    path: PathBuf,
    shards: Shards,
    files: ModelFiles,
    weight: f64,
}

/// Merges the models in the given folders by their weights, which are divided by their sum, into a folder that is not there
/// yet. Configuration, tokenizer and chat template are those of the first.
///
/// # Errors
/// Without models, for weights that are negative or all 0, for models that differ in configuration, tokenizer, chat
/// template or in a tensor's name or shape, and for a weight that is NaN or infinite: the tensor is named.
pub fn merge(models: &[(PathBuf, f64)], folder: &Path, storage: Storage) -> Result<Merged, TrainError> {
    let weights = normalised(models)?;
    let mut parts: Vec<Part> = Vec::with_capacity(models.len());
    for ((path, _), weight) in models.iter().zip(&weights) {
        let part =
            Part { path: path.clone(), shards: Shards::open(path)?, files: ModelFiles::open(path)?, weight: *weight };
        if let Some(first) = parts.first() {
            ensure_fit(first, &part)?;
        }
        parts.push(part);
    }
    let Some(first) = parts.first() else { return Err(TrainError::Parameter("no model to merge".to_owned())) };
    let (mut tensors, mut elements) = (0, 0);
    write_whole(folder, |draft| {
        first.files.write(draft, storage)?;
        let mut file = create_weights(draft, first.shards.shapes(), storage)?;
        let (mut sum, mut values, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        for (name, shape) in first.shards.shapes() {
            let count: usize = shape.iter().product();
            for start in (0..count).step_by(PART) {
                let range = start..count.min(start + PART);
                sum.clear();
                sum.resize(range.len(), 0.0_f64);
                for part in &parts {
                    part.shards.read_part(name, range.clone(), &mut values)?;
                    for (sum, value) in sum.iter_mut().zip(&values) {
                        *sum += part.weight * f64::from(*value);
                    }
                }
                merged.clear();
                merged.extend(sum.iter().map(|sum| rounded(*sum)));
                file.append(&merged)?;
            }
            (tensors, elements) = (tensors + 1, elements + count);
        }
        file.finish()
    })?;
    Ok(Merged { weights, tensors, elements })
}

/// The weights over their sum.
fn normalised(models: &[(PathBuf, f64)]) -> Result<Vec<f64>, TrainError> {
    if let Some((path, weight)) = models.iter().find(|(_, weight)| !(*weight >= 0.0 && weight.is_finite())) {
        let message = format!("`{}` has weight {weight}; expected a number from 0", path.display());
        return Err(TrainError::Parameter(message));
    }
    let sum: f64 = models.iter().map(|(_, weight)| weight).sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(TrainError::Parameter(format!("the weights of {} models add up to {sum}", models.len())));
    }
    Ok(models.iter().map(|(_, weight)| weight / sum).collect())
}

fn ensure_fit(first: &Part, other: &Part) -> Result<(), TrainError> {
    match misfit(first, other)? {
        None => Ok(()),
        Some(message) => Err(TrainError::Misfit { first: first.path.clone(), other: other.path.clone(), message }),
    }
}

/// What differs between two models, other than values.
fn misfit(first: &Part, other: &Part) -> Result<Option<String>, TrainError> {
    let mut shapes = first.shards.shapes().zip(other.shards.shapes());
    if let Some(((name, shape), (other_name, other_shape))) = shapes.find(|(first, other)| first != other) {
        let message = format!("tensor `{other_name}` of shape {other_shape:?} instead of `{name}` of shape {shape:?}");
        return Ok(Some(message));
    }
    let (count, other_count) = (first.shards.shapes().count(), other.shards.shapes().count());
    if count != other_count {
        return Ok(Some(format!("it has {other_count} tensors instead of {count}")));
    }
    let (ours, theirs) = (first.files.function(), other.files.function());
    if ours != theirs {
        let keys = ours.as_object().into_iter().chain(theirs.as_object()).flat_map(serde_json::Map::keys);
        let key = keys.into_iter().find(|key| ours.get(key) != theirs.get(key)).map_or("config.json", String::as_str);
        return Ok(Some(format!("`{key}` of `config.json` differs")));
    }
    if Tokenizer::open(&first.path)?.digest() != Tokenizer::open(&other.path)?.digest() {
        return Ok(Some("the tokenizers differ".to_owned()));
    }
    let template = |part: &Part| ChatTemplate::open(&part.path).ok().map(|template| template.digest().to_owned());
    Ok((template(first) != template(other)).then(|| "the chat templates differ".to_owned()))
}

/// The nearest `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn rounded(value: f64) -> f32 {
    value as f32
}
