//! A walk over the records of a file, over damage, in large reads.
//!
//! Payloads of common size are compared with their sums on the way, which costs little beside reading the headers
//! between them; so what an index knows can be read. Longer ones are stepped over.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{HEADER, HEADER_LENGTH, Header, MAGIC, Place};
use crate::key::CallKey;

/// Bytes read at a time while the walk goes straight on.
const BLOCK: usize = 1 << 20;
/// Bytes read after a jump.
const AFTER_JUMP: usize = 1 << 16;
/// Longest payload that is looked at.
const SEEN: usize = 1 << 16;

/// What a walk over a file found beside records.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Where the next walk begins.
    pub(super) end: u64,
    /// Stretches without a whole record, followed by a whole one.
    pub(super) gaps: u64,
    /// The file ends within something that is no whole record.
    pub(super) torn: bool,
    /// A stretch holds records of a later version of the format.
    pub(super) later: bool,
}

/// Walks from `from` to `size` and shows each whole record, with its bytes, header and all, where they were looked at.
pub(super) fn walk(
    file: &File,
    from: u64,
    size: u64,
    mut visit: impl FnMut(CallKey, Place, Option<&[u8]>) -> io::Result<()>,
) -> io::Result<Walk> {
    let mut walk = Walk { end: from, ..Walk::default() };
    let mut window = Window { file, size, start: from, bytes: Vec::new() };
    while walk.end < size {
        if let Some((key, place)) = window.whole_record(walk.end)? {
            walk.end = place.end();
            let record = if place.seen { window.get(place.offset, place.bytes())? } else { None };
            visit(key, place, record)?;
            continue;
        }
        let next = window.next_header(walk.end + 1, &mut walk.later)?;
        if let Some(next) = next {
            walk.gaps += 1;
            walk.end = next;
        } else {
            walk.torn = true;
            break;
        }
    }
    Ok(walk)
}

struct Window<'a> {
    file: &'a File,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Bytes of the file; `None` beyond its end.
    fn get(&mut self, offset: u64, length: usize) -> io::Result<Option<&[u8]>> {
        if offset + length as u64 > self.size {
            return Ok(None);
        }
        let held = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > held {
            let block = if (self.start..=held).contains(&offset) { BLOCK } else { AFTER_JUMP };
            let rest = usize::try_from(self.size - offset).unwrap_or(usize::MAX);
            self.bytes.resize(block.max(length).min(rest), 0);
            self.start = offset;
            if let Err(error) = self.file.read_exact_at(&mut self.bytes, offset) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let first = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.get(first..first + length))
    }

    fn header(&mut self, offset: u64) -> io::Result<Option<Header>> {
        let bytes = self.get(offset, HEADER)?;
        Ok(bytes.and_then(|bytes| bytes.first_chunk::<HEADER>()).and_then(Header::parse))
    }

    /// The record at `offset`, if its header is right and its payload fits. A long payload is looked at only when what
    /// follows is no record: a cut record may reach over its successors.
    fn whole_record(&mut self, offset: u64) -> io::Result<Option<(CallKey, Place)>> {
        let Some(header) = self.header(offset)? else {
            return Ok(None);
        };
        let mut place = Place { file: 0, length: header.length, offset, kind: header.kind, seen: false };
        if place.end() > self.size {
            return Ok(None);
        }
        let length = header.length as usize;
        let is_followed = length > SEEN && place.end() < self.size && self.header(place.end())?.is_some();
        if !is_followed {
            let record = self.get(offset, place.bytes())?;
            if !record.and_then(|record| record.get(HEADER..)).is_some_and(|payload| header.fits(payload)) {
                return Ok(None);
            }
            place.seen = true;
        }
        Ok(Some((header.key, place)))
    }

    /// Offset of the next right header at or after `from`. Notes when a record of a later version is passed.
    fn next_header(&mut self, from: u64, later: &mut bool) -> io::Result<Option<u64>> {
        let (mut chunk, mut start) = (vec![0; AFTER_JUMP], from.saturating_sub(1));
        while start + HEADER_LENGTH <= self.size {
            let wanted = usize::try_from(self.size - start).unwrap_or(AFTER_JUMP).min(AFTER_JUMP);
            let chunk = &mut chunk[..wanted];
            self.file.read_exact_at(chunk, start)?;
            for (at, found) in chunk.windows(MAGIC.len()).enumerate() {
                if found[..MAGIC.len() - 1] != MAGIC[..MAGIC.len() - 1] {
                    continue;
                }
                *later |= found[MAGIC.len() - 1] > MAGIC[MAGIC.len() - 1];
                let offset = start + at as u64;
                if *found == MAGIC && offset >= from && self.header(offset)?.is_some() {
                    return Ok(Some(offset));
                }
            }
            // Chunks overlap, so that no magic is cut in two.
            start += (wanted - MAGIC.len() + 1) as u64;
        }
        Ok(None)
    }
}
