//! Every model answer ever paid for, by request: `calls/<model>/<writer>.calls`.
//!
//! One append-only file for each writing process, so that processes share a folder, also over a network, without
//! locks. Opening reads the headers only and keeps an index in memory (about 100 bytes a call); answers
//! are read from their file when wanted. A record that is torn or damaged is skipped and counted; the
//! records around it stay readable. An append is handed to the system before it is reported, so a
//! killed process loses nothing it was told of; the disk is synchronised every few seconds and at close.
//!
//! Where two processes asked the same at the same time, all readers that open the folder later agree
//! on the record in the file that was begun first; an answer goes before a row error.

mod index;
mod record;
mod record_lines;
mod upkeep;
mod writer;

use std::collections::{BTreeMap, VecDeque};
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

pub use record_lines::Written;
pub use upkeep::{CallSummary, Prune, Pruned};

const EXTENSION: &str = "calls";
const OPEN_FILES: usize = 64;

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
    writers: Mutex<BTreeMap<String, Writer>>,
    handles: Mutex<VecDeque<(u32, Arc<File>)>>,
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

    /// Takes up what other processes have appended since. Calls already known keep their record.
    ///
    /// # Errors
    /// A folder or file that cannot be read; a file that vanished meanwhile is none.
    pub fn refresh(&self) -> Result<(), ModelError> {
        let _one_at_a_time = lock(&self.refreshing);
        for path in self.call_files()? {
            let known = {
                let index = read(&self.index);
                let number = index.by_path.get(&path);
                number.and_then(|number| index.files.get(*number as usize).cloned())
            };
            if known.as_ref().is_some_and(|known| known.own) {
                continue;
            }
            match walk_news(&path, known.as_ref()) {
                Ok(Some((size, walk))) => self.take_up(path, size, walk),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(ModelError::store(path, error)),
            }
        }
        Ok(())
    }

    /// Whether a call is known, an answer or a row error.
    pub fn contains(&self, key: &CallKey) -> bool {
        read(&self.index).calls.contains_key(key)
    }

    /// Reads a call. A record that turns out damaged is dropped from the index and counted.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn get(&self, key: &CallKey) -> Result<Option<StoredCall>, ModelError> {
        let Some(payload) = self.payload(key)? else {
            return Ok(None);
        };
        if let Some(call) = record::decode(&payload) {
            return Ok(Some(call));
        }
        self.forget(key);
        Ok(None)
    }

    /// Whether a call is there and undamaged, and whether it is a row error: reads the record, unlike
    /// [`CallStore::contains`], so that what is counted as known can be read later.
    pub(crate) fn verified(&self, key: &CallKey) -> Result<Option<Kind>, ModelError> {
        if self.payload(key)?.is_none() {
            return Ok(None);
        }
        Ok(read(&self.index).calls.get(key).map(|place| place.kind))
    }

    /// Stores a call; it is with the system when this returns. The first record of a key stays the one
    /// that is read, save that an answer replaces a row error.
    ///
    /// # Errors
    /// A full disk or a folder that cannot be written; the file is then cut back to its whole records.
    pub fn append(&self, key: &CallKey, call: &StoredCall) -> Result<(), ModelError> {
        let bytes = record::encode(key, call).map_err(|error| ModelError::store(&self.folder, error))?;
        let slug = call.model.slug();
        let mut writers = lock(&self.writers);
        if !writers.contains_key(&slug) {
            let folder = self.folder.join(&slug);
            let writer = Writer::create(&folder).map_err(|error| ModelError::store(folder, error))?;
            writers.insert(slug.clone(), writer);
        }
        let Some(writer) = writers.get_mut(&slug) else {
            return Ok(());
        };
        let path = writer.path().to_owned();
        match writer.append(&bytes) {
            Ok(offset) => {
                self.index_own(path, *key, Place::of_record(call.reply.kind(), offset, bytes.len()));
                Ok(())
            }
            Err(error) => {
                if !writer.is_usable() {
                    writers.remove(&slug);
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
            let path = writer.path().to_owned();
            writer.sync().map_err(|error| ModelError::store(path, error))?;
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

    fn take_up(&self, path: PathBuf, size: u64, walk: record::Walk) {
        let mut index = write(&self.index);
        let number = index.number_of(path, false);
        for (key, place) in walk.records {
            index.insert(key, Place { file: number, ..place });
        }
        if let Some(known) = index.files.get_mut(number as usize) {
            known.walked = walk.end;
            known.size = size;
            known.damaged += walk.gaps;
            known.torn = walk.torn;
        }
    }

    fn index_own(&self, path: PathBuf, key: CallKey, place: Place) {
        let mut index = write(&self.index);
        let number = index.number_of(path, true);
        index.insert(key, Place { file: number, ..place });
    }

    /// Reads and checks a record's payload. When its file has changed (another process pruned it), the
    /// folder is looked through once more.
    fn payload(&self, key: &CallKey) -> Result<Option<Vec<u8>>, ModelError> {
        let mut refreshed = false;
        loop {
            let Some((place, path)) = self.place(key) else {
                return Ok(None);
            };
            match self.handle(place.file, &path).and_then(|file| record::read_payload(&file, key, place)) {
                Ok(Some(payload)) => return Ok(Some(payload)),
                Ok(None) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {}
                Err(error) => return Err(ModelError::store(path, error)),
            }
            self.forget(key);
            if !refreshed {
                self.refresh()?;
                refreshed = true;
            }
        }
    }

    fn place(&self, key: &CallKey) -> Option<(Place, PathBuf)> {
        let index = read(&self.index);
        let place = *index.calls.get(key)?;
        Some((place, index.files.get(place.file as usize)?.path.clone()))
    }

    fn forget(&self, key: &CallKey) {
        let mut index = write(&self.index);
        if let Some(place) = index.remove(key) {
            let gone = index.files.get(place.file as usize).is_none_or(|file| !file.path.exists());
            index.unreadable += u64::from(!gone);
        }
    }

    /// An open handle; a bounded number is kept, since old runs may have left thousands of files.
    fn handle(&self, number: u32, path: &Path) -> io::Result<Arc<File>> {
        let mut handles = lock(&self.handles);
        if let Some(at) = handles.iter().position(|(other, _)| *other == number) {
            if let Some(entry) = handles.remove(at) {
                handles.push_front(entry);
            }
        } else {
            handles.push_front((number, Arc::new(File::open(path)?)));
            handles.truncate(OPEN_FILES);
        }
        handles.front().map(|(_, file)| Arc::clone(file)).ok_or_else(|| io::ErrorKind::NotFound.into())
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
