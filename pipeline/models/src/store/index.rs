//! The index in memory: which record of which file holds a call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{Kind, Place};
use super::walk::{Walk, walk};
use crate::key::CallKey;

/// A map by keys that are hashes already.
pub(super) type ByKey<T> = HashMap<CallKey, T, BuildHasherDefault<FirstBytes>>;

/// Takes the first bytes of a key for its hash.
#[derive(Debug, Default)]
pub(super) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // the length of the key, which is always the same
    fn write_usize(&mut self, _number: usize) {}
}

/// Where every known call stands.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) calls: ByKey<Place>,
    /// Further records of a key, in case the first one turns out damaged: rare, so small.
    pub(super) doubles: ByKey<Vec<Place>>,
    /// By the number that places have; files that are gone keep theirs.
    pub(super) files: Vec<Known>,
    pub(super) by_path: BTreeMap<Arc<Path>, u32>,
    pub(super) unreadable: u64,
}

/// One file as far as it has been looked at.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) path: Arc<Path>,
    pub(super) own: bool,
    pub(super) walked: u64,
    pub(super) size: u64,
    pub(super) damaged: u64,
    pub(super) torn: bool,
}

impl Index {
    /// The number of a file, given when it is first seen.
    pub(super) fn number_of(&mut self, path: &Path, own: bool) -> u32 {
        if let Some(number) = self.by_path.get(path) {
            return *number;
        }
        let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let path: Arc<Path> = path.into();
        self.by_path.insert(Arc::clone(&path), number);
        self.files.push(Known { path, own, walked: 0, size: 0, damaged: 0, torn: false });
        number
    }

    /// What is known of a file.
    pub(super) fn known(&self, path: &Path) -> Option<&Known> {
        self.by_path.get(path).and_then(|number| self.files.get(*number as usize))
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

    /// Takes in what a walk found.
    pub(super) fn take_up(&mut self, path: &Path, news: News) {
        let number = self.number_of(path, false);
        self.calls.reserve(news.records.len());
        for (key, place) in news.records {
            self.insert(key, Place { file: number, ..place });
        }
        if let Some(known) = self.files.get_mut(number as usize) {
            known.walked = news.walk.end;
            known.size = news.size;
            known.damaged += news.walk.gaps;
            known.torn = news.walk.torn;
        }
    }

    /// Forgets files that are no more; doubles of their records take over.
    pub(super) fn drop_files(&mut self, paths: &[PathBuf]) {
        let gone: BTreeSet<u32> = paths.iter().filter_map(|path| self.by_path.remove(path.as_path())).collect();
        for number in &gone {
            if let Some(known) = self.files.get_mut(*number as usize) {
                (known.damaged, known.torn) = (0, false);
            }
        }
        let (calls, doubles) = (&mut self.calls, &mut self.doubles);
        doubles.retain(|_, places| {
            places.retain(|place| !gone.contains(&place.file));
            !places.is_empty()
        });
        calls.retain(|key, place| {
            if !gone.contains(&place.file) {
                return true;
            }
            let next = doubles.get_mut(key).filter(|places| !places.is_empty()).map(|places| places.remove(0));
            if let Some(next) = next {
                *place = next;
            }
            next.is_some()
        });
        doubles.retain(|_, places| !places.is_empty());
    }
}

/// What a file has more than when it was last seen.
#[derive(Debug)]
pub(super) struct News {
    pub(super) size: u64,
    pub(super) walk: Walk,
    pub(super) records: Vec<(CallKey, Place)>,
}

/// Walks what a file has more than when it was last seen; `None` if nothing.
pub(super) fn walk_news(path: &Path, known: Option<&Known>) -> io::Result<Option<News>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if known.is_some_and(|known| known.size == size) {
        return Ok(None);
    }
    let from = known.map_or(0, |known| known.walked).min(size);
    let mut records = Vec::new();
    let walk = walk(&file, from, size, |key, place, _| {
        records.push((key, place));
        Ok(())
    })?;
    Ok(Some(News { size, walk, records }))
}
