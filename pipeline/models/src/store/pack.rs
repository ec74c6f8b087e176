//! Compression with one context a thread: setting one up costs more than a short answer does.

use std::cell::RefCell;
use std::io::{self, Read};

use zstd::bulk::{Compressor, Decompressor};

const LEVEL: i32 = 3;
/// For short calls, whose letters are left as they are: tables of letters would be a large part of the frame, and most
/// of the time that it takes to read it.
const SHORT_LEVEL: i32 = -1;
/// Bytes up to which a call is short.
const SHORT: usize = 4096;
/// No single call is larger when unpacked; a guard against a payload that lies about itself.
const MOST_BYTES: usize = 1 << 30;
/// A buffer that has grown beyond this is given back, so that one long answer does not stay in memory for good.
const KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static PACKING: RefCell<[Option<Compressor<'static>>; 2]> = const { RefCell::new([None, None]) };
    static UNPACKING: RefCell<Option<Unpacking>> = const { RefCell::new(None) };
}

struct Unpacking {
    context: Decompressor<'static>,
    bytes: Vec<u8>,
}

/// Compresses bytes into one frame that tells its size.
pub(super) fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    PACKING.with_borrow_mut(|[long, short]| {
        let (context, level) = if bytes.len() > SHORT { (long, LEVEL) } else { (short, SHORT_LEVEL) };
        match context {
            Some(context) => context.compress(bytes),
            None => context.insert(Compressor::new(level)?).compress(bytes),
        }
    })
}

/// Unpacks a frame and hands its content to `read`; `None` if it is no frame or far too large.
pub(super) fn unpack<T>(payload: &[u8], read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let Ok(Some(size)) = zstd::zstd_safe::get_frame_content_size(payload) else {
        return read(&unpack_stream(payload)?);
    };
    let size = usize::try_from(size).ok().filter(|size| *size <= MOST_BYTES)?;
    UNPACKING.with_borrow_mut(|unpacking| {
        let unpacking = match unpacking {
            Some(unpacking) => unpacking,
            None => unpacking.insert(Unpacking { context: Decompressor::new().ok()?, bytes: Vec::new() }),
        };
        unpacking.bytes.clear();
        unpacking.bytes.reserve(size);
        unpacking.context.decompress_to_buffer(payload, &mut unpacking.bytes).ok()?;
        let told = read(&unpacking.bytes);
        if unpacking.bytes.capacity() > KEPT_BYTES {
            unpacking.bytes = Vec::new();
        }
        told
    })
}

/// A frame that does not tell its size.
fn unpack_stream(payload: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(payload).ok()?;
    decoder.take(MOST_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_whoever_packed_it() {
        let long = "逐步推理 ".repeat(1_000_000);
        for text in ["", "a", long.as_str()] {
            let mut streamed = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            streamed.write_all(text.as_bytes()).unwrap();
            for frame in [pack(text.as_bytes()).unwrap(), streamed.finish().unwrap()] {
                assert_eq!(unpack(&frame, |bytes| Some(bytes == text.as_bytes())), Some(true));
                let cut = &frame[..frame.len() - 1];
                assert!(!unpack(cut, |bytes| Some(bytes == text.as_bytes())).unwrap_or(false));
            }
        }
        assert_eq!(unpack(b"no frame", |_| Some(())), None);
    }
}
