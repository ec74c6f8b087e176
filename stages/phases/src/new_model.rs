//! Models from nothing: random weights in the shape of a known architecture, a tokenizer of bytes, a chat template.

use std::path::Path;

use pipeline_core::{Example, Output, ParamError, Port, Ports, Seed, Stage, StageError, Step, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stage_candle::{Architecture, NetConfig, RopeScaling, TapedNet};
use stage_tokens::{ChatTemplate, EndTokens, Tokenizer, byte_tokenizer};
use stage_train::{ModelFiles, save_folder};

use crate::artifact::{self, Told};
use crate::fault::{of_tokens, of_training};
use crate::storage::StoredAs;

/// Makes a small model with random weights, in the shape of Qwen2 or Llama, with a tokenizer of single bytes.
///
/// For tests, and for showing a whole pipeline in minutes: nothing is downloaded. Its folder holds `config.json`,
/// `model.safetensors`, `tokenizer.json` and a `ChatML` template, and loads in `transformers`. Name it in `[models.x]` with
/// `stage = "..."`.
///
/// ```toml
/// [stages.blank]
/// kind = "new_model"
/// hidden = 128
/// layers = 4
///
/// [models.base]
/// engine = "local"
/// stage = "blank"
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModel {
    /// `qwen2` (default) or `llama`.
    #[serde(default)]
    architecture: Shape,
    /// Width of a token between layers. Default 128.
    #[serde(default = "hidden")]
    hidden: usize,
    /// Width inside the feed-forward part. Default is three times `hidden`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intermediate: Option<usize>,
    /// Layers. Default 4.
    #[serde(default = "four")]
    layers: usize,
    /// Heads of attention; they divide `hidden`. Default 4.
    #[serde(default = "four")]
    heads: usize,
    /// Heads of keys and values; they divide `heads`. Default 2.
    #[serde(default = "two")]
    kv_heads: usize,
    /// Most tokens of a sequence. Default 1024.
    #[serde(default = "context")]
    context: usize,
    /// Whether the head shares the embedding's weights. Default true.
    #[serde(default = "yes")]
    tied: bool,
    /// Draws other weights when it is changed.
    #[serde(default)]
    salt: String,
    /// Number format of the weights: `f32` (default) or `bf16`.
    #[serde(default)]
    stored_as: StoredAs,
}

/// Architecture of a net.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Shape {
    /// With biases on queries, keys and values.
    #[default]
    Qwen2,
    /// Without biases.
    Llama,
}

fn hidden() -> usize {
    128
}

fn four() -> usize {
    4
}

fn two() -> usize {
    2
}

fn context() -> usize {
    1024
}

fn yes() -> bool {
    true
}

const END_OF_TEXT: &str = "<|endoftext|>";
const START: &str = "<|im_start|>";
const END: &str = "<|im_end|>";
/// `ChatML`, as Qwen's models have it.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/// Name of the only checkpoint.
const NAME: &str = "step-0";

impl Stage for NewModel {
    const KIND: &'static str = "new_model";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[];
    const DRAWS: bool = true;

    fn example() -> Example {
        let params = json!({ "hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "context": 64 });
        Example { params, inputs: Vec::new(), files: Vec::new(), written: 1, rejected: Vec::new() }
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.heads == 0 || !self.hidden.is_multiple_of(2 * self.heads) {
            let message = "`heads` must divide `hidden` into heads of an even width";
            return Err(ParamError::new("heads", message));
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ParamError::new("kv_heads", "`kv_heads` must divide `heads`"));
        }
        if self.layers == 0 || self.context == 0 || self.hidden == 0 {
            return Err(ParamError::new("layers", "`layers`, `hidden` and `context` must be at least 1"));
        }
        Ok(())
    }

    fn outputs(&self, _inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        Ok(vec![artifact::output()])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![Step::gather("model")]
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let folder = task.folder().join(NAME);
        let seed = Seed::for_row(task.seed(), Self::KIND, &self.salt, "", 0).value();
        let parameters = self.write(seed, &folder)?;
        task.note("parameters", parameters.into());
        artifact::leave(task, [(NAME, folder.as_path(), &Told::default())])
    }
}

impl NewModel {
    /// Writes the model to a folder that is not there yet, and gives the number of its weights.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, seed: u64, folder: &Path) -> Result<usize, StageError> {
        let source = byte_tokenizer(&[END_OF_TEXT, START, END]);
        let tokenizer = Tokenizer::from_json(source.as_bytes()).map_err(|error| of_tokens(&error))?;
        let template = ChatTemplate::new(TEMPLATE, "", END).map_err(|error| of_tokens(&error))?;
        let ends = tokenizer.special(END).into_iter().chain(tokenizer.special(END_OF_TEXT)).collect();
        let ends = EndTokens::new(ends, &tokenizer, Some(&template));
        let config = self.config(tokenizer.vocabulary());
        let net = TapedNet::random(config.clone(), seed).map_err(|error| of_training(error.into()))?;
        let files = ModelFiles::made(&config, &source, Some(&template), &ends).map_err(of_training)?;
        save_folder(&net, &files, folder, self.stored_as.into()).map_err(of_training)?;
        Ok(net.variables().values().map(|variable| variable.elem_count()).sum())
    }

    fn config(&self, vocabulary: usize) -> NetConfig {
        let architecture = match self.architecture {
            Shape::Qwen2 => Architecture::Qwen2,
            Shape::Llama => Architecture::Llama,
        };
        NetConfig {
            architecture,
            // a multiple of 64 suits matrix kernels
            vocabulary: vocabulary.next_multiple_of(64),
            hidden: self.hidden,
            intermediate: self.intermediate.unwrap_or(3 * self.hidden),
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.hidden / self.heads,
            context: self.context,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            rms_eps: 1e-6,
            tied: self.tied,
            qkv_bias: architecture == Architecture::Qwen2,
        }
    }
}
