//! The index in memory: which record of which file holds a call.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::record::{Kind, Place, Walk, walk};
use crate::key::CallKey;

/// Where every known call stands.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) calls: HashMap<CallKey, Place>,
    /// Further records of a key, in case the first one turns out damaged: rare, so small.
    pub(super) doubles: HashMap<CallKey, Vec<Place>>,
    pub(super) files: Vec<Known>,
    pub(super) by_path: BTreeMap<PathBuf, u32>,
    pub(super) unreadable: u64,
}

/// One file as far as it has been looked at.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) path: PathBuf,
    pub(super) own: bool,
    pub(super) walked: u64,
    pub(super) size: u64,
    pub(super) damaged: u64,
    pub(super) torn: bool,
}

impl Index {
    /// The number of a file, given when it is first seen.
    pub(super) fn number_of(&mut self, path: PathBuf, own: bool) -> u32 {
        if let Some(number) = self.by_path.get(&path) {
            return *number;
        }
        let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.by_path.insert(path.clone(), number);
        self.files.push(Known { path, own, walked: 0, size: 0, damaged: 0, torn: false });
        number
    }

    /// Takes a record in; the first of a key stays, save that an answer goes before a row error.
    pub(super) fn insert(&mut self, key: CallKey, place: Place) {
        let Some(known) = self.calls.get_mut(&key) else {
            self.calls.insert(key, place);
            return;
        };
        let is_same = known.file == place.file && known.offset == place.offset;
        if known.kind == Kind::RowError && place.kind == Kind::Answer {
            *known = place;
        } else if !is_same {
            self.doubles.entry(key).or_default().push(place);
        }
    }

    /// Takes the record of a key away; the next of its doubles takes its place.
    pub(super) fn remove(&mut self, key: &CallKey) -> Option<Place> {
        let removed = self.calls.remove(key)?;
        if let Some(places) = self.doubles.get_mut(key) {
            self.calls.insert(*key, places.remove(0));
            if places.is_empty() {
                self.doubles.remove(key);
            }
        }
        Some(removed)
    }
}

/// Walks what a file has more than when it was last seen; `None` if nothing.
pub(super) fn walk_news(path: &Path, known: Option<&Known>) -> io::Result<Option<(u64, Walk)>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if known.is_some_and(|known| known.size == size) {
        return Ok(None);
    }
    let from = known.map_or(0, |known| known.walked).min(size);
    Ok(Some((size, walk(&file, from, size)?)))
}
