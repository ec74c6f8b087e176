//! Steps of training: gradients of micro-batches are added up, clipped and applied.

use stage_candle::{Batch, Checkpointing, Gradients, Readings, TapedNet, Target};

use crate::{AdamW, AdamWOptions, Example, Schedule, TrainError};

/// How steps are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// What is kept between forward and backward.
    pub checkpointing: Checkpointing,
    /// Largest norm of the whole gradient; a longer one is shortened to it. `None` leaves it.
    pub clip: Option<f64>,
    /// Constants of the optimizer.
    pub optimizer: AdamWOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self { checkpointing: Checkpointing::Layers, clip: Some(1.0), optimizer: AdamWOptions::default() }
    }
}

/// Documents that go through the net together, with the names of the rows that they come from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Micro {
    /// Tokens and targets.
    pub batch: Batch,
    /// Names of the rows, for messages.
    pub rows: Vec<String>,
}

impl Micro {
    /// Examples of a window, one after another; every supervised token has weight 1.
    pub fn of<'a>(examples: impl IntoIterator<Item = (&'a str, &'a Example)>) -> Self {
        let mut micro = Self::default();
        for (name, example) in examples {
            let first = micro.batch.tokens.len();
            for place in example.supervised.iter().flat_map(Clone::clone).filter(|place| *place > 0) {
                let token = example.ids[place];
                micro.batch.targets.push(Target { row: first + place - 1, token, weight: 1.0 });
            }
            micro.batch.tokens.extend_from_slice(&example.ids);
            micro.batch.documents.push(example.ids.len());
            micro.rows.push(name.to_owned());
        }
        micro
    }
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The step, from 1.
    pub step: u64,
    /// Its learning rate.
    pub rate: f64,
    /// The loss before the step, over its divisor: for fine-tuning the mean of `-ln p` over supervised tokens.
    pub loss: f64,
    /// Mean entropy of the distributions that supervised tokens are drawn from, in nats.
    pub entropy: f64,
    /// Supervised tokens.
    pub supervised: usize,
    /// All tokens.
    pub tokens: usize,
    /// Norm of the whole gradient before it is clipped.
    pub gradient_norm: f64,
}

/// A net with its optimizer and its place in the schedule.
#[derive(Debug)]
pub struct Trainer {
    net: TapedNet,
    optimizer: AdamW,
    schedule: Schedule,
    options: Options,
    gradients: Gradients,
    step: u64,
}

impl Trainer {
    /// Begins training.
    ///
    /// # Errors
    /// For constants outside their ranges.
    pub fn new(net: TapedNet, schedule: Schedule, options: Options) -> Result<Self, TrainError> {
        let optimizer = AdamW::new(&net, options.optimizer)?;
        Self::with_state(net, optimizer, schedule, options, 0)
    }

    /// Goes on after `step` steps.
    ///
    /// # Errors
    /// For a bound of the gradient that is none.
    pub fn with_state(
        net: TapedNet,
        optimizer: AdamW,
        schedule: Schedule,
        options: Options,
        step: u64,
    ) -> Result<Self, TrainError> {
        if let Some(clip) = options.clip
            && (clip <= 0.0 || clip.is_nan())
        {
            return Err(TrainError::Parameter(format!(
                "the gradient is clipped to {clip}; expected a positive number"
            )));
        }
        let gradients = Gradients::zeros(&net);
        Ok(Self { net, optimizer, schedule, options, gradients, step })
    }

    /// The net as it is now.
    pub fn net(&self) -> &TapedNet {
        &self.net
    }

    /// The optimizer as it is now.
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Learning rates.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// One step of fine-tuning on all micro-batches together: the loss is the mean over their supervised tokens, so that
    /// the gradient is the same however the examples are split.
    ///
    /// # Errors
    /// As for [`Self::weighted_step`], also without any supervised token.
    pub fn step(&mut self, micros: &[Micro]) -> Result<StepReport, TrainError> {
        let supervised: usize = micros.iter().map(|micro| micro.batch.targets.len()).sum();
        self.weighted_step(micros, supervised as f64)
    }

    /// One step on the sum of the micro-batches' losses over `divisor`, with targets weighted as they are.
    ///
    /// # Errors
    /// When a batch contradicts itself or nothing is supervised; when the loss or the gradient is no finite number, with the
    /// rows that it comes from: weights and moments are then as before.
    pub fn weighted_step(&mut self, micros: &[Micro], divisor: f64) -> Result<StepReport, TrainError> {
        let step = self.step + 1;
        if micros.iter().all(|micro| micro.batch.targets.is_empty()) {
            return Err(TrainError::Nothing(step));
        }
        if !(divisor > 0.0 && divisor.is_finite()) {
            return Err(TrainError::Parameter(format!("the loss is divided by {divisor}; expected a positive number")));
        }
        self.gradients.clear();
        let mut sums = Sums::default();
        for micro in micros {
            let readings = self.net.backward(&micro.batch, self.options.checkpointing, &mut self.gradients)?;
            ensure_finite(step, "loss", readings.loss, || micro.rows.clone())?;
            sums.add(micro, &readings);
        }
        let gradient_norm = self.gradients.norm() / divisor;
        ensure_finite(step, "gradient norm", gradient_norm, || {
            micros.iter().flat_map(|micro| &micro.rows).cloned().collect()
        })?;
        let clipped = match self.options.clip {
            Some(clip) if gradient_norm > clip => clip / gradient_norm,
            _ => 1.0,
        };
        let rate = self.schedule.rate(step);
        self.optimizer.step(&self.net, &self.gradients, rate, clipped / divisor)?;
        self.step = step;
        let Sums { loss, entropy, supervised, tokens } = sums;
        let (loss, entropy) = (loss / divisor, entropy / supervised as f64);
        Ok(StepReport { step, rate, loss, entropy, supervised, tokens, gradient_norm })
    }

    /// Names of the variables that get no gradient from a micro-batch, or one that is no finite number: they would never
    /// learn, and the loss would not show it. The net stays as it is.
    ///
    /// # Errors
    /// When the batch contradicts itself.
    pub fn without_gradient(&self, micro: &Micro) -> Result<Vec<String>, TrainError> {
        let mut gradients = Gradients::zeros(&self.net);
        self.net.backward(&micro.batch, self.options.checkpointing, &mut gradients)?;
        let is_still = |gradient: &[f32]| {
            gradient.iter().all(|slope| *slope == 0.0) || gradient.iter().any(|slope| !slope.is_finite())
        };
        Ok(gradients.iter().filter(|(_, gradient)| is_still(gradient)).map(|(name, _)| name.to_owned()).collect())
    }

    /// Mean of `-ln p` over supervised tokens, and their number; the net stays as it is. `None` without any.
    ///
    /// # Errors
    /// When a batch contradicts itself.
    pub fn evaluate(&self, micros: &[Micro]) -> Result<Option<(f64, usize)>, TrainError> {
        let mut sums = Sums::default();
        for micro in micros {
            sums.add(micro, &self.net.evaluate(&micro.batch)?);
        }
        Ok((sums.supervised > 0).then(|| (sums.loss / sums.supervised as f64, sums.supervised)))
    }
}

/// Sums over micro-batches.
#[derive(Debug, Default)]
struct Sums {
    loss: f64,
    entropy: f64,
    supervised: usize,
    tokens: usize,
}

impl Sums {
    fn add(&mut self, micro: &Micro, readings: &Readings) {
        self.loss += readings.loss;
        self.entropy += readings.entropies.iter().map(|entropy| f64::from(*entropy)).sum::<f64>();
        self.supervised += readings.log_probs.len();
        self.tokens += micro.batch.tokens.len();
    }
}

fn ensure_finite(
    step: u64,
    what: &'static str,
    value: f64,
    rows: impl FnOnce() -> Vec<String>,
) -> Result<(), TrainError> {
    if value.is_finite() { Ok(()) } else { Err(TrainError::NotFinite { step, what, value, rows: rows() }) }
}
