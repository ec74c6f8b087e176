//! Rows of a Parquet file as JSON text.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use pipeline_core::StageError;
use pipeline_core::table_io::TableReader;
use tempfile::NamedTempFile;

use super::{Chunk, Packing, Records, open_table, unpacked, unreadable, values};

/// Rows of a Parquet file.
pub struct TableRows {
    path: PathBuf,
    reader: TableReader,
    batch: Option<(RecordBatch, usize)>,
    row: u64,
    left: u64,
    /// Keeps an unpacked file alive.
    _unpacked: Option<NamedTempFile>,
}

impl TableRows {
    /// Opens a file at row `first` (from 0) for at most `limit` rows; a packed one is unpacked to a temporary file,
    /// since Parquet is read from its end.
    ///
    /// # Errors
    /// When it is no complete Parquet file.
    pub fn open(path: &Path, packing: Packing, first: u64, limit: u64) -> Result<Self, StageError> {
        let unpacked = if packing == Packing::Plain { None } else { Some(unpack_to_disk(path, packing)?) };
        let table = open_table(unpacked.as_ref().map_or(path, NamedTempFile::path)).map_err(|error| match error {
            StageError::Input { message, .. } => StageError::input(path, None, message),
            other => other,
        })?;
        let mut names: Vec<&str> = table.schema().fields().iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("names column `{twice}` twice, so one of the two would be lost; rename one");
            return Err(StageError::input(path, None, message));
        }
        let limit = limit.min(table.rows().saturating_sub(first));
        let reader = table.read(first, limit, None)?;
        Ok(Self { path: path.to_owned(), reader, batch: None, row: first, left: limit, _unpacked: unpacked })
    }
}

fn unpack_to_disk(path: &Path, packing: Packing) -> Result<NamedTempFile, StageError> {
    let mut target = NamedTempFile::new().map_err(StageError::io("unpack", path))?;
    std::io::copy(&mut unpacked(path, packing)?, &mut target).map_err(unreadable(path))?;
    target.flush().map_err(StageError::io("unpack", path))?;
    Ok(target)
}

impl Records for TableRows {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, StageError> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() && self.left > 0 {
            let (batch, mut next) = match self.batch.take() {
                Some(batch) => batch,
                None => match self.reader.next() {
                    Some(Ok(batch)) => (batch, 0),
                    Some(Err(StageError::Input { message, .. })) => {
                        let message = format!("is damaged: {message}");
                        return Err(StageError::input(&self.path, Some(format!("after row {}", self.row)), message));
                    }
                    Some(Err(error)) => return Err(error),
                    None => {
                        let message = format!("ends {} rows before its footer says", self.left);
                        return Err(StageError::input(&self.path, Some(format!("row {}", self.row)), message));
                    }
                },
            };
            while next < batch.num_rows() && !chunk.is_full() {
                let start = chunk.buffer.len();
                values::write_row(&mut chunk.buffer, &batch, next)?;
                next += 1;
                self.row += 1;
                self.left = self.left.saturating_sub(1);
                chunk.push(start, self.row, None);
            }
            if next < batch.num_rows() {
                self.batch = Some((batch, next));
            }
        }
        Ok(chunk.some())
    }
}
