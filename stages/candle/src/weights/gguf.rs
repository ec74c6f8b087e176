//! Weights of a GGUF file, dequantised to the layout of Hugging Face.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use stage_tokens::Gguf;
use stage_tokens::gguf::{GgmlType, TensorInfo};

use super::{EMBEDDING, HEAD, NORM, Source, Values, ensure_finite};
use crate::NetError;
use crate::kernels::{BlockKind, Blocks, rounded};
use crate::net::{Architecture, NetConfig, RopeScaling};

/// Parts of a layer: name at Hugging Face, name in GGUF.
const PARTS: [(&str, &str); 12] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
];

/// Frequency factors of rotary positions.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// An open GGUF file with a net that can be computed.
pub(crate) struct GgufWeights {
    gguf: Gguf,
    /// What the metadata and the tensors say.
    pub(crate) config: NetConfig,
}

impl GgufWeights {
    /// Opens a file and reads its configuration.
    pub(crate) fn open(path: &Path) -> Result<Self, NetError> {
        let gguf = Gguf::open(path)?;
        let mut config = config(&gguf)?;
        if let Some(factors) = gguf.tensor(ROPE_FACTORS) {
            config.rope_scaling = RopeScaling::Factors(values(&gguf, factors, &[config.head_dim / 2])?);
        }
        let weights = Self { gguf, config };
        weights.refuse_extra()?;
        Ok(weights)
    }

    /// A tensor by its Hugging Face name.
    fn tensor(&self, name: &str) -> Result<&TensorInfo, NetError> {
        let name = file_name(name);
        let missing = || NetError::MissingTensor { path: self.gguf.path().to_owned(), name: name.clone() };
        self.gguf.tensor(&name).ok_or_else(missing)
    }

    /// Refuses tensors that the net would not use.
    fn refuse_extra(&self) -> Result<(), NetError> {
        let mut known: BTreeSet<String> = [EMBEDDING, NORM, HEAD].into_iter().map(file_name).collect();
        known.insert(ROPE_FACTORS.to_owned());
        for part in super::layer_parts(&self.config) {
            known.extend((0..self.config.layers).map(|layer| file_name(&super::layer_tensor(layer, part))));
        }
        match self.gguf.tensors().iter().find(|tensor| !known.contains(&tensor.name)) {
            Some(extra) => Err(NetError::ExtraTensor { path: self.gguf.path().to_owned(), name: extra.name.clone() }),
            None => Ok(()),
        }
    }
}

impl Source for GgufWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetError> {
        values(&self.gguf, self.tensor(name)?, shape)
    }

    fn read_matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Values, NetError> {
        let tensor = self.tensor(name)?;
        let is_paired = self.config.architecture == Architecture::Llama
            && ["q_proj.weight", "k_proj.weight"].iter().any(|end| name.ends_with(end));
        let head_dim = self.config.head_dim;
        let order = |row| if is_paired { row_of_pairs(row, head_dim) } else { row };
        let kind = match tensor.kind {
            GgmlType::Q4_1 => Some(BlockKind::Nibbles),
            GgmlType::Q8_0 => Some(BlockKind::Bytes),
            _ => None,
        };
        if let Some(kind) = kind {
            check_shape(self.gguf.path(), tensor, &[outputs, inputs])?;
            if let Some(blocks) = Blocks::new(kind, &self.gguf.read(tensor)?, outputs, inputs, order) {
                return match blocks.fault() {
                    Some((index, value)) => {
                        let (path, name) = (self.gguf.path().to_owned(), tensor.name.clone());
                        Err(NetError::NotFinite { path, name, index, value })
                    }
                    None => Ok(Values::Blocks(blocks)),
                };
            }
        }
        let values = values(&self.gguf, tensor, &[outputs, inputs])?;
        if !is_paired {
            return Ok(Values::Whole(values));
        }
        let mut ordered = vec![0.0; values.len()];
        for (row, to) in ordered.chunks_exact_mut(inputs).enumerate() {
            to.copy_from_slice(&values[order(row) * inputs..][..inputs]);
        }
        Ok(Values::Whole(ordered))
    }
}

/// Name in the file of a tensor that Hugging Face calls `name`.
fn file_name(name: &str) -> String {
    match name {
        EMBEDDING => return "token_embd.weight".to_owned(),
        NORM => return "output_norm.weight".to_owned(),
        HEAD => return "output.weight".to_owned(),
        _ => {}
    }
    let layer_and_part = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let Some((layer, part)) = layer_and_part else { return name.to_owned() };
    let part = PARTS.iter().find(|(ours, _)| *ours == part).map_or(part, |(_, theirs)| theirs);
    format!("blk.{layer}.{part}")
}

/// The file's row for a row of queries or keys: GGUF has the elements of a Llama's heads in neighbouring pairs, row
/// `2 j + t`, where Hugging Face has them in halves, row `t * head_dim / 2 + j`.
fn row_of_pairs(row: usize, head_dim: usize) -> usize {
    let (head, place) = (row / head_dim, row % head_dim);
    head * head_dim + place % (head_dim / 2) * 2 + place / (head_dim / 2)
}

fn check_shape(path: &Path, tensor: &TensorInfo, expected: &[usize]) -> Result<(), NetError> {
    let found: Vec<usize> = tensor.dims.iter().rev().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)).collect();
    if found == expected {
        return Ok(());
    }
    Err(NetError::Shape { path: path.to_owned(), name: tensor.name.clone(), expected: expected.to_vec(), found })
}

/// A tensor's values in `f32`, row-major.
fn values(gguf: &Gguf, tensor: &TensorInfo, shape: &[usize]) -> Result<Vec<f32>, NetError> {
    let path = gguf.path();
    check_shape(path, tensor, shape)?;
    let Some(kind) = storage(tensor.kind) else {
        let what = format!("tensor `{}` in type `{}`", tensor.name, tensor.kind);
        return Err(NetError::Unsupported { path: path.to_owned(), what });
    };
    let bytes = gguf.read(tensor)?;
    let storage = QStorage::from_data(Cow::Owned(bytes), &Device::Cpu, kind)?;
    let values = QTensor::new(storage, shape)?.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
    ensure_finite(path, &tensor.name, &values)?;
    Ok(values)
}

fn storage(kind: GgmlType) -> Option<GgmlDType> {
    Some(match kind {
        GgmlType::F32 => GgmlDType::F32,
        GgmlType::F16 => GgmlDType::F16,
        GgmlType::BF16 => GgmlDType::BF16,
        GgmlType::Q4_0 => GgmlDType::Q4_0,
        GgmlType::Q4_1 => GgmlDType::Q4_1,
        GgmlType::Q5_0 => GgmlDType::Q5_0,
        GgmlType::Q5_1 => GgmlDType::Q5_1,
        GgmlType::Q8_0 => GgmlDType::Q8_0,
        GgmlType::Q2_K => GgmlDType::Q2K,
        GgmlType::Q3_K => GgmlDType::Q3K,
        GgmlType::Q4_K => GgmlDType::Q4K,
        GgmlType::Q5_K => GgmlDType::Q5K,
        GgmlType::Q6_K => GgmlDType::Q6K,
        _ => return None,
    })
}

/// Reads the configuration from the metadata.
fn config(gguf: &Gguf) -> Result<NetConfig, NetError> {
    let path = gguf.path();
    let unsupported = |what: String| NetError::Unsupported { path: path.to_owned(), what };
    let architecture = match gguf.text("general.architecture")? {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        other => return Err(unsupported(format!("architecture `{other}` (known: `llama`, `qwen2`)"))),
    };
    let key = |name: &str| format!("{architecture}.{name}");
    let size = |name: &str| Ok::<_, NetError>(usize::try_from(gguf.u64(&key(name))?).unwrap_or(usize::MAX));
    let size_or = |name: &str, default| if gguf.value(&key(name)).is_some() { size(name) } else { Ok(default) };
    let (hidden, heads) = (size("embedding_length")?, size("attention.head_count")?);
    let head_dim = size_or("attention.key_length", hidden / heads.max(1))?;
    for name in ["attention.value_length", "rope.dimension_count"] {
        if size_or(name, head_dim)? != head_dim {
            return Err(unsupported(format!("`{}` other than the width of a head, {head_dim}", key(name))));
        }
    }
    for name in ["expert_count", "attention.sliding_window"] {
        if size_or(name, 0)? != 0 {
            return Err(unsupported(format!("`{}` = {}", key(name), size(name)?)));
        }
    }
    let Some(embedding) = gguf.tensor("token_embd.weight") else {
        return Err(NetError::MissingTensor { path: path.to_owned(), name: "token_embd.weight".to_owned() });
    };
    let rope_theta = if gguf.value(&key("rope.freq_base")).is_some() { gguf.f64(&key("rope.freq_base"))? } else { 1e4 };
    let config = NetConfig {
        architecture,
        vocabulary: embedding.dims.get(1).map_or(0, |rows| usize::try_from(*rows).unwrap_or(usize::MAX)),
        hidden,
        intermediate: size("feed_forward_length")?,
        layers: size("block_count")?,
        heads,
        kv_heads: size_or("attention.head_count_kv", heads)?,
        head_dim,
        context: size("context_length")?,
        rope_theta,
        rope_scaling: rope_scaling(gguf, &key)?,
        rms_eps: rounded(gguf.f64(&key("attention.layer_norm_rms_epsilon"))?),
        tied: gguf.tensor("output.weight").is_none(),
        qkv_bias: architecture == Architecture::Qwen2,
    };
    let mut fault = config.fault();
    let tokens = gguf.value("tokenizer.ggml.tokens").and_then(|tokens| tokens.as_array()).map_or(0, <[_]>::len);
    if tokens > config.vocabulary {
        let rows = config.vocabulary;
        fault = Some(format!("the tokenizer has {tokens} tokens, but `token_embd.weight` has {rows} rows"));
    }
    match fault {
        Some(message) => Err(NetError::Config { path: path.to_owned(), message }),
        None => Ok(config),
    }
}

fn rope_scaling(gguf: &Gguf, key: &impl Fn(&str) -> String) -> Result<RopeScaling, NetError> {
    let kind = gguf.value(&key("rope.scaling.type")).and_then(|kind| kind.as_str()).unwrap_or("none");
    match kind {
        "none" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: gguf.f64(&key("rope.scaling.factor"))? }),
        other => Err(NetError::Unsupported {
            path: gguf.path().to_owned(),
            what: format!("`{}` = `{other}` (known: `none`, `linear`)", key("rope.scaling.type")),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_go_from_pairs_to_halves() {
        let rows: Vec<usize> = (0..8).map(|row| row_of_pairs(row, 4)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn names_are_those_of_the_format() {
        assert_eq!(file_name("model.layers.12.mlp.down_proj.weight"), "blk.12.ffn_down.weight");
        assert_eq!(file_name(EMBEDDING), "token_embd.weight");
    }
}
