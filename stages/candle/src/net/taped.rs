//! Passes whose gradients can be taken: the decoder over variables, packed documents as one batch of rows.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, Device, InplaceOp1, Layout, Storage, Tensor, TensorId, Var};

use super::packed::Panelled;
use super::{Arithmetic, Decoder, Linear, Net, NetConfig, Rotary};
use crate::NetError;
use crate::kernels::Heads;
use crate::ops::{self, Angles, Sink};
use crate::weights::{self, FolderWeights, Form, GgufWeights, Random, Source, Values};

/// A net whose weights are variables.
#[derive(Debug)]
pub struct TapedNet {
    config: NetConfig,
    pub(super) decoder: Decoder<Var, Var>,
    rotary: Rotary,
    variables: BTreeMap<String, Var>,
}

impl TapedNet {
    /// Loads what [`Net::load`] loads.
    ///
    /// # Errors
    /// As for [`Net::load`].
    pub fn load(path: &Path) -> Result<Self, NetError> {
        if path.is_dir() {
            let weights = FolderWeights::open(path)?;
            return Self::assemble(weights.config.clone(), &weights);
        }
        let weights = GgufWeights::open(path)?;
        Self::assemble(weights.config.clone(), &weights)
    }

    /// Random weights, those of [`Net::random`].
    ///
    /// # Errors
    /// When the sizes make no net.
    pub fn random(config: NetConfig, seed: u64) -> Result<Self, NetError> {
        if let Some(message) = config.fault() {
            return Err(NetError::Config { path: PathBuf::from("random"), message });
        }
        Self::assemble(config, &Random { seed })
    }

    fn assemble(config: NetConfig, source: &impl Source) -> Result<Self, NetError> {
        let form = Variables::default();
        let decoder = weights::assemble(&config, source, &form)?;
        let rotary = Rotary::new(&config);
        let variables = form.made.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { config, decoder, rotary, variables })
    }

    /// Its sizes and constants.
    pub fn config(&self) -> &NetConfig {
        &self.config
    }

    /// All variables by their Hugging Face names.
    pub fn variables(&self) -> &BTreeMap<String, Var> {
        &self.variables
    }

    /// Shows the values of a variable, row-major.
    ///
    /// # Errors
    /// When there is no such variable.
    pub fn read_with<T>(&self, name: &str, read: impl FnOnce(&[f32]) -> T) -> Result<T, NetError> {
        with_elements(self.variable(name)?, read)
    }

    /// Changes the values of a variable in place.
    ///
    /// # Errors
    /// When there is no such variable.
    pub fn update<T>(&self, name: &str, change: impl FnOnce(&mut [f32]) -> T) -> Result<T, NetError> {
        let update = Update { change: Cell::new(Some(change)), given: Cell::new(None) };
        self.variable(name)?.inplace_op1(&update)?;
        update.given.take().ok_or_else(|| NetError::Step(format!("`{name}` was not changed")))
    }

    pub(super) fn variable(&self, name: &str) -> Result<&Var, NetError> {
        let missing = || NetError::MissingTensor { path: PathBuf::from("variables"), name: name.to_owned() };
        self.variables.get(name).ok_or_else(missing)
    }

    /// The weights as they are now, packed for decoding.
    ///
    /// # Errors
    /// When a variable cannot be read.
    pub fn pack(&self) -> Result<Net, NetError> {
        Ok(Net::new(self.config.clone(), weights::assemble(&self.config, self, &Panelled)?))
    }

    /// Rows after the last norm, `[tokens, hidden]`, of documents that are packed one after another; `documents` are their
    /// numbers of tokens. No document sees another.
    ///
    /// # Errors
    /// For tokens outside the vocabulary, documents beyond the context, or lengths that do not add up.
    pub fn rows(&self, tokens: &[u32], documents: &[usize]) -> Result<Tensor, NetError> {
        let mut taped = self.taped(tokens, documents)?;
        let x = self.decoder.embedding.index_select(&Tensor::new(tokens, &Device::Cpu)?, 0)?;
        let x = self.decoder.pass(&mut taped, x)?;
        taped.rms_norm(&x, &self.decoder.norm)
    }

    /// Arithmetic for documents that are packed one after another.
    pub(super) fn taped(&self, tokens: &[u32], documents: &[usize]) -> Result<Taped, NetError> {
        let NetConfig { vocabulary, context, head_dim, .. } = self.config;
        if documents.iter().sum::<usize>() != tokens.len() {
            let message = format!("documents of {documents:?} tokens, but there are {} tokens", tokens.len());
            return Err(NetError::Step(message));
        }
        if let Some(length) = documents.iter().find(|length| **length > context) {
            return Err(NetError::Context { position: length - 1, context });
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(NetError::Token { token: *token, vocabulary });
        }
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        self.rotary.angles(documents.iter().flat_map(|length| 0..*length), &mut cos, &mut sin);
        Ok(Taped {
            heads: self.config.attention(),
            eps: self.config.rms_eps,
            angles: Arc::new(Angles { cos, sin, head_dim }),
            documents: documents.into(),
            sinks: None,
        })
    }

    /// Logits of rows that [`TapedNet::rows`] gave.
    ///
    /// # Errors
    /// Those of tensor operations.
    pub fn logits(&self, rows: &Tensor) -> Result<Tensor, NetError> {
        Ok(ops::linear(rows, self.decoder.head())?)
    }

    /// `ln softmax(logits)[target]` of each row that [`TapedNet::rows`] gave: `[rows]`.
    ///
    /// # Errors
    /// For a number of targets other than of rows, or a target outside the vocabulary.
    pub fn log_probs(&self, rows: &Tensor, targets: &[u32]) -> Result<Tensor, NetError> {
        Ok(ops::log_probs(rows, self.decoder.head(), targets.into())?)
    }
}

impl Source for TapedNet {
    fn read(&self, name: &str, _shape: &[usize]) -> Result<Vec<f32>, NetError> {
        self.read_with(name, <[f32]>::to_vec)
    }
}

/// Runs over the elements of a contiguous tensor in memory, without a copy.
pub(super) fn with_elements<T>(tensor: &Tensor, run: impl FnOnce(&[f32]) -> T) -> Result<T, NetError> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(run(&values[start..end])),
        _ => Err(NetError::Step("gradients are taken in `f32`, on the processor, of contiguous tensors".to_owned())),
    }
}

/// A change of a variable's values, as the tensor library takes it.
struct Update<F, T> {
    change: Cell<Option<F>>,
    given: Cell<Option<T>>,
}

impl<T, F: FnOnce(&mut [f32]) -> T> InplaceOp1 for Update<F, T> {
    fn name(&self) -> &'static str {
        "update"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        if let (CpuStorage::F32(values), Some((start, end))) = (storage, layout.contiguous_offsets()) {
            self.given.set(self.change.take().map(|change| change(&mut values[start..end])));
        }
        Ok(())
    }
}

/// Weights as variables, kept by name.
#[derive(Default)]
struct Variables {
    made: Mutex<BTreeMap<String, Var>>,
}

impl Variables {
    fn keep(&self, name: &str, tensor: &Tensor) -> Result<Var, NetError> {
        let variable = Var::from_tensor(tensor)?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), variable.clone());
        Ok(variable)
    }
}

impl Form for Variables {
    type Matrix = Var;
    type Vector = Var;

    fn matrix(&self, name: &str, values: Values, outputs: usize, inputs: usize) -> Result<Var, NetError> {
        let values = match values {
            Values::Whole(values) => values,
            Values::Blocks(blocks) => {
                let mut values = vec![0.0; outputs * inputs];
                values.chunks_exact_mut(inputs).enumerate().for_each(|(index, row)| blocks.row(index, row));
                values
            }
        };
        self.keep(name, &Tensor::from_vec(values, (outputs, inputs), &Device::Cpu)?)
    }

    fn vector(&self, name: &str, values: Vec<f32>) -> Result<Var, NetError> {
        let width = values.len();
        self.keep(name, &Tensor::from_vec(values, width, &Device::Cpu)?)
    }
}

/// Arithmetic on tensors.
pub(super) struct Taped {
    heads: Heads,
    eps: f32,
    angles: Arc<Angles>,
    documents: Arc<[usize]>,
    /// Places for the gradients of the matrices that have been multiplied with, where such are wanted.
    pub(super) sinks: Option<Vec<(TensorId, Sink)>>,
}

impl Arithmetic for Taped {
    type Rows = Tensor;
    type Matrix = Var;
    type Vector = Var;

    fn rms_norm(&mut self, x: &Tensor, weight: &Var) -> Result<Tensor, NetError> {
        Ok(ops::rms_norm(x, weight, self.eps)?)
    }

    fn linear(&mut self, x: &Tensor, weights: &Linear<Var, Var>) -> Result<Tensor, NetError> {
        let y = match &mut self.sinks {
            None => ops::linear(x, &weights.weight)?,
            Some(sinks) => {
                let sink = Sink::default();
                sinks.push((weights.weight.id(), sink.clone()));
                ops::linear_into(x, &weights.weight, sink)?
            }
        };
        match &weights.bias {
            Some(bias) => Ok(y.broadcast_add(bias)?),
            None => Ok(y),
        }
    }

    fn rotate(&mut self, x: Tensor) -> Result<Tensor, NetError> {
        Ok(ops::rotate(&x, self.angles.clone())?)
    }

    fn attend(&mut self, _: usize, queries: Tensor, keys: Tensor, values: Tensor) -> Result<Tensor, NetError> {
        Ok(ops::attention(&queries, &keys, &values, self.heads, self.documents.clone())?)
    }

    fn swiglu(&mut self, gate: Tensor, up: Tensor) -> Result<Tensor, NetError> {
        Ok(ops::swiglu(&gate, &up)?)
    }

    fn add(&mut self, x: Tensor, y: Tensor) -> Result<Tensor, NetError> {
        Ok((x + y)?)
    }
}
