//! The loop of a phase: windows in their order, steps, checkpoints, states.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pipeline_core::{Event, ParamError, Seed, Stage as _, StageError, Task};
use pipeline_models::ModelSet;
use serde_json::json;
use stage_candle::{Checkpointing, NetConfig, TapedNet};
use stage_train::{
    AdamWOptions, Checkpoints, Micro, ModelFiles, Options, Position, Schedule, StepReport, Trainer, pack, save_folder,
    shuffled,
};

use super::examples::{Examples, Student};
use super::figures::{Figures, OfStep};
use super::{Sft, VALIDATION};
use crate::artifact::{self, Told};
use crate::fault::{of_model, of_training};

/// Longest window by default: that of the report.
const LONGEST_WINDOW: usize = 65_536;
/// Time between two states where no checkpoint is due.
const BETWEEN_STATES: Duration = Duration::from_mins(5);

/// A phase that is ready to train.
pub struct Phase<'a> {
    sft: &'a Sft,
    examples: Examples,
    validation: Option<Examples>,
    files: ModelFiles,
    weights: PathBuf,
    windows: Vec<Vec<usize>>,
    /// Windows of the validation rows.
    validation_windows: Vec<Vec<usize>>,
    seed: u64,
    schedule: Schedule,
    checkpoint_every: u64,
}

impl<'a> Phase<'a> {
    /// Renders the rows and checks that there is something to learn; `None` for an input without rows.
    ///
    /// # Errors
    /// When the model cannot be used, too many rows cannot be trained on, or none can.
    pub fn prepare(sft: &'a Sft, task: &mut Task<'_>) -> Result<Option<Self>, StageError> {
        let models = task.env().services.get::<ModelSet>();
        let models = models.ok_or_else(|| StageError::Internal("no models are registered".to_owned()))?;
        let weights = models.weights(&sft.model).map_err(|error| of_model(&error))?;
        let config = NetConfig::open(&weights).map_err(|error| of_training(error.into()))?;
        let student = Student::open(&weights)?;
        if student.vocabulary() > config.vocabulary {
            let message = format!(
                "the tokenizer has {} ids, and the weights have rows for {}: they are not of one model",
                student.vocabulary(),
                config.vocabulary
            );
            return Err(StageError::Param(ParamError::new("model", message)));
        }
        let window = sft.window.unwrap_or(config.context.min(LONGEST_WINDOW));
        if window > config.context {
            let message = format!("`window` is {window} tokens, and the model's context is {}", config.context);
            return Err(StageError::Param(ParamError::new("window", message)));
        }
        let files = ModelFiles::open(&weights).map_err(of_training)?;
        let examples = Examples::render(task, "rows", &student, window, true)?;
        if examples.read == 0 {
            return Ok(None);
        }
        sft.ensure_usable(&examples)?;
        let validation = (!task.port(VALIDATION).is_empty())
            .then(|| Examples::render(task, VALIDATION, &student, window, false))
            .transpose()?;
        let validation_windows =
            validation.as_ref().map(|rows| pack(&rows.lengths(), window).windows).unwrap_or_default();
        if let Some(rows) = &validation {
            if validation_windows.is_empty() {
                let message = "no validation row can be measured: all are too long or unusable".to_owned();
                return Err(StageError::Alarm(message));
            }
            task.count("validation rows left out", (rows.unusable + rows.too_long) as u64);
        }
        let windows = pack(&examples.lengths(), window).windows;
        let per_epoch = windows.len().div_ceil(sft.batch) as u64;
        let schedule = Schedule::new(sft.learning_rate, sft.min_learning_rate, sft.warm_up, per_epoch * sft.epochs);
        let schedule = schedule.map_err(of_training)?;
        let seed = Seed::for_row(task.seed(), Sft::KIND, &sft.salt, "", 0).value();
        let checkpoint_every = sft.checkpoint_every.unwrap_or(per_epoch);
        Ok(Some(Self {
            sft,
            examples,
            validation,
            files,
            weights,
            windows,
            validation_windows,
            seed,
            schedule,
            checkpoint_every,
        }))
    }

    /// Trains to the end and leaves the checkpoints.
    ///
    /// # Errors
    /// When a loss is not finite, the disk refuses, or the run is interrupted; the state then holds what was done.
    pub fn run(self, task: &mut Task<'_>) -> Result<(), StageError> {
        let states = Checkpoints::new(&task.state().join("resume"));
        let (mut trainer, mut figures) = self.begin(task, &states)?;
        self.ensure_everything_learns(&trainer, &figures)?;
        let steps = self.schedule.steps();
        let (begun, mut trained) = (Instant::now(), 0);
        let mut saved = Instant::now();
        while trainer.steps() < steps {
            if task.cancel().load(Ordering::Relaxed) {
                self.save(task, &states, &trainer, &figures)?;
                return Err(StageError::Cancelled);
            }
            let report = trainer.step(&self.micros(trainer.steps())?).map_err(of_training)?;
            figures.steps.push(OfStep::from(report));
            trained += report.tokens;
            self.tell(task, &report, trained, begun.elapsed());
            let is_due = report.step % self.checkpoint_every == 0 || report.step == steps;
            if is_due {
                self.checkpoint(task, &trainer, &mut figures)?;
            }
            if is_due || saved.elapsed() > BETWEEN_STATES {
                self.save(task, &states, &trainer, &figures)?;
                saved = Instant::now();
            }
        }
        self.finish(task, &figures)
    }

    /// The trainer and the figures of the last state, or of the beginning.
    fn begin(&self, task: &Task<'_>, states: &Checkpoints) -> Result<(Trainer, Figures), StageError> {
        let options = Options {
            checkpointing: if self.sft.recompute { Checkpointing::Layers } else { Checkpointing::None },
            clip: Some(self.sft.clip),
            optimizer: AdamWOptions {
                beta1: self.sft.beta1,
                beta2: self.sft.beta2,
                weight_decay: self.sft.weight_decay,
                ..AdamWOptions::default()
            },
        };
        if let Some(state) = states.latest().map_err(of_training)? {
            let (trainer, _) = Trainer::resume(&state, self.schedule, options).map_err(of_training)?;
            let figures = Figures::read(task.state(), trainer.steps())?;
            let message = format!("goes on after step {} of {}", trainer.steps(), self.schedule.steps());
            task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
            return Ok((trainer, figures));
        }
        let net = TapedNet::load(&self.weights).map_err(|error| of_training(error.into()))?;
        let trainer = Trainer::new(net, self.schedule, options).map_err(of_training)?;
        Ok((trainer, Figures::default()))
    }

    /// Before the first step: a variable without a gradient would never learn, and nothing else would show it.
    fn ensure_everything_learns(&self, trainer: &Trainer, figures: &Figures) -> Result<(), StageError> {
        if !figures.steps.is_empty() {
            return Ok(());
        }
        let micro = self.micros(0)?.into_iter().next().unwrap_or_default();
        let still = trainer.without_gradient(&micro).map_err(of_training)?;
        match still.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(StageError::Alarm(format!(
                "{} of the weights get no gradient from the first window, `{first}` among them, so they would never learn",
                still.len()
            ))),
        }
    }

    /// The windows of the step after `done` steps. Epochs have orders of their own; the last step of one may be smaller.
    fn micros(&self, done: u64) -> Result<Vec<Micro>, StageError> {
        let per_epoch = self.windows.len().div_ceil(self.sft.batch) as u64;
        let order = shuffled(self.windows.len(), self.seed, done / per_epoch);
        let first = usize::try_from(done % per_epoch).unwrap_or(0) * self.sft.batch;
        let members = &order[first..order.len().min(first + self.sft.batch)];
        members.iter().map(|window| self.examples.window(&self.windows[*window])).collect()
    }

    fn tell(&self, task: &Task<'_>, report: &StepReport, trained: usize, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let tokens_per_second = trained as f64 / seconds;
        let per_step = trained as f64 / (report.step as f64).max(1.0);
        let left = self.schedule.steps().saturating_sub(report.step) as f64;
        task.events().emit(&Event::Trained {
            stage: task.stage().to_owned(),
            step: report.step,
            steps: self.schedule.steps(),
            loss: report.loss,
            learning_rate: report.rate,
            gradient_norm: report.gradient_norm,
            tokens_per_second,
            seconds_left: left * per_step / tokens_per_second.max(1e-9),
        });
    }

    /// Writes a checkpoint's folder, unless an attempt that was killed has, and measures it.
    fn checkpoint(&self, task: &Task<'_>, trainer: &Trainer, figures: &mut Figures) -> Result<(), StageError> {
        let step = trainer.steps();
        let name = format!("step-{step}");
        let folder = folder_of(task, &name);
        if !folder.exists() {
            let parent = task.state().join("checkpoints");
            std::fs::create_dir_all(&parent).map_err(StageError::io("create", &parent))?;
            save_folder(trainer.net(), &self.files, &folder, self.sft.stored_as.into()).map_err(of_training)?;
        }
        let before = figures.checkpoints.last().map_or(0, |(_, told)| told.step);
        let told = Told {
            step,
            epoch: Some(step as f64 * self.sft.epochs as f64 / self.schedule.steps() as f64),
            tokens: Some(figures.supervised()),
            loss: figures.loss_since(before),
            validation_loss: self.validation_loss(trainer)?,
        };
        figures.checkpoints.push((name, told));
        Ok(())
    }

    fn validation_loss(&self, trainer: &Trainer) -> Result<Option<f64>, StageError> {
        let Some(rows) = &self.validation else { return Ok(None) };
        let (mut sum, mut tokens) = (0.0, 0);
        for window in &self.validation_windows {
            if let Some((loss, count)) = trainer.evaluate(&[rows.window(window)?]).map_err(of_training)? {
                sum += loss * count as f64;
                tokens += count;
            }
        }
        Ok((tokens > 0).then(|| sum / tokens as f64))
    }

    /// Writes the state: figures first, so that a state is never without them.
    fn save(
        &self,
        task: &Task<'_>,
        states: &Checkpoints,
        trainer: &Trainer,
        figures: &Figures,
    ) -> Result<(), StageError> {
        if trainer.steps() == 0 {
            return Ok(());
        }
        let per_epoch = self.windows.len().div_ceil(self.sft.batch) as u64;
        let (epoch, window) = (trainer.steps() / per_epoch, trainer.steps() % per_epoch * self.sft.batch as u64);
        figures.write(task.state(), trainer.steps())?;
        states.save(trainer, &self.files, &Position { epoch, window, random: vec![self.seed] }).map_err(of_training)?;
        Figures::remove_before(task.state(), trainer.steps());
        Ok(())
    }

    fn finish(&self, task: &mut Task<'_>, figures: &Figures) -> Result<(), StageError> {
        figures.write_table(task)?;
        let tokens: usize = self.examples.lengths().iter().sum();
        task.note(
            "training",
            json!({
                "steps": self.schedule.steps(), "windows": self.windows.len(), "tokens_per_epoch": tokens,
                "supervised_tokens": figures.supervised(), "first_loss": figures.steps.first().map(OfStep::loss),
                "last_loss": figures.steps.last().map(OfStep::loss),
            }),
        );
        let all: Vec<(&str, PathBuf, &Told)> =
            figures.checkpoints.iter().map(|(name, told)| (name.as_str(), folder_of(task, name), told)).collect();
        artifact::leave(task, all.iter().map(|(name, folder, told)| (*name, folder.as_path(), *told)))
    }
}

/// Where a checkpoint lies until it is committed.
fn folder_of(task: &Task<'_>, name: &str) -> PathBuf {
    task.state().join("checkpoints").join(name)
}

impl Sft {
    /// Refuses data that is mostly unusable: it is a mistake, and training on the rest would hide it.
    fn ensure_usable(&self, examples: &Examples) -> Result<(), StageError> {
        let usable = examples.lengths().len();
        let reason = examples.first.as_deref().unwrap_or("too_long");
        if usable == 0 {
            let message = format!("none of {} rows can be trained on, the first reason: {reason}", examples.read);
            return Err(StageError::Alarm(message));
        }
        let share = examples.unusable as f64 / examples.read as f64;
        if share > self.max_unusable {
            let message = format!(
                "{} of {} rows cannot be trained on, the first reason: {reason}; `max_unusable` = {} allows fewer",
                examples.unusable, examples.read, self.max_unusable
            );
            return Err(StageError::Alarm(message));
        }
        Ok(())
    }
}
