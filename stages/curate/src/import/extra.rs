//! `extra`: what is left of a user's row after the mapped columns are taken out, as a JSON object.
//!
//! Values are copied as they were written, so integers beyond 64 bits, digits of floats and the shapes of nested
//! values survive.

use serde_json::value::RawValue;

use super::path::{Hop, Path, RowText};

/// Writes the columns of `row` that no path in `taken` consumed whole; of a column that was consumed in part the rest
/// stays, without what was taken (unless that lay in a list: then the column stays as it was). `None` when nothing is
/// left.
pub fn left_over(row: &RowText<'_>, taken: &[&Path]) -> Option<String> {
    let size = row.fields.iter().map(|(key, value)| key.len() + value.get().len() + 4).sum();
    let mut text = String::with_capacity(size);
    text.push('{');
    for (key, value) in &row.fields {
        if taken.iter().any(|path| path.text == *key) {
            continue;
        }
        let below: Vec<&[Hop]> = taken
            .iter()
            .filter(|path| path.column() == key && row.get(&path.text).is_none())
            .map(|path| path.hops.get(1..).unwrap_or_default())
            .collect();
        if below.iter().any(|hops| hops.is_empty()) {
            continue;
        }
        write_field(&mut text, key, value, &below);
    }
    if text.len() == 1 {
        return None;
    }
    text.push('}');
    Some(text)
}

/// Writes `"key":value` without what lies at `below`; writes nothing when nothing else is in it.
fn write_field(text: &mut String, key: &str, value: &RawValue, below: &[&[Hop]]) {
    let start = text.len();
    if !text.ends_with('{') {
        text.push(',');
    }
    text.push_str(&serde_json::Value::from(key).to_string());
    text.push(':');
    if !write_rest(text, value, below) {
        text.truncate(start);
    }
}

/// Writes a value without what lies at `below`; false when nothing else is in it.
fn write_rest(text: &mut String, value: &RawValue, below: &[&[Hop]]) -> bool {
    let in_objects = |hops: &&&[Hop]| hops.iter().all(|hop| matches!(hop, Hop::Key(_)));
    let below: Vec<&[Hop]> = below.iter().filter(in_objects).copied().collect();
    let object = if below.is_empty() { None } else { serde_json::from_str::<RowText<'_>>(value.get()).ok() };
    let Some(object) = object else {
        text.push_str(value.get());
        return true;
    };
    let start = text.len();
    text.push('{');
    for (key, inner) in &object.fields {
        let deeper: Vec<&[Hop]> = below
            .iter()
            .filter(|hops| matches!(hops.first(), Some(Hop::Key(hop)) if hop == key))
            .map(|hops| hops.get(1..).unwrap_or_default())
            .collect();
        if !deeper.iter().any(|hops| hops.is_empty()) {
            write_field(text, key, inner, &deeper);
        }
    }
    text.push('}');
    text.len() > start + 2 || object.fields.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(row: &str, taken: &[&str]) -> Option<String> {
        let paths: Vec<Path> = taken.iter().map(|path| Path::parse(path).unwrap()).collect();
        left_over(&serde_json::from_str(row).unwrap(), &paths.iter().collect::<Vec<_>>())
    }

    #[test]
    fn what_is_taken_leaves_and_the_rest_keeps_its_digits() {
        let row =
            r#"{"q":"a","n":123456789012345678901234567890,"f":1.0,"o":{"x":1,"y":{"z":2,"w":[ 3]}},"l":[{"k":1}]}"#;
        assert_eq!(left(row, &[]).as_deref(), Some(row));
        assert_eq!(left(row, &["q", "o.y.z"]).unwrap(), row.replacen("\"q\":\"a\",", "", 1).replace("\"z\":2,", ""));
        assert_eq!(left(row, &["q", "n", "f", "l", "o.x"]).unwrap(), r#"{"o":{"y":{"z":2,"w":[ 3]}}}"#);
        assert_eq!(left(row, &["q", "n", "f", "o", "l[0].k"]).unwrap(), r#"{"l":[{"k":1}]}"#);
        assert_eq!(left(r#"{"a":{"b":1}}"#, &["a.b"]), None);
        assert_eq!(left(r#"{"a.b":1,"a":{"b":2}}"#, &["a.b"]).unwrap(), r#"{"a":{"b":2}}"#);
        assert_eq!(left(r#"{"a":{"b":{"c":1}},"d":1}"#, &["a.b.c"]).unwrap(), r#"{"d":1}"#);
    }
}
