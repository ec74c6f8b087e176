//! Writes rows as shards of bounded size.
//!
//! Rows reach the Parquet writer in pieces of a fixed number, counted from the first row of all. The writer ends pages
//! only between pieces, so the bytes depend on the rows alone and not on the files or batches they came in.

use std::path::{Path, PathBuf};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use pipeline_core::StageError;
use pipeline_core::table_io::{TableWriter, Written, row_bytes};

/// Rows handed to the writer at once.
const PIECE_ROWS: usize = 128;

/// Shards of one split while they are written.
pub struct ShardWriter {
    folder: PathBuf,
    schema: SchemaRef,
    limit: u64,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    open: Option<(TableWriter, u64)>,
    written: Vec<Written>,
}

impl ShardWriter {
    /// Shards of at most `limit` raw bytes, or one row where that alone is more, in `folder`.
    pub fn new(folder: &Path, schema: &SchemaRef, limit: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            schema: SchemaRef::clone(schema),
            limit,
            pending: Vec::new(),
            pending_rows: 0,
            open: None,
            written: Vec::new(),
        }
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StageError> {
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = (PIECE_ROWS - self.pending_rows).min(batch.num_rows() - start);
            self.pending.push(cut(batch, start, rows)?);
            self.pending_rows += rows;
            start += rows;
            if self.pending_rows == PIECE_ROWS {
                self.write_pending()?;
            }
        }
        Ok(())
    }

    /// Ends the last shard; the files in order.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<Vec<Written>, StageError> {
        self.write_pending()?;
        self.end_shard()?;
        Ok(self.written)
    }

    fn write_pending(&mut self) -> Result<(), StageError> {
        if self.pending_rows == 0 {
            return Ok(());
        }
        let piece = concat_batches(&self.schema, &self.pending)?;
        (self.pending, self.pending_rows) = (Vec::new(), 0);
        let mut start = 0;
        for (row, size) in row_bytes(&piece).into_iter().enumerate() {
            let size = size as u64;
            if let Some((_, bytes)) = &mut self.open {
                if *bytes + size <= self.limit {
                    *bytes += size;
                    continue;
                }
                self.append(&piece, start, row)?;
                self.end_shard()?;
                start = row;
            }
            let path = self.folder.join(format!("shard-{:05}.parquet", self.written.len()));
            self.open = Some((TableWriter::create(&path, &self.schema)?, size));
        }
        self.append(&piece, start, piece.num_rows())
    }

    fn append(&mut self, piece: &RecordBatch, start: usize, end: usize) -> Result<(), StageError> {
        match &mut self.open {
            Some((writer, _)) if start == 0 && end == piece.num_rows() => writer.write(piece),
            Some((writer, _)) if start < end => writer.write(&cut(piece, start, end - start)?),
            _ => Ok(()),
        }
    }

    fn end_shard(&mut self) -> Result<(), StageError> {
        if let Some((writer, _)) = self.open.take() {
            self.written.push(writer.finish()?);
        }
        Ok(())
    }
}

/// Some rows of a batch without the items of the others' lists, which a slice would keep. Text is not copied.
fn cut(batch: &RecordBatch, start: usize, rows: usize) -> Result<RecordBatch, StageError> {
    let range = u32::try_from(start).and_then(|first| Ok(first..u32::try_from(start + rows)?));
    let range = range.map_err(|_| StageError::Internal("a batch has more than 2^32 rows".to_owned()))?;
    Ok(take_record_batch(batch, &UInt32Array::from_iter_values(range))?)
}
