//! Gradients of a batch, layer by layer, and what the head says of its targets.
//!
//! A graph over the whole net would hold every intermediate result until the loss is dropped. Here each layer has a graph
//! of its own: forward keeps the layer's input; backward starts from the gradient of the layer's output, gives that of its
//! input and of its weights, and drops the graph. With [`Checkpointing::Layers`] forward keeps nothing but the inputs, and
//! each layer is computed again when backward reaches it: one more forward for the memory of one layer.
//!
//! The head works on rows that have a target alone, and makes the gradient of their logits as soon as it has them, so that
//! logits are computed once and never held for all rows.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, TensorId, Var};
use rayon::prelude::*;

use super::taped::{Taped, with_elements};
use super::{Layer, TapedNet};
use crate::NetError;
use crate::kernels;
use crate::ops::{self, Head, HeadSlopes, Sink};
use crate::weights::{EMBEDDING, HEAD, NORM, layer_parts, layer_tensor};

/// Elements whose squares are added in `f32`.
const NORM_BLOCK: usize = 4096;

/// What is kept between forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checkpointing {
    /// Every intermediate result.
    None,
    /// The input of each layer; what is in it is computed again.
    #[default]
    Layers,
}

/// Packed documents with the tokens that some of their rows shall predict.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// All tokens, document after document: one row each.
    pub tokens: Vec<u32>,
    /// Numbers of tokens of the documents, in order. No document sees another.
    pub documents: Vec<usize>,
    /// What is supervised. The loss is the sum of `weight * -ln p(token | rows up to row)`.
    pub targets: Vec<Target>,
}

/// A token that a row shall predict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The row, from 0; the token stands behind it.
    pub row: usize,
    /// The token.
    pub token: u32,
    /// Its share of the loss, of any sign: minus the derivative of the loss by the token's log-probability.
    pub weight: f32,
}

/// What a net says of a batch's targets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings {
    /// Sum of `weight * -ln p` over all targets.
    pub loss: f64,
    /// `ln p` of each target, in the batch's order.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution that each target is drawn from, in nats.
    pub entropies: Vec<f32>,
}

/// Sums of gradients, a buffer for each variable, by Hugging Face names.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    buffers: BTreeMap<String, Vec<f32>>,
}

impl Gradients {
    /// Zeros for every variable of a net.
    pub fn zeros(net: &TapedNet) -> Self {
        let zeros = |variable: &Var| vec![0.0; variable.elem_count()];
        Self { buffers: net.variables().iter().map(|(name, variable)| (name.clone(), zeros(variable))).collect() }
    }

    /// The gradient of one variable, row-major.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.buffers.get(name).map(Vec::as_slice)
    }

    /// The gradient of one variable, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut [f32]> {
        self.buffers.get_mut(name).map(Vec::as_mut_slice)
    }

    /// Names and gradients, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f32])> {
        self.buffers.iter().map(|(name, buffer)| (name.as_str(), buffer.as_slice()))
    }

    /// The root of the sum of all squares, in `f64` and in one order.
    pub fn norm(&self) -> f64 {
        let square = |buffer: &Vec<f32>| -> f64 {
            let blocks: Vec<f64> =
                buffer.par_chunks(NORM_BLOCK).map(|block| f64::from(kernels::product(block, block))).collect();
            blocks.iter().sum()
        };
        self.buffers.values().map(square).sum::<f64>().sqrt()
    }

    /// Sets all to 0.
    pub fn clear(&mut self) {
        self.buffers.values_mut().for_each(|buffer| buffer.fill(0.0));
    }

    fn buffer(&mut self, name: &str) -> Result<&mut [f32], NetError> {
        Ok(self.whole(name)?.as_mut_slice())
    }

    fn whole(&mut self, name: &str) -> Result<&mut Vec<f32>, NetError> {
        self.buffers.get_mut(name).ok_or_else(|| NetError::NoGradient(name.to_owned()))
    }

    /// Adds what a graph's backward gave for a variable.
    fn take(&mut self, name: &str, variable: &Var, slopes: &mut GradStore) -> Result<(), NetError> {
        let slope = slopes.remove(variable).ok_or_else(|| NetError::NoGradient(name.to_owned()))?;
        let buffer = self.buffer(name)?;
        with_elements(&slope, |slope| kernels::add(buffer, slope))
    }
}

impl TapedNet {
    /// Adds the gradient of the batch's loss to `gradients` and gives what the head says of its targets.
    ///
    /// # Errors
    /// For tokens outside the vocabulary, documents beyond the context, lengths that do not add up, or targets that are no
    /// rows. `gradients` may then hold a part.
    pub fn backward(
        &self,
        batch: &Batch,
        checkpointing: Checkpointing,
        gradients: &mut Gradients,
    ) -> Result<Readings, NetError> {
        self.check_targets(batch)?;
        let mut taped = self.taped(&batch.tokens, &batch.documents)?;
        if batch.targets.is_empty() {
            return Ok(Readings::default());
        }
        let mut x = self.embedded(&batch.tokens)?;
        let mut passages = Vec::with_capacity(self.decoder.layers.len());
        for (index, layer) in self.decoder.layers.iter().enumerate() {
            let input = Var::from_tensor(&x)?;
            let passage = Passage::new(layer, &mut taped, index, &input)?;
            x = passage.output.detach();
            passages.push((input, (checkpointing == Checkpointing::None).then_some(passage)));
        }
        let (readings, mut slope) = self.head_backward(batch, &x, gradients)?;
        for (index, (input, passage)) in passages.into_iter().enumerate().rev() {
            let passage = match passage {
                Some(passage) => passage,
                None => Passage::new(&self.decoder.layers[index], &mut taped, index, &input)?,
            };
            slope = self.layer_backward(index, &input, passage, &slope, gradients)?;
        }
        let embedding = gradients.buffer(EMBEDDING)?;
        let hidden = self.config().hidden;
        with_elements(&slope, |slope| {
            for (token, slope) in batch.tokens.iter().zip(slope.chunks_exact(hidden)) {
                kernels::add(&mut embedding[*token as usize * hidden..][..hidden], slope);
            }
        })?;
        Ok(readings)
    }

    /// What the head says of the batch's targets, without gradients.
    ///
    /// # Errors
    /// As for [`TapedNet::backward`].
    pub fn evaluate(&self, batch: &Batch) -> Result<Readings, NetError> {
        self.check_targets(batch)?;
        let mut taped = self.taped(&batch.tokens, &batch.documents)?;
        if batch.targets.is_empty() {
            return Ok(Readings::default());
        }
        let mut x = self.embedded(&batch.tokens)?;
        for (index, layer) in self.decoder.layers.iter().enumerate() {
            x = layer.pass(&mut taped, index, x)?.detach();
        }
        let normed = ops::rms_norm(&self.supervised(batch, &x)?, &self.decoder.norm, self.config().rms_eps)?;
        self.read(batch, &normed, None)
    }

    fn check_targets(&self, batch: &Batch) -> Result<(), NetError> {
        let (rows, vocabulary) = (batch.tokens.len(), self.config().vocabulary);
        for Target { row, token, weight } in &batch.targets {
            if *row >= rows {
                return Err(NetError::Step(format!("a target of row {row}, but there are {rows} rows")));
            }
            if *token as usize >= vocabulary {
                return Err(NetError::Token { token: *token, vocabulary });
            }
            if !weight.is_finite() {
                return Err(NetError::Step(format!("the target of row {row} has weight {weight}")));
            }
        }
        Ok(())
    }

    /// The tokens' rows of the embedding, outside any graph.
    fn embedded(&self, tokens: &[u32]) -> Result<Tensor, NetError> {
        Ok(self.decoder.embedding.index_select(&Tensor::new(tokens, &Device::Cpu)?, 0)?.detach())
    }

    /// The rows of `x` that have a target, in the targets' order.
    fn supervised(&self, batch: &Batch, x: &Tensor) -> Result<Tensor, NetError> {
        let hidden = self.config().hidden;
        let mut picked = Vec::with_capacity(batch.targets.len() * hidden);
        with_elements(x, |x| {
            batch.targets.iter().for_each(|target| picked.extend_from_slice(&x[target.row * hidden..][..hidden]));
        })?;
        Ok(Tensor::from_vec(picked, (batch.targets.len(), hidden), &Device::Cpu)?)
    }

    /// Readings of rows after the last norm, `[targets, hidden]`.
    fn read(&self, batch: &Batch, normed: &Tensor, slopes: Option<HeadSlopes<'_>>) -> Result<Readings, NetError> {
        let read = |head: Head<'_>| with_elements(normed, |normed| head.read(normed, &batch.targets, slopes));
        with_elements(self.decoder.head(), |weights| read(Head::new(weights, self.config().vocabulary)))?
    }

    /// Readings, and the gradient of all rows of `x` (`[tokens, hidden]`).
    fn head_backward(
        &self,
        batch: &Batch,
        x: &Tensor,
        gradients: &mut Gradients,
    ) -> Result<(Readings, Tensor), NetError> {
        let picked = Var::from_tensor(&self.supervised(batch, x)?)?;
        let normed = ops::rms_norm(&picked, &self.decoder.norm, self.config().rms_eps)?;
        let mut slope = vec![0.0; normed.elem_count()];
        let weights = gradients.buffer(if self.config().tied { EMBEDDING } else { HEAD })?;
        let readings = self.read(batch, &normed, Some(HeadSlopes { rows: &mut slope, weights }))?;
        let mut slopes = backward(&normed, &Tensor::from_vec(slope, normed.shape(), &Device::Cpu)?)?;
        gradients.take(NORM, &self.decoder.norm, &mut slopes)?;
        let picked = slopes.remove(&picked).ok_or_else(|| NetError::NoGradient("rows before the head".to_owned()))?;
        let hidden = self.config().hidden;
        let mut rows = vec![0.0; x.elem_count()];
        with_elements(&picked, |picked| {
            for (target, slope) in batch.targets.iter().zip(picked.chunks_exact(hidden)) {
                kernels::add(&mut rows[target.row * hidden..][..hidden], slope);
            }
        })?;
        Ok((readings, Tensor::from_vec(rows, x.shape(), &Device::Cpu)?))
    }

    /// The gradient of a layer's input from that of its output; those of its weights are added.
    fn layer_backward(
        &self,
        index: usize,
        input: &Var,
        passage: Passage,
        slope: &Tensor,
        gradients: &mut Gradients,
    ) -> Result<Tensor, NetError> {
        let Passage { output, sinks } = passage;
        let (mut lent, mut others) = (Vec::new(), Vec::new());
        for part in layer_parts(self.config()) {
            let name = layer_tensor(index, part);
            let variable = self.variable(&name)?;
            match sinks.iter().find(|(id, _)| *id == variable.id()) {
                Some((_, sink)) => {
                    sink.lend(std::mem::take(gradients.whole(&name)?));
                    lent.push((name, sink));
                }
                None => others.push((name, variable)),
            }
        }
        let outcome = backward(&output, slope);
        let mut unused = None;
        // also after a failure: the buffers are the caller's
        for (name, sink) in lent {
            let (buffer, is_used) = sink.take_back();
            *gradients.whole(&name)? = buffer;
            unused = if is_used { unused } else { Some(name) };
        }
        let mut slopes = outcome?;
        if let Some(name) = unused {
            return Err(NetError::NoGradient(name));
        }
        for (name, variable) in others {
            gradients.take(&name, variable, &mut slopes)?;
        }
        slopes.remove(input).ok_or_else(|| NetError::NoGradient(format!("input of layer {index}")))
    }
}

/// A layer's output with its graph.
struct Passage {
    output: Tensor,
    sinks: Vec<(TensorId, Sink)>,
}

impl Passage {
    fn new(layer: &Layer<Var, Var>, taped: &mut Taped, index: usize, input: &Var) -> Result<Self, NetError> {
        taped.sinks = Some(Vec::new());
        let output = layer.pass(taped, index, input.as_tensor().clone())?;
        Ok(Self { output, sinks: taped.sinks.take().unwrap_or_default() })
    }
}

/// Gradients of all that `output` was made of, given its own.
fn backward(output: &Tensor, slope: &Tensor) -> Result<GradStore, NetError> {
    Ok((output * slope)?.sum_all()?.backward()?)
}
