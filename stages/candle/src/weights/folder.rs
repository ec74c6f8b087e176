//! Weights of a folder as Hugging Face lays it out: `config.json` and safetensors, in one file or in shards.
//!
//! The format of a shard: 8 bytes with the header's length, little-endian; the header, a JSON object from names to type,
//! shape and place; data. Tensors are read one by one, so that memory holds no second copy of a shard.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{EMBEDDING, HEAD, NORM, Source, ensure_finite};
use crate::NetError;
use crate::net::NetConfig;

/// A header longer than this is no header.
const LONGEST_HEADER: u64 = 1 << 27;
/// File that tells which tensor is in which shard.
const INDEX: &str = "model.safetensors.index.json";
/// The only shard where there is no index.
const SINGLE: &str = "model.safetensors";

/// An open folder.
pub(crate) struct FolderWeights {
    path: PathBuf,
    shards: Vec<File>,
    tensors: BTreeMap<String, Tensor>,
    /// What `config.json` says.
    pub(crate) config: NetConfig,
}

/// Where a tensor lies.
struct Tensor {
    shard: usize,
    kind: Kind,
    shape: Vec<usize>,
    start: u64,
    bytes: usize,
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

impl FolderWeights {
    /// Opens a folder, reads its configuration and the headers of its shards.
    pub(crate) fn open(path: &Path) -> Result<Self, NetError> {
        let config = super::config::read(&path.join("config.json"))?;
        let mut weights = Self { path: path.to_owned(), shards: Vec::new(), tensors: BTreeMap::new(), config };
        let index = path.join(INDEX);
        if index.exists() {
            weights.open_indexed(&index)?;
        } else {
            weights.open_shard(SINGLE)?;
        }
        weights.refuse_extra()?;
        Ok(weights)
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
            self.open_shard(shard)?;
        }
        match weight_map.keys().find(|name| !self.tensors.contains_key(*name)) {
            Some(name) => Err(damaged(format!("it names tensor `{name}`, which no shard has"))),
            None => Ok(()),
        }
    }

    /// Reads the header of one shard.
    fn open_shard(&mut self, name: &str) -> Result<(), NetError> {
        let path = self.path.join(name);
        let failed = |source| NetError::Read { path: path.clone(), source };
        let damaged = |message: String| NetError::Damaged { path: path.clone(), message };
        let file = File::open(&path).map_err(failed)?;
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
            let place = self.place(&path, &tensor, &entry, 8 + header_bytes, length)?;
            if self.tensors.insert(tensor.clone(), place).is_some() {
                return Err(damaged(format!("tensor `{tensor}` stands in another shard too")));
            }
        }
        self.shards.push(file);
        Ok(())
    }

    /// Checks a header's entry against the file.
    fn place(&self, path: &Path, name: &str, entry: &Entry, data: u64, length: u64) -> Result<Tensor, NetError> {
        let damaged = |message: String| NetError::Damaged { path: path.to_owned(), message };
        let (kind, width) = match entry.dtype.as_str() {
            "F32" => (Kind::F32, 4),
            "F16" => (Kind::F16, 2),
            "BF16" => (Kind::Bf16, 2),
            other => {
                let what = format!("tensor `{name}` in type `{other}` (known: `F32`, `F16`, `BF16`)");
                return Err(NetError::Unsupported { path: path.to_owned(), what });
            }
        };
        let [start, end] = entry.data_offsets;
        let bytes = entry.shape.iter().try_fold(width, |bytes: u64, size| bytes.checked_mul(*size as u64));
        if bytes.is_none() || end.checked_sub(start) != bytes {
            let shape = &entry.shape;
            return Err(damaged(format!("tensor `{name}` of shape {shape:?} cannot lie in bytes {start} to {end}")));
        }
        let needed = data.saturating_add(end);
        if needed > length {
            return Err(damaged(format!("tensor `{name}` ends at byte {needed}, the file has {length}; it is cut")));
        }
        Ok(Tensor {
            shard: self.shards.len(),
            kind,
            shape: entry.shape.clone(),
            start: data + start,
            bytes: usize::try_from(end - start).unwrap_or(0),
        })
    }

    /// Refuses tensors that the net would not use.
    fn refuse_extra(&self) -> Result<(), NetError> {
        let is_known = |name: &str| match name {
            // a tied head is the embedding; some files hold it twice
            EMBEDDING | NORM | HEAD => true,
            _ => {
                let part = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
                part.is_some_and(|(layer, part)| {
                    layer.parse().is_ok_and(|layer: usize| layer < self.config.layers)
                        && super::layer_parts(&self.config).any(|known| known == part)
                })
            }
        };
        // frequencies of rotary positions, which old files hold, follow from the configuration
        let extra = self.tensors.keys().find(|name| !is_known(name) && !name.ends_with("rotary_emb.inv_freq"));
        match extra {
            Some(name) => Err(NetError::ExtraTensor { path: self.path.clone(), name: name.clone() }),
            None => Ok(()),
        }
    }
}

impl Source for FolderWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetError> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(NetError::MissingTensor { path: self.path.clone(), name: name.to_owned() });
        };
        if tensor.shape != shape {
            let (expected, found) = (shape.to_vec(), tensor.shape.clone());
            return Err(NetError::Shape { path: self.path.clone(), name: name.to_owned(), expected, found });
        }
        let mut bytes = vec![0; tensor.bytes];
        self.shards[tensor.shard]
            .read_exact_at(&mut bytes, tensor.start)
            .map_err(|source| NetError::Read { path: self.path.clone(), source })?;
        let values: Vec<f32> = match tensor.kind {
            Kind::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Kind::F16 => bytes.as_chunks().0.iter().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect(),
            Kind::Bf16 => bytes.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
        };
        ensure_finite(&self.path, name, &values)?;
        Ok(values)
    }
}
