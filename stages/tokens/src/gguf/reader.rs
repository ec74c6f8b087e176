//! Parses the header of a GGUF file from a stream of known length.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::{GgmlType, Header, TensorInfo, Value};
use crate::error::TokensError;

/// Alignment of tensor data where the metadata states none.
const ALIGNMENT: u64 = 32;
/// A tensor has at most so many dimensions.
const MAX_DIMS: u32 = 4;
/// Vectors grow as values are read: what a file promises is reserved only up to this number.
const RESERVED: u64 = 1 << 12;

/// Reads the header from `source`, which has `length` bytes in all; `path` is for messages.
pub(crate) fn header(source: impl Read, length: u64, path: &Path) -> Result<Header, TokensError> {
    let mut reader = Reader { source, at: 0, length, path };
    reader.magic()?;
    let tensors = reader.number("the number of tensors")?;
    let keys = reader.number("the number of keys")?;
    let mut metadata = BTreeMap::new();
    for index in 0..keys {
        let key = reader.text(&format!("key {} of {keys}", index + 1))?;
        let value = reader.value(&format!("key `{key}`"))?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(reader.bad(&format!("key `{key}`"), "it stands twice"));
        }
    }
    let alignment = alignment(&reader, &metadata)?;
    let mut infos = Vec::with_capacity(reserved(tensors));
    let mut by_name = BTreeMap::new();
    for index in 0..tensors {
        let info = reader.tensor(&format!("tensor {} of {tensors}", index + 1))?;
        if by_name.insert(info.name.clone(), infos.len()).is_some() {
            return Err(reader.bad(&format!("tensor `{}`", info.name), "it stands twice"));
        }
        infos.push(info);
    }
    let data = reader.at.next_multiple_of(alignment);
    for info in &mut infos {
        place(&reader, info, data, alignment)?;
    }
    Ok(Header { metadata, tensors: infos, by_name })
}

fn alignment<R: Read>(reader: &Reader<'_, R>, metadata: &BTreeMap<String, Value>) -> Result<u64, TokensError> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(ALIGNMENT) };
    match value.as_u64() {
        Some(alignment) if alignment.is_power_of_two() && alignment <= 1 << 30 => Ok(alignment),
        _ => Err(reader.bad("key `general.alignment`", "a power of two is needed")),
    }
}

/// Turns an offset from the start of the data into one from the start of the file, and holds both ends against it.
fn place<R: Read>(reader: &Reader<'_, R>, info: &mut TensorInfo, data: u64, alignment: u64) -> Result<(), TokensError> {
    let what = format!("tensor `{}`", info.name);
    if !info.offset.is_multiple_of(alignment) {
        let message = format!("its offset {} is not a multiple of the alignment {alignment}", info.offset);
        return Err(reader.bad(&what, &message));
    }
    let start = data.checked_add(info.offset);
    let Some(start) = start.filter(|start| start.checked_add(info.bytes).is_some()) else {
        return Err(reader.bad(&what, &format!("its offset {} is beyond any file", info.offset)));
    };
    if start + info.bytes > reader.length {
        let present = reader.length.saturating_sub(start);
        return Err(reader.cut(&what, start, info.bytes, present));
    }
    info.offset = start;
    Ok(())
}

fn reserved(count: u64) -> usize {
    usize::try_from(count.min(RESERVED)).unwrap_or(0)
}

struct Reader<'a, R> {
    source: R,
    at: u64,
    length: u64,
    path: &'a Path,
}

impl<R: Read> Reader<'_, R> {
    fn bad(&self, what: &str, message: &str) -> TokensError {
        TokensError::Gguf { path: self.path.to_owned(), what: what.to_owned(), message: message.to_owned() }
    }

    fn cut(&self, what: &str, at: u64, needed: u64, present: u64) -> TokensError {
        TokensError::Cut { path: self.path.to_owned(), what: what.to_owned(), at, needed, present }
    }

    /// Whether `needed` bytes are left.
    fn ensure(&self, what: &str, needed: u64) -> Result<(), TokensError> {
        let present = self.length.saturating_sub(self.at);
        if needed <= present { Ok(()) } else { Err(self.cut(what, self.at, needed, present)) }
    }

    fn bytes(&mut self, what: &str, into: &mut [u8]) -> Result<(), TokensError> {
        let needed = into.len() as u64;
        self.ensure(what, needed)?;
        let failed = |source| TokensError::Read { path: self.path.to_owned(), source };
        self.source.read_exact(into).map_err(failed)?;
        self.at += needed;
        Ok(())
    }

    fn fixed<const N: usize>(&mut self, what: &str) -> Result<[u8; N], TokensError> {
        let mut bytes = [0; N];
        self.bytes(what, &mut bytes)?;
        Ok(bytes)
    }

    fn word(&mut self, what: &str) -> Result<u32, TokensError> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    fn number(&mut self, what: &str) -> Result<u64, TokensError> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    fn magic(&mut self) -> Result<(), TokensError> {
        let magic: [u8; 4] = self.fixed("the magic number")?;
        if magic != *b"GGUF" {
            return Err(TokensError::NotGguf {
                path: self.path.to_owned(),
                found: format!("`{}`", magic.escape_ascii()),
            });
        }
        match self.word("the version")? {
            2 | 3 => Ok(()),
            version => Err(TokensError::GgufVersion { path: self.path.to_owned(), version }),
        }
    }

    fn text(&mut self, what: &str) -> Result<String, TokensError> {
        let length = self.number(what)?;
        self.ensure(what, length)?;
        let length = usize::try_from(length).map_err(|_| self.bad(what, "it is too long for this machine"))?;
        let mut bytes = vec![0; length];
        self.bytes(what, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.bad(what, "its text is not UTF-8"))
    }

    fn value(&mut self, what: &str) -> Result<Value, TokensError> {
        const ARRAY: u32 = 9;
        let kind = self.word(what)?;
        if kind != ARRAY {
            return self.scalar(what, kind);
        }
        let kind = self.word(what)?;
        let count = self.number(what)?;
        let Some(least) = least_bytes(kind) else {
            return Err(self.bad(what, &format!("an array of values of type {kind} is not known")));
        };
        self.ensure(what, count.saturating_mul(least))?;
        let mut values = Vec::with_capacity(reserved(count));
        for _ in 0..count {
            values.push(self.scalar(what, kind)?);
        }
        Ok(Value::Array(values))
    }

    fn scalar(&mut self, what: &str, kind: u32) -> Result<Value, TokensError> {
        Ok(match kind {
            0 => Value::Unsigned(u8::from_le_bytes(self.fixed(what)?).into()),
            1 => Value::Signed(i8::from_le_bytes(self.fixed(what)?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.fixed(what)?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.fixed(what)?).into()),
            4 => Value::Unsigned(self.word(what)?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.fixed(what)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.fixed(what)?).into()),
            7 => match self.fixed::<1>(what)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return Err(self.bad(what, &format!("{other} is neither true nor false"))),
            },
            8 => Value::Text(self.text(what)?),
            10 => Value::Unsigned(self.number(what)?),
            11 => Value::Signed(i64::from_le_bytes(self.fixed(what)?)),
            12 => Value::Float(f64::from_le_bytes(self.fixed(what)?)),
            other => return Err(self.bad(what, &format!("a value of type {other} is not known"))),
        })
    }

    /// Name, dimensions, type and the offset from the start of the data.
    fn tensor(&mut self, what: &str) -> Result<TensorInfo, TokensError> {
        let name = self.text(what)?;
        let what = format!("tensor `{name}`");
        let count = self.word(&what)?;
        if count == 0 || count > MAX_DIMS {
            return Err(self.bad(&what, &format!("{count} dimensions; 1 to {MAX_DIMS} are possible")));
        }
        let mut dims = Vec::new();
        for _ in 0..count {
            dims.push(self.number(&what)?);
        }
        let id = self.word(&what)?;
        let offset = self.number(&what)?;
        let Some(kind) = GgmlType::new(id) else {
            return Err(self.bad(&what, &format!("its storage type {id} is not known")));
        };
        let elements = dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim)).filter(|all| *all > 0);
        let bytes = elements.and_then(|elements| (elements / kind.block()).checked_mul(kind.block_bytes()));
        let Some(bytes) = bytes else {
            return Err(self.bad(&what, &format!("its dimensions {dims:?} are not those of a tensor")));
        };
        if dims.first().is_some_and(|columns| !columns.is_multiple_of(kind.block())) {
            let message = format!("its rows of {} elements are not whole blocks of {} ({kind})", dims[0], kind.block());
            return Err(self.bad(&what, &message));
        }
        Ok(TensorInfo { name, dims, kind, offset, bytes })
    }
}

/// The least number of bytes of an array's element.
fn least_bytes(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        8 | 10..=12 => Some(8),
        _ => None,
    }
}
