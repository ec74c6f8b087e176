//! Removing versions that no link points to.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pipeline_core::StageError;

use crate::store::Store;

/// How long an unfinished version is left alone after its folder last changed.
const BEGUN: Duration = Duration::from_mins(10);

/// A version that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removable {
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes on disk.
    pub bytes: u64,
}

/// Versions that no link of any dag file of the folder points to, with their sizes. A version that a process works on
/// right now (it holds a fresh lease) is not among them.
pub fn removable(store: &Store) -> Vec<Removable> {
    let linked = store.linked();
    let Ok(entries) = fs::read_dir(store.root()) else { return Vec::new() };
    let mut found: Vec<Removable> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| !linked.contains(name)))
        .filter(|entry| !has_fresh_lease(&entry.path()) && !is_just_begun(&entry.path()))
        .map(|entry| Removable { bytes: size(&entry.path()), folder: entry.path() })
        .collect();
    found.sort_by(|one, two| one.folder.cmp(&two.folder));
    found
}

/// Removes a version: its success record first, so that nobody takes a half removed one for whole.
///
/// # Errors
/// When the disk refuses.
pub fn remove(version: &Removable) -> Result<(), StageError> {
    let _ = fs::remove_file(version.folder.join("_SUCCESS.json"));
    fs::remove_dir_all(&version.folder).map_err(StageError::io("remove", &version.folder))
}

/// A version without its success record that was touched a short time ago: a run may be at work on it.
fn is_just_begun(folder: &Path) -> bool {
    let is_done = folder.join("_SUCCESS.json").exists();
    let modified = fs::metadata(folder).and_then(|metadata| metadata.modified());
    !is_done && modified.is_ok_and(|time| time.elapsed().unwrap_or_default() < BEGUN)
}

fn has_fresh_lease(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder.join("lease")) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        modified.is_ok_and(|time| time.elapsed().unwrap_or_default() < crate::lease::TTL)
    })
}

fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
