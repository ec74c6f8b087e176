//! Reads the header of GGUF files: metadata and where each tensor lies.
//!
//! Every length in the file is checked against the bytes that are left before anything is allocated, and every tensor
//! against the end of the file, so that a download cut short is found here and not as noise in a model's answers.
//! The format (versions 2 and 3, little-endian): magic, version, number of tensors, number of keys; keys with typed
//! values; tensors with name, dimensions, type and offset; padding to the alignment; data.

mod reader;
mod types;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

pub use types::GgmlType;

use crate::error::TokensError;

/// A metadata value. Numbers are widened; an array holds values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer of 8 to 64 bits.
    Unsigned(u64),
    /// A signed integer of 8 to 64 bits.
    Signed(i64),
    /// A number of 32 or 64 bits.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Values of one type.
    Array(Vec<Value>),
}

impl Value {
    /// The number, if this is an integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(*number),
            Self::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The number as a float.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::Unsigned(number) => Some(*number as f64),
            Self::Signed(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// True or false.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The values of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(values) = self { Some(values) } else { None }
    }
}

/// Where a tensor lies and how it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Dimensions, the one that varies fastest first: `[columns, rows]` of a matrix. One to four, none of them 0.
    pub dims: Vec<u64>,
    /// How the numbers are stored.
    pub kind: GgmlType,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// The header of a GGUF file, and the open file.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    file: File,
    header: Header,
}

/// What the header says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<TensorInfo>,
    pub by_name: BTreeMap<String, usize>,
}

impl Gguf {
    /// Reads the header of a file. No tensor is read.
    ///
    /// # Errors
    /// A file that cannot be opened, is not GGUF, is cut anywhere (a tensor's last byte included), or contradicts itself.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let failed = |source| TokensError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let header = reader::header(std::io::BufReader::with_capacity(1 << 16, &file), length, path)?;
        Ok(Self { path: path.to_owned(), file, header })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file; tensors lie at [`TensorInfo::offset`].
    pub fn file(&self) -> &File {
        &self.file
    }

    /// All tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.header.by_name.get(name).and_then(|index| self.header.tensors.get(*index))
    }

    /// Reads a tensor's bytes as they are stored.
    ///
    /// # Errors
    /// When the file has become shorter since it was opened, or cannot be read.
    pub fn read(&self, tensor: &TensorInfo) -> Result<Vec<u8>, TokensError> {
        let failed = |source| TokensError::Read { path: self.path.clone(), source };
        let length = usize::try_from(tensor.bytes).map_err(|error| failed(std::io::Error::other(error)))?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, tensor.offset).map_err(failed)?;
        Ok(bytes)
    }

    /// A metadata value by its key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.header.metadata.get(key)
    }

    /// A metadata integer that is not negative.
    ///
    /// # Errors
    /// When the key is missing or has another type.
    pub fn u64(&self, key: &str) -> Result<u64, TokensError> {
        self.typed(key, "a number that is not negative", Value::as_u64)
    }

    /// A metadata number.
    ///
    /// # Errors
    /// When the key is missing or has another type.
    pub fn f64(&self, key: &str) -> Result<f64, TokensError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A metadata text.
    ///
    /// # Errors
    /// When the key is missing or has another type.
    pub fn text(&self, key: &str) -> Result<&str, TokensError> {
        self.typed(key, "a text", Value::as_str)
    }

    /// A metadata array.
    ///
    /// # Errors
    /// When the key is missing or has another type.
    pub fn array(&self, key: &str) -> Result<&[Value], TokensError> {
        self.typed(key, "an array", Value::as_array)
    }

    fn typed<'a, T>(&'a self, key: &str, wanted: &str, get: impl Fn(&'a Value) -> Option<T>) -> Result<T, TokensError> {
        let problem = match self.header.metadata.get(key) {
            None => "it is missing".to_owned(),
            Some(value) => match get(value) {
                Some(value) => return Ok(value),
                None => format!("{wanted} is needed"),
            },
        };
        Err(TokensError::Metadata { path: self.path.clone(), key: key.to_owned(), message: problem })
    }
}

#[cfg(test)]
pub(crate) mod tests;
