//! What a call store holds, and how to make it smaller.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::record::{self, HEADER, Outline, Place};
use super::rewriting::{Rewriting, changed};
use super::walk::walk;
use super::{CallStore, Reply, list, lock, writer};
use crate::answer::parse_answer;
use crate::error::ModelError;
use crate::key::CallKey;

/// Calls of one model that one stage asked first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSummary {
    /// Identity of the model, as text.
    pub model: String,
    /// The stage.
    pub stage: String,
    /// Number of records, row errors and doubles included.
    pub calls: u64,
    /// Of these, scores of given texts.
    pub scores: u64,
    /// Of these, requests that can never be answered.
    pub row_errors: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Tokens read, where the server told; those of scored texts among them.
    pub prompt_tokens: u64,
    /// Tokens written, where the server told.
    pub completion_tokens: u64,
    /// Time of the oldest call, in milliseconds since 1970 UTC.
    pub first_ms: u64,
    /// Time of the latest call.
    pub last_ms: u64,
}

/// What to remove: calls that meet every condition given. Without any condition nothing is removed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prune<'a> {
    /// Calls older than this, in milliseconds since 1970 UTC.
    pub before_ms: Option<u64>,
    /// Calls of the model of this name, or of this identity (`name@revision`).
    pub model: Option<&'a str>,
    /// Calls whose key is not here.
    pub keep: Option<&'a HashSet<CallKey>>,
    /// Only count.
    pub dry_run: bool,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Calls removed.
    pub calls: u64,
    /// Bytes given back, damaged stretches of rewritten files included.
    pub bytes: u64,
    /// Calls that stay.
    pub kept: u64,
    /// Files left alone since a living process writes to them.
    pub in_use: Vec<PathBuf>,
}

/// How the calls lie on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    /// Files that no living process writes to.
    pub closed: u64,
    /// Files that some process writes to.
    pub in_use: u64,
    /// Models.
    pub models: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Shape {
    /// Whether compaction would help those who open the folder: there are many more files than models.
    pub fn is_scattered(&self) -> bool {
        const MANY: u64 = 64;
        self.closed > self.models + MANY
    }
}

impl CallStore {
    /// How many files there are.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn shape(&self) -> Result<Shape, ModelError> {
        let mut shape = Shape {
            models: list(&self.folder)?.iter().filter(|path| path.is_dir()).count() as u64,
            ..Shape::default()
        };
        for path in self.call_files()? {
            if writer::is_in_use(&path) {
                shape.in_use += 1;
            } else {
                shape.closed += 1;
            }
            shape.bytes += fs::metadata(&path).map_or(0, |metadata| metadata.len());
        }
        Ok(shape)
    }

    /// Counts calls, bytes and tokens by model and stage. Reads every record, one at a time.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn summary(&self) -> Result<Vec<CallSummary>, ModelError> {
        let mut groups: BTreeMap<String, BTreeMap<String, CallSummary>> = BTreeMap::new();
        let mut model = String::new();
        for path in self.call_files()? {
            let visited = for_each_call(&path, |_, place, call| {
                let Some(call) = call else { return };
                call.write_model(&mut model);
                if !groups.contains_key(&model) {
                    groups.insert(model.clone(), BTreeMap::new());
                }
                let Some(stages) = groups.get_mut(&model) else { return };
                if !stages.contains_key(&*call.stage) {
                    let (model, stage) = (model.clone(), call.stage.clone().into_owned());
                    let summary = CallSummary { model, stage, first_ms: call.time_ms, ..CallSummary::default() };
                    stages.insert(call.stage.clone().into_owned(), summary);
                }
                if let Some(group) = stages.get_mut(&*call.stage) {
                    group.add(call, place);
                }
            });
            visited.map_err(|error| ModelError::store(&path, error))?;
        }
        Ok(groups.into_values().flat_map(BTreeMap::into_values).collect())
    }

    /// Removes calls. Each file is written anew under another name and put in place whole before the old
    /// one goes, so that a kill at any moment loses nothing.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn prune(&self, what: &Prune<'_>) -> Result<Pruned, ModelError> {
        let mut pruned = Pruned::default();
        if what.before_ms.is_none() && what.model.is_none() && what.keep.is_none() {
            pruned.kept = self.len() as u64;
            return Ok(pruned);
        }
        // Our own files are closed first; the next append begins a new one.
        lock(&self.writers).clear();
        for path in self.call_files()? {
            if writer::is_in_use(&path) {
                pruned.in_use.push(path);
                continue;
            }
            prune_file(&path, what, &mut pruned).map_err(|error| ModelError::store(&path, error))?;
        }
        if !what.dry_run {
            self.index_anew(&mut lock(&self.writers))?;
        }
        Ok(pruned)
    }
}

impl CallSummary {
    fn add(&mut self, call: &Outline<'_>, place: Place) {
        self.calls += 1;
        self.bytes += place.bytes() as u64;
        self.first_ms = self.first_ms.min(call.time_ms);
        self.last_ms = self.last_ms.max(call.time_ms);
        match call.reply() {
            Some(Reply::RowError { .. }) => self.row_errors += 1,
            Some(Reply::Score(score)) => {
                self.scores += 1;
                self.prompt_tokens += u64::from(score.tokens);
            }
            Some(Reply::Answer(raw)) => {
                if let Ok(answer) = parse_answer(&raw) {
                    self.prompt_tokens += answer.prompt_tokens.unwrap_or_default();
                    self.completion_tokens += answer.completion_tokens.unwrap_or_default();
                }
            }
            None => {}
        }
    }
}

impl Prune<'_> {
    fn removes(&self, key: &CallKey, call: &Outline<'_>) -> bool {
        self.before_ms.is_none_or(|time| call.time_ms < time)
            && self.model.is_none_or(|name| call.is_of(name))
            && self.keep.is_none_or(|keep| !keep.contains(key))
    }
}

fn prune_file(path: &Path, what: &Prune<'_>, pruned: &mut Pruned) -> io::Result<()> {
    let (mut removed, mut kept, mut kept_bytes) = (HashSet::new(), 0, 0);
    for_each_call(path, |key, place, call| match call {
        Some(call) if what.removes(&key, call) => {
            removed.insert(place.offset);
        }
        // A record of a later shape is not ours to remove; a damaged one is not copied.
        _ => {
            kept += 1;
            kept_bytes += place.bytes() as u64;
        }
    })?;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    pruned.calls += removed.len() as u64;
    pruned.kept += kept;
    if removed.is_empty() {
        return Ok(());
    }
    pruned.bytes += size.saturating_sub(kept_bytes);
    if what.dry_run {
        return Ok(());
    }
    let mut rest = Rewriting::begin(path)?;
    let copied = walk(&file, 0, size, |key, place, record| {
        if removed.contains(&place.offset) { Ok(()) } else { rest.add(&file, &key, place, record) }
    });
    match copied {
        Ok(_) if rest.records == kept => rest.replace(&[path.to_owned()]),
        Ok(_) => {
            rest.give_up();
            Err(changed())
        }
        Err(error) => {
            rest.give_up();
            Err(error)
        }
    }
}

/// Visits every record of a file; one that cannot be unpacked is given as `None`, a damaged one not at all.
fn for_each_call(path: &Path, mut visit: impl FnMut(CallKey, Place, Option<&Outline<'_>>)) -> io::Result<()> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    walk(&file, 0, size, |key, place, record| {
        let read;
        let record = match record {
            Some(record) => record,
            None => match record::read_record(&file, &key, place)? {
                Some(bytes) => {
                    read = bytes;
                    &read
                }
                None => return Ok(()),
            },
        };
        let payload = record.get(HEADER..).unwrap_or_default();
        let told = record::outline(payload, |call| visit(key, place, Some(call)));
        if told.is_none() {
            visit(key, place, None);
        }
        Ok(())
    })?;
    Ok(())
}
