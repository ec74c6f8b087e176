//! One record of a call file: a fixed header and a compressed payload.
//!
//! ```text
//! 0   magic       8 bytes, "\x89CALL\r\n\x01"; the last byte is the format's version
//! 8   key         32 bytes
//! 40  kind        1 byte: 0 answer or score, 1 row error; then 3 bytes 0
//! 44  length      4 bytes, of the payload, little endian
//! 48  payload sum 8 bytes, xxh3 of the payload as it stands here, little endian
//! 56  header sum  8 bytes, xxh3 of the 56 bytes above, little endian
//! 64  payload     zstd of the call
//! ```
//! Unpacked, a call is its JSON; or, for an answer, a byte 0, the length of the reply's body in 4 bytes, little endian,
//! the body as it came, and the JSON of the call with an empty answer. A body is JSON itself: as a text within JSON it
//! would have to be written with an escape at each of its quotes, and be read twice.
//! The header has a sum of its own, so that after damage the next record can be found by looking for it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::pack::{pack, unpack};
use super::{Reply, StoredCall};
use crate::key::CallKey;
use crate::request::{Asked, ModelId};

pub(super) const HEADER: usize = 64;
pub(super) const HEADER_LENGTH: u64 = HEADER as u64;
pub(super) const MAGIC: [u8; 8] = *b"\x89CALL\r\n\x01";

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
    /// Whether this process has seen the payload whole: it wrote it, or compared its sum.
    pub(super) seen: bool,
}

impl Place {
    /// Place of a record of `bytes` bytes that was just written, header included; the file is filled in by the index.
    pub(super) fn of_record(kind: Kind, offset: u64, bytes: usize) -> Self {
        let length = u32::try_from(bytes.saturating_sub(HEADER)).unwrap_or(u32::MAX);
        Self { file: 0, length, offset, kind, seen: true }
    }

    /// Bytes of the record, header included.
    pub(super) fn bytes(&self) -> usize {
        HEADER + self.length as usize
    }

    pub(super) fn end(&self) -> u64 {
        self.offset + HEADER_LENGTH + u64::from(self.length)
    }
}

/// The bytes of a record.
pub(super) fn encode(key: &CallKey, call: &StoredCall) -> io::Result<Vec<u8>> {
    let payload = pack(&write_call(call)?)?;
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

/// A call before it is packed.
fn write_call(call: &StoredCall) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    let Reply::Answer(body) = &call.reply else {
        serde_json::to_writer(&mut bytes, call)?;
        return Ok(bytes);
    };
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    bytes.push(BESIDE);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body.as_bytes());
    let rest = Rest {
        model: &call.model,
        request: &call.request,
        reply: Reply::Answer(String::new()),
        stage: &call.stage,
        host: &call.host,
        time_ms: call.time_ms,
        latency_ms: call.latency_ms,
    };
    serde_json::to_writer(&mut bytes, &rest)?;
    Ok(bytes)
}

/// First byte of an unpacked call whose body stands beside its JSON.
const BESIDE: u8 = 0;

/// A [`StoredCall`] without the body of its answer.
#[derive(Serialize)]
struct Rest<'a> {
    model: &'a ModelId,
    request: &'a Asked,
    reply: Reply,
    stage: &'a str,
    host: &'a str,
    time_ms: u64,
    latency_ms: u64,
}

/// The body of an answer, where it stands beside the JSON, and the JSON.
fn parts(bytes: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let Some(rest) = bytes.strip_prefix(&[BESIDE]) else { return Some((None, bytes)) };
    let (length, rest) = rest.split_first_chunk()?;
    let (body, json) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((Some(str::from_utf8(body).ok()?), json))
}

/// Unpacks a payload whose sum was right; `None` if it is of a later, unreadable shape.
pub(super) fn decode(payload: &[u8]) -> Option<StoredCall> {
    unpack(payload, |bytes| {
        let (body, json) = parts(bytes)?;
        let mut call: StoredCall = serde_json::from_slice(json).ok()?;
        if let Some(body) = body {
            call.reply = Reply::Answer(body.to_owned());
        }
        Some(call)
    })
}

/// What came back alone: the request, which whoever looks for it has, is passed over.
pub(super) fn decode_reply(payload: &[u8]) -> Option<Reply> {
    #[derive(Deserialize)]
    struct Replied {
        reply: Reply,
    }
    unpack(payload, |bytes| match parts(bytes)? {
        (Some(body), _) => Some(Reply::Answer(body.to_owned())),
        (None, json) => serde_json::from_slice(json).ok().map(|replied: Replied| replied.reply),
    })
}

/// What a list of calls needs of each.
#[derive(Debug, Deserialize)]
pub(super) struct Outline<'a> {
    #[serde(borrow)]
    pub(super) model: OutlineModel<'a>,
    #[serde(borrow)]
    reply: &'a RawValue,
    /// The body of an answer that stands beside the JSON.
    #[serde(skip)]
    body: Option<&'a str>,
    #[serde(borrow, default)]
    pub(super) stage: Cow<'a, str>,
    #[serde(default)]
    pub(super) time_ms: u64,
}

/// A model's identity, borrowed.
#[derive(Debug, Deserialize)]
pub(super) struct OutlineModel<'a> {
    #[serde(borrow)]
    pub(super) model: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) revision: Option<Cow<'a, str>>,
}

impl Outline<'_> {
    /// The reply; `None` if it is of a later, unreadable shape.
    pub(super) fn reply(&self) -> Option<Reply> {
        match self.body {
            Some(body) => Some(Reply::Answer(body.to_owned())),
            None => serde_json::from_str(self.reply.get()).ok(),
        }
    }

    /// Writes the model's identity as text in the place of what is there.
    pub(super) fn write_model(&self, text: &mut String) {
        text.clear();
        text.push_str(&self.model.model);
        if let Some(revision) = &self.model.revision {
            text.push('@');
            text.push_str(revision);
        }
    }

    /// Whether a model's name (with any revision), or its name, `@` and its revision or nothing, are the given one.
    pub(super) fn is_of(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&*self.model.model);
        rest.is_some_and(|rest| match &self.model.revision {
            Some(revision) => rest.is_empty() || rest.strip_prefix('@') == Some(revision),
            None => matches!(rest, "" | "@"),
        })
    }
}

/// Unpacks a payload for `read`; `None` if it is of a later, unreadable shape.
pub(super) fn outline<T>(payload: &[u8], read: impl FnOnce(&Outline<'_>) -> T) -> Option<T> {
    unpack(payload, |bytes| {
        let (body, json) = parts(bytes)?;
        let mut outline: Outline<'_> = serde_json::from_slice(json).ok()?;
        outline.body = body;
        Some(read(&outline))
    })
}

/// Reads the record at `place`, `None` unless it is whole and belongs to `key`.
pub(super) fn read_record(file: &File, key: &CallKey, place: Place) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; place.bytes()];
    file.read_exact_at(&mut bytes, place.offset)?;
    Ok(payload_of(&bytes, key).is_some().then_some(bytes))
}

/// The payload in the bytes of a record, `None` unless it is whole and belongs to `key`.
pub(super) fn payload_of<'a>(record: &'a [u8], key: &CallKey) -> Option<&'a [u8]> {
    let (header, payload) = record.split_first_chunk::<HEADER>()?;
    let header = Header::parse(header)?;
    (header.key == *key && header.fits(payload)).then_some(payload)
}

/// The first bytes of a record.
pub(super) struct Header {
    pub(super) key: CallKey,
    pub(super) kind: Kind,
    pub(super) length: u32,
    sum: u64,
}

impl Header {
    /// Whether a payload is the one that the header speaks of.
    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        self.length as usize == payload.len() && self.sum == xxh3_64(payload)
    }

    pub(super) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Message, Request, Sampling};

    fn call(reply: Reply) -> StoredCall {
        let request = Request::new(vec![Message::new("user", "\"2 + 3\" 是多少?")], Sampling::full(1.0, 8), 0);
        StoredCall {
            model: ModelId { model: "m".to_owned(), revision: None },
            request: request.into(),
            reply,
            stage: "paths".to_owned(),
            host: String::new(),
            time_ms: 7,
            latency_ms: 3,
        }
    }

    #[test]
    fn a_call_is_read_whether_its_body_stands_beside_it_or_within() {
        let body = "{\"choices\": [{\"message\": {\"content\": \"\\\\boxed{5} 五\"}}]}\n";
        let refused = Reply::RowError { code: "context_exceeded".to_owned(), message: "\"long\"".to_owned() };
        for reply in [Reply::Answer(body.to_owned()), Reply::Answer(String::new()), refused] {
            let call = call(reply);
            // the second is how calls were written before
            for bytes in [write_call(&call).unwrap(), serde_json::to_vec(&call).unwrap()] {
                let payload = pack(&bytes).unwrap();
                assert_eq!(decode(&payload).as_ref(), Some(&call));
                assert_eq!(decode_reply(&payload).as_ref(), Some(&call.reply));
                let told = outline(&payload, |told| (told.reply(), told.stage.to_string(), told.time_ms));
                assert_eq!(told, Some((Some(call.reply.clone()), "paths".to_owned(), 7)));
            }
        }
    }

    #[test]
    fn what_is_no_call_is_none() {
        let long = [&[BESIDE][..], &u32::MAX.to_le_bytes(), b"{}"].concat();
        let no_text = [&[BESIDE][..], &1_u32.to_le_bytes(), b"\xff{}"].concat();
        for bytes in [&b""[..], b"{}", b"[]", &[BESIDE], &[BESIDE, 1, 0], &long, &no_text] {
            let payload = pack(bytes).unwrap();
            assert_eq!(decode(&payload), None);
            assert_eq!(decode_reply(&payload), None);
            assert_eq!(outline(&payload, |_| ()), None);
        }
    }
}
