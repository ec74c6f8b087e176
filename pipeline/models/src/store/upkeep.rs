//! What a call store holds, and how to make it smaller.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::index::Index;
use super::record::{self, HEADER, Place};
use super::{CallStore, EXTENSION, Reply, StoredCall, lock, write, writer};
use crate::answer::parse_answer;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::request::Asked;

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

impl CallStore {
    /// Counts calls, bytes and tokens by model and stage. Reads every record, one at a time.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn summary(&self) -> Result<Vec<CallSummary>, ModelError> {
        let mut groups: BTreeMap<(String, String), CallSummary> = BTreeMap::new();
        for path in self.call_files()? {
            for_each_call(&path, |_, place, call| {
                let Some(call) = call else { return };
                let names = (call.model.to_string(), call.stage.clone());
                let group = groups.entry(names.clone()).or_insert_with(|| CallSummary {
                    model: names.0,
                    stage: names.1,
                    first_ms: call.time_ms,
                    ..CallSummary::default()
                });
                group.add(&call, place);
            })
            .map_err(|error| ModelError::store(&path, error))?;
        }
        Ok(groups.into_values().collect())
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
            lock(&self.handles).clear();
            *write(&self.index) = Index::default();
            self.refresh()?;
        }
        Ok(pruned)
    }
}

impl CallSummary {
    fn add(&mut self, call: &StoredCall, place: Place) {
        self.calls += 1;
        self.scores += u64::from(matches!(call.request, Asked::Score(_)));
        self.bytes += HEADER as u64 + u64::from(place.length);
        self.first_ms = self.first_ms.min(call.time_ms);
        self.last_ms = self.last_ms.max(call.time_ms);
        match &call.reply {
            Reply::RowError { .. } => self.row_errors += 1,
            Reply::Score(score) => self.prompt_tokens += u64::from(score.tokens),
            Reply::Answer(raw) => {
                if let Ok(answer) = parse_answer(raw) {
                    self.prompt_tokens += answer.prompt_tokens.unwrap_or_default();
                    self.completion_tokens += answer.completion_tokens.unwrap_or_default();
                }
            }
        }
    }
}

impl Prune<'_> {
    fn removes(&self, key: &CallKey, call: &StoredCall) -> bool {
        self.before_ms.is_none_or(|time| call.time_ms < time)
            && self.model.is_none_or(|name| call.model.model == name || call.model.to_string() == name)
            && self.keep.is_none_or(|keep| !keep.contains(key))
    }
}

fn prune_file(path: &Path, what: &Prune<'_>, pruned: &mut Pruned) -> io::Result<()> {
    let mut keep = Vec::new();
    let mut removed = 0;
    for_each_call(path, |key, place, call| match call {
        Some(call) if what.removes(&key, &call) => removed += 1,
        // A record of a later format is not ours to remove; a damaged one is not copied.
        _ => keep.push((key, place)),
    })?;
    let size = fs::metadata(path)?.len();
    pruned.calls += removed;
    pruned.kept += keep.len() as u64;
    if removed == 0 {
        return Ok(());
    }
    let kept_bytes: u64 = keep.iter().map(|(_, place)| HEADER as u64 + u64::from(place.length)).sum();
    pruned.bytes += size.saturating_sub(kept_bytes);
    if what.dry_run {
        return Ok(());
    }
    if !keep.is_empty() {
        rewrite(path, &keep)?;
    }
    fs::remove_file(path)?;
    writer::remove_marker(path);
    if let Some(folder) = path.parent() {
        // Fails, as it should, unless the folder is empty.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

fn rewrite(path: &Path, keep: &[(CallKey, Place)]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // The name keeps its beginning, so that the order of files stays.
    let target = folder.join(format!("{stem}~.{EXTENSION}"));
    let draft = folder.join(format!("{stem}~.tmp"));
    let source = File::open(path)?;
    let mut out = io::BufWriter::new(File::create(&draft)?);
    let mut bytes = Vec::new();
    for (_, place) in keep {
        bytes.resize(HEADER + place.length as usize, 0);
        source.read_exact_at(&mut bytes, place.offset)?;
        out.write_all(&bytes)?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&draft, &target)?;
    File::open(folder)?.sync_all()
}

/// Visits every record of a file; one that cannot be unpacked is given as `None`, a damaged one not at all.
fn for_each_call(path: &Path, mut visit: impl FnMut(CallKey, Place, Option<StoredCall>)) -> io::Result<()> {
    let file = File::open(path)?;
    let walk = record::walk(&file, 0, file.metadata()?.len())?;
    for (key, place) in walk.records {
        if let Some(payload) = record::read_payload(&file, &key, place)? {
            visit(key, place, record::decode(&payload));
        }
    }
    Ok(())
}
