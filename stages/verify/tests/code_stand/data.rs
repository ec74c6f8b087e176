//! Data of the shared folder beside the repository.

use serde_json::Value;
use std::{fs, io::Read, path::PathBuf};

/// The rows of a file, which may be packed; `None`, and a word about it, where the folder is absent.
pub fn json_lines(path: &str) -> Option<Vec<Value>> {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let path = here.join("../../../shared").join(path);
    let Ok(bytes) = fs::read(&path) else {
        println!("skipped: `{}` is absent", path.display());
        return None;
    };
    let mut text = String::new();
    if path.extension().is_some_and(|end| end == "gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
