//! What is known of each batch, on disk before anything is paid for: `calls/<model>/batches/<submission>/`.
//!
//! A submission is a folder. `requests.jsonl.zst` holds its requests ([`requests`]), so that answers are stored with
//! their request even when the graph has changed since. `journal.jsonl` holds a line for each step, on the disk before the next step begins. A
//! last line that is torn was never finished and counts as not written; a folder without a first line was never
//! submitted.
//!
//! Whoever follows a submission holds a lock on its journal. The lock is the system's, so it goes with its process,
//! however that ends, and holds between two passes of one process as well.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::requests::{self, Requests, Writing};
use crate::key::CallKey;
use crate::request::Request;
use crate::store::now_ms;

const FORMAT: u32 = 1;
const JOURNAL: &str = "journal.jsonl";
const UPLOAD: &str = "upload.tmp";
const LOCK: &str = "lock";

static BEGUN: AtomicU32 = AtomicU32::new(0);

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
enum Entry {
    Prepared(Header),
    Uploaded { file: String },
    Created { batch: String, time_ms: u64 },
    Stored,
}

/// What a submission is, written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    format: u32,
    /// Address of the provider, without query.
    pub(super) server: String,
    /// Stage that asked.
    pub(super) stage: String,
    /// Number of requests.
    pub(super) requests: u64,
    /// How often these requests went out before.
    pub(super) round: u32,
    /// When it was prepared, in milliseconds since 1970 UTC.
    pub(super) time_ms: u64,
}

/// A submission that this pass follows.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) folder: PathBuf,
    /// Unique over all processes; the provider is told it.
    pub(super) id: String,
    pub(super) header: Header,
    /// The provider's name of the input file.
    pub(super) file: Option<String>,
    /// The provider's name of the batch.
    pub(super) batch: Option<String>,
    pub(super) created_ms: u64,
    /// Whether all that it gave is in the call store.
    pub(super) is_stored: bool,
    pub(super) requests: Arc<Requests>,
    journal: File,
}

/// A submission that is being written.
pub(super) struct Draft {
    folder: PathBuf,
    id: String,
    journal: File,
    requests: Writing,
}

/// What became of opening a submission.
pub(super) enum Opened {
    Here(Box<Submission>),
    /// Another pass follows it.
    Busy,
    /// It is over, or was never submitted.
    Gone,
}

/// Waits for nobody: the lock of a folder of batches, or `None` where another pass has it. New submissions are made
/// and looked for under this lock only.
pub(super) fn lock_folder(batches: &Path) -> io::Result<Option<File>> {
    fs::create_dir_all(batches)?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(batches.join(LOCK))?;
    Ok(try_lock(&file)?.then_some(file))
}

/// The folders of all submissions, oldest first.
pub(super) fn submissions(batches: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(batches)? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Draft {
    pub(super) fn begin(batches: &Path) -> io::Result<Self> {
        let count = BEGUN.fetch_add(1, Ordering::Relaxed);
        let time = now_ms();
        // The provider sees this name: it tells nothing of the machine.
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let origin = format!("{machine} {} {count} {}", std::process::id(), batches.display());
        let id = format!("{time:013}-{}", &blake3::hash(origin.as_bytes()).to_hex()[..12]);
        let folder = batches.join(&id);
        fs::create_dir(&folder)?;
        let journal = OpenOptions::new().create_new(true).append(true).read(true).open(folder.join(JOURNAL))?;
        if !try_lock(&journal)? {
            return Err(io::Error::other("a new file is locked by somebody else"));
        }
        let requests = Writing::begin(&folder)?;
        Ok(Self { folder, id, journal, requests })
    }

    pub(super) fn push(&mut self, key: CallKey, request: &Request) -> io::Result<()> {
        self.requests.push(key, request)
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Brings all of it onto the disk.
    pub(super) fn seal(self, server: &str, stage: &str, round: u32) -> io::Result<Submission> {
        let requests = self.requests.finish()?;
        let header = Header {
            format: FORMAT,
            server: server.to_owned(),
            stage: stage.to_owned(),
            requests: requests.len(),
            round,
            time_ms: now_ms(),
        };
        let mut submission = Submission {
            folder: self.folder,
            id: self.id,
            header: header.clone(),
            file: None,
            batch: None,
            created_ms: 0,
            is_stored: false,
            requests: Arc::new(requests),
            journal: self.journal,
        };
        submission.append(&Entry::Prepared(header))?;
        sync_folder(&submission.folder)?;
        if let Some(parent) = submission.folder.parent() {
            sync_folder(parent)?;
        }
        Ok(submission)
    }
}

impl Submission {
    /// Opens a submission and takes its lock. One that was never sealed is removed: call it under the folder's lock.
    pub(super) fn open(folder: &Path) -> io::Result<Opened> {
        let journal = match OpenOptions::new().read(true).append(true).open(folder.join(JOURNAL)) {
            Ok(journal) => journal,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                remove(folder)?;
                return Ok(Opened::Gone);
            }
            Err(error) => return Err(error),
        };
        if !try_lock(&journal)? {
            return Ok(Opened::Busy);
        }
        let entries = read_entries(&journal)?;
        let mut entries = entries.into_iter();
        let Some(Entry::Prepared(header)) = entries.next() else {
            remove(folder)?;
            return Ok(Opened::Gone);
        };
        if header.format > FORMAT {
            return Err(invalid(&format!("format {} was written by a later version", header.format)));
        }
        let (mut file, mut batch, mut created_ms, mut is_stored) = (None, None, 0, false);
        for entry in entries {
            match entry {
                Entry::Prepared(_) => {}
                Entry::Uploaded { file: name } => file = Some(name),
                Entry::Created { batch: name, time_ms } => (batch, created_ms) = (Some(name), time_ms),
                Entry::Stored => is_stored = true,
            }
        }
        let requests = match Requests::open(folder) {
            Ok(requests) => requests,
            // The lock may have come from a pass that was just done with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && (is_stored || !folder.exists()) => {
                remove(folder)?;
                return Ok(Opened::Gone);
            }
            Err(error) => return Err(error),
        };
        let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Opened::Here(Box::new(Self {
            folder: folder.to_owned(),
            id,
            header,
            file,
            batch,
            created_ms,
            is_stored,
            requests: Arc::new(requests),
            journal,
        })))
    }

    pub(super) fn set_uploaded(&mut self, file: &str) -> io::Result<()> {
        self.append(&Entry::Uploaded { file: file.to_owned() })?;
        self.file = Some(file.to_owned());
        Ok(())
    }

    pub(super) fn set_created(&mut self, batch: &str) -> io::Result<()> {
        let time_ms = now_ms();
        self.append(&Entry::Created { batch: batch.to_owned(), time_ms })?;
        (self.batch, self.created_ms) = (Some(batch.to_owned()), time_ms);
        Ok(())
    }

    pub(super) fn set_stored(&mut self) -> io::Result<()> {
        self.append(&Entry::Stored)?;
        self.is_stored = true;
        Ok(())
    }

    /// Where the body of the upload is written for as long as it takes.
    pub(super) fn upload_path(&self) -> PathBuf {
        self.folder.join(UPLOAD)
    }

    /// Removes the folder. The journal goes last, so that a kill in between leaves nothing that looks unfinished.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.folder)
    }

    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.journal.write_all(&line)?;
        self.journal.sync_all()
    }
}

/// The whole lines of a journal; what follows the last line end is cut off, so that the next line stands alone.
fn read_entries(mut journal: &File) -> io::Result<Vec<Entry>> {
    let mut bytes = Vec::new();
    journal.rewind()?;
    journal.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        journal.set_len(whole as u64)?;
    }
    let mut entries = Vec::new();
    let lines: Vec<&[u8]> = bytes[..whole].split_inclusive(|byte| *byte == b'\n').collect();
    for (number, line) in lines.iter().enumerate() {
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            // A block that the disk never got reads as zeros, also where the line end arrived.
            Err(_) if number + 1 == lines.len() => journal.set_len((whole - line.len()) as u64)?,
            Err(error) => return Err(invalid(&format!("line {} of the journal is unreadable: {error}", number + 1))),
        }
    }
    Ok(entries)
}

fn remove(folder: &Path) -> io::Result<()> {
    for name in [UPLOAD, requests::FILE, JOURNAL] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(super) fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{message}; remove the folder to ask its requests again"))
}
