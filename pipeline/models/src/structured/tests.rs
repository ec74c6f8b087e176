//! What is taken out of an answer, what is mended, and what is refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Holds, Structured, Unusable};

fn structured(schema: &Value) -> Structured {
    Structured::new(schema).unwrap()
}

/// A judge's answer: a score from 1 to 5 and a reason.
fn judge() -> Structured {
    structured(&json!({
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}, "reason": {"type": "string"}},
        "required": ["score", "reason"], "additionalProperties": false,
    }))
}

fn complaint(structured: &Structured, answer: &str) -> String {
    structured.read(answer).unwrap_err().to_string()
}

#[test]
fn json_is_found_wherever_it_stands() {
    let expected = json!({"score": 4, "reason": "好"});
    for answer in [
        r#"{"score": 4, "reason": "好"}"#,
        "\u{feff}\n {\"score\": 4, \"reason\": \"好\"}\n",
        "```json\n{\"score\": 4, \"reason\": \"好\"}\n```",
        "当然！以下是评分：\n```\n{\"score\": 4, \"reason\": \"好\"}\n```\n希望对你有帮助。",
        "这道题的评分为{\"score\": 4, \"reason\": \"好\"}，谢谢。",
        "The set {1, 2} and the interval [0, 1], so \\frac{1}{2}: {\"score\": 4, \"reason\": \"好\"} [1]",
        "First {\"score\": 2, \"reason\": \"x\"}. No, wait: {\"score\": 4, \"reason\": \"好\"}. Done }",
        "I was told {\"score\": 1..5, \"reason\": ...}, so {\"score\": 4, \"reason\": \"好\"}",
        "It is 5\" wide. {\"score\": 4, \"reason\": \"好\"}",
        "[{\"note\": \"draft\"}, {\"score\": 4, \"reason\": \"好\"}",
    ] {
        assert_eq!(judge().read(answer).as_ref(), Ok(&expected), "{answer}");
    }
}

#[test]
fn an_answer_that_is_cut_or_holds_no_json_is_unusable() {
    assert_eq!(judge().read("  \n"), Err(Unusable::Empty));
    for answer in ["{\n  \"score", "评分：4", "{\"score\": 4, \"reason\": \"it is", "{{{{", "4 out of {5}"] {
        assert_eq!(judge().read(answer), Err(Unusable::NoJson), "{answer}");
    }
}

#[test]
fn numbers_as_text_are_mended_and_nothing_else_is() {
    for written in ["4", "\"4\"", "\" 4 \"", "4.0", "\"4.0\"", "\"+4\"", "4e0"] {
        let answer = format!("{{\"score\": {written}, \"reason\": \"\"}}");
        assert_eq!(judge().read(&answer).unwrap()["score"], json!(4), "{written}");
        assert!(judge().read(&answer).unwrap()["score"].is_i64(), "{written}");
    }
    for (written, message) in [
        ("\"4/5\"", "integer is needed, found \"4/5\""),
        ("\"four\"", "integer is needed"),
        ("\"\"", "integer is needed"),
        ("true", "integer is needed, found true"),
        ("null", "integer is needed, found null"),
        ("4.5", "integer is needed, found 4.5"),
        ("[4]", "integer is needed"),
        ("9", "9 is out of range, it must be at most 5"),
        ("0", "0 is out of range, it must be at least 1"),
        ("\"6\"", "6 is out of range"),
        ("-1e300", "integer is needed"),
    ] {
        let found = complaint(&judge(), &format!("{{\"score\": {written}, \"reason\": \"\"}}"));
        assert!(found.starts_with("at `$.score`: ") && found.contains(message), "{written}: {found}");
    }
    let text = structured(&json!({"type": ["string", "integer"]}));
    assert_eq!(text.check(json!("4")), Ok(json!("4")), "what fits as it is stays");
}

#[test]
fn a_complaint_is_about_the_longest_value_and_names_the_place() {
    let nested = structured(&json!({
        "type": "object", "required": ["queries"],
        "properties": {"queries": {"type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string", "minLength": 2}}}}},
    }));
    let answer = "[1] {\"queries\": [{\"prompt\": \"ab\"}, {\"prompt\": \"c\"}]} {}";
    assert_eq!(complaint(&nested, answer), "at `$.queries[1].prompt`: at least 2 characters are needed, found 1");
    assert_eq!(complaint(&nested, "{\"queries\": []}"), "at `$.queries`: at least 1 items are needed, found 0");
    assert_eq!(complaint(&judge(), "{\"score\": 3}"), "at `$`: `reason` is missing");
    assert_eq!(complaint(&judge(), "{\"score\": 3, \"reason\": \"\", \"x\": 1}"), "at `$`: `x` is no property of it");
}

#[test]
fn every_keyword_is_checked() {
    let cases = [
        (json!({"enum": ["a", 1]}), vec![json!("a"), json!(1), json!(1.0)], vec![json!("b"), json!(true)]),
        (json!({"const": 2}), vec![json!(2), json!("2")], vec![json!(3)]),
        (
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
            vec![json!(0.5)],
            vec![json!(0), json!(1)],
        ),
        (json!({"type": "string", "maxLength": 2}), vec![json!("多少")], vec![json!("多少？")]),
        (json!({"type": "string", "pattern": "^[A-E]$"}), vec![json!("B")], vec![json!("F")]),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "null"}}),
            vec![json!([]), json!([null])],
            vec![json!([null, null]), json!([0])],
        ),
        (json!({"uniqueItems": true}), vec![json!([1, "1"])], vec![json!([1, 1.0])]),
        (json!({"additionalProperties": {"type": "integer"}}), vec![json!({"a": 1})], vec![json!({"a": "b"})]),
        (json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), vec![json!(1), json!("1")], vec![json!(null)]),
        (json!({"oneOf": [{"minimum": 2}, {"maximum": 3}]}), vec![json!(1), json!(4)], vec![json!(2.5)]),
        (json!({"allOf": [{"type": "integer"}, {"minimum": 3}]}), vec![json!(3), json!("4")], vec![json!(2)]),
        (json!({"type": "object", "properties": {"x": false}}), vec![json!({"y": 1})], vec![json!({"x": 1})]),
        (
            json!({"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}),
            vec![json!([1, "2"])],
            vec![json!(["x"])],
        ),
        (
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false}),
            vec![json!({"next": {"next": {}}})],
            vec![json!({"next": {"last": 1}})],
        ),
    ];
    for (schema, good, bad) in cases {
        let structured = structured(&schema);
        for value in good {
            assert!(structured.check(value.clone()).is_ok(), "{schema} refuses {value}");
        }
        for value in bad {
            assert!(structured.check(value.clone()).is_err(), "{schema} takes {value}");
        }
    }
}

#[test]
fn a_schema_that_cannot_be_held_is_refused_with_its_place() {
    for (schema, path, word) in [
        (json!({"properties": {"a": {"multipleOf": 2}}}), "#/properties/a/multipleOf", "not supported"),
        (json!({"properties": {"a": {"type": "float"}}}), "#/properties/a/type", "number"),
        (json!({"$ref": "https://example.org/x"}), "#/$ref", "same schema"),
        (json!({"$ref": "#/$defs/x"}), "#/$defs/x", "nowhere"),
        (json!({"pattern": "("}), "#/pattern", "pattern"),
        (json!({"minItems": -1}), "#/minItems", "from 0"),
        (json!({"enum": []}), "#", "no value"),
        (json!({"required": ["b"], "properties": {"a": {}}, "additionalProperties": false}), "#", "`b`"),
        (json!({"allOf": [{"$ref": "#"}]}), "#", "itself"),
        (json!([]), "#", "object"),
    ] {
        let error = Structured::new(&schema).unwrap_err();
        assert_eq!(error.path, path, "{schema}: {error}");
        assert!(error.message.contains(word), "{schema}: {error}");
    }
}

#[test]
fn properties_are_told_in_the_order_of_the_schema() {
    let structured = structured(&json!({
        "type": "object", "$defs": {"level": {"enum": ["low", "high"]}},
        "properties": {
            "reason": {"type": "string"}, "score": {"type": ["integer", "null"]}, "share": {"type": "number"},
            "ok": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "level": {"$ref": "#/$defs/level"},
            "parts": {"type": "array"}, "any": {},
        },
    }));
    let expected = [
        ("reason", Holds::Text),
        ("score", Holds::Integer),
        ("share", Holds::Number),
        ("ok", Holds::Boolean),
        ("level", Holds::Text),
        ("parts", Holds::Json),
        ("any", Holds::Json),
    ];
    assert_eq!(structured.properties(), expected);
    assert!(structured.schema().starts_with(r#"{"type":"object","$defs""#));
}

/// Prose that holds no complete JSON value, with what confuses: braces, quotes, LaTeX, fences.
fn prose() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("好的，".to_owned()),
        Just("\\frac{1}{2} ".to_owned()),
        Just("\\left\\{ x \\right\\} ".to_owned()),
        Just("5\" ".to_owned()),
        Just("\n```json\n".to_owned()),
        Just("{a} ".to_owned()),
        Just("} ] ".to_owned()),
        "[a-z ,.:：。]{0,8}".prop_map(|text| text),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~多少\n\t]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn an_object_is_found_in_any_prose(before in prose(), after in prose(), inner in value(), pretty in any::<bool>()) {
        let object = json!({"found": inner});
        let text = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let structured = structured(&json!({"type": "object", "required": ["found"]}));
        prop_assert_eq!(structured.read(&format!("{before}{text}{after}")), Ok(object));
    }

    #[test]
    fn no_text_makes_it_fail(text in "([{}\\[\\]\",:\\\\0-9a-u好 \n]|\\{\"score\":|```){0,40}") {
        let _ = judge().read(&text);
    }

    #[test]
    fn what_was_accepted_is_accepted_again_unchanged(score in any::<Option<i8>>(), as_text in any::<bool>()) {
        let score = if as_text { json!(score.unwrap_or(3).to_string()) } else { json!(score) };
        if let Ok(checked) = judge().check(json!({"score": score, "reason": ""})) {
            prop_assert_eq!(judge().check(checked.clone()), Ok(checked));
        }
    }
}

#[test]
fn no_answer_takes_long_to_be_refused() {
    let node = |more: serde_json::Value| {
        let mut properties = json!({ "l": { "$ref": "#/$defs/n" }, "v": { "type": "integer" } });
        properties.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "type": "object", "properties": properties })
    };
    let branching = json!({ "type": "object", "required": ["e"], "properties": { "e": { "$ref": "#/$defs/n" } },
        "$defs": { "n": { "anyOf": [node(json!({})), node(json!({ "w": { "type": "integer" } }))] } } });
    let structured = Structured::new(&branching).unwrap();
    let nested = |leaf: &str| format!(r#"{{"e":{}{{"v":{leaf}}}{}}}"#, r#"{"l":"#.repeat(40), "}".repeat(40));
    assert!(structured.read(&nested("\"bad\"")).unwrap_err().to_string().contains("alternatives"));
    assert!(structured.read(&nested("4")).is_ok());
    // lists of many items, of which none or the last comes twice
    let unique = Structured::new(&json!({ "type": "array", "uniqueItems": true })).unwrap();
    let mut items: Vec<u32> = (0..100_000).collect();
    assert!(unique.check(json!(items)).is_ok());
    items.push(0);
    assert!(unique.check(json!(items)).is_err());
    assert!(unique.check(json!([{ "a": 1, "b": [2] }, { "b": [2], "a": 1.0 }])).is_err());
    // a model that repeats itself until it is cut
    let object = Structured::new(&json!({ "type": "object", "required": ["a"] })).unwrap();
    for piece in [r#"{"a":"#, "[1,", r#"{"e":"x"} "#, "{", "[["] {
        assert!(object.read(&piece.repeat(200_000)).is_err(), "{piece}");
        let found = format!("{}{}", piece.repeat(20_000), r#" so {"a": 7} it is"#);
        assert_eq!(object.read(&found).unwrap(), json!({ "a": 7 }), "{piece}");
    }
}
