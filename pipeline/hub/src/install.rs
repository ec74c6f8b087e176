//! Brings finished files into the folder: all of them, or none.
//!
//! Everything is written to a folder beside the target first. Then each file is renamed into place, the one it
//! replaces being kept aside until all are there; a failure puts the old ones back. A process killed between two of
//! these renames leaves shards of two exports, which the next export repairs, since it removes every shard that is not
//! its own.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};

use crate::error::ExportError;

/// Folder of the shards inside the target.
pub const DATA: &str = "data";
/// What the writer of our shards is called in their footers.
const CREATED_BY: &str = "pipeline";

/// Name of a shard.
pub fn shard_name(index: usize, of: usize) -> String {
    format!("train-{index:05}-of-{of:05}.parquet")
}

fn is_shard_name(name: &str) -> bool {
    let number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix("train-")
        .and_then(|rest| rest.strip_suffix(".parquet"))
        .and_then(|rest| rest.split_once("-of-"))
        .is_some_and(|(index, of)| number(index) && number(of))
}

/// Shards of an earlier export, in order.
///
/// # Errors
/// When a file has a shard's name and was written by something else.
pub fn shards_of(target: &Path) -> Result<Vec<String>, ExportError> {
    let folder = target.join(DATA);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ExportError::io("read", folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(ExportError::io("read", &folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_shard_name(&name) {
            continue;
        }
        if !is_ours(&entry.path()) {
            return Err(ExportError::Foreign { path: entry.path() });
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
}

fn is_ours(path: &Path) -> bool {
    let metadata =
        File::open(path).ok().and_then(|file| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).ok());
    metadata.is_some_and(|metadata| metadata.metadata().file_metadata().created_by() == Some(CREATED_BY))
}

/// The folder beside the target where files are written; removed when dropped.
#[derive(Debug)]
pub struct Staging {
    folder: PathBuf,
    target: PathBuf,
    lock: Option<File>,
    /// Folders above the target that were not there, innermost first.
    made: Vec<PathBuf>,
}

impl Staging {
    /// Makes the folder, or takes over what a killed export left.
    ///
    /// # Errors
    /// When it cannot be made, or another export to the same target is at work.
    pub fn begin(to: &Path) -> Result<Self, ExportError> {
        let target = resolve(to)?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            let refused = io::Error::new(io::ErrorKind::InvalidInput, "it is the root folder");
            return Err(ExportError::io("export to", to)(refused));
        };
        let folder = parent.join(format!(".{}.export", name.to_string_lossy()));
        let made = parent.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        fs::create_dir_all(&folder).map_err(ExportError::io("make folder", &folder))?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(ExportError::io("write", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ExportError::Busy { path: target }),
            Err(TryLockError::Error(error)) => return Err(ExportError::io("lock", path)(error)),
        }
        let staging = Self { folder, target, lock: Some(lock), made };
        for part in [staging.new_files(), staging.old_files()] {
            match fs::remove_dir_all(&part) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ExportError::io("remove", part)(error));
                }
                _ => fs::create_dir(&part).map_err(ExportError::io("make folder", &part))?,
            }
        }
        Ok(staging)
    }

    /// Where new files are written.
    pub fn new_files(&self) -> PathBuf {
        self.folder.join("new")
    }

    fn old_files(&self) -> PathBuf {
        self.folder.join("old")
    }

    /// The target, absolute.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Renames `files` (written path, path below the target) into place and takes `stale` (paths below the target)
    /// away.
    ///
    /// # Errors
    /// When the file system refuses; the target is then as it was.
    pub fn install(&self, files: &[(PathBuf, PathBuf)], stale: &[PathBuf]) -> Result<(), ExportError> {
        let mut undo = Undo::default();
        let result = self.try_install(files, stale, &mut undo);
        if result.is_err() {
            undo.run();
        }
        result
    }

    fn try_install(&self, files: &[(PathBuf, PathBuf)], stale: &[PathBuf], undo: &mut Undo) -> Result<(), ExportError> {
        for folder in [self.target.clone(), self.target.join(DATA)] {
            if !folder.is_dir() {
                fs::create_dir_all(&folder).map_err(ExportError::io("make folder", &folder))?;
                undo.folders.push(folder);
            }
        }
        for (index, (from, name)) in files.iter().enumerate() {
            let place = self.target.join(name);
            let aside = self.old_files().join(index.to_string());
            let kept = match keep_aside(&place, &aside) {
                Ok(()) => Some(aside),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(ExportError::io("replace", place)(error)),
            };
            undo.files.push((place.clone(), kept));
            fs::rename(from, &place).map_err(ExportError::io("write", &place))?;
        }
        for (index, name) in stale.iter().enumerate() {
            let place = self.target.join(name);
            let aside = self.old_files().join(format!("stale-{index}"));
            fs::rename(&place, &aside).map_err(ExportError::io("remove", &place))?;
            undo.files.push((place, Some(aside)));
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        drop(self.lock.take());
        // what cannot be removed is cleared by the next export
        let _ = fs::remove_dir_all(&self.folder);
        for folder in &self.made {
            // goes only where it is empty, which it is when nothing was installed
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Steps back from a half-done installation.
#[derive(Debug, Default)]
struct Undo {
    folders: Vec<PathBuf>,
    files: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Undo {
    /// Goes back as far as the file system lets it; the error that led here is the one to report.
    fn run(self) {
        for (place, kept) in self.files.into_iter().rev() {
            let _ = match kept {
                Some(kept) => fs::rename(kept, place),
                None => fs::remove_file(place),
            };
        }
        for folder in self.folders.into_iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Gives a file a second name, so that it never leaves its place before the new one is there.
fn keep_aside(place: &Path, aside: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(place)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
    }
    fs::hard_link(place, aside).or_else(|_| fs::rename(place, aside))
}

/// The target as an absolute path without links; it need not exist.
fn resolve(to: &Path) -> Result<PathBuf, ExportError> {
    let absolute = std::path::absolute(to).map_err(ExportError::io("find", to))?;
    if let Ok(found) = absolute.canonicalize() {
        if !found.is_dir() {
            let refused = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(ExportError::io("export to", to)(refused));
        }
        return Ok(found);
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_shards_are_shards() {
        assert!(is_shard_name(&shard_name(0, 1)));
        assert!(is_shard_name("train-123456-of-200000.parquet"));
        for name in ["train-0-of-1.parquet", "test-00000-of-00001.parquet", "train-00000-of-00001.parquet.bak", "x"] {
            assert!(!is_shard_name(name), "{name}");
        }
    }

    #[test]
    fn a_failure_half_way_puts_the_old_files_back() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        fs::create_dir_all(target.join(DATA)).unwrap();
        fs::write(target.join("data/a"), "old a").unwrap();
        fs::write(target.join("data/stale"), "old stale").unwrap();
        // the second file's place is taken by a folder
        fs::create_dir(target.join("b")).unwrap();
        let staging = Staging::begin(&target).unwrap();
        let (a, b, c) = (staging.new_files().join("a"), staging.new_files().join("b"), staging.new_files().join("c"));
        for path in [&a, &b, &c] {
            fs::write(path, "new").unwrap();
        }
        let files = [(a, PathBuf::from("data/a")), (c, PathBuf::from("c")), (b, PathBuf::from("b"))];
        let error = staging.install(&files, &[PathBuf::from("data/stale")]).unwrap_err();
        assert!(error.to_string().contains("not a plain file"), "{error}");
        assert_eq!(fs::read_to_string(target.join("data/a")).unwrap(), "old a");
        assert_eq!(fs::read_to_string(target.join("data/stale")).unwrap(), "old stale");
        assert!(!target.join("c").exists());
        drop(staging);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_leaves_no_folder_that_was_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new/deep/out");
        let staging = Staging::begin(&target).unwrap();
        let missing = (staging.new_files().join("none"), PathBuf::from("data/x"));
        assert!(staging.install(&[missing], &[]).is_err());
        drop(staging);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn two_exports_to_one_folder_do_not_meet() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let first = Staging::begin(&target).unwrap();
        assert!(matches!(Staging::begin(&target), Err(ExportError::Busy { .. })));
        drop(first);
        assert!(Staging::begin(&target).is_ok());
    }
}
