//! The export itself: reads a stage's files once, in pieces that fit in memory, and installs shards and card together.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use pipeline_core::table_io::{TableFile, Written};
use pipeline_core::task::InputFile;
use pipeline_core::{Digest, StageError};

use crate::card;
use crate::error::ExportError;
use crate::install::{self, DATA, Staging};
use crate::layout::Layout;
use crate::readme;
use crate::request::{ExportReport, ExportRequest};
use crate::shards::ShardWriter;
use crate::tally::Tally;

const README: &str = "README.md";

/// A file of the stage, checked.
type Opened<'a> = (TableFile, &'a InputFile);

/// Writes a stage's rows to `data/train-NNNNN-of-NNNNN.parquet` and the dataset card to `README.md` of a folder.
///
/// Other files of the folder stay, and so does what a person wrote in the README: only the section between the
/// `pipeline` marks is replaced, and the header is merged key by key. Shards of an earlier export are replaced.
///
/// # Errors
/// When there are no rows, the format does not fit, a file of the stage is damaged, the README cannot be merged, or the
/// disk refuses. Whatever the reason, the folder is then as it was.
pub fn export(request: &ExportRequest) -> Result<ExportReport, ExportError> {
    let (files, input) = open_all(request)?;
    let mut layout = Layout::new(request, &input, false)?;
    let staging = Staging::begin(&request.to)?;
    let earlier = install::shards_of(staging.target())?;
    let existing = read_readme(staging.target())?;
    // found out before the long work
    merge_readme(&staging, existing.as_deref(), request, &layout, &Tally::default())?;

    let mut written = write_shards(request, &files, &layout, &staging)?;
    if written.is_none() {
        layout = Layout::new(request, &input, true)?;
        written = write_shards(request, &files, &layout, &staging)?;
    }
    let (written, tally) =
        written.ok_or_else(|| StageError::Internal("a layout with tool calls refused them".to_owned()))?;
    let card = merge_readme(&staging, existing.as_deref(), request, &layout, &tally)?;
    let card_path = staging.new_files().join(README);
    write_file(&card_path, &card)?;

    let mut moves: Vec<(PathBuf, PathBuf)> = Vec::with_capacity(written.len() + 1);
    for (index, shard) in written.iter().enumerate() {
        moves.push((shard.path.clone(), Path::new(DATA).join(install::shard_name(index, written.len()))));
    }
    moves.push((card_path, PathBuf::from(README)));
    let names: Vec<PathBuf> = moves.iter().map(|(_, name)| name.clone()).collect();
    let removed = earlier.into_iter().map(|name| Path::new(DATA).join(name));
    let removed: Vec<PathBuf> = removed.filter(|name| !names.contains(name)).collect();
    staging.install(&moves, &removed)?;
    Ok(report(request, names, removed, &written, tally))
}

fn report(
    request: &ExportRequest,
    files: Vec<PathBuf>,
    removed: Vec<PathBuf>,
    written: &[Written],
    tally: Tally,
) -> ExportReport {
    let mut licenses = tally.licenses;
    let unknown_license = licenses.remove("").unwrap_or(0);
    ExportReport {
        to: request.to.clone(),
        rows: tally.rows,
        files,
        bytes: written.iter().map(|shard| shard.bytes).sum(),
        licenses,
        unknown_license,
        languages: tally.languages.into_iter().map(|(name, rows)| (name.to_owned(), rows)).collect(),
        unfinished: tally.unfinished,
        removed,
    }
}

/// The stage's files that have rows, and the columns that all of them have.
fn open_all(request: &ExportRequest) -> Result<(Vec<Opened<'_>>, SchemaRef), ExportError> {
    let files = request.files.iter().filter(|file| file.rows > 0).map(open).collect::<Result<Vec<_>, _>>()?;
    let Some((first, _)) = files.first() else {
        return Err(ExportError::Empty { stage: request.stage.clone() });
    };
    let input = SchemaRef::clone(first.schema());
    for (file, given) in &files {
        if file.schema() != &input {
            return Err(StageError::input(&given.path, None, "its columns are not those of the other files").into());
        }
    }
    Ok((files, input))
}

/// Opens a committed file, having made sure that it is the one that was committed.
fn open(file: &InputFile) -> Result<Opened<'_>, StageError> {
    let damaged = |message: &str| StageError::Damaged { path: file.path.clone(), message: message.to_owned() };
    let digest = Digest::of_file(&file.path).map_err(StageError::io("read", &file.path))?;
    if digest != file.digest {
        return Err(damaged("its digest is not the one that was committed"));
    }
    let table = TableFile::open(&file.path)?;
    if table.rows() != file.rows {
        return Err(damaged("its number of rows is not the one that was committed"));
    }
    Ok((table, file))
}

/// Writes all rows; `None` when a message has tool calls and the layout no place for them.
fn write_shards(
    request: &ExportRequest,
    files: &[Opened<'_>],
    layout: &Layout,
    staging: &Staging,
) -> Result<Option<(Vec<Written>, Tally)>, ExportError> {
    let mut shards = ShardWriter::new(&staging.new_files(), layout.schema(), request.shard_bytes);
    let mut tally = Tally::default();
    for (file, given) in files {
        let mut first = 0;
        // one row group at a time, which bounds a batch of long texts
        for rows in file.row_groups() {
            let mut row = first;
            for batch in file.read(first, rows, Some(&layout.reads()))? {
                let batch = batch?;
                let Some(converted) = layout.convert(&batch, &given.path, row)? else {
                    return Ok(None);
                };
                tally.add(&batch, layout.has_answers())?;
                shards.write(&converted)?;
                row += batch.num_rows() as u64;
            }
            first += rows;
        }
    }
    let written = shards.finish()?;
    let read: u64 = request.files.iter().map(|file| file.rows).sum();
    let kept: u64 = written.iter().map(|shard| shard.rows).sum();
    if tally.rows != read || tally.rows != kept {
        let message = format!("{read} rows were to be exported, {} were read and {kept} written", tally.rows);
        return Err(StageError::Internal(message).into());
    }
    Ok(Some((written, tally)))
}

fn read_readme(target: &Path) -> Result<Option<String>, ExportError> {
    let path = target.join(README);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ExportError::io("read", path)(error)),
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| ExportError::Readme { path, message: "it is not UTF-8 text".to_owned() })
}

fn merge_readme(
    staging: &Staging,
    existing: Option<&str>,
    request: &ExportRequest,
    layout: &Layout,
    tally: &Tally,
) -> Result<String, ExportError> {
    let header = card::facts(&request.card, tally).yaml();
    let body = card::body(request, layout.schema(), tally);
    let title = request.card.pipeline.replace(['\n', '\r'], " ");
    readme::merge(existing, &title, &header, &body)
        .map_err(|message| ExportError::Readme { path: staging.target().join(README), message })
}

fn write_file(path: &Path, text: &str) -> Result<(), ExportError> {
    let mut file = fs::File::create(path).map_err(ExportError::io("write", path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(ExportError::io("write", path))
}
