//! What a stage may know of the world around it: the project's folder, environment variables, digests of files, and
//! services that the program registers.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

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

/// Names of environment variables that hold keys of models: registered as a service, so that no program of a stage gets
/// one.
#[derive(Debug, Clone, Default)]
pub struct SecretNames(pub BTreeSet<String>);

/// Folders of the versions that a run reads, by stage: where files lie that a stage made beside its tables.
#[derive(Debug, Default)]
pub struct MadeFolders(Mutex<BTreeMap<String, PathBuf>>);

impl MadeFolders {
    /// Notes the version of a stage that others read from now on.
    pub fn insert(&self, stage: &str, folder: &Path) {
        self.lock().insert(stage.to_owned(), folder.to_owned());
    }

    /// The folder of a stage's version, once the run has it.
    pub fn get(&self, stage: &str) -> Option<PathBuf> {
        self.lock().get(stage).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Versions that this run reads.
    pub made: Arc<MadeFolders>,
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
            made: Arc::default(),
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    /// 64 hexadecimal digits, for files that other programs know by this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl Known {
    fn is_same_file(&self, other: &Self) -> bool {
        (self.size, self.modified, self.changed, self.inode) == (other.size, other.modified, other.changed, other.inode)
    }

    /// Adds what is known of the same file under the other digest.
    fn joined(self, other: Option<&Self>) -> Self {
        match other.filter(|other| self.is_same_file(other)) {
            Some(other) => Self {
                digest: self.digest.or(other.digest),
                sha256: self.sha256.or_else(|| other.sha256.clone()),
                ..self
            },
            None => self,
        }
    }
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
        let known = |known: &Known| known.digest;
        self.known_or(path, known, || Digest::of_file(path), |digest, known| known.digest = Some(*digest))
    }

    /// SHA-256 of a file, as 64 hexadecimal digits, remembered like its digest: for files that other programs name by it.
    ///
    /// # Errors
    /// When the file is missing or cannot be read.
    pub fn sha256(&self, path: &Path) -> Result<String, StageError> {
        let known = |known: &Known| known.sha256.clone();
        self.known_or(path, known, || sha256_of_file(path), |digest, known| known.sha256 = Some(digest.clone()))
    }

    fn known_or<T>(
        &self,
        path: &Path,
        known: impl FnOnce(&Known) -> Option<T>,
        work_out: impl FnOnce() -> std::io::Result<T>,
        note: impl FnOnce(&T, &mut Known),
    ) -> Result<T, StageError> {
        let before = stat(path)?;
        if let Some(digest) = self.lock().get(path).filter(|entry| entry.is_same_file(&before)).and_then(known) {
            return Ok(digest);
        }
        let digest = work_out().map_err(StageError::io("read", path))?;
        let mut after = stat(path)?;
        let age = now().saturating_sub(Duration::from_nanos(u64::try_from(after.modified).unwrap_or(u64::MAX)));
        if (before.size, before.modified) == (after.size, after.modified) && age > RACY {
            note(&digest, &mut after);
            self.remember(path, after);
        }
        Ok(digest)
    }

    /// Remembers the digest of a file that this process has just written and closed.
    pub fn insert(&self, path: &Path, digest: Digest) {
        if let Ok(found) = stat(path) {
            self.remember(path, Known { digest: Some(digest), ..found });
        }
    }

    fn remember(&self, path: &Path, found: Known) {
        let mut known = self.lock();
        let joined = found.joined(known.get(path));
        known.insert(path.to_owned(), joined);
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
        digest: None,
        sha256: None,
    })
}

fn sha256_of_file(path: &Path) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(format!("{:x}", hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backdates a file, so that its digest may be remembered.
    fn age(path: &Path) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(1)).unwrap();
    }

    #[test]
    fn the_sha256_of_a_file_is_the_one_that_other_programs_print() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(FileDigests::default().sha256(&path).unwrap(), expected);
    }

    #[test]
    fn both_digests_of_a_file_are_remembered_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let (path, memory) = (folder.path().join("a"), folder.path().join("digests.json"));
        std::fs::write(&path, "abc").unwrap();
        age(&path);
        let digests = FileDigests::load(&memory);
        let (digest, sha256) = (digests.digest(&path).unwrap(), digests.sha256(&path).unwrap());
        digests.save();
        let known = FileDigests::load(&memory).lock().get(&path).cloned().unwrap();
        assert_eq!((known.digest, known.sha256), (Some(digest), Some(sha256)));
    }

    #[test]
    fn what_is_remembered_saves_reading_the_file_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        age(&path);
        let digests = FileDigests::default();
        digests.sha256(&path).unwrap();
        digests.lock().get_mut(&path).unwrap().sha256 = Some("remembered".to_owned());
        assert_eq!(digests.sha256(&path).unwrap(), "remembered");
        std::fs::write(&path, "abcd").unwrap();
        assert_ne!(digests.sha256(&path).unwrap(), "remembered");
    }

    #[test]
    fn what_an_earlier_program_remembered_is_still_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, memory) = (folder.path().join("a"), folder.path().join("digests.json"));
        std::fs::write(&path, "abc").unwrap();
        age(&path);
        let found = stat(&path).unwrap();
        let old = serde_json::json!({ path.to_str().unwrap(): {
            "size": found.size, "modified": u64::try_from(found.modified).unwrap(), "changed": found.changed,
            "inode": found.inode, "digest": Digest::of(b"other"),
        }});
        std::fs::write(&memory, old.to_string()).unwrap();
        assert_eq!(FileDigests::load(&memory).digest(&path).unwrap(), Digest::of(b"other"));
    }
}
