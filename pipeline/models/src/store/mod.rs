//! Every model answer ever paid for, by request: `calls/<model>/<writer>.calls`.
//!
//! One append-only file for each writing process, so that processes share a folder, also over a network, without
//! locks. Opening reads the files once in large blocks, compares payloads of common size with their sums, and keeps an
//! index in memory (about 100 bytes a call); answers are read from their file when wanted. A record that is torn or
//! damaged is skipped and counted; the records around it stay readable. An append is handed to the system before it is
//! reported, so a killed process loses nothing it was told of; the disk is synchronised every few seconds and at close.
//!
//! Where two processes asked the same at the same time, all readers that open the folder later agree
//! on the record in the file that was begun first; an answer goes before a row error.

mod compact;
mod index;
mod models;
mod pack;
mod reading;
mod record;
mod record_lines;
mod rewriting;
mod upkeep;
mod walk;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::key::CallKey;
use crate::request::{Asked, ModelId};
use crate::weights::Score;
use index::{Index, walk_news};
use record::Place;
use writer::Writer;

pub(crate) use record::Kind;
pub(crate) use writer::now_ms;

pub use compact::Compacted;
pub use record_lines::Written;
pub use upkeep::{CallSummary, Prune, Pruned, Shape};

const EXTENSION: &str = "calls";

/// One stored call: the request, what came back, and the circumstances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredCall {
    /// Who was asked.
    pub model: ModelId,
    /// What was asked: messages, sampling, sample index and salt; or messages and the text to be scored.
    pub request: Asked,
    /// What came back.
    pub reply: Reply,
    /// Name of the stage that asked first.
    #[serde(default)]
    pub stage: String,
    /// Scheme, host and port of the server; empty for weights in this process.
    #[serde(default)]
    pub host: String,
    /// When the reply came, in milliseconds since 1970 UTC.
    #[serde(default)]
    pub time_ms: u64,
    /// From sending to the end of the reply, in milliseconds.
    #[serde(default)]
    pub latency_ms: u64,
}

/// What a model said for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The body of a successful reply, byte for byte; [`parse_answer`](crate::parse_answer) reads it.
    Answer(String),
    /// How likely a given text is.
    Score(Score),
    /// A refusal that no repetition changes.
    RowError {
        /// Short `snake_case` word.
        code: String,
        /// The server's words.
        message: String,
    },
}

/// What could not be read, over all files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Damage {
    /// Stretches of a file that hold no whole record, or a record whose content is not what was written.
    pub damaged: u64,
    /// Files that end within a record: a writer was killed there, or is writing now.
    pub torn: u64,
}

/// A folder of calls. Share it by `Arc`; all methods may be called from any thread.
#[derive(Debug)]
pub struct CallStore {
    folder: PathBuf,
    index: RwLock<Index>,
    refreshing: Mutex<()>,
    writers: Mutex<BTreeMap<ModelId, Writer>>,
    handles: Mutex<VecDeque<(Arc<Path>, Arc<File>)>>,
}

impl CallStore {
    /// Opens a folder of calls, which need not exist yet, and indexes it.
    ///
    /// # Errors
    /// A folder or file that cannot be read. Damaged records are no error: see [`CallStore::damage`].
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, ModelError> {
        let store = Self {
            folder: folder.into(),
            index: RwLock::default(),
            refreshing: Mutex::default(),
            writers: Mutex::default(),
            handles: Mutex::default(),
        };
        store.refresh()?;
        Ok(store)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Number of calls known.
    pub fn len(&self) -> usize {
        read(&self.index).calls.len()
    }

    /// Whether no call is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What could not be read so far.
    pub fn damage(&self) -> Damage {
        let index = read(&self.index);
        Damage {
            damaged: index.unreadable + index.files.iter().map(|file| file.damaged).sum::<u64>(),
            torn: index.files.iter().filter(|file| file.torn).count() as u64,
        }
    }

    /// Takes up what other processes have appended, compacted or pruned since. Calls already known keep their record
    /// while its file is there.
    ///
    /// # Errors
    /// A folder or file that cannot be read; a file that vanished meanwhile is none.
    pub fn refresh(&self) -> Result<(), ModelError> {
        let _one_at_a_time = lock(&self.refreshing);
        let paths = self.call_files()?;
        let mut found = Vec::new();
        for path in &paths {
            let known = read(&self.index).known(path).cloned();
            if known.as_ref().is_some_and(|known| known.own) {
                continue;
            }
            match walk_news(path, known.as_ref()) {
                Ok(Some(news)) => found.push((path, news)),
                Ok(None) => {}
                // it vanished, or was cut back by its writer, while it was looked at
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(ModelError::store(path, error)),
            }
        }
        let gone = self.vanished(&paths);
        let mut index = write(&self.index);
        if !gone.is_empty() {
            index.drop_files(&gone);
        }
        for (path, news) in found {
            index.take_up(path, news);
        }
        Ok(())
    }

    /// Whether a call is known, an answer or a row error.
    pub fn contains(&self, key: &CallKey) -> bool {
        read(&self.index).calls.contains_key(key)
    }

    /// Stores a call; it is with the system when this returns. The first record of a key stays the one
    /// that is read, save that an answer replaces a row error.
    ///
    /// # Errors
    /// A full disk or a folder that cannot be written; the file is then cut back to its whole records.
    pub fn append(&self, key: &CallKey, call: &StoredCall) -> Result<(), ModelError> {
        let bytes = record::encode(key, call).map_err(|error| ModelError::store(&self.folder, error))?;
        let mut writers = lock(&self.writers);
        if writers.get_mut(&call.model).is_none_or(|writer| !writer.is_there()) {
            let folder = self.folder.join(call.model.slug());
            let writer = Writer::create(&folder).map_err(|error| ModelError::store(folder, error))?;
            writers.insert(call.model.clone(), writer);
        }
        let Some(writer) = writers.get_mut(&call.model) else {
            return Ok(());
        };
        match writer.append(&bytes) {
            Ok(offset) => {
                let mut index = write(&self.index);
                let file = *writer.number.get_or_insert_with(|| index.number_of(&writer.path, true));
                index.insert(*key, Place { file, ..Place::of_record(call.reply.kind(), offset, bytes.len()) });
                Ok(())
            }
            Err(error) => {
                let path = writer.path.clone();
                if !writer.is_usable() {
                    writers.remove(&call.model);
                }
                Err(ModelError::store(path, error))
            }
        }
    }

    /// Brings everything appended so far onto the disk.
    ///
    /// # Errors
    /// What the system reports.
    pub fn sync(&self) -> Result<(), ModelError> {
        for writer in lock(&self.writers).values_mut() {
            writer.sync().map_err(|error| ModelError::store(&writer.path, error))?;
        }
        Ok(())
    }

    /// All files of calls, in the order of their names, which begin with the time they were begun.
    fn call_files(&self) -> Result<Vec<PathBuf>, ModelError> {
        let mut found = Vec::new();
        for model in list(&self.folder)? {
            if model.is_dir() {
                found.extend(
                    list(&model)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == EXTENSION)),
                );
            }
        }
        found.sort_by(|first, second| (first.file_name(), first).cmp(&(second.file_name(), second)));
        Ok(found)
    }

    /// Known files of others that are neither listed nor there.
    fn vanished(&self, listed: &[PathBuf]) -> Vec<PathBuf> {
        let listed: BTreeSet<&Path> = listed.iter().map(PathBuf::as_path).collect();
        let index = read(&self.index);
        let is_others = |number: u32| index.files.get(number as usize).is_some_and(|file| !file.own);
        let known = index.by_path.iter().filter(|(path, number)| is_others(**number) && !listed.contains(&***path));
        known.map(|(path, _)| path.to_path_buf()).filter(|path| !path.exists()).collect()
    }

    /// Looks at all files anew, after this process has rewritten some. `writers` is held by the caller, so that
    /// nothing is appended meanwhile.
    fn index_anew(&self, writers: &mut BTreeMap<ModelId, Writer>) -> Result<(), ModelError> {
        let _one_at_a_time = lock(&self.refreshing);
        let mut anew = Index::default();
        for path in self.call_files()? {
            match walk_news(&path, None) {
                Ok(Some(news)) => anew.take_up(&path, news),
                Ok(None) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(ModelError::store(path, error)),
            }
        }
        for writer in writers.values_mut() {
            let number = anew.number_of(&writer.path, true);
            if let Some(known) = anew.files.get_mut(number as usize) {
                known.own = true;
            }
            writer.number = Some(number);
        }
        let mut index = write(&self.index);
        lock(&self.handles).clear();
        *index = anew;
        Ok(())
    }
}

impl Drop for CallStore {
    fn drop(&mut self) {
        // A failure to synchronise at close costs nothing that a kill of the process would not have cost.
        let _ = self.sync();
    }
}

impl Reply {
    fn kind(&self) -> Kind {
        match self {
            Self::Answer(_) | Self::Score(_) => Kind::Answer,
            Self::RowError { .. } => Kind::RowError,
        }
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| ModelError::store(folder, error))?,
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| ModelError::store(folder, error))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(value: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    value.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(value: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    value.write().unwrap_or_else(PoisonError::into_inner)
}

/// What a file looks like that another process has removed, or cut back.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}
