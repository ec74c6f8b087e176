//! What a stage may know of the world around it: the project's folder, environment variables, digests of files, and
//! services that the program registers.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::StageError;

/// A file or model that decides a stage's output beside parameters and inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// How the recipe calls it: `file problems.jsonl`, `model teacher`.
    pub name: String,
    /// Its content, or a model's identity in words.
    pub digest: String,
    /// Whether tasks read pieces of it that have digests of their own (see [`crate::Source`]), so that a change of
    /// one piece leaves the other tasks as they were.
    #[serde(default)]
    pub sliced: bool,
}

/// Objects that the program registers for stages, by type: the models, for example.
#[derive(Default, Clone)]
pub struct Services(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Services {
    /// Registers an object.
    pub fn insert<T: Any + Send + Sync>(&mut self, service: Arc<T>) {
        self.0.insert(TypeId::of::<T>(), service);
    }

    /// Finds an object by its type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>()).and_then(|service| Arc::clone(service).downcast().ok())
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} services", self.0.len())
    }
}

/// Looks up an environment variable.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The world around a stage.
#[derive(Clone)]
pub struct Env {
    /// Folder of `dag.toml`; relative paths of parameters start here.
    pub base: PathBuf,
    /// Environment variables.
    pub variables: Variables,
    /// Registered objects.
    pub services: Services,
    /// Digests of files, remembered between runs.
    pub digests: Arc<FileDigests>,
    /// Largest number of rows in a task's slice.
    pub shard_rows: u64,
    /// Largest number of raw bytes in a task's slice of a text file.
    pub shard_bytes: u64,
}

impl fmt::Debug for Env {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Env").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Rows in a task's slice unless `shard_rows` says otherwise.
pub const SHARD_ROWS: u64 = 16_384;
/// Raw bytes in a task's slice of a text file.
pub const SHARD_BYTES: u64 = 64 << 20;

impl Env {
    /// A world for one project folder, without variables and services.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            variables: Arc::new(|_| None),
            services: Services::default(),
            digests: Arc::new(FileDigests::default()),
            shard_rows: SHARD_ROWS,
            shard_bytes: SHARD_BYTES,
        }
    }

    /// Resolves a path given in `dag.toml`.
    pub fn path(&self, given: &str) -> PathBuf {
        self.base.join(given)
    }

    /// Digest of a file, re-read only when its size, times or inode changed.
    ///
    /// # Errors
    /// When the file is missing or cannot be read.
    pub fn digest_of(&self, path: &Path) -> Result<Digest, StageError> {
        self.digests.digest(path)
    }
}

/// Remembers digests of files. Size, times and inode only save re-hashing; a rerun is decided by the digest alone.
#[derive(Debug, Default)]
pub struct FileDigests {
    file: Option<PathBuf>,
    known: Mutex<BTreeMap<PathBuf, Known>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    size: u64,
    modified: u128,
    changed: i64,
    inode: u64,
    digest: Digest,
}

/// A file changed this short a time ago may change again within one tick of its clock.
const RACY: Duration = Duration::from_secs(2);

impl FileDigests {
    /// Loads what an earlier run remembered; a missing or damaged file only costs re-hashing.
    pub fn load(file: &Path) -> Self {
        let known = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { file: Some(file.to_owned()), known: Mutex::new(known) }
    }

    /// Digest of a file.
    ///
    /// # Errors
    /// When the file is missing or cannot be read.
    pub fn digest(&self, path: &Path) -> Result<Digest, StageError> {
        let before = stat(path)?;
        if let Some(known) = self.lock().get(path)
            && (known.size, known.modified, known.changed, known.inode)
                == (before.size, before.modified, before.changed, before.inode)
        {
            return Ok(known.digest);
        }
        let digest = Digest::of_file(path).map_err(StageError::io("read", path))?;
        let after = stat(path)?;
        let age = now().saturating_sub(Duration::from_nanos(u64::try_from(after.modified).unwrap_or(u64::MAX)));
        if (before.size, before.modified) == (after.size, after.modified) && age > RACY {
            self.lock().insert(path.to_owned(), Known { digest, ..after });
        }
        Ok(digest)
    }

    /// Remembers the digest of a file that this process has just written and closed.
    pub fn insert(&self, path: &Path, digest: Digest) {
        if let Ok(found) = stat(path) {
            self.lock().insert(path.to_owned(), Known { digest, ..found });
        }
    }

    /// Writes what is known for the next run. Failing to do so only costs re-hashing, so nothing is reported.
    pub fn save(&self) {
        let Some(file) = &self.file else { return };
        let Ok(bytes) = serde_json::to_vec(&*self.lock()) else { return };
        let Some(folder) = file.parent() else { return };
        let partial = folder.join(format!(".digests.{}", std::process::id()));
        let written = std::fs::File::create(&partial).and_then(|mut out| out.write_all(&bytes));
        if written.and_then(|()| std::fs::rename(&partial, file)).is_err() {
            let _ = std::fs::remove_file(&partial);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn stat(path: &Path) -> Result<Known, StageError> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).map_err(StageError::io("read", path))?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(Known {
        size: metadata.len(),
        modified: modified.unwrap_or_default().as_nanos(),
        changed: metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec(),
        inode: metadata.ino(),
        digest: Digest::of(b""),
    })
}
