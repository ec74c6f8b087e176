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

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::pack::{pack, unpack};
use super::{Reply, StoredCall};
use crate::key::CallKey;

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
    let mut json = Vec::with_capacity(4096);
    serde_json::to_writer(&mut json, call)?;
    let payload = pack(&json)?;
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
    unpack(payload, |json| serde_json::from_slice(json).ok())
}

/// What came back alone. The rest, which whoever looks for it has, is passed over; where the reply comes first, it is not
/// even looked at: the sum of the payload was right, so it is what was written.
pub(super) fn decode_reply(payload: &[u8]) -> Option<Reply> {
    unpack(payload, |json| {
        let mut reply = None;
        let ended = serde_json::Deserializer::from_slice(json).deserialize_map(ReplyOf(&mut reply));
        // leaving before the end of the object is an error for the reader of JSON, and none here
        if reply.is_none() {
            ended.ok()?;
        }
        reply
    })
}

/// Takes the reply out of a call's JSON and stops.
struct ReplyOf<'a>(&'a mut Option<Reply>);

impl<'de> Visitor<'de> for ReplyOf<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if name == "reply" {
                *self.0 = Some(map.next_value()?);
                return Ok(());
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// What a list of calls needs of each.
#[derive(Debug, Deserialize)]
pub(super) struct Outline<'a> {
    #[serde(borrow)]
    pub(super) model: OutlineModel<'a>,
    #[serde(borrow)]
    pub(super) reply: &'a RawValue,
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
    /// Writes the model's identity as text in the place of what is there.
    pub(super) fn write_model(&self, text: &mut String) {
        text.clear();
        text.push_str(&self.model.model);
        if let Some(revision) = &self.model.revision {
            text.push('@');
            text.push_str(revision);
        }
    }

    /// Whether a model's name, or its name and revision, are the given one.
    pub(super) fn is_of(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&*self.model.model);
        rest.is_some_and(|rest| match &self.model.revision {
            Some(revision) => rest.is_empty() || rest.strip_prefix('@') == Some(revision),
            None => rest.is_empty(),
        })
    }
}

/// Unpacks a payload for `read`; `None` if it is of a later, unreadable shape.
pub(super) fn outline<T>(payload: &[u8], read: impl FnOnce(&Outline<'_>) -> T) -> Option<T> {
    unpack(payload, |json| serde_json::from_slice(json).ok().map(|outline| read(&outline)))
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
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_reply_is_found_wherever_it_stands() {
        let parts = [
            ("model", json!({"model": "m", "revision": null})),
            ("request", json!({"messages": [{"role": "user", "content": "\"reply\""}], "reply": 1})),
            ("reply", json!({"answer": "{\"choices\": []}"})),
            ("stage", json!("s")),
        ];
        let expected = Some(Reply::Answer("{\"choices\": []}".to_owned()));
        for turn in 0..parts.len() {
            let mut parts = parts.clone();
            parts.rotate_left(turn);
            let call: serde_json::Map<String, Value> =
                parts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(decode_reply(&pack(&serde_json::to_vec(&call).unwrap()).unwrap()), expected, "{turn}");
        }
        for text in ["{}", "[]", "{\"reply\": 1}", "{\"reply\": {\"answer\": \"cut", ""] {
            assert_eq!(decode_reply(&pack(text.as_bytes()).unwrap()), None, "{text}");
        }
    }
}
