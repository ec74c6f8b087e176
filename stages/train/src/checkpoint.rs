//! States to go on from: weights, moments, the step and the place in the data, written whole or not at all.
//!
//! A state is a folder `step-00000042` as Hugging Face lays it out, in `f32`, with `state/` in it. A new one is written
//! beside the old one, synced and renamed; only then are older ones removed. So a kill or a full disk costs the new state
//! and never the old one, and going on from it gives the bits of a run that was not interrupted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stage_candle::{Shards, TapedNet};

use crate::folder::{remove, sync_folder, write_file, write_model, write_whole};
use crate::{AdamW, ModelFiles, Moments, Options, Schedule, Storage, TensorFile, TrainError, Trainer};

/// Version of the layout.
const FORMAT: u32 = 1;
const PREFIX: &str = "step-";

/// Place in the data, and what later draws depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Passes over the data that are complete.
    pub epoch: u64,
    /// Windows of this epoch's order that are done.
    pub window: u64,
    /// State of random numbers: seeds, counters; whatever the caller draws with.
    pub random: Vec<u64>,
}

/// A folder of states.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    root: PathBuf,
}

/// The content of `state/state.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    format: u32,
    step: u64,
    optimizer_steps: u64,
    position: Position,
}

impl Checkpoints {
    /// States in a folder; it is made with the first one.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Saves the trainer as it is, and removes older states; gives the state's folder.
    ///
    /// # Errors
    /// When the files cannot be written; older states are then whole.
    pub fn save(&self, trainer: &Trainer, files: &ModelFiles, position: &Position) -> Result<PathBuf, TrainError> {
        fs::create_dir_all(&self.root).map_err(TrainError::write(&self.root))?;
        let folder = self.root.join(format!("{PREFIX}{:08}", trainer.steps()));
        if !folder.exists() {
            write_whole(&folder, |draft| write_state(trainer, files, position, draft))?;
        }
        for (step, older) in self.all()? {
            if step < trainer.steps() {
                remove(&older)?;
            }
        }
        Ok(folder)
    }

    /// The state of the most steps, if there is one.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn latest(&self) -> Result<Option<PathBuf>, TrainError> {
        Ok(self.all()?.pop_last().map(|(_, folder)| folder))
    }

    fn all(&self) -> Result<BTreeMap<u64, PathBuf>, TrainError> {
        let mut states = BTreeMap::new();
        if !self.root.exists() {
            return Ok(states);
        }
        for entry in fs::read_dir(&self.root).map_err(TrainError::read(&self.root))? {
            let entry = entry.map_err(TrainError::read(&self.root))?;
            let name = entry.file_name();
            let step = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|step| step.parse().ok());
            if let Some(step) = step {
                states.insert(step, entry.path());
            }
        }
        Ok(states)
    }
}

impl Trainer {
    /// Goes on from a state; gives the place in the data too.
    ///
    /// # Errors
    /// When it is damaged, or of a later version.
    pub fn resume(folder: &Path, schedule: Schedule, options: Options) -> Result<(Self, Position), TrainError> {
        let path = folder.join("state/state.json");
        let text = fs::read(&path).map_err(TrainError::read(&path))?;
        let state: State =
            serde_json::from_slice(&text).map_err(|error| TrainError::state(&path, error.to_string()))?;
        if state.format != FORMAT {
            let message = format!("it has format {}, this program reads format {FORMAT}", state.format);
            return Err(TrainError::state(&path, message));
        }
        let net = TapedNet::load(folder)?;
        let shards = Shards::open_file(&folder.join("state/optimizer.safetensors"))?;
        let mut moments = BTreeMap::new();
        for (name, variable) in net.variables() {
            let read = |moment: &str| shards.read(&format!("{moment}.{name}"), variable.dims());
            moments.insert(name.clone(), Moments { first: read("first")?, second: read("second")? });
        }
        let optimizer = AdamW::with_state(&net, options.optimizer, moments, state.optimizer_steps)?;
        Ok((Self::with_state(net, optimizer, schedule, options, state.step)?, state.position))
    }
}

fn write_state(trainer: &Trainer, files: &ModelFiles, position: &Position, folder: &Path) -> Result<(), TrainError> {
    write_model(trainer.net(), files, folder, Storage::F32)?;
    let inner = folder.join("state");
    fs::create_dir(&inner).map_err(TrainError::write(&inner))?;
    write_moments(trainer, &inner.join("optimizer.safetensors"))?;
    let state = State {
        format: FORMAT,
        step: trainer.steps(),
        optimizer_steps: trainer.optimizer().steps(),
        position: position.clone(),
    };
    let path = inner.join("state.json");
    let text = serde_json::to_vec_pretty(&state).map_err(|error| TrainError::state(&path, error.to_string()))?;
    write_file(&path, &text)?;
    sync_folder(&inner)
}

fn write_moments(trainer: &Trainer, path: &Path) -> Result<(), TrainError> {
    let moments = trainer.optimizer().moments();
    let named = |kind: &str| moments.keys().map(|name| format!("{kind}.{name}")).collect::<Vec<_>>();
    let names = [named("first"), named("second")].concat();
    let shapes = trainer.net().variables().values().map(|variable| variable.dims());
    let shapes = names.iter().map(String::as_str).zip(shapes.clone().chain(shapes));
    let mut file = TensorFile::create(path, shapes, Storage::F32)?;
    moments.values().try_for_each(|moments| file.append(&moments.first))?;
    moments.values().try_for_each(|moments| file.append(&moments.second))?;
    file.finish()
}
