//! Rows of text files that stand one after the other: JSON lines and CSV.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use pipeline_core::StageError;

use super::{Chunk, Records, unreadable};

/// Rows of a file of JSON lines. Only a line feed ends a line: U+2028 and its like inside strings do not.
pub struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    line: u64,
}

impl Lines {
    /// Reads lines, the first of which has number `line`.
    pub fn new(path: &Path, reader: Box<dyn BufRead>, line: u64) -> Self {
        Self { path: path.to_owned(), reader, line }
    }
}

impl Records for Lines {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, StageError> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() {
            let start = chunk.buffer.len();
            let count = self.reader.read_until(b'\n', &mut chunk.buffer).map_err(unreadable(&self.path))?;
            if count == 0 {
                break;
            }
            let line = self.line;
            self.line += 1;
            let text = chunk.buffer.get(start..).unwrap_or_default().trim_ascii_end();
            if text.is_empty() {
                chunk.buffer.truncate(start);
                continue;
            }
            let end = start + text.len();
            chunk.buffer.truncate(end);
            chunk.push(start, line, None);
        }
        Ok(chunk.some())
    }
}

/// Rows of a CSV file with a header line; every cell is a text.
pub struct CsvRows {
    path: PathBuf,
    reader: csv::Reader<Box<dyn BufRead>>,
    /// `"name":` for each column.
    keys: Vec<String>,
    record: csv::ByteRecord,
}

impl CsvRows {
    /// Reads the header.
    ///
    /// # Errors
    /// When the header cannot be read or names a column twice.
    pub fn open(path: &Path, reader: Box<dyn BufRead>) -> Result<Self, StageError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(reader);
        let header = reader.byte_headers().map_err(csv_error(path))?;
        let mut names: Vec<&str> = Vec::new();
        for name in header {
            let name = std::str::from_utf8(name)
                .map_err(|_| StageError::input(path, Some("line 1".to_owned()), "the header is not UTF-8"))?;
            if names.contains(&name) {
                let message = format!("the header names column `{name}` twice");
                return Err(StageError::input(path, Some("line 1".to_owned()), message));
            }
            names.push(name);
        }
        let keys = names.iter().map(|name| format!("{}:", serde_json::Value::from(*name))).collect();
        Ok(Self { path: path.to_owned(), reader, keys, record: csv::ByteRecord::new() })
    }

    /// Appends the row as JSON, or says why it is none.
    fn append(&self, buffer: &mut Vec<u8>) -> Result<(), String> {
        if self.record.len() != self.keys.len() {
            return Err(format!("it has {} fields, the header {}", self.record.len(), self.keys.len()));
        }
        buffer.push(b'{');
        for (index, (key, cell)) in self.keys.iter().zip(&self.record).enumerate() {
            if index > 0 {
                buffer.push(b',');
            }
            buffer.extend_from_slice(key.as_bytes());
            let cell = std::str::from_utf8(cell).map_err(|_| format!("field {} is not UTF-8", index + 1))?;
            serde_json::to_writer(&mut *buffer, cell).map_err(|error| error.to_string())?;
        }
        buffer.push(b'}');
        Ok(())
    }
}

impl Records for CsvRows {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, StageError> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() {
            let mut record = std::mem::take(&mut self.record);
            let is_row = self.reader.read_byte_record(&mut record).map_err(csv_error(&self.path))?;
            self.record = record;
            if !is_row {
                break;
            }
            let line = self.record.position().map_or(0, csv::Position::line);
            let start = chunk.buffer.len();
            let fault = self.append(&mut chunk.buffer).err();
            if fault.is_some() {
                chunk.buffer.truncate(start);
                chunk.buffer.extend_from_slice(&self.record.iter().collect::<Vec<_>>().join(&b','));
            }
            chunk.push(start, line, fault);
        }
        Ok(chunk.some())
    }
}

fn csv_error(path: &Path) -> impl Fn(csv::Error) -> StageError {
    let path = path.to_owned();
    move |error| {
        let place = error.position().map(|position| format!("line {}", position.line()));
        match error.into_kind() {
            csv::ErrorKind::Io(error) => unreadable(&path)(error),
            other => StageError::input(&path, place, format!("is no CSV: {other:?}")),
        }
    }
}
