//! One record of a call file: a fixed header and a compressed payload.
//!
//! ```text
//! 0   magic       8 bytes, "\x89CALL\r\n\x01"; the last byte is the format's version
//! 8   key         32 bytes
//! 40  kind        1 byte: 0 answer or score, 1 row error; then 3 bytes 0
//! 44  length      4 bytes, of the payload, little endian
//! 48  payload sum 8 bytes, xxh3 of the payload as it stands here, little endian
//! 56  header sum  8 bytes, xxh3 of the 56 bytes above, little endian
//! 64  payload     zstd of the call's JSON
//! ```
//! The header has a sum of its own, so that after damage the next record can be found by looking for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64;

use super::{Reply, StoredCall};
use crate::key::CallKey;

pub(super) const HEADER: usize = 64;
const HEADER_LENGTH: u64 = HEADER as u64;
const MAGIC: [u8; 8] = *b"\x89CALL\r\n\x01";
const COMPRESSION: i32 = 3;
const SCAN: usize = 1 << 16;
/// No single answer is larger when unpacked; a guard against a payload that lies about itself.
const MOST_BYTES: usize = 1 << 30;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A body to be parsed, or a score.
    Answer,
    /// A request that can never be answered.
    RowError,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) file: u32,
    pub(super) length: u32,
    pub(super) offset: u64,
    pub(super) kind: Kind,
}

impl Place {
    /// Place of a record of `bytes` bytes, header included; the file is filled in by the index.
    pub(super) fn of_record(kind: Kind, offset: u64, bytes: usize) -> Self {
        let length = u32::try_from(bytes.saturating_sub(HEADER)).unwrap_or(u32::MAX);
        Self { file: 0, length, offset, kind }
    }

    pub(super) fn end(&self) -> u64 {
        self.offset + HEADER_LENGTH + u64::from(self.length)
    }
}

/// What a walk over a file's headers found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) records: Vec<(CallKey, Place)>,
    /// Where the next walk begins.
    pub(super) end: u64,
    /// Stretches without a whole record, followed by a whole one.
    pub(super) gaps: u64,
    /// The file ends within something that is no whole record.
    pub(super) torn: bool,
}

/// The bytes of a record.
pub(super) fn encode(key: &CallKey, call: &StoredCall) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(call)?;
    let payload = zstd::bulk::compress(&json, COMPRESSION)?;
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&key.0);
    bytes.push(match call.reply {
        Reply::Answer(_) | Reply::Score(_) => 0,
        Reply::RowError { .. } => 1,
    });
    bytes.extend_from_slice(&[0; 3]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&xxh3_64(&payload).to_le_bytes());
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&payload);
    Ok(bytes)
}

/// Unpacks a payload whose sum was right; `None` if it is of a later, unreadable shape.
pub(super) fn decode(payload: &[u8]) -> Option<StoredCall> {
    let mut json = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(payload).ok()?;
    io::Read::read_to_end(&mut io::Read::take(decoder, MOST_BYTES as u64), &mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// Reads the payload at `place`, `None` unless it is whole and belongs to `key`.
pub(super) fn read_payload(file: &File, key: &CallKey, place: Place) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; HEADER + place.length as usize];
    file.read_exact_at(&mut bytes, place.offset)?;
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let whole = Header::parse(header)
        .is_some_and(|header| header.key == *key && header.length == place.length && header.sum == xxh3_64(payload));
    if !whole {
        return Ok(None);
    }
    bytes.drain(..HEADER);
    Ok(Some(bytes))
}

/// Walks the headers from `from` to `size`, over the payloads and over damage.
pub(super) fn walk(file: &File, from: u64, size: u64) -> io::Result<Walk> {
    let mut walk = Walk { end: from, ..Walk::default() };
    while walk.end < size {
        if let Some((key, place)) = whole_record(file, walk.end, size)? {
            walk.end = place.end();
            walk.records.push((key, place));
        } else if let Some(next) = next_header(file, walk.end + 1, size)? {
            walk.gaps += 1;
            walk.end = next;
        } else {
            walk.torn = true;
            break;
        }
    }
    Ok(walk)
}

/// The record at `offset`, if its header is right and its payload fits. When what follows is no record,
/// the payload is checked too: a cut record may reach over its successors.
fn whole_record(file: &File, offset: u64, size: u64) -> io::Result<Option<(CallKey, Place)>> {
    let Some(header) = header_at(file, offset, size)? else {
        return Ok(None);
    };
    let place = Place { file: 0, length: header.length, offset, kind: header.kind };
    if place.end() > size {
        return Ok(None);
    }
    let followed = place.end() == size || header_at(file, place.end(), size)?.is_some();
    if (!followed || place.end() == size) && read_payload(file, &header.key, place)?.is_none() {
        return Ok(None);
    }
    Ok(Some((header.key, place)))
}

/// Offset of the next right header at or after `from`.
fn next_header(file: &File, from: u64, size: u64) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; SCAN];
    let mut start = from;
    while start + HEADER_LENGTH <= size {
        let wanted = usize::try_from(size - start).unwrap_or(SCAN).min(SCAN);
        let chunk = &mut buffer[..wanted];
        file.read_exact_at(chunk, start)?;
        for (at, window) in chunk.windows(MAGIC.len()).enumerate() {
            if window == MAGIC && header_at(file, start + at as u64, size)?.is_some() {
                return Ok(Some(start + at as u64));
            }
        }
        // Chunks overlap, so that no magic is cut in two.
        start += (wanted - MAGIC.len() + 1) as u64;
    }
    Ok(None)
}

fn header_at(file: &File, offset: u64, size: u64) -> io::Result<Option<Header>> {
    if offset + HEADER_LENGTH > size {
        return Ok(None);
    }
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(Header::parse(&bytes))
}

struct Header {
    key: CallKey,
    kind: Kind,
    length: u32,
    sum: u64,
}

impl Header {
    fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_first_chunk::<32>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let header_sum = u64::from_le_bytes(*rest.first_chunk::<8>()?);
        let kind = match kind[0] {
            0 => Kind::Answer,
            1 => Kind::RowError,
            _ => return None,
        };
        (*magic == MAGIC && header_sum == xxh3_64(&bytes[..HEADER - 8])).then_some(Self {
            key: CallKey(*key),
            kind,
            length: u32::from_le_bytes(*length),
            sum: u64::from_le_bytes(*sum),
        })
    }
}
