//! The input file of a batch, as the body of its upload.
//!
//! The body is written to disk in whole, form fields included, so that it is sent as a stream of known length, as often
//! as it takes, and never stands in memory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;

use super::requests::Requests;
use crate::key::CallKey;
use crate::request::Request;

/// Where the requests of a batch go at the provider, whatever the base address.
const TARGET: &str = "/v1/chat/completions";
/// What a line has beyond the body of its request.
const FRAME: usize = 160;

#[derive(Serialize)]
struct Line<'a> {
    custom_id: &'a str,
    method: &'static str,
    url: &'static str,
    body: &'a RawValue,
}

/// The line that a body of this many bytes makes, at most.
pub(super) fn line_length(body: &[u8]) -> usize {
    body.len() + FRAME
}

/// What parts the fields of a form: the submission's own name, which no text holds by chance.
pub(super) fn boundary(id: &str) -> String {
    format!("batch-{id}-{}", &blake3::hash(id.as_bytes()).to_hex()[..24])
}

/// Writes the upload of these requests and gives its length in bytes. `body` makes the body of one request.
pub(super) fn write(
    path: &Path,
    id: &str,
    requests: &Requests,
    body: impl Fn(&Request) -> Result<Vec<u8>, String>,
) -> io::Result<u64> {
    let boundary = boundary(id);
    let mut out = BufWriter::new(File::create(path)?);
    write!(out, "--{boundary}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n")?;
    write!(
        out,
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"pipeline-{id}.jsonl\"\r\n\
         Content-Type: application/jsonl\r\n\r\n"
    )?;
    for key in requests.keys() {
        if let Some(request) = requests.get(key)? {
            write_line(&mut out, *key, &body(&request).map_err(io::Error::other)?)?;
        }
    }
    write!(out, "\r\n--{boundary}--\r\n")?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(file.metadata()?.len())
}

fn write_line(out: &mut impl Write, key: CallKey, body: &[u8]) -> io::Result<()> {
    let body: &RawValue = serde_json::from_slice(body)?;
    let line = Line { custom_id: &key.to_string(), method: "POST", url: TARGET, body };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}
