//! Writes a safetensors file, tensor after tensor, so that memory holds no second copy of a model.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use half::bf16;
use serde_json::{Map, Value, json};
use stage_candle::NetError;

use crate::TrainError;

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// 32 bits: nothing is lost.
    F32,
    /// 16 bits with the exponent of 32, rounded to nearest.
    #[default]
    Bf16,
}

impl Storage {
    fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// The name that `config.json` has for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: BufWriter<File>,
    storage: Storage,
    /// Names and numbers of elements, in the order of the file.
    tensors: Vec<(String, usize)>,
    current: usize,
    filled: usize,
}

impl TensorFile {
    /// Begins a file with tensors of the given names and shapes; their values are appended in this order.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create<'a>(
        path: &Path,
        shapes: impl Iterator<Item = (&'a str, &'a [usize])>,
        storage: Storage,
    ) -> Result<Self, TrainError> {
        let mut header = Map::new();
        header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
        let kind = if storage == Storage::F32 { "F32" } else { "BF16" };
        let (mut tensors, mut start) = (Vec::new(), 0);
        for (name, shape) in shapes {
            let count: usize = shape.iter().product();
            let end = start + count * storage.width();
            header.insert(name.to_owned(), json!({"dtype": kind, "shape": shape, "data_offsets": [start, end]}));
            tensors.push((name.to_owned(), count));
            start = end;
        }
        let mut header = Value::Object(header).to_string();
        // readers that map the file want data at a multiple of 8
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(TrainError::write(path))?);
        file.write_all(&(header.len() as u64).to_le_bytes()).map_err(TrainError::write(path))?;
        file.write_all(header.as_bytes()).map_err(TrainError::write(path))?;
        Ok(Self { path: path.to_owned(), file, storage, tensors, current: 0, filled: 0 })
    }

    /// Appends elements of the tensor that is next: all of it, or a part.
    ///
    /// # Errors
    /// When a value is NaN or infinite (also once it is rounded), there are more values than the tensor has room for, or the
    /// file cannot be written.
    pub fn append(&mut self, values: &[f32]) -> Result<(), TrainError> {
        let Some((name, count)) = self.tensors.get(self.current) else {
            return Err(TrainError::Parameter("all tensors are written".to_owned()));
        };
        if self.filled + values.len() > *count {
            return Err(TrainError::Parameter(format!("tensor `{name}` has {count} elements, more are written")));
        }
        let stored = |value: f32| if self.storage == Storage::F32 { value } else { bf16::from_f32(value).to_f32() };
        if let Some(index) = values.iter().position(|value| !stored(*value).is_finite()) {
            let (path, name, value) = (self.path.clone(), name.clone(), values[index]);
            return Err(NetError::NotFinite { path, name, index: self.filled + index, value }.into());
        }
        for value in values {
            let written = match self.storage {
                Storage::F32 => self.file.write_all(&value.to_le_bytes()),
                Storage::Bf16 => self.file.write_all(&bf16::from_f32(*value).to_le_bytes()),
            };
            written.map_err(TrainError::write(&self.path))?;
        }
        self.filled += values.len();
        while self.tensors.get(self.current).is_some_and(|(_, count)| self.filled == *count) {
            (self.current, self.filled) = (self.current + 1, 0);
        }
        Ok(())
    }

    /// Ends the file and waits until the system has it on disk.
    ///
    /// # Errors
    /// When a tensor is not whole, or the file cannot be written.
    pub fn finish(self) -> Result<(), TrainError> {
        if let Some((name, _)) = self.tensors.get(self.current) {
            return Err(TrainError::Parameter(format!("tensor `{name}` is not whole")));
        }
        let file = self.file.into_inner().map_err(|error| TrainError::write(&self.path)(error.into_error()))?;
        file.sync_all().map_err(TrainError::write(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use stage_candle::Shards;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.safetensors");
        let shapes: [(&str, &[usize]); 3] = [("b", &[2, 3]), ("a", &[0]), ("c", &[1])];
        for (storage, second) in [(Storage::F32, 1.0 / 3.0), (Storage::Bf16, 0.333_984_38)] {
            let mut file = TensorFile::create(&path, shapes.into_iter(), storage).unwrap();
            file.append(&[1.0, 1.0 / 3.0]).unwrap();
            file.append(&[-2.0, 0.0, 4.0, 8.0]).unwrap();
            file.append(&[-0.5]).unwrap();
            file.finish().unwrap();
            let shards = Shards::open_file(&path).unwrap();
            assert_eq!(shards.read("b", &[2, 3]).unwrap(), [1.0, second, -2.0, 0.0, 4.0, 8.0]);
            assert_eq!(shards.read("c", &[1]).unwrap(), [-0.5]);
        }
    }

    #[test]
    fn tensors_that_are_not_whole_too_long_or_not_finite_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.safetensors");
        let create = |storage| TensorFile::create(&path, [("a", &[2][..])].into_iter(), storage).unwrap();
        assert!(create(Storage::F32).finish().unwrap_err().to_string().contains("`a` is not whole"));
        assert!(create(Storage::F32).append(&[0.0; 3]).unwrap_err().to_string().contains("2 elements"));
        let error = create(Storage::F32).append(&[0.0, f32::NAN]).unwrap_err().to_string();
        assert!(error.contains("`a`") && error.contains("NaN at element 1"), "{error}");
        // the largest f32 is beyond the largest bf16
        assert!(create(Storage::Bf16).append(&[f32::MAX]).unwrap_err().to_string().contains("`a`"));
    }
}
