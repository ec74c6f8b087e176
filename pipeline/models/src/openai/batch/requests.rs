//! The requests of a submission on disk: `requests.jsonl.zst`.
//!
//! One compressed frame a line, so that a single request is read without the others, while any zstd reads the whole.
//! In memory is only where each of them stands.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::journal::invalid;
use crate::key::CallKey;
use crate::request::Request;

pub(super) const FILE: &str = "requests.jsonl.zst";
const LEVEL: i32 = 3;

/// The requests of a submission: which there are, and each of them from the disk.
#[derive(Debug)]
pub(super) struct Requests {
    file: File,
    places: BTreeMap<CallKey, Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    length: u64,
}

#[derive(Serialize)]
struct LineOut<'a> {
    key: String,
    request: &'a Request,
}

#[derive(Deserialize)]
struct LineIn {
    key: String,
    request: Request,
}

/// The file while it is written.
pub(super) struct Writing {
    file: BufWriter<File>,
    length: u64,
    places: BTreeMap<CallKey, Place>,
}

impl Writing {
    pub(super) fn begin(folder: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).write(true).read(true).open(folder.join(FILE))?;
        Ok(Self { file: BufWriter::new(file), length: 0, places: BTreeMap::new() })
    }

    pub(super) fn push(&mut self, key: CallKey, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(&LineOut { key: key.to_string(), request })?;
        line.push(b'\n');
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        encoder.write_all(&line)?;
        let frame = encoder.finish()?;
        self.file.write_all(&frame)?;
        let length = frame.len() as u64;
        self.places.insert(key, Place { offset: self.length, length });
        self.length += length;
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Brings all of it onto the disk.
    pub(super) fn finish(self) -> io::Result<Requests> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(Requests { file, places: self.places })
    }
}

impl Requests {
    /// Finds the place of every request of a submission; needs no lock, since sealed requests never change.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let file = File::open(folder.join(FILE))?;
        let mut places = BTreeMap::new();
        let mut reader = BufReader::new(file.try_clone()?);
        let mut text = Vec::new();
        loop {
            let offset = reader.stream_position()?;
            if reader.fill_buf()?.is_empty() {
                break;
            }
            let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?.single_frame();
            text.clear();
            decoder.read_to_end(&mut text)?;
            reader = decoder.finish();
            let length = reader.stream_position()? - offset;
            places.insert(parse_line(&text)?.0, Place { offset, length });
        }
        Ok(Self { file, places })
    }

    pub(super) fn contains(&self, key: &CallKey) -> bool {
        self.places.contains_key(key)
    }

    pub(super) fn len(&self) -> u64 {
        self.places.len() as u64
    }

    /// All keys, in their order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &CallKey> {
        self.places.keys()
    }

    pub(super) fn get(&self, key: &CallKey) -> io::Result<Option<Request>> {
        let Some(place) = self.places.get(key) else {
            return Ok(None);
        };
        let mut frame = vec![0; usize::try_from(place.length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut frame, place.offset)?;
        let text = zstd::stream::decode_all(&frame[..])?;
        Ok(Some(parse_line(&text)?.1))
    }
}

fn parse_line(text: &[u8]) -> io::Result<(CallKey, Request)> {
    let line: LineIn = serde_json::from_slice(text)?;
    Ok((line.key.parse().map_err(|error: String| invalid(&error))?, line.request))
}
