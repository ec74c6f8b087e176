//! Reading calls: one by one, or many at a time in the order of their places.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::record::{self, HEADER, Kind, Place};
use super::{CallStore, Reply, StoredCall, is_gone, lock, read, write};
use crate::error::ModelError;
use crate::key::CallKey;

/// Handles kept open: old runs may have left thousands of files.
const OPEN_FILES: usize = 64;
/// Most bytes of one read.
const RUN: u64 = 1 << 20;
/// Bytes between two wanted records that are read with them.
const GAP: u64 = 1 << 14;

/// The bytes of a record, and where they stand.
type Found = (Vec<u8>, Place, Arc<Path>);

impl CallStore {
    /// Reads a call. A record that turns out damaged is dropped from the index and counted.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn get(&self, key: &CallKey) -> Result<Option<StoredCall>, ModelError> {
        self.get_as(key, record::decode)
    }

    /// What came back for a key.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn reply(&self, key: &CallKey) -> Result<Option<Reply>, ModelError> {
        self.get_as(key, record::decode_reply)
    }

    /// What came back for each of many keys. They are read in the order of their places, neighbours together.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn replies(&self, keys: &[CallKey]) -> Result<Vec<Option<Reply>>, ModelError> {
        let mut replies: Vec<Option<Reply>> = keys.iter().map(|_| None).collect();
        let mut wanted: Vec<(Place, usize)> = {
            let index = read(&self.index);
            keys.iter().enumerate().filter_map(|(at, key)| Some((*index.calls.get(key)?, at))).collect()
        };
        wanted.sort_unstable_by_key(|(place, _)| (place.file, place.offset));
        let mut bytes = Vec::new();
        let mut rest = wanted.as_slice();
        while let Some(count) = run_length(rest) {
            let (run, others) = rest.split_at(count);
            rest = others;
            // what a joint read does not give is read by itself below
            let Ok(first) = self.read_run(run, &mut bytes) else { continue };
            for (place, at) in run {
                let start = usize::try_from(place.offset - first).unwrap_or(usize::MAX);
                let record = bytes.get(start..start.saturating_add(place.bytes()));
                let payload = record.and_then(|record| record::payload_of(record, &keys[*at]));
                replies[*at] = payload.and_then(record::decode_reply);
            }
        }
        for (_, at) in wanted {
            if replies[at].is_none() {
                replies[at] = self.get_as(&keys[at], record::decode_reply)?;
            }
        }
        Ok(replies)
    }

    /// Whether a call is there and undamaged, and whether it is a row error: unlike [`CallStore::contains`] it reads a
    /// record that nobody has looked at yet, so that what is counted as known can be read later.
    pub(crate) fn verified(&self, key: &CallKey) -> Result<Option<Kind>, ModelError> {
        match read(&self.index).calls.get(key) {
            Some(place) if place.seen => return Ok(Some(place.kind)),
            Some(_) => {}
            None => return Ok(None),
        }
        if self.record(key)?.is_none() {
            return Ok(None);
        }
        let mut index = write(&self.index);
        Ok(index.calls.get_mut(key).map(|place| {
            place.seen = true;
            place.kind
        }))
    }

    fn get_as<T>(&self, key: &CallKey, decode: fn(&[u8]) -> Option<T>) -> Result<Option<T>, ModelError> {
        let Some((record, place, path)) = self.record(key)? else {
            return Ok(None);
        };
        let told = record.get(HEADER..).and_then(decode);
        if told.is_none() {
            self.forget(key, place, &path);
        }
        Ok(told)
    }

    /// Reads and checks a record. When its file has changed (another process pruned it), the folder is looked through
    /// once more.
    fn record(&self, key: &CallKey) -> Result<Option<Found>, ModelError> {
        let mut refreshed = false;
        loop {
            let Some((place, path)) = self.place(key) else {
                return Ok(None);
            };
            match self.handle(&path).and_then(|file| record::read_record(&file, key, place)) {
                Ok(Some(record)) => return Ok(Some((record, place, path))),
                Ok(None) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(ModelError::store(&*path, error)),
            }
            self.forget(key, place, &path);
            if !refreshed {
                self.refresh()?;
                refreshed = true;
            }
        }
    }

    /// Reads neighbours together; gives the offset of the first byte.
    fn read_run(&self, run: &[(Place, usize)], bytes: &mut Vec<u8>) -> io::Result<u64> {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else {
            return Ok(0);
        };
        let path = {
            let index = read(&self.index);
            let known = index.files.get(first.file as usize).ok_or(io::ErrorKind::NotFound)?;
            Arc::clone(&known.path)
        };
        let length = usize::try_from(last.end() - first.offset).map_err(io::Error::other)?;
        bytes.resize(length, 0);
        self.handle(&path)?.read_exact_at(bytes, first.offset)?;
        Ok(first.offset)
    }

    fn place(&self, key: &CallKey) -> Option<(Place, Arc<Path>)> {
        let index = read(&self.index);
        let place = *index.calls.get(key)?;
        Some((place, Arc::clone(&index.files.get(place.file as usize)?.path)))
    }

    /// Takes a record out of the index, unless the index has another one by now.
    fn forget(&self, key: &CallKey, place: Place, path: &Arc<Path>) {
        let mut index = write(&self.index);
        let Some(known) = index.calls.get(key) else { return };
        let is_it =
            known.offset == place.offset && index.files.get(known.file as usize).is_some_and(|file| file.path == *path);
        if is_it {
            index.remove(key);
            index.unreadable += u64::from(path.exists());
        }
    }

    /// An open handle. Files have one name for good, so it is good while it is open, whatever the index says since.
    fn handle(&self, path: &Arc<Path>) -> io::Result<Arc<File>> {
        let mut handles = lock(&self.handles);
        if let Some(at) = handles.iter().position(|(other, _)| Arc::ptr_eq(other, path) || other == path) {
            if at > 0
                && let Some(entry) = handles.remove(at)
            {
                handles.push_front(entry);
            }
        } else {
            handles.push_front((Arc::clone(path), Arc::new(File::open(path)?)));
            handles.truncate(OPEN_FILES);
        }
        handles.front().map(|(_, file)| Arc::clone(file)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// How many of the first places are read together; `None` when there are none.
fn run_length(places: &[(Place, usize)]) -> Option<usize> {
    let (first, _) = places.first()?;
    let mut end = first.end();
    let others = places.iter().skip(1).take_while(|(place, _)| {
        let is_near = place.file == first.file && place.offset <= end + GAP && place.end() - first.offset <= RUN;
        end = end.max(place.end());
        is_near
    });
    Some(1 + others.count())
}
