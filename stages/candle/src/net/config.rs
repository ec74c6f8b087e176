//! What a net looks like: sizes, norms, rotation of positions.

use std::fmt;
use std::path::Path;

use crate::NetError;
use crate::kernels::Heads;
use crate::weights::{self, GgufWeights};

/// Family of nets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama: no biases.
    Llama,
    /// Qwen2: biases on queries, keys and values.
    Qwen2,
}

impl fmt::Display for Architecture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
        })
    }
}

/// How the frequencies of rotary positions are changed for contexts longer than those of pre-training.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All divided by `factor`.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// Long waves divided by `factor`, short ones kept, a blend between: the rule that Llama 3.1 came with.
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Waves longer than `original_context / low_frequency_factor` are divided.
        low_frequency_factor: f64,
        /// Waves shorter than `original_context / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// Tokens of the context in pre-training.
        original_context: f64,
    },
    /// Each frequency divided by its own factor, as GGUF stores it: `head_dim / 2` factors.
    Factors(Vec<f32>),
}

/// Sizes and constants of a net.
#[derive(Debug, Clone, PartialEq)]
pub struct NetConfig {
    /// Family.
    pub architecture: Architecture,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// Width of a token's row between layers.
    pub hidden: usize,
    /// Width inside the feed-forward part.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Most tokens in a sequence.
    pub context: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Change of the rotary frequencies.
    pub rope_scaling: RopeScaling,
    /// Added to the mean square in norms.
    pub rms_eps: f32,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
}

impl NetConfig {
    /// A small net for tests: 2 layers, hidden 64, 4 heads over 2, vocabulary 256, context 128.
    pub fn tiny(architecture: Architecture) -> Self {
        Self {
            architecture,
            vocabulary: 256,
            hidden: 64,
            intermediate: 96,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            context: 128,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            rms_eps: 1e-5,
            tied: true,
            qkv_bias: architecture == Architecture::Qwen2,
        }
    }

    /// Reads the configuration of the model that lies at `path`: a folder, or a `.gguf` file.
    ///
    /// # Errors
    /// When it cannot be read, or is not supported.
    pub fn open(path: &Path) -> Result<Self, NetError> {
        if path.is_dir() {
            weights::config::read(&path.join("config.json"))
        } else {
            Ok(GgufWeights::open(path)?.config)
        }
    }

    /// The content of a Hugging Face folder's `config.json`; `None` for rotary frequencies that it has no words for.
    pub fn hugging_face(&self) -> Option<serde_json::Value> {
        weights::config::write(self)
    }

    /// Numbers and widths of heads.
    pub fn attention(&self) -> Heads {
        Heads { queries: self.heads, keys: self.kv_heads, width: self.head_dim }
    }

    /// What is senseless about the sizes, in words; `None` when they make a net.
    pub(crate) fn fault(&self) -> Option<String> {
        let sizes = [
            ("vocabulary", self.vocabulary),
            ("hidden size", self.hidden),
            ("intermediate size", self.intermediate),
            ("number of layers", self.layers),
            ("number of heads", self.heads),
            ("number of key/value heads", self.kv_heads),
            ("width of a head", self.head_dim),
            ("context", self.context),
        ];
        // one size far beyond any net would overflow products of sizes
        for (name, size) in sizes {
            if size == 0 || size > 1 << 26 {
                return Some(format!("the {name} is {size}; expected 1 to {}", 1 << 26));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Some(format!("{} heads cannot share {} key/value heads evenly", self.heads, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Some(format!("the width of a head is {}; rotary positions need an even one", self.head_dim));
        }
        if !(self.rms_eps > 0.0 && self.rms_eps.is_finite()) {
            return Some(format!("the epsilon of norms is {}; expected a small positive number", self.rms_eps));
        }
        if !(self.rope_theta > 0.0 && self.rope_theta.is_finite()) {
            return Some(format!("the base of rotary frequencies is {}; expected a positive number", self.rope_theta));
        }
        None
    }
}
