//! Complete JSON values in a text, wherever they stand.

use std::collections::VecDeque;

use serde_json::{Deserializer, Value};

/// A value that stands in a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) value: Value,
    /// Bytes that it takes.
    pub(super) length: usize,
}

/// Values that are looked at: of a model that repeats itself without end, the last ones say as much as all.
const MOST_VALUES: usize = 256;
/// Braces and brackets that may begin no value, before the rest of the text is passed over but for its end.
const MOST_MISSES: usize = 4096;
/// Bytes of that end.
const END: usize = 64 << 10;

/// The last outermost objects and lists of a text in order, or the one value that the whole text is.
///
/// Braces of prose and LaTeX are no JSON and are passed over. A value that is never closed is none, and then those
/// inside it are found. The work is at most linear in the text times the depth to which JSON is read (128).
pub(super) fn values(text: &str) -> VecDeque<Found> {
    if let Ok(value) = serde_json::from_str(text) {
        return VecDeque::from([Found { value, length: text.len() }]);
    }
    let mut found = VecDeque::new();
    let (mut position, mut misses) = (0, 0);
    while let Some(start) = text[position..].find(['{', '[']).map(|offset| position + offset) {
        let mut stream = Deserializer::from_str(&text[start..]).into_iter::<Value>();
        position = if let Some(Ok(value)) = stream.next() {
            let length = stream.byte_offset();
            if found.len() == MOST_VALUES {
                found.pop_front();
            }
            found.push_back(Found { value, length });
            start + length
        } else {
            misses += 1;
            let end = text.floor_char_boundary(text.len().saturating_sub(END));
            if misses == MOST_MISSES { end.max(start + 1) } else { start + 1 }
        };
    }
    found
}
