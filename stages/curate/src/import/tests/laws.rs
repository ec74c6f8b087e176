//! Laws: `extra` gives rows back, cutting a file changes nothing, no bytes make an import panic.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Project, numbered, simple};

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        "\\PC*".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-c.\\[\\]\"\u{e9}\u{4e00}]{0,3}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-z]{1,3}", json_value(), 0..6).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn extra_gives_back_every_unmapped_value(objects in prop::collection::vec(object(), 1..6)) {
        let lines: Vec<String> = objects
            .iter()
            .map(|object| {
                let mut row = object.clone();
                row.insert("PROMPT".to_owned(), "solve".into());
                format!("{}\n", Value::Object(row))
            })
            .collect();
        let rows = Project::with("p.jsonl", lines.concat()).rows(&json!({"files": ["p.jsonl"], "columns": {"prompt": "PROMPT"}}));
        prop_assert_eq!(rows.len(), objects.len());
        for (row, object) in rows.iter().zip(objects) {
            let text = if object.is_empty() { Value::Null } else { Value::Object(object).to_string().into() };
            prop_assert_eq!(&row["extra"], &text);
        }
    }

    #[test]
    fn cutting_a_file_anywhere_gives_the_same_rows(count in 1_usize..60, shard_rows in 1_u64..70, shard_bytes in 1_u64..4000) {
        let mut project = Project::with("p.jsonl", numbered(count));
        let whole = project.rows(&simple("p.jsonl"));
        project.env.shard_rows = shard_rows;
        project.env.shard_bytes = shard_bytes;
        prop_assert_eq!(project.rows(&simple("p.jsonl")), whole);
    }

    #[test]
    fn no_bytes_make_an_import_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), name in 0_usize..6) {
        let name = ["p.jsonl", "p.json", "p.csv", "p.parquet", "p.jsonl.gz", "p.jsonl.zst"][name];
        let _ = Project::with(name, &bytes).tolerating(1.0).import(&simple(name));
    }

    #[test]
    fn nearly_valid_json_never_panics(text in "[\\[\\]{}\",:qa0-9.eE\\\\u\\-dtrfn \n]{0,120}") {
        for name in ["p.jsonl", "p.json"] {
            let prefixed = if name == "p.json" { format!("[{text}") } else { text.clone() };
            let params = json!({"files": [name], "columns": {"prompt": "q", "messages": "a.q[0]", "label": "a[-1].q", "options": "a"}});
            let _ = Project::with(name, prefixed).tolerating(1.0).import(&params);
        }
    }
}

#[test]
fn row_groups_of_parquet_may_be_cut_anywhere() {
    use std::sync::Arc;
    let texts: Vec<String> = (0..57).map(|index| format!("problem {index}")).collect();
    let array: arrow::array::ArrayRef = Arc::new(arrow::array::StringArray::from(texts));
    let batch = arrow::array::RecordBatch::try_from_iter([("q", Arc::clone(&array)), ("a", array)]).unwrap();
    let mut bytes = Vec::new();
    let properties =
        parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut project = Project::with("p.parquet", bytes);
    let whole = project.rows(&simple("p.parquet"));
    assert_eq!(whole.len(), 57);
    for shard_rows in [1, 3, 10, 11, 56, 57, 100] {
        project.env.shard_rows = shard_rows;
        assert_eq!(project.rows(&simple("p.parquet")), whole, "{shard_rows}");
    }
}
