//! How answers are drawn: the fields that both endpoints share.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use serde_json::Value;
use stage_candle::decode::Draw;

use super::{WITHOUT_BEARING, is_empty, is_zero};
use crate::error::ApiError;
use crate::fields::{Fields, text};

/// Most choices of one prompt.
pub(crate) const MOST_CHOICES: u32 = 128;
/// Most stop strings.
const MOST_STOPS: usize = 16;

/// How the answers of one request are drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) n: u32,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) max_tokens: Option<u32>,
    temperature: f64,
    top_p: f64,
    top_k: u32,
    min_p: f64,
    stop: Vec<String>,
    seed: u64,
}

impl Asked {
    /// Takes the shared fields, and refuses those that neither endpoint honours.
    pub(crate) fn take(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        let n = fields.whole("n", 1..=MOST_CHOICES)?.unwrap_or(1);
        let stream = fields.flag("stream")?.unwrap_or(false);
        let include_usage = include_usage(fields, stream)?;
        let asked = Self {
            n,
            stream,
            include_usage,
            max_tokens: max_tokens(fields)?,
            temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
            top_p: top_p(fields)?,
            top_k: fields.whole("top_k", 0..=u32::MAX)?.unwrap_or(0),
            min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(0.0),
            stop: stop(fields)?,
            seed: seed(fields)?.unwrap_or_else(random),
        };
        let penalty = "tokens are drawn from the model's own distribution";
        fields.refuse("frequency_penalty", is_zero, penalty)?;
        fields.refuse("presence_penalty", is_zero, penalty)?;
        fields.refuse("logit_bias", is_empty, penalty)?;
        fields.ignore(&WITHOUT_BEARING);
        Ok(asked)
    }

    /// How one sample is drawn, where `room` tokens of the context are left.
    pub(crate) fn draw(&self, sample: u32, room: u32, top_logprobs: Option<u8>) -> Draw {
        Draw {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            max_tokens: self.max_tokens.unwrap_or(room).min(room),
            stop: self.stop.clone(),
            seed: derived(self.seed, sample),
            top_logprobs,
        }
    }
}

/// The seed of one sample. The first has the request's own, so that asking for more samples leaves it as it was; the
/// others are spread by the finaliser of `SplitMix64` (Steele, Lea and Flood 2014), a bijection.
fn derived(seed: u64, sample: u32) -> u64 {
    if sample == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add(u64::from(sample).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number that nobody can foresee: the keys of the standard library's hash maps come from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn include_usage(fields: &mut Fields<'_>, stream: bool) -> Result<bool, ApiError> {
    let Some(options) = fields.take("stream_options") else { return Ok(false) };
    if !stream {
        return Err(ApiError::bad_value("stream_options", "`stream_options` goes with `stream: true` only"));
    }
    let mut options = Fields::of(options, "stream_options")?;
    let include_usage = options.flag("include_usage")?.unwrap_or(false);
    // padding against eavesdroppers; on loopback there are none, and asking for none is fine
    options.refuse("include_obfuscation", |value| value == false, "chunks are sent as they are")?;
    options.finish()?;
    Ok(include_usage)
}

fn max_tokens(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let old = fields.whole("max_tokens", 1..=u32::MAX)?;
    let new = fields.whole("max_completion_tokens", 1..=u32::MAX)?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => Err(ApiError::bad_value(
            "max_completion_tokens",
            "`max_tokens` and `max_completion_tokens` mean the same and differ; give one",
        )),
        _ => Ok(new.or(old)),
    }
}

fn top_p(fields: &mut Fields<'_>) -> Result<f64, ApiError> {
    let top_p = fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0);
    if top_p <= 0.0 {
        let message = "`top_p` must be above 0, since it keeps a share of the probability; `temperature: 0` is greedy";
        return Err(ApiError::bad_value("top_p", message));
    }
    Ok(top_p)
}

/// Any integer of 64 bits, with or without a sign.
fn seed(fields: &mut Fields<'_>) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    let seed = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
    seed.map(Some).ok_or_else(|| ApiError::bad_type("seed", "a whole number of 64 bits", value))
}

fn stop(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    let Some(value) = fields.take("stop") else { return Ok(Vec::new()) };
    let found = match value {
        Value::String(_) => vec![("stop".to_owned(), value)],
        Value::Array(list) if list.len() > MOST_STOPS => {
            let message = format!("`stop` takes at most {MOST_STOPS} strings, not {}", list.len());
            return Err(ApiError::bad_value("stop", message));
        }
        Value::Array(list) => list.iter().enumerate().map(|(index, value)| (format!("stop[{index}]"), value)).collect(),
        other => return Err(ApiError::bad_type("stop", "a string or a list of strings", other)),
    };
    let mut stops = Vec::with_capacity(found.len());
    for (path, value) in found {
        let stop = text(value, &path)?;
        if stop.is_empty() {
            return Err(ApiError::bad_value(&path, format!("`{path}` is empty and would end every answer at once")));
        }
        stops.push(stop.to_owned());
    }
    Ok(stops)
}
