//! `AdamW`, in place: no temporary tensors, moments that can be saved, everything in `f32`.

use std::collections::BTreeMap;

use rayon::prelude::*;
use stage_candle::{Gradients, NetError, TapedNet};

use crate::TrainError;

/// Elements that one task changes.
const CHUNK: usize = 1 << 16;

/// Constants of the optimizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// Share of the mean gradient that is kept, 0 to 1.
    pub beta1: f64,
    /// Share of the mean square that is kept, 0 to 1.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Share of a matrix that a step takes away, times the learning rate. Norms and biases do not decay.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

/// Running means of a variable's gradient and of its square.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moments {
    /// Of the gradient.
    pub first: Vec<f32>,
    /// Of its square.
    pub second: Vec<f32>,
}

/// The optimizer with its state.
///
/// With gradient `g`, `m = beta1 m + (1 - beta1) g` and `v = beta2 v + (1 - beta2) g^2`, step `t` from 1 gives
/// `w = (1 - rate decay) w - rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)`
/// (Loshchilov and Hutter, arXiv 1711.05101, in the order of `torch.optim.AdamW`).
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    options: AdamWOptions,
    moments: BTreeMap<String, Moments>,
    steps: u64,
}

impl AdamW {
    /// A fresh optimizer for a net's variables.
    ///
    /// # Errors
    /// For constants outside their ranges.
    pub fn new(net: &TapedNet, options: AdamWOptions) -> Result<Self, TrainError> {
        let zeros = |count: usize| Moments { first: vec![0.0; count], second: vec![0.0; count] };
        let moments = net.variables().iter().map(|(name, variable)| (name.clone(), zeros(variable.elem_count())));
        Self::with_state(net, options, moments.collect(), 0)
    }

    /// An optimizer that goes on after `steps` steps.
    ///
    /// # Errors
    /// For constants outside their ranges, or moments of other variables than the net's.
    pub fn with_state(
        net: &TapedNet,
        options: AdamWOptions,
        moments: BTreeMap<String, Moments>,
        steps: u64,
    ) -> Result<Self, TrainError> {
        let AdamWOptions { beta1, beta2, epsilon, weight_decay } = options;
        let is_share = |beta: f64| (0.0..1.0).contains(&beta);
        if !(is_share(beta1) && is_share(beta2) && epsilon > 0.0 && weight_decay >= 0.0 && weight_decay.is_finite()) {
            let message = format!("{options:?}; expected betas of 0 to below 1, a positive epsilon and a decay from 0");
            return Err(TrainError::Parameter(message));
        }
        if !moments.keys().eq(net.variables().keys()) {
            return Err(TrainError::Parameter("the optimizer's state is not of this net".to_owned()));
        }
        for (name, variable) in net.variables() {
            let count = variable.elem_count();
            if moments.get(name).is_none_or(|one| one.first.len() != count || one.second.len() != count) {
                return Err(TrainError::Parameter(format!("the optimizer's state of `{name}` has another size")));
            }
        }
        Ok(Self { options, moments, steps })
    }

    /// Means of every variable, by Hugging Face names.
    pub fn moments(&self) -> &BTreeMap<String, Moments> {
        &self.moments
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes one step with gradients times `scale`.
    ///
    /// # Errors
    /// When a variable has no gradient; nothing has changed then.
    pub fn step(&mut self, net: &TapedNet, gradients: &Gradients, rate: f64, scale: f64) -> Result<(), TrainError> {
        if let Some(name) = self.moments.keys().find(|name| gradients.get(name).is_none()) {
            return Err(NetError::NoGradient(name.clone()).into());
        }
        self.steps += 1;
        let update = Update::new(self.options, rate, scale, self.steps);
        let changed: Result<(), NetError> = self.moments.par_iter_mut().try_for_each(|(name, moments)| {
            let gradient = gradients.get(name).unwrap_or_default();
            let is_matrix = net.variables().get(name).is_some_and(|variable| variable.dims().len() == 2);
            net.update(name, |weights| update.apply(weights, gradient, moments, is_matrix))
        });
        Ok(changed?)
    }
}

/// The numbers of one step.
#[derive(Debug, Clone, Copy)]
struct Update {
    scale: f32,
    keep1: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    rate: f32,
    root: f32,
    epsilon: f32,
    kept: f32,
}

impl Update {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is meant; steps are far below 2^31")]
    fn new(options: AdamWOptions, rate: f64, scale: f64, step: u64) -> Self {
        let AdamWOptions { beta1, beta2, epsilon, weight_decay } = options;
        let step = step.min(i32::MAX as u64) as i32;
        Self {
            scale: scale as f32,
            keep1: beta1 as f32,
            take1: (1.0 - beta1) as f32,
            keep2: beta2 as f32,
            take2: (1.0 - beta2) as f32,
            rate: (rate / (1.0 - beta1.powi(step))) as f32,
            root: (1.0 / (1.0 - beta2.powi(step)).sqrt()) as f32,
            epsilon: epsilon as f32,
            kept: (1.0 - rate * weight_decay) as f32,
        }
    }

    fn apply(self, weights: &mut [f32], gradient: &[f32], moments: &mut Moments, is_matrix: bool) {
        let kept = if is_matrix { self.kept } else { 1.0 };
        let weights = weights.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
        let moments = moments.first.par_chunks_mut(CHUNK).zip(moments.second.par_chunks_mut(CHUNK));
        weights.zip(moments).for_each(|((weights, gradient), (first, second))| {
            let both = first.iter_mut().zip(second.iter_mut());
            for ((weight, gradient), (first, second)) in weights.iter_mut().zip(gradient).zip(both) {
                let gradient = gradient * self.scale;
                *first = self.keep1 * *first + self.take1 * gradient;
                *second = self.keep2 * *second + self.take2 * gradient * gradient;
                let divisor = second.sqrt() * self.root + self.epsilon;
                *weight = kept * *weight - self.rate * *first / divisor;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use stage_candle::{Architecture, Batch, Checkpointing, NetConfig, Target};

    use super::*;

    fn net() -> TapedNet {
        TapedNet::random(NetConfig::tiny(Architecture::Qwen2), 1).unwrap()
    }

    #[test]
    fn the_first_steps_are_those_made_by_hand() {
        // g = 0.5 twice: m = 0.05, 0.095; v = 0.00025, 0.00049975; corrected both times to 0.5 and 0.25
        let options = AdamWOptions { weight_decay: 0.1, ..AdamWOptions::default() };
        let (mut weights, mut moments) = (vec![1.0_f32], Moments { first: vec![0.0], second: vec![0.0] });
        Update::new(options, 0.01, 0.25, 1).apply(&mut weights, &[2.0], &mut moments, true);
        assert!((moments.first[0] - 0.05).abs() < 1e-8 && (moments.second[0] - 0.000_25).abs() < 1e-9);
        assert!((weights[0] - (0.999 - 0.01)).abs() < 1e-6, "{weights:?}");
        Update::new(options, 0.01, 0.25, 2).apply(&mut weights, &[2.0], &mut moments, true);
        assert!((weights[0] - (0.989 * 0.999 - 0.01)).abs() < 1e-6, "{weights:?}");
        assert!((moments.first[0] - 0.095).abs() < 1e-8 && (moments.second[0] - 0.000_499_75).abs() < 1e-9);
    }

    #[test]
    fn vectors_do_not_decay() {
        let options = AdamWOptions { weight_decay: 0.5, ..AdamWOptions::default() };
        let mut moments = Moments { first: vec![0.0], second: vec![0.0] };
        let mut weights = [1.0_f32];
        Update::new(options, 0.1, 1.0, 1).apply(&mut weights, &[0.0], &mut moments, false);
        assert_eq!(weights[0].to_bits(), 1.0_f32.to_bits());
        Update::new(options, 0.1, 1.0, 1).apply(&mut weights, &[0.0], &mut moments, true);
        assert_eq!(weights[0].to_bits(), 0.95_f32.to_bits());
    }

    #[test]
    fn a_step_changes_every_variable_and_goes_downhill() {
        let net = net();
        let mut optimizer = AdamW::new(&net, AdamWOptions::default()).unwrap();
        let targets = (0..9).map(|row| Target { row, token: 7, weight: 1.0 }).collect();
        let batch = Batch { tokens: (0..10).collect(), documents: vec![10], targets };
        let mut gradients = Gradients::zeros(&net);
        let before = net.backward(&batch, Checkpointing::Layers, &mut gradients).unwrap().loss;
        let weights = |name: &str| net.read_with(name, <[f32]>::to_vec).unwrap();
        let old: Vec<Vec<f32>> = net.variables().keys().map(|name| weights(name)).collect();
        optimizer.step(&net, &gradients, 1e-3, 1.0).unwrap();
        assert!(net.variables().keys().zip(&old).all(|(name, old)| weights(name) != *old));
        assert!(net.evaluate(&batch).unwrap().loss < before);
        assert_eq!(optimizer.steps(), 1);
    }

    #[test]
    fn states_and_constants_that_do_not_fit_are_refused() {
        let net = net();
        let options = AdamWOptions { beta2: 1.0, ..AdamWOptions::default() };
        assert!(AdamW::new(&net, options).unwrap_err().to_string().contains("beta2: 1.0"));
        let mut moments = AdamW::new(&net, AdamWOptions::default()).unwrap().moments;
        moments.values_mut().next().unwrap().first.pop();
        let error = AdamW::with_state(&net, AdamWOptions::default(), moments, 3).unwrap_err().to_string();
        assert!(error.contains("another size"), "{error}");
    }
}
