//! Where weights come from: GGUF files, Hugging Face folders, or a random seed; and how a decoder is put together of them.
//!
//! Tensors go by their Hugging Face names and layouts; a source translates.

pub(crate) mod config;
mod folder;
mod gguf;
mod random;
mod shards;

use std::path::Path;

use rayon::prelude::*;

use crate::NetError;
use crate::kernels::Blocks;
use crate::net::{Decoder, Layer, Linear, NetConfig};

pub(crate) use folder::FolderWeights;
pub(crate) use gguf::GgufWeights;
pub(crate) use random::Random;
pub use shards::Shards;

/// Named tensors.
pub(crate) trait Source: Sync {
    /// Reads a tensor as row-major `f32` values.
    ///
    /// # Errors
    /// When it is missing, of another shape, cut, or not finite.
    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetError>;

    /// Reads a matrix `[outputs, inputs]`, in blocks where the file has such that can be computed with.
    ///
    /// # Errors
    /// As for [`Source::read`].
    fn read_matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Values, NetError> {
        Ok(Values::Whole(self.read(name, &[outputs, inputs])?))
    }
}

/// Values of a matrix.
pub(crate) enum Values {
    /// Row-major.
    Whole(Vec<f32>),
    /// In blocks of few bits.
    Blocks(Blocks),
}

/// Makes the two kinds of weights out of values: matrices `[out, in]` and vectors. The name is that of Hugging Face.
pub(crate) trait Form: Sync {
    /// A matrix.
    type Matrix: Send;
    /// A vector.
    type Vector: Send;

    /// From values of `[outputs, inputs]`.
    fn matrix(&self, name: &str, values: Values, outputs: usize, inputs: usize) -> Result<Self::Matrix, NetError>;

    /// From values.
    fn vector(&self, name: &str, values: Vec<f32>) -> Result<Self::Vector, NetError>;
}

/// Name of the embedding.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// Name of the head.
pub(crate) const HEAD: &str = "lm_head.weight";
/// Name of the last norm.
pub(crate) const NORM: &str = "model.norm.weight";

/// Name of a tensor of a layer.
pub(crate) fn layer_tensor(layer: usize, part: &str) -> String {
    format!("model.layers.{layer}.{part}")
}

/// Parts of a layer that are matrices or norms.
const LAYER_PARTS: [&str; 9] = [
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
];
/// Parts of a layer that are biases.
const LAYER_BIASES: [&str; 3] = ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"];

/// Parts of a layer of this configuration.
pub(crate) fn layer_parts(config: &NetConfig) -> impl Iterator<Item = &'static str> {
    let biases: &[&str] = if config.qkv_bias { &LAYER_BIASES } else { &[] };
    LAYER_PARTS.iter().chain(biases).copied()
}

/// Refuses values that are NaN or infinite.
pub(crate) fn ensure_finite(path: &Path, name: &str, values: &[f32]) -> Result<(), NetError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => {
            let value = values[index];
            Err(NetError::NotFinite { path: path.to_owned(), name: name.to_owned(), index, value })
        }
        None => Ok(()),
    }
}

/// Puts a decoder together, tensor by tensor, so that values in both forms never pile up.
pub(crate) fn assemble<F: Form>(
    config: &NetConfig,
    source: &impl Source,
    form: &F,
) -> Result<Decoder<F::Matrix, F::Vector>, NetError> {
    let assembly = Assembly { config, source, form };
    let (vocabulary, hidden) = (config.vocabulary, config.hidden);
    let embedding = assembly.matrix(EMBEDDING, vocabulary, hidden)?;
    let head = if config.tied { None } else { Some(assembly.matrix(HEAD, vocabulary, hidden)?) };
    let norm = assembly.vector(NORM, hidden)?;
    let layers = (0..config.layers).into_par_iter().map(|layer| assembly.layer(layer)).collect::<Result<_, _>>()?;
    Ok(Decoder { embedding, layers, norm, head })
}

struct Assembly<'a, S, F> {
    config: &'a NetConfig,
    source: &'a S,
    form: &'a F,
}

impl<S: Source, F: Form> Assembly<'_, S, F> {
    fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<F::Matrix, NetError> {
        self.form.matrix(name, self.source.read_matrix(name, outputs, inputs)?, outputs, inputs)
    }

    fn vector(&self, name: &str, width: usize) -> Result<F::Vector, NetError> {
        self.form.vector(name, self.source.read(name, &[width])?)
    }

    fn linear(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        has_bias: bool,
    ) -> Result<Linear<F::Matrix, F::Vector>, NetError> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias = if has_bias { Some(self.vector(&format!("{name}.bias"), outputs)?) } else { None };
        Ok(Linear { weight, bias })
    }

    fn layer(&self, layer: usize) -> Result<Layer<F::Matrix, F::Vector>, NetError> {
        let NetConfig { hidden, intermediate, qkv_bias, head_dim, .. } = *self.config;
        let (queries, keys) = (self.config.heads * head_dim, self.config.kv_heads * head_dim);
        let name = |part: &str| layer_tensor(layer, part);
        Ok(Layer {
            attention_norm: self.vector(&name("input_layernorm.weight"), hidden)?,
            query: self.linear(&name("self_attn.q_proj"), queries, hidden, qkv_bias)?,
            key: self.linear(&name("self_attn.k_proj"), keys, hidden, qkv_bias)?,
            value: self.linear(&name("self_attn.v_proj"), keys, hidden, qkv_bias)?,
            output: self.linear(&name("self_attn.o_proj"), hidden, queries, false)?,
            feed_norm: self.vector(&name("post_attention_layernorm.weight"), hidden)?,
            gate: self.linear(&name("mlp.gate_proj"), intermediate, hidden, false)?,
            up: self.linear(&name("mlp.up_proj"), intermediate, hidden, false)?,
            down: self.linear(&name("mlp.down_proj"), hidden, intermediate, false)?,
        })
    }
}
