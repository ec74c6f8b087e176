//! Canonical JSON: one text for one value, whatever the order of keys it was written in.

use serde_json::Value;

/// Serialises with sorted keys, no white space, and whole floats as `1.0`. Hashes are taken over this text.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(&Value::String(key.clone()), text);
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let one: Value = serde_json::from_str(r#"{"b": [1, {"y": 1, "x": 2}], "a": null}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"a":null,"b":[1,{"x":2,"y":1}]}"#).unwrap();
        assert_eq!(to_string(&one), to_string(&two));
        assert_eq!(to_string(&one), r#"{"a":null,"b":[1,{"x":2,"y":1}]}"#);
    }
}
