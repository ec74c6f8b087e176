//! Compaction: the many files that runs leave, one a process, become one a model.
//!
//! What stays is what readers see: the first record of each call, an answer before a row error. Files that living
//! processes write to are left alone, and only files that follow each other are joined, so that the order among records
//! that readers agree on is never changed. The new file is on the disk under its own name before the first old one goes:
//! a kill at any moment leaves every call at least once, and doubles go with the next compaction.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::index::ByKey;
use super::record::{Kind, Place};
use super::rewriting::{Rewriting, changed, remove_drafts};
use super::walk::{Walk, walk};
use super::{CallStore, lock, writer};
use crate::error::ModelError;
use crate::key::CallKey;

/// What a compaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Files before, without those left alone.
    pub files: u64,
    /// Files in their place.
    pub files_left: u64,
    /// Calls in these.
    pub calls: u64,
    /// Records left out since the same call stands before them, or since an answer came after a row error.
    pub doubles: u64,
    /// Damaged or torn stretches left out.
    pub damaged: u64,
    /// Bytes given back.
    pub bytes: u64,
    /// Files left alone since a living process writes to them.
    pub in_use: Vec<PathBuf>,
    /// Files left alone since they hold records that a later version of this program wrote.
    pub later: Vec<PathBuf>,
}

impl CallStore {
    /// Joins the closed files of each model, and leaves out doubles and damage.
    ///
    /// # Errors
    /// A file that cannot be read or written; the files that it was to be joined from are then still there.
    pub fn compact(&self) -> Result<Compacted, ModelError> {
        let mut compacted = Compacted::default();
        // Our own files are closed first; the next append begins a new one.
        lock(&self.writers).clear();
        let mut paths = self.call_files()?;
        paths.sort_by(|one, two| (one.parent(), one.file_name()).cmp(&(two.parent(), two.file_name())));
        for of_model in paths.chunk_by(|one, two| one.parent() == two.parent()) {
            if let Some(folder) = of_model.first().and_then(|path| path.parent()) {
                remove_drafts(folder).map_err(|error| ModelError::store(folder, error))?;
            }
            let mut group = Vec::new();
            for path in of_model {
                if writer::is_in_use(path) {
                    compacted.in_use.push(path.clone());
                    join(std::mem::take(&mut group), &mut compacted)?;
                    continue;
                }
                let surveyed = survey(path).map_err(|error| ModelError::store(path, error))?;
                if surveyed.walk.later {
                    compacted.later.push(path.clone());
                    join(std::mem::take(&mut group), &mut compacted)?;
                } else {
                    group.push(surveyed);
                }
            }
            join(group, &mut compacted)?;
        }
        self.index_anew(&mut lock(&self.writers))?;
        Ok(compacted)
    }
}

/// A closed file and what it holds.
struct Surveyed {
    path: PathBuf,
    size: u64,
    walk: Walk,
    records: Vec<(CallKey, Place)>,
}

fn survey(path: &Path) -> io::Result<Surveyed> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut records = Vec::new();
    let walk = walk(&file, 0, size, |key, place, _| {
        records.push((key, place));
        Ok(())
    })?;
    Ok(Surveyed { path: path.to_owned(), size, walk, records })
}

/// The records that readers see: by key, the number of the file and the offset in it.
fn winners(group: &[Surveyed]) -> ByKey<(usize, u64, Kind)> {
    let mut winners: ByKey<(usize, u64, Kind)> = ByKey::default();
    winners.reserve(group.iter().map(|file| file.records.len()).sum());
    for (number, file) in group.iter().enumerate() {
        for (key, place) in &file.records {
            let this = (number, place.offset, place.kind);
            let known = winners.entry(*key).or_insert(this);
            if known.2 == Kind::RowError && place.kind == Kind::Answer {
                *known = this;
            }
        }
    }
    winners
}

/// Joins files that follow each other.
fn join(group: Vec<Surveyed>, compacted: &mut Compacted) -> Result<(), ModelError> {
    let Some(first) = group.first().map(|file| file.path.clone()) else {
        return Ok(());
    };
    let records: usize = group.iter().map(|file| file.records.len()).sum();
    let damaged: u64 = group.iter().map(|file| file.walk.gaps + u64::from(file.walk.torn)).sum();
    let size: u64 = group.iter().map(|file| file.size).sum();
    let files: Vec<PathBuf> = group.iter().map(|file| file.path.clone()).collect();
    let winners = winners(&group);
    // their places are found again by a second walk
    drop(group);
    compacted.files += files.len() as u64;
    compacted.calls += winners.len() as u64;
    if files.len() == 1 && winners.len() == records && damaged == 0 && records > 0 {
        compacted.files_left += 1;
        return Ok(());
    }
    compacted.files_left += u64::from(!winners.is_empty());
    compacted.doubles += (records - winners.len()) as u64;
    compacted.damaged += damaged;
    let written = write_winners(&files, &winners).map_err(|error| ModelError::store(&first, error))?;
    compacted.bytes += size.saturating_sub(written);
    Ok(())
}

/// Writes the records that stay into one file and removes the others' files; gives the bytes written.
fn write_winners(files: &[PathBuf], winners: &ByKey<(usize, u64, Kind)>) -> io::Result<u64> {
    let Some(first) = files.first() else {
        return Ok(0);
    };
    let mut joined = Rewriting::begin(first)?;
    let copied = files.iter().enumerate().try_for_each(|(number, path)| {
        let file = File::open(path)?;
        let size = fs::metadata(path)?.len();
        let walked = walk(&file, 0, size, |key, place, record| {
            let stays = winners.get(&key).is_some_and(|(file, offset, _)| *file == number && *offset == place.offset);
            if stays { joined.add(&file, &key, place, record) } else { Ok(()) }
        });
        walked.map(|_| ())
    });
    if let Err(error) = copied {
        joined.give_up();
        return Err(error);
    }
    if joined.records != winners.len() as u64 {
        joined.give_up();
        return Err(changed());
    }
    let bytes = joined.bytes;
    joined.replace(files)?;
    Ok(bytes)
}
