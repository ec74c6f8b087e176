//! Tests of code problems, looked up by query.
//!
//! Tests can be megabytes a problem, and traces are many a query, so traces do not carry them. They are put once into
//! a file without a name, and only their places are held in memory: about 50 bytes a query.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;

use pipeline_core::{Digest, StageError, Task, rows};
use schemas::queries;

/// Name of the port.
pub const QUERIES: &str = "queries";

/// Where a query's tests stand in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    start: u64,
    length: usize,
}

/// The tests of all queries of the port `queries`.
#[derive(Debug)]
pub struct Shelf {
    file: File,
    places: HashMap<[u8; 16], Place>,
}

impl Shelf {
    /// Reads the port once, as a stream.
    ///
    /// # Errors
    /// When an input is damaged, the disk refuses, or a query comes twice with different tests.
    pub fn of(task: &Task<'_>) -> Result<Self, StageError> {
        let refused = || StageError::io("write", task.folder());
        let file = tempfile::tempfile_in(task.folder()).map_err(refused())?;
        let mut out = BufWriter::with_capacity(1 << 20, file.try_clone().map_err(refused())?);
        let mut places: HashMap<[u8; 16], Place> = HashMap::new();
        let mut written = 0;
        for batch in task.port_batches(QUERIES, Some(&[queries::QUERY_ID, queries::TESTS]))? {
            let batch = batch?;
            let ids = rows::texts(&batch, queries::QUERY_ID)?;
            let tests = rows::texts(&batch, queries::TESTS)?;
            for row in 0..batch.num_rows() {
                let (Some(id), Some(text)) = (rows::text_at(ids, row), rows::text_at(tests, row)) else { continue };
                let place = Place { start: written, length: text.len() };
                match places.entry(key(id)) {
                    Entry::Vacant(entry) => {
                        entry.insert(place);
                        out.write_all(text.as_bytes()).map_err(refused())?;
                        written += text.len() as u64;
                    }
                    Entry::Occupied(entry) => {
                        out.flush().map_err(refused())?;
                        if read(&file, *entry.get()).map_err(refused())? != text {
                            return Err(StageError::Alarm(format!(
                                "port `{QUERIES}` has query `{id}` twice, with different `{}`; drop one of them before",
                                queries::TESTS
                            )));
                        }
                    }
                }
            }
        }
        out.flush().map_err(refused())?;
        drop(out);
        Ok(Self { file, places })
    }

    /// Number of queries that have tests.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The tests of a query, `None` where the port has none for it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tests(&self, query: &str) -> Result<Option<String>, StageError> {
        let Some(place) = self.places.get(&key(query)) else { return Ok(None) };
        read(&self.file, *place).map(Some).map_err(StageError::io("read", "the tests of the port `queries`"))
    }
}

/// 16 bytes that stand for an id of any length.
fn key(id: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&Digest::of(id.as_bytes()).bytes()[..16]);
    key
}

fn read(file: &File, place: Place) -> std::io::Result<String> {
    let mut bytes = vec![0; place.length];
    file.read_exact_at(&mut bytes, place.start)?;
    String::from_utf8(bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}
