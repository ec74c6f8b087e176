//! Items of one JSON array, cut out of the stream one by one; the array is never in memory as a whole.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use pipeline_core::StageError;

use super::{Chunk, Records, unreadable};

/// Items of a JSON array, as text.
pub struct ArrayItems {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    line: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    First,
    Between,
    After,
}

/// Where a scan is inside an item.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Scan {
    /// Whether `byte` ends the item before it.
    fn ends_at(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b',' | b']' if self.depth == 0 => return true,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        false
    }
}

impl ArrayItems {
    /// Reads a text that is to hold one array.
    pub fn new(path: &Path, reader: Box<dyn BufRead>) -> Self {
        Self { path: path.to_owned(), reader, line: 1, state: State::Before }
    }

    fn wrong(&self, message: &str) -> StageError {
        StageError::input(&self.path, Some(format!("line {}", self.line)), message)
    }

    /// The next byte that is no white space, left unread.
    fn peek(&mut self) -> Result<Option<u8>, StageError> {
        loop {
            let bytes = self.reader.fill_buf().map_err(unreadable(&self.path))?;
            let Some(&byte) = bytes.first() else {
                return Ok(None);
            };
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.line += u64::from(byte == b'\n');
            self.reader.consume(1);
        }
    }

    /// Goes to the beginning of the next item; false at the end of the array.
    fn advance(&mut self) -> Result<bool, StageError> {
        if self.state == State::Before {
            match self.peek()? {
                None => {
                    self.state = State::After;
                    return Ok(false);
                }
                Some(b'[') => self.reader.consume(1),
                Some(_) => {
                    return Err(self.wrong("is no JSON array; set `format = \"jsonl\"` if it holds JSON lines"));
                }
            }
            self.state = State::First;
        }
        if self.state == State::After {
            return Ok(false);
        }
        match self.peek()? {
            Some(b']') => {
                self.reader.consume(1);
                self.state = State::After;
                if self.peek()?.is_some() {
                    return Err(self.wrong("something follows the JSON array"));
                }
                return Ok(false);
            }
            Some(b',') if self.state == State::Between => {
                self.reader.consume(1);
                if matches!(self.peek()?, Some(b']' | b',')) {
                    return Err(self.wrong("an item is missing after a comma"));
                }
            }
            Some(_) if self.state == State::Between => {
                return Err(self.wrong("a comma is missing between two items"));
            }
            None | Some(_) => {}
        }
        if self.peek()?.is_none() {
            return Err(self.wrong("the file ends inside the JSON array; was it cut short?"));
        }
        self.state = State::Between;
        Ok(true)
    }

    /// Appends one item to the buffer.
    fn item(&mut self, buffer: &mut Vec<u8>) -> Result<(), StageError> {
        let mut scan = Scan::default();
        let first = self.line;
        loop {
            let bytes = self.reader.fill_buf().map_err(unreadable(&self.path))?;
            if bytes.is_empty() {
                self.line = first;
                return Err(self.wrong("the file ends inside the item that begins here; was it cut short?"));
            }
            let end = bytes.iter().position(|byte| scan.ends_at(*byte));
            let taken = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            self.line += taken.iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
            buffer.extend_from_slice(taken);
            let count = taken.len();
            self.reader.consume(count);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

impl Records for ArrayItems {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, StageError> {
        let mut chunk = Chunk::default();
        while !chunk.is_full() && self.advance()? {
            let (start, line) = (chunk.buffer.len(), self.line);
            self.item(&mut chunk.buffer)?;
            let end = start + chunk.buffer.get(start..).unwrap_or_default().trim_ascii_end().len();
            chunk.buffer.truncate(end);
            chunk.push(start, line, None);
        }
        Ok(chunk.some())
    }
}
