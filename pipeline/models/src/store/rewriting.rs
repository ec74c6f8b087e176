//! Writing a file of calls anew: whole and on the disk under its own name before the old ones go.
//!
//! The new name is `<first old name>~<unique name>`, so that it sorts where the first of the old files did, and two
//! processes that rewrite the same files at the same time do not overwrite each other's: the worst is a double.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::record::{Place, read_record};
use super::{EXTENSION, writer};
use crate::key::CallKey;

/// Between the beginning of a name and the name of whoever wrote the file anew.
const AGAIN: char = '~';
const DRAFT: &str = "tmp";

/// A file on its way.
#[derive(Debug)]
pub(super) struct Rewriting {
    out: BufWriter<File>,
    draft: PathBuf,
    target: PathBuf,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl Rewriting {
    /// Begins the file that shall stand in the place of `first` and of files after it.
    pub(super) fn begin(first: &Path) -> io::Result<Self> {
        let stem = first.file_stem().unwrap_or_default().to_string_lossy();
        let beginning = stem.split(AGAIN).next().unwrap_or_default();
        let name = format!("{beginning}{AGAIN}{}", writer::unique_name());
        let draft = first.with_file_name(format!("{name}.{DRAFT}"));
        let target = first.with_file_name(format!("{name}.{EXTENSION}"));
        let out = BufWriter::with_capacity(1 << 20, File::create_new(&draft)?);
        Ok(Self { out, draft, target, records: 0, bytes: 0 })
    }

    /// Adds a record; `record` holds its bytes where they were read already.
    pub(super) fn add(&mut self, source: &File, key: &CallKey, place: Place, record: Option<&[u8]>) -> io::Result<()> {
        let read;
        let record = if let Some(record) = record {
            record
        } else {
            read = read_record(source, key, place)?.ok_or_else(changed)?;
            &read
        };
        self.out.write_all(record)?;
        self.records += 1;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Brings the file onto the disk and gives it its name; then removes the old ones.
    pub(super) fn replace(self, old: &[PathBuf]) -> io::Result<()> {
        let Self { out, draft, target, records, .. } = self;
        let folder = target.parent().unwrap_or(Path::new("."));
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        if records == 0 {
            fs::remove_file(&draft)?;
        } else {
            file.sync_all()?;
            fs::rename(&draft, &target)?;
            File::open(folder)?.sync_all()?;
        }
        for path in old {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => writer::remove_marker(path),
            }
        }
        // Fails, as it should, unless the folder is empty.
        let _ = fs::remove_dir(folder);
        Ok(())
    }

    /// Takes the draft away after a failure; one that stays behind is removed by a later compaction.
    pub(super) fn give_up(self) {
        let _ = fs::remove_file(&self.draft);
    }
}

/// A file that is not what it was a moment ago: nothing may be removed then.
pub(super) fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record changed while its file was written anew; nothing was removed")
}

/// Removes drafts in the folder of a model that were left by killed processes.
pub(super) fn remove_drafts(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != DRAFT) {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem.split_once(AGAIN).is_some_and(|(_, name)| writer::is_left(&path, name)) {
            // it may be gone by now
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}
