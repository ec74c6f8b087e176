//! Tensors of a folder as Hugging Face lays it out: safetensors, in one file or in shards.
//!
//! The format of a shard: 8 bytes with the header's length, little-endian; the header, a JSON object from names to type,
//! shape and place; data. Tensors are read one by one or in parts, so that memory holds no second copy of a shard.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ensure_finite;
use crate::NetError;

/// A header longer than this is no header.
const LONGEST_HEADER: u64 = 1 << 27;
/// File that tells which tensor is in which shard.
const INDEX: &str = "model.safetensors.index.json";
/// The only shard where there is no index.
const SINGLE: &str = "model.safetensors";

/// Open shards of a folder, or one file.
#[derive(Debug)]
pub struct Shards {
    path: PathBuf,
    files: Vec<File>,
    tensors: BTreeMap<String, Tensor>,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Tensor {
    shard: usize,
    kind: Kind,
    shape: Vec<usize>,
    start: u64,
}

/// Storage types of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F32,
    F16,
    Bf16,
}

/// A header's entry.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// The index of shards.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Kind {
    fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl Shards {
    /// Opens a folder's shards and reads their headers.
    ///
    /// # Errors
    /// When a file is missing, cut or malformed, or holds a type of weights other than `F32`, `F16` and `BF16`.
    pub fn open(path: &Path) -> Result<Self, NetError> {
        let mut shards = Self { path: path.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        let index = path.join(INDEX);
        if index.exists() {
            shards.open_indexed(&index)?;
        } else {
            shards.open_shard(&path.join(SINGLE))?;
        }
        Ok(shards)
    }

    /// Opens a single file and reads its header.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_file(path: &Path) -> Result<Self, NetError> {
        let mut shards = Self { path: path.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        shards.open_shard(path)?;
        Ok(shards)
    }

    /// The folder, or the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names and shapes of all tensors, in the order of names.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice()))
    }

    /// Reads elements of a tensor, row-major, into `values`, which is resized.
    ///
    /// # Errors
    /// When there is no such tensor, it has fewer elements, or an element is NaN or infinite.
    pub fn read_part(&self, name: &str, part: Range<usize>, values: &mut Vec<f32>) -> Result<(), NetError> {
        let tensor = self.tensor(name)?;
        let count: usize = tensor.shape.iter().product();
        if part.end > count || part.start > part.end {
            let message = format!("tensor `{name}` has {count} elements; asked for {part:?}");
            return Err(NetError::Damaged { path: self.path.clone(), message });
        }
        let width = tensor.kind.width();
        let mut bytes = vec![0; part.len() * width];
        self.files[tensor.shard]
            .read_exact_at(&mut bytes, tensor.start + (part.start * width) as u64)
            .map_err(|source| NetError::Read { path: self.path.clone(), source })?;
        values.clear();
        match tensor.kind {
            Kind::F32 => values.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))),
            Kind::F16 => {
                values.extend(bytes.as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()));
            }
            Kind::Bf16 => {
                values.extend(bytes.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()));
            }
        }
        ensure_finite(&self.path, name, values).map_err(|error| match error {
            NetError::NotFinite { path, name, index, value } => {
                NetError::NotFinite { path, name, index: part.start + index, value }
            }
            other => other,
        })
    }

    /// Reads a whole tensor, row-major.
    ///
    /// # Errors
    /// When there is no such tensor, it has another shape, or an element is NaN or infinite.
    pub fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetError> {
        let tensor = self.tensor(name)?;
        if tensor.shape != shape {
            let (expected, found) = (shape.to_vec(), tensor.shape.clone());
            return Err(NetError::Shape { path: self.path.clone(), name: name.to_owned(), expected, found });
        }
        let mut values = Vec::new();
        self.read_part(name, 0..shape.iter().product(), &mut values)?;
        Ok(values)
    }

    fn tensor(&self, name: &str) -> Result<&Tensor, NetError> {
        let missing = || NetError::MissingTensor { path: self.path.clone(), name: name.to_owned() };
        self.tensors.get(name).ok_or_else(missing)
    }

    fn open_indexed(&mut self, index: &Path) -> Result<(), NetError> {
        let text = fs::read(index).map_err(|source| NetError::Read { path: index.to_owned(), source })?;
        let damaged = |message: String| NetError::Damaged { path: index.to_owned(), message };
        let Index { weight_map } = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        let mut shards: Vec<&String> = weight_map.values().collect();
        shards.sort();
        shards.dedup();
        for shard in shards {
            if Path::new(shard).components().count() != 1 || shard.starts_with('.') {
                return Err(damaged(format!("it names `{shard}`, which is no file of this folder")));
            }
            self.open_shard(&self.path.join(shard))?;
        }
        match weight_map.keys().find(|name| !self.tensors.contains_key(*name)) {
            Some(name) => Err(damaged(format!("it names tensor `{name}`, which no shard has"))),
            None => Ok(()),
        }
    }

    /// Reads the header of one shard.
    fn open_shard(&mut self, path: &Path) -> Result<(), NetError> {
        let failed = |source| NetError::Read { path: path.to_owned(), source };
        let damaged = |message: String| NetError::Damaged { path: path.to_owned(), message };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut size = [0; 8];
        if length < 8 {
            return Err(damaged(format!("it has {length} bytes; the header's length alone takes 8")));
        }
        file.read_exact_at(&mut size, 0).map_err(failed)?;
        let header_bytes = u64::from_le_bytes(size);
        if header_bytes > LONGEST_HEADER || header_bytes > length - 8 {
            return Err(damaged(format!("its header should have {header_bytes} bytes, the file has {length}")));
        }
        let mut header = vec![0; usize::try_from(header_bytes).unwrap_or(0)];
        file.read_exact_at(&mut header, 8).map_err(failed)?;
        let entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&header)
            .map_err(|error| damaged(format!("its header is no JSON object: {error}")))?;
        for (tensor, entry) in entries.into_iter().filter(|(name, _)| name != "__metadata__") {
            let entry: Entry = serde_json::from_value(entry)
                .map_err(|error| damaged(format!("tensor `{tensor}` in its header: {error}")))?;
            let place = self.place(path, &tensor, &entry, 8 + header_bytes, length)?;
            if self.tensors.insert(tensor.clone(), place).is_some() {
                return Err(damaged(format!("tensor `{tensor}` stands in another shard too")));
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Checks a header's entry against the file.
    fn place(&self, path: &Path, name: &str, entry: &Entry, data: u64, length: u64) -> Result<Tensor, NetError> {
        let damaged = |message: String| NetError::Damaged { path: path.to_owned(), message };
        let kind = match entry.dtype.as_str() {
            "F32" => Kind::F32,
            "F16" => Kind::F16,
            "BF16" => Kind::Bf16,
            other => {
                let what = format!("tensor `{name}` in type `{other}` (known: `F32`, `F16`, `BF16`)");
                return Err(NetError::Unsupported { path: path.to_owned(), what });
            }
        };
        let [start, end] = entry.data_offsets;
        let width = kind.width() as u64;
        let bytes = entry.shape.iter().try_fold(width, |bytes: u64, size| bytes.checked_mul(*size as u64));
        if bytes.is_none() || end.checked_sub(start) != bytes {
            let shape = &entry.shape;
            return Err(damaged(format!("tensor `{name}` of shape {shape:?} cannot lie in bytes {start} to {end}")));
        }
        let needed = data.saturating_add(end);
        if needed > length {
            return Err(damaged(format!("tensor `{name}` ends at byte {needed}, the file has {length}; it is cut")));
        }
        Ok(Tensor { shard: self.files.len(), kind, shape: entry.shape.clone(), start: data + start })
    }
}
