//! Reports that are kept, so that a program is run once for its tests.
//!
//! A folder holds files of JSON lines, one file for each writer, only ever appended to; a line that was
//! cut by a kill is passed over. Of what is stored only the place is kept in memory. Failures of the sandbox are never stored,
//! and neither is what the clock decided. Two callers with the same key wait for one run.

use super::CodeError;
use super::report::Report;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The stored verdicts cannot be read or written.
#[derive(Debug, Error)]
#[error("cannot use the stored verdicts `{path}`: {source}")]
pub struct VerdictsError {
    path: PathBuf,
    source: std::io::Error,
}

/// Reports by key, in a folder or in memory.
pub struct Verdicts {
    folder: Option<PathBuf>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<[u8; 32], Kept>,
    running: BTreeSet<[u8; 32]>,
    files: Vec<(PathBuf, File)>,
    /// Index of the file that this writer appends to, and its length.
    own: Option<(usize, u64)>,
}

enum Kept {
    Here(Report),
    /// File, offset, length.
    There(usize, u64, usize),
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    report: Report,
}

impl Verdicts {
    /// For the life of this value only.
    pub fn in_memory() -> Self {
        Self { folder: None, state: Mutex::default(), ended: Condvar::new() }
    }

    /// Those in `folder`, which is made if it is not there, and new ones into it.
    ///
    /// # Errors
    /// [`VerdictsError`]: the folder cannot be made or read.
    pub fn open(folder: &Path) -> Result<Self, VerdictsError> {
        let wrong = |path: &Path| {
            let path = path.to_path_buf();
            move |source| VerdictsError { path, source }
        };
        fs::create_dir_all(folder).map_err(wrong(folder))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(wrong(folder))? {
            let path = entry.map_err(wrong(folder))?.path();
            // a folder or a pipe of that name holds no reports, and opening a pipe would wait for ever
            if path.extension().is_some_and(|end| end == "jsonl") && path.is_file() {
                names.push(path);
            }
        }
        names.sort();
        let mut state = State::default();
        for path in names {
            let file = File::open(&path).map_err(wrong(&path))?;
            state.index(&file).map_err(wrong(&path))?;
            state.files.push((path, file));
        }
        Ok(Self { folder: Some(folder.to_path_buf()), state: Mutex::new(state), ended: Condvar::new() })
    }

    /// How many reports are kept.
    pub fn len(&self) -> usize {
        self.lock().kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kept report, or what `run` gives, which is then kept. Callers with the same key wait for the first.
    pub(super) fn get_or_run(
        &self,
        key: [u8; 32],
        run: impl FnOnce() -> Result<Report, CodeError>,
    ) -> Result<Report, CodeError> {
        let mut state = self.lock();
        loop {
            if let Some(report) = state.report(&key) {
                return Ok(report);
            }
            if state.running.insert(key) {
                break;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let turn = Turn { verdicts: self, key };
        let report = run()?;
        if !report.by_clock {
            self.keep(key, &report)?;
        }
        drop(turn);
        Ok(report)
    }

    fn keep(&self, key: [u8; 32], report: &Report) -> Result<(), VerdictsError> {
        let mut state = self.lock();
        let Some(folder) = &self.folder else {
            state.kept.insert(key, Kept::Here(report.clone()));
            return Ok(());
        };
        let wrong = |source| VerdictsError { path: folder.clone(), source };
        let line = Line { key: hexadecimal(&key), report: report.clone() };
        let mut line = serde_json::to_vec(&line).map_err(|error| wrong(error.into()))?;
        line.push(b'\n');
        state.append(folder, key, &line).map_err(wrong)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run for a key; given back also when the run fails.
struct Turn<'a> {
    verdicts: &'a Verdicts,
    key: [u8; 32],
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.verdicts.lock().running.remove(&self.key);
        self.verdicts.ended.notify_all();
    }
}

impl State {
    /// Notes the places of a file's lines. What is not a whole line is passed over.
    fn index(&mut self, file: &File) -> std::io::Result<()> {
        let mut reader = BufReader::new(file);
        let (mut at, mut line) = (0, Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            let text = std::str::from_utf8(&line).unwrap_or_default();
            let key =
                text.strip_suffix('\n').and_then(|_| text.strip_prefix("{\"key\":\"")).and_then(|rest| rest.get(..64));
            if let Some(key) = key.and_then(binary) {
                self.kept.insert(key, Kept::There(self.files.len(), at, line.len()));
            }
            at += line.len() as u64;
            line.clear();
        }
        Ok(())
    }

    fn report(&mut self, key: &[u8; 32]) -> Option<Report> {
        let (file, at, length) = match self.kept.get(key)? {
            Kept::Here(report) => return Some(report.clone()),
            Kept::There(file, at, length) => (*file, *at, *length),
        };
        let (_, file) = self.files.get_mut(file)?;
        let mut line = vec![0; length];
        file.seek(SeekFrom::Start(at)).ok()?;
        file.read_exact(&mut line).ok()?;
        // a line that cannot be read is as good as none: the program is run again
        let line: Line = serde_json::from_slice(&line).ok()?;
        (line.key == hexadecimal(key)).then_some(line.report)
    }

    fn append(&mut self, folder: &Path, key: [u8; 32], line: &[u8]) -> std::io::Result<()> {
        let (index, at) = if let Some(own) = self.own {
            own
        } else {
            self.files.push(create(folder)?);
            (self.files.len() - 1, 0)
        };
        // lines after one that could not be written whole go into a new file
        self.own = None;
        if let Some((_, file)) = self.files.get_mut(index) {
            file.write_all(line)?;
        }
        self.own = Some((index, at + line.len() as u64));
        self.kept.insert(key, Kept::There(index, at, line.len()));
        Ok(())
    }
}

/// A new file with the first free number.
fn create(folder: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut number = 0_u32;
    loop {
        let path = folder.join(format!("{number:06}.jsonl"));
        match OpenOptions::new().read(true).append(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn hexadecimal(key: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*key).to_hex().to_string()
}

fn binary(text: &str) -> Option<[u8; 32]> {
    Some(*blake3::Hash::from_hex(text).ok()?.as_bytes())
}
