//! Readers of users' files. Whatever the format, a row comes out as JSON text with its place in the file, a few
//! thousand rows at a time, so memory does not grow with the file.
//!
//! Going through JSON text costs a little for Parquet and CSV and gives one way of mapping columns for all formats.

mod array;
mod lines;
mod table;
mod values;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use pipeline_core::table_io::TableFile;
use pipeline_core::{SourceRange, StageError};

use super::files::{Format, Packing, recognise};

/// Rows after which a chunk ends.
pub const CHUNK_ROWS: usize = 1024;
/// Raw bytes after which a chunk ends.
pub const CHUNK_BYTES: usize = 8 << 20;

/// One row of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// First byte in the chunk's buffer.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    /// Line where it begins, or row, from 1.
    pub line: u64,
    /// Why it cannot be read; the bytes are then the raw text.
    pub fault: Option<String>,
}

/// Some rows of a file.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Text of the rows.
    pub buffer: Vec<u8>,
    /// The rows, in order.
    pub records: Vec<Record>,
}

impl Chunk {
    /// Whether the next row belongs to another chunk.
    pub fn is_full(&self) -> bool {
        self.records.len() >= CHUNK_ROWS || self.buffer.len() >= CHUNK_BYTES
    }

    /// Ends a row that was appended to the buffer from `start` on.
    pub fn push(&mut self, start: usize, line: u64, fault: Option<String>) {
        self.records.push(Record { start, end: self.buffer.len(), line, fault });
    }

    fn some(self) -> Option<Self> {
        (!self.records.is_empty()).then_some(self)
    }
}

/// A reader of rows.
pub trait Records {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read on.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, StageError>;
}

/// Opens a file, or a piece of it.
///
/// # Errors
/// When the file cannot be opened or is not of its format.
pub fn open(path: &Path, format: Option<Format>, range: &SourceRange) -> Result<Box<dyn Records>, StageError> {
    let (packing, format) = recognise(path, format)?;
    if let SourceRange::Lines { start, end, line } = *range {
        let mut file = File::open(path).map_err(StageError::io("open", path))?;
        file.seek(SeekFrom::Start(start)).map_err(StageError::io("read", path))?;
        let piece = BufReader::with_capacity(1 << 20, file.take(end - start));
        let piece: Box<dyn BufRead> = if start == 0 { without_mark(piece, path)? } else { Box::new(piece) };
        return Ok(Box::new(lines::Lines::new(path, piece, line)));
    }
    let (first, limit) = match *range {
        SourceRange::Rows { start, count } => (start, count),
        _ => (0, u64::MAX),
    };
    if format == Format::Parquet {
        return Ok(Box::new(table::TableRows::open(path, packing, first, limit)?));
    }
    let text = unpack(path, packing)?;
    let records: Box<dyn Records> = match format {
        Format::Csv => Box::new(lines::CsvRows::open(path, text)?),
        Format::Json => Box::new(array::ArrayItems::new(path, text)),
        _ => Box::new(lines::Lines::new(path, text, 1)),
    };
    Ok(Box::new(First { records, left: limit }))
}

/// The first rows of a file.
struct First {
    records: Box<dyn Records>,
    left: u64,
}

impl Records for First {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, StageError> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(mut chunk) = self.records.next_chunk()? else {
            return Ok(None);
        };
        chunk.records.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= chunk.records.len() as u64;
        Ok(Some(chunk))
    }
}

/// Text of a file, unpacked, without a byte order mark.
///
/// # Errors
/// When the file cannot be opened.
pub fn unpack(path: &Path, packing: Packing) -> Result<Box<dyn BufRead>, StageError> {
    without_mark(unpacked(path, packing)?, path)
}

fn unpacked(path: &Path, packing: Packing) -> Result<Box<dyn BufRead>, StageError> {
    let file = File::open(path).map_err(StageError::io("open", path))?;
    Ok(match packing {
        Packing::Plain => Box::new(BufReader::with_capacity(1 << 20, file)),
        Packing::Gzip => Box::new(BufReader::with_capacity(1 << 20, flate2::read::MultiGzDecoder::new(file))),
        Packing::Zstd => {
            let decoder = zstd::stream::read::Decoder::new(file).map_err(StageError::io("open", path))?;
            Box::new(BufReader::with_capacity(1 << 20, decoder))
        }
    })
}

/// Skips a UTF-8 byte order mark.
fn without_mark(reader: impl BufRead + 'static, path: &Path) -> Result<Box<dyn BufRead>, StageError> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut reader = reader;
    let mut head = Vec::new();
    reader.by_ref().take(3).read_to_end(&mut head).map_err(unreadable(path))?;
    if head == MARK {
        head.clear();
    }
    Ok(Box::new(io::Cursor::new(head).chain(reader)))
}

/// An error while a text file is read: packed files say what is wrong with them.
pub fn unreadable(path: &Path) -> impl Fn(io::Error) -> StageError {
    let path = path.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData
        | io::ErrorKind::Other => StageError::input(&path, None, format!("is damaged or cut short: {error}")),
        _ => StageError::io("read", &path)(error),
    }
}

/// Opens a Parquet file.
///
/// # Errors
/// When it is no complete Parquet file.
pub fn open_table(path: &Path) -> Result<TableFile, StageError> {
    TableFile::open(path).map_err(|error| match error {
        StageError::Input { message, .. } => {
            let message = format!("is no complete Parquet file ({message}); was it cut short while copying?");
            StageError::input(path, None, message)
        }
        other => other,
    })
}
