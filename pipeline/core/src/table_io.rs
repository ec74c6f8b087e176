//! Tables on disk: Parquet that any reader opens, read in batches and written with a digest.
//!
//! Row groups are cut by raw bytes, not by rows or by what the encoder estimates: the cut is then the same for every
//! version of the compressor, and a table of 40 KB rows needs no more memory than one of short rows. Files carry no
//! Arrow schema of their own; text is read as views, whose total size has no limit.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::digest::Digest;
use crate::error::StageError;

/// Raw bytes after which a row group ends.
pub const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows after which a row group ends.
pub const ROW_GROUP_ROWS: usize = 16_384;
/// Level of zstd. Stages rewrite text far more often than anybody keeps it, and compression is most of what a stage that
/// only filters does: the fastest level costs a little room and saves much time.
const COMPRESSION: i32 = 1;
/// Raw bytes that a batch read from disk should hold about.
const BATCH_BYTES: u64 = 2 << 20;

/// A Parquet file opened for reading, its footer parsed once.
#[derive(Debug, Clone)]
pub struct TableFile {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
}

impl TableFile {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// When the file is missing, cut short, or no Parquet.
    pub fn open(path: &Path) -> Result<Self, StageError> {
        let file = File::open(path).map_err(StageError::io("open", path))?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let natural = ArrowReaderMetadata::load(&file, options).map_err(StageError::parquet(path))?;
        let schema = Arc::new(with_views(natural.schema()));
        let options = ArrowReaderOptions::new().with_schema(schema);
        let metadata =
            ArrowReaderMetadata::try_new(Arc::clone(natural.metadata()), options).map_err(StageError::parquet(path))?;
        Ok(Self { path: path.to_owned(), metadata })
    }

    /// Its columns, texts as views.
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Rows of each row group.
    pub fn row_groups(&self) -> Vec<u64> {
        let groups = self.metadata.metadata().row_groups();
        groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).collect()
    }

    /// Reads `rows` rows from `first` on, only the named columns if any are named. Row groups outside the range are
    /// not touched.
    ///
    /// # Errors
    /// When the file cannot be opened or a named column is missing.
    pub fn read(&self, first: u64, rows: u64, columns: Option<&[&str]>) -> Result<TableReader, StageError> {
        let file = File::open(&self.path).map_err(StageError::io("open", &self.path))?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        let mut wanted = None;
        if let Some(names) = columns {
            let roots = names
                .iter()
                .map(|name| self.schema().index_of(name).map_err(|_| StageError::column(*name, "is not in the input")))
                .collect::<Result<Vec<_>, _>>()?;
            let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
            builder = builder.with_projection(mask.clone());
            wanted = Some(mask);
        }
        let (groups, skip) = self.groups_of(first, rows);
        let batch_rows = self.batch_rows(&groups, wanted.as_ref());
        let reader = builder
            .with_row_groups(groups)
            .with_offset(usize::try_from(skip).unwrap_or(usize::MAX))
            .with_limit(usize::try_from(rows).unwrap_or(usize::MAX))
            .with_batch_size(batch_rows)
            .build()
            .map_err(StageError::parquet(&self.path))?;
        Ok(TableReader { path: self.path.clone(), reader })
    }

    /// Row groups that hold rows of a range, and how many rows of the first to skip.
    fn groups_of(&self, first: u64, rows: u64) -> (Vec<usize>, u64) {
        let (mut groups, mut skip, mut start) = (Vec::new(), 0, 0);
        for (index, count) in self.row_groups().into_iter().enumerate() {
            let end = start + count;
            if end > first && start < first.saturating_add(rows) {
                if groups.is_empty() {
                    skip = first.saturating_sub(start);
                }
                groups.push(index);
            }
            start = end;
        }
        (groups, skip)
    }

    /// Rows a batch, so that a batch of long texts stays small; columns that are not read do not count.
    fn batch_rows(&self, groups: &[usize], wanted: Option<&ProjectionMask>) -> usize {
        let groups = groups.iter().map(|index| self.metadata.metadata().row_group(*index));
        let (mut bytes, mut rows) = (0_u64, 0_u64);
        for group in groups {
            let is_wanted = |leaf: usize| wanted.is_none_or(|wanted| wanted.leaf_included(leaf));
            let leaves = group.columns().iter().enumerate().filter(|(leaf, _)| is_wanted(*leaf));
            bytes += leaves.map(|(_, leaf)| u64::try_from(leaf.uncompressed_size()).unwrap_or(0)).sum::<u64>();
            rows += u64::try_from(group.num_rows()).unwrap_or(0);
        }
        let average = bytes / rows.max(1);
        let most = if wanted.is_some() { 8192 } else { 2048 };
        usize::try_from((BATCH_BYTES / average.max(1)).clamp(16, most)).unwrap_or(2048)
    }
}

/// The same schema with every text as a view.
pub fn with_views(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(|field| view_field(field)).collect::<Vec<_>>())
}

fn view_field(field: &Field) -> Field {
    let kind = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::List(item) => DataType::List(Arc::new(view_field(item))),
        DataType::LargeList(item) => DataType::LargeList(Arc::new(view_field(item))),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| view_field(field)).collect()),
        other => other.clone(),
    };
    Field::new(field.name(), kind, field.is_nullable())
}

/// Batches of a file.
pub struct TableReader {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
}

impl std::fmt::Debug for TableReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TableReader({})", self.path.display())
    }
}

impl Iterator for TableReader {
    type Item = Result<RecordBatch, StageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        Some(batch.map_err(|error| StageError::input(&self.path, None, error.to_string())))
    }
}

/// A file that was written and closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Where it lies.
    pub path: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Raw bytes of its values.
    pub raw_bytes: u64,
    /// Digest of the file.
    pub digest: Digest,
}

/// Writes one file, hashing as it goes.
pub struct TableWriter {
    path: PathBuf,
    writer: ArrowWriter<Hashing<BufWriter<File>>>,
    group_bytes: usize,
    group_rows: usize,
    rows: u64,
    raw_bytes: u64,
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TableWriter({}, {} rows)", self.path.display(), self.rows)
    }
}

impl TableWriter {
    /// Creates a file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path, schema: &SchemaRef) -> Result<Self, StageError> {
        Self::with_properties(path, schema, properties(schema).build())
    }

    /// Creates a file that only the next steps of the same stage read. Its numbers, which are hashes for the most part,
    /// do not compress, have no repeats for a dictionary, and nobody asks for their range; texts are written as ever.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create_passing(path: &Path, schema: &SchemaRef) -> Result<Self, StageError> {
        let mut builder = properties(schema);
        for field in schema.fields().iter().filter(|field| holds_numbers(field.data_type())) {
            for path in leaf_paths(field).into_iter().map(ColumnPath::new) {
                builder = builder
                    .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        Self::with_properties(path, schema, builder.build())
    }

    fn with_properties(path: &Path, schema: &SchemaRef, properties: WriterProperties) -> Result<Self, StageError> {
        let file = File::create(path).map_err(StageError::io("write", path))?;
        let sink = Hashing { inner: BufWriter::with_capacity(1 << 20, file), hasher: blake3::Hasher::new(), bytes: 0 };
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer =
            ArrowWriter::try_new_with_options(sink, Arc::clone(schema), options).map_err(StageError::parquet(path))?;
        Ok(Self { path: path.to_owned(), writer, group_bytes: 0, group_rows: 0, rows: 0, raw_bytes: 0 })
    }

    /// Appends rows; a row group ends at the row that fills it.
    ///
    /// # Errors
    /// When the disk refuses, or the columns are not those of the file.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StageError> {
        let sizes = row_bytes(batch);
        let (mut start, mut end) = (0, 0);
        for size in sizes {
            self.group_bytes += size;
            self.group_rows += 1;
            self.raw_bytes += size as u64;
            end += 1;
            if self.group_bytes >= ROW_GROUP_BYTES || self.group_rows >= ROW_GROUP_ROWS {
                self.append(&batch.slice(start, end - start))?;
                start = end;
                self.end_row_group()?;
            }
        }
        self.append(&batch.slice(start, end - start))
    }

    fn append(&mut self, batch: &RecordBatch) -> Result<(), StageError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(StageError::parquet(&self.path))
    }

    /// Ends the row group here.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn end_row_group(&mut self) -> Result<(), StageError> {
        (self.group_bytes, self.group_rows) = (0, 0);
        self.writer.flush().map_err(StageError::parquet(&self.path))
    }

    /// Writes the footer, and makes sure that the bytes are on disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self) -> Result<Written, StageError> {
        let Self { path, writer, rows, raw_bytes, .. } = self;
        let sink = writer.into_inner().map_err(StageError::parquet(&path))?;
        let Hashing { inner, hasher, bytes } = sink;
        let file = inner.into_inner().map_err(|error| StageError::io("write", &path)(error.into_error()))?;
        file.sync_all().map_err(StageError::io("write", &path))?;
        Ok(Written { digest: Digest::finish(&hasher), path, rows, bytes, raw_bytes })
    }
}

fn holds_numbers(kind: &DataType) -> bool {
    match kind {
        DataType::List(item) => holds_numbers(item.data_type()),
        other => other.is_numeric(),
    }
}

fn properties(schema: &Schema) -> WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(COMPRESSION).unwrap_or_default();
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_created_by("pipeline".to_owned())
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for field in schema.fields() {
        if schemas::column::is_long_text(field.name()) {
            for path in leaf_paths(field) {
                let path = ColumnPath::new(path);
                builder = builder
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
    }
    builder
}

/// Paths of the leaves of a field in a Parquet file.
fn leaf_paths(field: &Field) -> Vec<Vec<String>> {
    let below = match field.data_type() {
        DataType::List(item) => {
            let below = leaf_paths(item);
            below.into_iter().map(|path| ["list".to_owned()].into_iter().chain(path).collect()).collect()
        }
        DataType::Struct(fields) => fields.iter().flat_map(|field| leaf_paths(field)).collect(),
        _ => vec![Vec::new()],
    };
    below.into_iter().map(|path: Vec<String>| [field.name().clone()].into_iter().chain(path).collect()).collect()
}

/// Raw bytes of each row: lengths of texts, widths of the rest.
pub fn row_bytes(batch: &RecordBatch) -> Vec<usize> {
    let mut sizes = vec![0; batch.num_rows()];
    for column in batch.columns() {
        add_bytes(column.as_ref(), &mut sizes);
    }
    sizes
}

fn add_bytes(array: &dyn Array, sizes: &mut [usize]) {
    if array.null_count() == array.len() {
        return;
    }
    match array.data_type() {
        DataType::Utf8View => {
            // the low 32 bits of a view are the text's length; that of a null is whatever the reader left there
            for (row, (size, view)) in sizes.iter_mut().zip(array.as_string_view().views()).enumerate() {
                if array.is_valid(row) {
                    *size += usize::try_from(view & u128::from(u32::MAX)).unwrap_or(0);
                }
            }
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let mut items = vec![0; list.values().len()];
            add_bytes(list.values().as_ref(), &mut items);
            for (size, ends) in sizes.iter_mut().zip(list.value_offsets().windows(2)) {
                let range = usize::try_from(ends[0]).unwrap_or(0)..usize::try_from(ends[1]).unwrap_or(0);
                *size += items.get(range).map_or(0, |items| items.iter().sum());
            }
        }
        DataType::Struct(_) => {
            for column in array.as_struct().columns() {
                add_bytes(column.as_ref(), sizes);
            }
        }
        other => {
            let width = other.primitive_width().unwrap_or(1);
            // nulls count nothing, so that a row's size does not depend on the batch it stands in
            for (row, size) in sizes.iter_mut().enumerate() {
                if array.is_valid(row) {
                    *size += width;
                }
            }
        }
    }
}

/// Hashes and counts what passes through.
struct Hashing<W> {
    inner: W,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
