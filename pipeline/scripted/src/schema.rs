//! A small instance of a JSON schema, made from a number: what a server that enforces schemas answers.
//!
//! Covers what is asked of models in practice: types, `enum`, `const`, `properties` (all are filled), bounds of numbers,
//! lengths, `items`, local `$ref`, `anyOf`, `oneOf`, `allOf`. Patterns and formats are not looked at.

use serde_json::{Map, Value, json};

use crate::draw::{mix, place_of};

const DEEPEST: u32 = 24;
const WORDS: [&str; 16] = [
    "amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbour", "island", "juniper", "kettle", "lagoon",
    "meadow", "north", "orchard", "prairie",
];

/// An instance of `schema`; an error says why it is no schema.
pub(crate) fn instance(schema: &Value, number: u64) -> Result<Value, String> {
    Maker { root: schema }.value(schema, number, 0)
}

/// A few words, the same for the same number.
pub(crate) fn words(number: u64, count: usize) -> String {
    let mut text = String::new();
    let mut state = number;
    for place in 0..count {
        state = mix(state, place as u64);
        if place > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[place_of(state, WORDS.len())]);
    }
    text
}

struct Maker<'a> {
    root: &'a Value,
}

impl Maker<'_> {
    fn value(&self, schema: &Value, number: u64, depth: u32) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err("the schema is nested without end".to_owned());
        }
        let Some(object) = schema.as_object() else {
            return match schema {
                Value::Bool(true) => Ok(Value::String(words(number, 2))),
                _ => Err(format!("`{schema}` is no schema")),
            };
        };
        if let Some(constant) = object.get("const") {
            return Ok(constant.clone());
        }
        if let Some(Value::Array(options)) = object.get("enum") {
            return options.get(place_of(number, options.len())).cloned().ok_or("`enum` is empty".to_owned());
        }
        if let Some(Value::String(reference)) = object.get("$ref") {
            let pointer = reference.strip_prefix('#').unwrap_or(reference);
            let target = self.root.pointer(pointer).ok_or(format!("`{reference}` leads nowhere"))?;
            return self.value(target, number, depth + 1);
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(first) = object.get(word).and_then(|options| options.get(0)) {
                return self.value(first, number, depth + 1);
            }
        }
        if let Some(Value::Array(parts)) = object.get("allOf") {
            return self.value(&Value::Object(merged(object, parts)), number, depth + 1);
        }
        match kind(object)? {
            "object" => self.object(object, number, depth),
            "array" => self.array(object, number, depth),
            "string" => Ok(string(object, number)),
            "integer" => Ok(integer(object, number)),
            "number" => Ok(float(object, number)),
            "boolean" => Ok(Value::Bool(number.is_multiple_of(2))),
            "null" => Ok(Value::Null),
            other => Err(format!("`{other}` is no type of JSON schema")),
        }
    }

    fn object(&self, schema: &Map<String, Value>, number: u64, depth: u32) -> Result<Value, String> {
        let mut made = Map::new();
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (place, (name, property)) in properties.iter().enumerate() {
                made.insert(name.clone(), self.value(property, mix(number, place as u64), depth + 1)?);
            }
        }
        Ok(Value::Object(made))
    }

    fn array(&self, schema: &Map<String, Value>, number: u64, depth: u32) -> Result<Value, String> {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let count = bound("minItems").unwrap_or(1).max(1).min(bound("maxItems").unwrap_or(u64::MAX)).min(1000);
        let any = Value::Bool(true);
        let items = schema.get("items").unwrap_or(&any);
        (0..count).map(|place| self.value(items, mix(number, place + 100), depth + 1)).collect()
    }
}

fn merged(object: &Map<String, Value>, parts: &[Value]) -> Map<String, Value> {
    let mut all = object.clone();
    all.remove("allOf");
    for part in parts.iter().filter_map(Value::as_object) {
        for (name, value) in part {
            match (all.get_mut(name), value) {
                (Some(Value::Object(before)), Value::Object(more)) => before.extend(more.clone()),
                _ => {
                    all.insert(name.clone(), value.clone());
                }
            }
        }
    }
    all
}

fn kind(schema: &Map<String, Value>) -> Result<&str, String> {
    match schema.get("type") {
        Some(Value::String(kind)) => Ok(kind),
        Some(Value::Array(kinds)) => {
            let mut names = kinds.iter().filter_map(Value::as_str);
            names.find(|name| *name != "null").or(Some("null")).ok_or("`type` is empty".to_owned())
        }
        None if schema.contains_key("properties") => Ok("object"),
        None if schema.contains_key("items") => Ok("array"),
        None => Ok("string"),
        Some(other) => Err(format!("`{other}` is no type of JSON schema")),
    }
}

fn string(schema: &Map<String, Value>, number: u64) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|bound| usize::try_from(bound).ok());
    let mut text = words(number, 4);
    while text.len() < bound("minLength").unwrap_or(0).min(1 << 20) {
        text.push(' ');
        text.push_str(&words(mix(number, text.len() as u64), 4));
    }
    if let Some(most) = bound("maxLength") {
        text.truncate(most);
    }
    Value::String(text)
}

fn integer(schema: &Map<String, Value>, number: u64) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|least| least.saturating_add(1)));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|most| most.saturating_sub(1)));
    let (least, most) = match (least, most) {
        (Some(least), Some(most)) => (least, most.max(least)),
        (Some(least), None) => (least, least.saturating_add(9)),
        (None, Some(most)) => (most.saturating_sub(9), most),
        (None, None) => (1, 9),
    };
    let width = most.abs_diff(least).saturating_add(1);
    json!(least.saturating_add(i64::try_from(number % width.min(1 << 40)).unwrap_or(0)))
}

fn float(schema: &Map<String, Value>, number: u64) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let least = bound("minimum").or(bound("exclusiveMinimum")).unwrap_or(0.0);
    let most = bound("maximum").or(bound("exclusiveMaximum")).unwrap_or(least + 1.0);
    // strictly between, so that exclusive bounds hold as well
    json!(least + (most - least) * (0.25 + (number % 64) as f64 / 128.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_keeps_to_the_bounds() {
        let schema = json!({
            "type": "object", "required": ["score"],
            "properties": {
                "score": {"type": "integer", "minimum": 1, "maximum": 5},
                "share": {"type": "number", "minimum": 0, "maximum": 1},
                "reason": {"type": "string", "minLength": 60, "maxLength": 80},
                "level": {"enum": ["easy", "hard"]},
                "queries": {"type": "array", "minItems": 3, "items": {"$ref": "#/$defs/query"}},
                "maybe": {"type": ["null", "boolean"]},
                "both": {"allOf": [{"type": "object", "properties": {"a": {"const": 1}}}, {"properties": {"b": {"type": "integer"}}}]},
                "either": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            },
            "$defs": {"query": {"type": "object", "properties": {"prompt": {"type": "string"}}}}
        });
        for number in 0..50 {
            let made = instance(&schema, mix(number, 5)).unwrap();
            assert!((1..=5).contains(&made["score"].as_i64().unwrap()));
            assert!((0.0..=1.0).contains(&made["share"].as_f64().unwrap()));
            assert!((60..=80).contains(&made["reason"].as_str().unwrap().len()));
            assert!(["easy", "hard"].contains(&made["level"].as_str().unwrap()));
            let queries = made["queries"].as_array().unwrap();
            assert_eq!(queries.len(), 3);
            assert_ne!(queries[0]["prompt"], queries[1]["prompt"]);
            assert!(made["maybe"].is_boolean() && made["either"].is_null());
            assert!(made["both"]["a"] == 1 && made["both"]["b"].is_i64());
        }
    }

    #[test]
    fn what_is_no_schema_is_an_error_and_no_endless_loop() {
        assert!(instance(&json!(3), 0).is_err());
        assert!(instance(&json!({"type": "text"}), 0).is_err());
        assert!(instance(&json!({"$ref": "#/nowhere"}), 0).is_err());
        assert!(instance(&json!({"$ref": "#"}), 0).is_err());
    }
}
