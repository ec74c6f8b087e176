//! `config.json` of a Hugging Face folder. What would change the numbers and is not computed here is refused by name.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::NetError;
use crate::kernels::rounded;
use crate::net::{Architecture, NetConfig, RopeScaling};

/// Reads a configuration.
pub(crate) fn read(path: &Path) -> Result<NetConfig, NetError> {
    let text = fs::read(path).map_err(|source| NetError::Read { path: path.to_owned(), source })?;
    let json = serde_json::from_slice(&text)
        .map_err(|error| NetError::Config { path: path.to_owned(), message: format!("no JSON: {error}") })?;
    let keys = Keys { path, json: &json };
    let architecture = match keys.text("model_type")? {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        other => return Err(keys.unsupported(&format!("`model_type` = `{other}` (known: `llama`, `qwen2`)"))),
    };
    let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
    let layers = keys.size("num_hidden_layers")?;
    let context = keys.size("max_position_embeddings")?;
    keys.refuse_variants(layers, context)?;
    let config = NetConfig {
        architecture,
        vocabulary: keys.size("vocab_size")?,
        hidden,
        intermediate: keys.size("intermediate_size")?,
        layers,
        heads,
        kv_heads: keys.size_or("num_key_value_heads", heads)?,
        head_dim: keys.size_or("head_dim", hidden / heads.max(1))?,
        context,
        rope_theta: keys.rope_theta()?,
        rope_scaling: keys.rope_scaling()?,
        rms_eps: rounded(keys.number_or("rms_norm_eps", 1e-6)?),
        tied: keys.flag("tie_word_embeddings")?,
        qkv_bias: architecture == Architecture::Qwen2,
    };
    match config.fault() {
        Some(message) => Err(NetError::Config { path: path.to_owned(), message }),
        None => Ok(config),
    }
}

/// The configuration as `config.json` of a Hugging Face folder says it; `None` where it cannot: rotary frequencies with a
/// factor each stand in GGUF files alone.
pub(crate) fn write(config: &NetConfig) -> Option<Value> {
    let (kind, class) = match config.architecture {
        Architecture::Llama => ("llama", "LlamaForCausalLM"),
        Architecture::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
    };
    let theta = config.rope_theta;
    let rope = match &config.rope_scaling {
        RopeScaling::None => json!({"rope_type": "default", "rope_theta": theta}),
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "rope_theta": theta, "factor": factor}),
        RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context } => json!({
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": factor,
            "low_freq_factor": low_frequency_factor,
            "high_freq_factor": high_frequency_factor,
            "original_max_position_embeddings": original_context,
        }),
        RopeScaling::Factors(_) => return None,
    };
    // programs from before `rope_parameters` look for the base here
    let scaling = if config.rope_scaling == RopeScaling::None { Value::Null } else { rope.clone() };
    Some(json!({
        "architectures": [class],
        "model_type": kind,
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context,
        "hidden_act": "silu",
        "rms_norm_eps": shortest(config.rms_eps),
        "rope_parameters": rope,
        "rope_scaling": scaling,
        "rope_theta": theta,
        "tie_word_embeddings": config.tied,
        "attention_dropout": 0.0,
    }))
}

/// The number as people write it: 1e-6, not its nearest `f32` in 17 digits.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

/// Typed access to keys, with errors that name them.
#[derive(Clone, Copy)]
struct Keys<'a> {
    path: &'a Path,
    json: &'a Value,
}

impl<'a> Keys<'a> {
    fn unsupported(self, what: &str) -> NetError {
        NetError::Unsupported { path: self.path.to_owned(), what: what.to_owned() }
    }

    fn wrong(self, key: &str, expected: &str) -> NetError {
        let message = match self.value(key) {
            Some(found) => format!("`{key}` is {found}; expected {expected}"),
            None => format!("`{key}` is missing; expected {expected}"),
        };
        NetError::Config { path: self.path.to_owned(), message }
    }

    /// A value that is there and not null.
    fn value(self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    fn text(self, key: &str) -> Result<&'a str, NetError> {
        self.value(key).and_then(Value::as_str).ok_or_else(|| self.wrong(key, "a text"))
    }

    fn size(self, key: &str) -> Result<usize, NetError> {
        let size = self.value(key).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| self.wrong(key, "a whole number"))
    }

    fn size_or(self, key: &str, default: usize) -> Result<usize, NetError> {
        if self.value(key).is_some() { self.size(key) } else { Ok(default) }
    }

    fn number(self, key: &str) -> Result<f64, NetError> {
        self.value(key).and_then(Value::as_f64).ok_or_else(|| self.wrong(key, "a number"))
    }

    fn number_or(self, key: &str, default: f64) -> Result<f64, NetError> {
        if self.value(key).is_some() { self.number(key) } else { Ok(default) }
    }

    /// False where it is missing.
    fn flag(self, key: &str) -> Result<bool, NetError> {
        match self.value(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, "true or false")),
        }
    }

    /// Refuses what would change the numbers.
    fn refuse_variants(self, layers: usize, context: usize) -> Result<(), NetError> {
        if self.value("hidden_act").is_some() && self.text("hidden_act")? != "silu" {
            return Err(self.unsupported(&format!("`hidden_act` = `{}` (known: `silu`)", self.text("hidden_act")?)));
        }
        for key in ["attention_bias", "mlp_bias"] {
            if self.flag(key)? {
                return Err(self.unsupported(&format!("`{key}` = true")));
            }
        }
        if self.value("quantization_config").is_some() {
            return Err(
                self.unsupported("`quantization_config`; take the weights in `f32`, `f16` or `bf16`, or a GGUF")
            );
        }
        let is_sliding = self
            .value("layer_types")
            .and_then(Value::as_array)
            .map(|types| types.iter().any(|layer| layer.as_str() != Some("full_attention")));
        let is_sliding = is_sliding.unwrap_or(
            self.flag("use_sliding_window")?
                && self.size_or("sliding_window", usize::MAX)? < context
                && self.size_or("max_window_layers", 0)? < layers,
        );
        if is_sliding {
            return Err(self.unsupported("sliding window attention (`use_sliding_window`, `layer_types`)"));
        }
        Ok(())
    }

    /// Parameters of rotary positions: under `rope_parameters` in new files, `rope_scaling` in old ones.
    fn rope(self) -> Option<Self> {
        let json = self.value("rope_parameters").or_else(|| self.value("rope_scaling"))?;
        Some(Self { path: self.path, json })
    }

    fn rope_theta(self) -> Result<f64, NetError> {
        match self.rope() {
            Some(rope) if rope.value("rope_theta").is_some() => rope.number("rope_theta"),
            _ => self.number_or("rope_theta", 10_000.0),
        }
    }

    fn rope_scaling(self) -> Result<RopeScaling, NetError> {
        let Some(rope) = self.rope() else { return Ok(RopeScaling::None) };
        if (rope.number_or("partial_rotary_factor", 1.0)? - 1.0).abs() > 0.0 {
            return Err(self.unsupported("`partial_rotary_factor` other than 1"));
        }
        let key = if rope.value("rope_type").is_some() { "rope_type" } else { "type" };
        let kind = if rope.value(key).is_some() { rope.text(key)? } else { "default" };
        let factor = |key| {
            let factor = rope.number(key)?;
            if factor > 0.0 { Ok(factor) } else { Err(rope.wrong(key, "a positive number")) }
        };
        match kind {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: factor("factor")? }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: factor("factor")?,
                low_frequency_factor: factor("low_freq_factor")?,
                high_frequency_factor: factor("high_freq_factor")?,
                original_context: factor("original_max_position_embeddings")?,
            }),
            other => Err(self.unsupported(&format!("rotary scaling `{other}` (known: `default`, `linear`, `llama3`)"))),
        }
    }
}
