//! A writer of small GGUF files, and what the reader makes of mended and mutilated ones.

use std::io::Cursor;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// A tensor to be written: name, dimensions, type, offset from the start of the data.
pub(crate) type Planned<'a> = (&'a str, &'a [u64], u32, u64);

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn kind(value: &Value) -> u32 {
    match value {
        Value::Unsigned(_) => 4,
        Value::Signed(_) => 5,
        Value::Float(_) => 6,
        Value::Bool(_) => 7,
        Value::Text(_) => 8,
        Value::Array(_) => 9,
    }
}

fn scalar(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Unsigned(number) => bytes.extend(u32::try_from(*number).unwrap().to_le_bytes()),
        Value::Signed(number) => bytes.extend(i32::try_from(*number).unwrap().to_le_bytes()),
        #[expect(clippy::cast_possible_truncation, reason = "tests write small numbers")]
        Value::Float(number) => bytes.extend((*number as f32).to_le_bytes()),
        Value::Bool(value) => bytes.push(u8::from(*value)),
        Value::Text(value) => text(bytes, value),
        Value::Array(values) => {
            bytes.extend(values.first().map_or(4, kind).to_le_bytes());
            bytes.extend((values.len() as u64).to_le_bytes());
            for value in values {
                scalar(bytes, value);
            }
        }
    }
}

/// A GGUF file of version 3 with `data` bytes after the header.
pub(crate) fn written(metadata: &[(&str, Value)], tensors: &[Planned<'_>], data: usize) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        text(&mut bytes, key);
        bytes.extend(kind(value).to_le_bytes());
        scalar(&mut bytes, value);
    }
    for (name, dims, kind, offset) in tensors {
        text(&mut bytes, name);
        bytes.extend(u32::try_from(dims.len()).unwrap().to_le_bytes());
        bytes.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32) + data, 7);
    bytes
}

fn parsed(bytes: &[u8]) -> Result<Header, TokensError> {
    reader::header(Cursor::new(bytes), bytes.len() as u64, Path::new("m.gguf"))
}

fn refused(bytes: &[u8]) -> String {
    parsed(bytes).unwrap_err().to_string()
}

fn sample() -> Vec<u8> {
    let metadata = [
        ("general.architecture", Value::Text("llama".to_owned())),
        ("llama.block_count", Value::Unsigned(2)),
        ("llama.rope.freq_base", Value::Float(10000.0)),
        ("tokens", Value::Array(vec![Value::Text("a".to_owned()), Value::Text("b".to_owned())])),
        ("types", Value::Array(vec![Value::Signed(1), Value::Signed(3)])),
        ("flag", Value::Bool(true)),
    ];
    written(&metadata, &[("first", &[32, 2], 3, 0), ("second", &[3], 0, 64)], 64 + 12)
}

#[test]
fn a_whole_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, sample()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.text("general.architecture").unwrap(), "llama");
    assert_eq!(gguf.u64("llama.block_count").unwrap(), 2);
    assert!((gguf.f64("llama.rope.freq_base").unwrap() - 10000.0).abs() < 1e-9);
    assert_eq!(gguf.array("types").unwrap()[1].as_u64(), Some(3));
    assert_eq!(gguf.value("flag").unwrap().as_bool(), Some(true));
    let first = gguf.tensor("first").unwrap();
    assert_eq!((first.kind, first.bytes, first.elements()), (GgmlType::Q4_1, 40, 64));
    assert_eq!(gguf.read(gguf.tensor("second").unwrap()).unwrap(), [7; 12]);
    let missing = gguf.text("general.name").unwrap_err().to_string();
    assert!(missing.ends_with("metadata `general.name`: it is missing"), "{missing}");
    let wrong = gguf.text("flag").unwrap_err().to_string();
    assert!(wrong.ends_with("a text is needed"), "{wrong}");
}

#[test]
fn a_file_cut_anywhere_is_refused_with_what_is_missing() {
    let whole = sample();
    for length in 0..whole.len() {
        assert!(parsed(&whole[..length]).is_err(), "{length} bytes");
    }
    let cut = refused(&whole[..whole.len() - 5]);
    assert!(cut.contains("tensor `second` needs 12 bytes") && cut.contains("7 are there"), "{cut}");
    let cut = refused(&whole[..30]);
    assert!(cut.contains("key 1 of 6"), "{cut}");
}

#[test]
fn lengths_that_lie_are_refused_before_anything_is_allocated() {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend((1_u64 << 60).to_le_bytes());
    let message = refused(&bytes);
    assert!(message.contains("needs 1152921504606846976 bytes"), "{message}");
    let mut array = b"GGUF\x03\0\0\0".to_vec();
    array.extend(0_u64.to_le_bytes());
    array.extend(1_u64.to_le_bytes());
    text(&mut array, "k");
    array.extend(9_u32.to_le_bytes());
    array.extend(8_u32.to_le_bytes());
    array.extend(u64::MAX.to_le_bytes());
    assert!(refused(&array).contains("key `k` needs"));
    let mut tensors = b"GGUF\x03\0\0\0".to_vec();
    tensors.extend(u64::MAX.to_le_bytes());
    tensors.extend(0_u64.to_le_bytes());
    assert!(refused(&tensors).contains("tensor 1 of"));
}

#[test]
fn what_contradicts_the_format_is_named() {
    assert!(refused(b"GGML\x03\0\0\0").contains("begins with `GGML`"));
    assert!(refused(b"GGUF\x04\0\0\0").contains("version 4"));
    assert!(refused(b"GGUF\0\0\0\x03").contains("little-endian"));
    let one = |dims: &[u64], kind: u32, offset: u64| refused(&written(&[], &[("t", dims, kind, offset)], 64));
    assert!(one(&[4], 99, 0).contains("storage type 99 is not known"));
    assert!(one(&[4], 4, 0).contains("storage type 4 is not known"));
    assert!(one(&[33], 3, 0).contains("not whole blocks of 32 (Q4_1)"));
    assert!(one(&[4], 0, 8).contains("not a multiple of the alignment 32"));
    assert!(one(&[u64::MAX, 2], 0, 0).contains("dimensions"));
    assert!(one(&[u64::MAX / 4], 0, 0).contains("beyond any file"));
    assert!(one(&[0], 0, 0).contains("dimensions"));
    assert!(one(&[], 0, 0).contains("0 dimensions"));
    assert!(one(&[1, 1, 1, 1, 1], 0, 0).contains("5 dimensions"));
    assert!(one(&[4], 0, 1 << 40).contains("0 are there"));
    let twice = written(&[], &[("t", &[4], 0, 0), ("t", &[4], 0, 32)], 64);
    assert!(refused(&twice).contains("tensor `t`: it stands twice"));
    let key = ("k", Value::Bool(true));
    assert!(refused(&written(&[key.clone(), key], &[], 0)).contains("key `k`: it stands twice"));
    let odd = written(&[("general.alignment", Value::Unsigned(12))], &[], 0);
    assert!(refused(&odd).contains("a power of two is needed"));
}

#[test]
fn the_real_model_is_read() {
    let Some(gguf) = crate::tokenizer::tests::model() else { return };
    assert_eq!((gguf.tensors().len(), gguf.u64("llama.block_count").unwrap()), (272, 30));
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!((embedding.kind, &embedding.dims[..]), (GgmlType::Q8_0, &[576, 49152][..]));
}

proptest! {
    #[test]
    fn mutilated_bytes_give_an_error_or_a_header_but_never_a_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = sample();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(header) = parsed(&bytes) {
            for tensor in &header.tensors {
                prop_assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
            }
        }
    }

    #[test]
    fn any_bytes_behind_the_magic_give_an_error_or_a_header(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parsed(&[b"GGUF\x03\0\0\0".as_slice(), &bytes].concat());
    }
}
