//! Complete JSON values in a text, wherever they stand.

use serde_json::{Deserializer, Value};

/// A value that stands in a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) value: Value,
    /// Bytes that it takes.
    pub(super) length: usize,
}

/// All outermost objects and lists of a text in order, or the one value that the whole text is.
///
/// Braces of prose and LaTeX are no JSON and are passed over. A value that is never closed is none, and then those
/// inside it are found. The work is at most linear in the text times the depth to which JSON is read (128).
pub(super) fn values(text: &str) -> Vec<Found> {
    if let Ok(value) = serde_json::from_str(text) {
        return vec![Found { value, length: text.len() }];
    }
    let mut found = Vec::new();
    let mut position = 0;
    while let Some(start) = text[position..].find(['{', '[']).map(|offset| position + offset) {
        let mut stream = Deserializer::from_str(&text[start..]).into_iter::<Value>();
        position = match stream.next() {
            Some(Ok(value)) => {
                let length = stream.byte_offset();
                found.push(Found { value, length });
                start + length
            }
            _ => start + 1,
        };
    }
    found
}
