//! The same rows from every format and packing, and what happens to files that are damaged.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, DictionaryArray, Float64Array, Int32Array, LargeStringArray, ListArray,
    MapBuilder, NullArray, RecordBatch, StringArray, StringBuilder, StructArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Fields, Int32Type};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::{Project, Row, extra, numbered, simple, texts};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap();
    let mut bytes = Vec::new();
    let properties =
        parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn but_source(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter()
        .map(|mut row| {
            row.remove("source");
            row
        })
        .collect()
}

#[test]
fn every_format_and_packing_gives_the_same_rows() {
    let lines = numbered(2500);
    let array = format!("[{}]", lines.trim_end().replace('\n', ",\n  "));
    let cells: Vec<String> = (0..2500).map(|index| format!("problem {index},{index},{index}.50\n")).collect();
    let cells = cells.concat();
    let table = parquet(vec![
        ("q", Arc::new(StringArray::from_iter_values((0..2500).map(|index| format!("problem {index}"))))),
        ("a", Arc::new(Int32Array::from_iter_values(0..2500))),
        ("n", Arc::new(Float64Array::from_iter_values((0..2500).map(|index| f64::from(index) + 0.5)))),
    ]);
    let (first, second) = lines.split_at(lines.len() / 2);
    let members = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    let plain = but_source(Project::with("p.jsonl", &lines).rows(&simple("p.jsonl")));
    assert_eq!(plain.len(), 2500);
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("p.jsonl.gz", members),
        ("p.jsonl.zst", zstd::encode_all(lines.as_bytes(), 1).unwrap()),
        ("p.json", array.clone().into_bytes()),
        ("lines.json", lines.clone().into_bytes()),
        ("p.json.gz", gzip(array.as_bytes())),
        ("mark.jsonl", format!("\u{feff}{}", lines.replace('\n', "\r\n")).into_bytes()),
        ("blank.jsonl", lines.trim_end().replace('\n', "\n \n").into_bytes()),
    ];
    for (name, content) in files {
        let rows = but_source(Project::with(name, content).rows(&simple(name)));
        assert!(rows == plain, "{name}");
    }
    let looser: Vec<(&str, Vec<u8>)> = vec![
        ("p.csv", format!("q,a,n\n{cells}").into_bytes()),
        (
            "p.csv.zst",
            zstd::encode_all(format!("\u{feff}q,a,n\r\n{}", cells.replace('\n', "\r\n")).as_bytes(), 1).unwrap(),
        ),
        ("p.parquet", table.clone()),
        ("p.parquet.gz", gzip(&table)),
    ];
    for (name, content) in looser {
        let project = Project::with(name, content);
        let rows = project.rows(&simple(name));
        for column in ["query_id", "prompt", "label"] {
            assert!(texts(&rows, column) == texts(&plain, column), "{name} {column}");
        }
        let wanted = if name.starts_with("p.csv") { json!({"n": "7.50"}) } else { json!({"n": 7.5}) };
        assert_eq!(extra(&rows[7]), wanted, "{name}");
    }
}

#[test]
fn a_line_ends_at_a_line_feed_alone() {
    let lines = "{\"q\": \"a\u{2028}b\u{2029}c\u{85}d\"}\n\n{\"q\": \"e\\r\\nf\"}";
    let rows = Project::with("p.jsonl", lines).rows(&json!({"files": ["p.jsonl"], "columns": {"prompt": "q"}}));
    assert_eq!(texts(&rows, "prompt"), ["a\u{2028}b\u{2029}c\u{85}d", "e\r\nf"]);
}

#[test]
fn a_line_of_many_megabytes_is_a_row() {
    let long = "数".repeat(4 << 20);
    let rows = Project::with("p.jsonl", format!("{{\"q\": \"{long}\"}}\n{{\"q\": \"b\"}}\n"))
        .rows(&json!({"files": ["p.jsonl"], "columns": {"prompt": "q"}}));
    assert_eq!(rows.len(), 2);
    assert!(rows[0]["prompt"] == long.as_str());
}

#[test]
fn quotes_and_line_breaks_of_csv_are_understood() {
    let text = "q,a\n\"one, \"\"two\"\"\nthree\",\n四,5\n";
    let rows = Project::with("p.csv", text).rows(&simple("p.csv"));
    assert_eq!(texts(&rows, "prompt"), ["one, \"two\"\nthree", "四"]);
    assert_eq!(texts(&rows, "label"), ["null", "5"]);
}

#[test]
fn a_broken_line_ends_the_import_with_its_place_and_the_way_out() {
    let mut lines: Vec<String> = numbered(1200).lines().map(str::to_owned).collect();
    lines[999] = "{\"q\": \"cut".to_owned();
    let project = Project::with("p.jsonl", lines.join("\n"));
    let error = project.error(&simple("p.jsonl"));
    assert!(error.contains("`p.jsonl`, line 1000: it is no JSON object"), "{error}");
    assert!(error.contains("set `max_errors`"), "{error}");
}

#[test]
fn broken_lines_fall_out_as_far_as_max_errors_allows() {
    let mut lines: Vec<Vec<u8>> = numbered(1200).lines().map(|line| line.as_bytes().to_vec()).collect();
    lines[999] = b"{\"q\": \"cut".to_vec();
    lines[1000] = b"{\"q\": \"\xff\"}".to_vec();
    let mut project = Project::with("p.jsonl", lines.join(&b'\n')).tolerating(0.01);
    let imported = project.import(&simple("p.jsonl")).unwrap();
    assert_eq!((imported.rows.len(), imported.read), (1198, 1200));
    assert_eq!(texts(&imported.rejects, "reject_reason"), ["broken_line", "broken_line"]);
    let evidence: Value = serde_json::from_str(imported.rejects[0]["reject_evidence"].as_str().unwrap()).unwrap();
    assert_eq!((&evidence["line"], &evidence["text"]), (&json!(1000), &json!("{\"q\": \"cut")));
    assert_eq!(imported.rejects[0]["source"], "p.jsonl");
    project.max_errors = 0.001;
    let error = project.error(&simple("p.jsonl"));
    assert!(error.contains("line 1000: 2 of 1200 lines cannot be used (0.17 %)"), "{error}");
}

#[test]
fn broken_rows_of_csv_and_arrays_are_named_by_line() {
    let error = Project::with("p.csv", "q,a\nx,1\ny\n").error(&simple("p.csv"));
    assert!(error.contains("line 3: it has 1 fields, the header 2"), "{error}");
    let error = Project::with("p.json", "[\n{\"q\": \"a\", \"a\": 1},\n{\"q\" 1},\n3]").error(&simple("p.json"));
    assert!(error.contains("line 3: it is no JSON object"), "{error}");
    let imported = Project::with("p.json", "[\n{\"q\": \"a\", \"a\": 1},\n{\"q\" 1},\n3]")
        .tolerating(0.9)
        .import(&simple("p.json"))
        .unwrap();
    assert_eq!((imported.rows.len(), imported.rejects.len()), (1, 2));
    let project = Project::with("p.csv", "q,q\nx,1\n");
    assert!(project.error(&simple("p.csv")).contains("names column `q` twice"));
}

#[test]
fn files_that_were_cut_short_are_refused() {
    let lines = numbered(400);
    let array = format!("[{}]", lines.trim_end().replace('\n', ","));
    let table = parquet(vec![
        ("q", Arc::new(StringArray::from(vec!["a"; 1000]))),
        ("a", Arc::new(StringArray::from(vec!["b"; 1000]))),
    ]);
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("p.parquet", half(&table), "is no complete Parquet file"),
        ("p.json", half(array.as_bytes()), "the file ends inside"),
        ("p.jsonl.gz", half(&gzip(lines.as_bytes())), "is damaged or cut short"),
        ("p.jsonl.zst", half(&zstd::encode_all(lines.as_bytes(), 1).unwrap()), "is damaged or cut short"),
        ("q.json", format!("{array} x").into_bytes(), "something follows the JSON array"),
        ("r.json", b"[{\"q\":\"a\",\"a\":1} {\"q\":\"b\",\"a\":1}]".to_vec(), "line 1"),
        ("s.json", b"[{\"q\":\"a\",\"a\":1},]".to_vec(), "an item is missing"),
    ];
    for (name, content, wanted) in cases {
        let error = Project::with(name, content).error(&simple(name));
        assert!(error.contains(name) && error.contains(wanted), "{name}: {error}");
    }
}

#[test]
fn files_without_rows_give_an_empty_table() {
    for (name, content) in
        [("p.jsonl", ""), ("p.json", "[]"), ("q.json", " \n"), ("p.csv", "q,a\n"), ("b.jsonl", "\n\n")]
    {
        let imported = Project::with(name, content).import(&simple(name)).unwrap();
        assert_eq!((imported.rows.len(), imported.tasks), (0, 1), "{name}");
    }
    let empty = parquet(vec![
        ("q", Arc::new(StringArray::from(Vec::<&str>::new()))),
        ("a", Arc::new(StringArray::from(Vec::<&str>::new()))),
    ]);
    assert_eq!(Project::with("p.parquet", empty).rows(&simple("p.parquet")).len(), 0);
}

#[test]
fn every_parquet_type_becomes_json_and_nulls_stay() {
    let fields = Fields::from(vec![Field::new("x", DataType::Int32, true), Field::new("y", DataType::Utf8, true)]);
    let structs = StructArray::new(
        fields,
        vec![
            Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(StringArray::from(vec![None, None, Some("z")])),
        ],
        Some(vec![true, false, true].into()),
    );
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    map.keys().append_value("k\"");
    map.values().append_value("v");
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    let dictionary: DictionaryArray<Int32Type> = vec![Some("red"), None, Some("red")].into_iter().collect();
    let table = parquet(vec![
        ("q", Arc::new(LargeStringArray::from(vec!["一", "b", "c"]))),
        ("struct", Arc::new(structs)),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
                Some(vec![Some(1), None]),
                None,
                Some(vec![]),
            ])),
        ),
        ("big", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0)]))),
        ("float", Arc::new(Float64Array::from(vec![Some(0.1), Some(f64::NAN), None]))),
        (
            "decimal",
            Arc::new(Decimal128Array::from(vec![Some(1_850), None, Some(-1)]).with_precision_and_scale(20, 2).unwrap()),
        ),
        ("time", Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None, Some(1_700_000_000_000_000)]))),
        ("date", Arc::new(Date32Array::from(vec![Some(0), None, None]))),
        ("color", Arc::new(dictionary)),
        ("map", Arc::new(map.finish())),
        ("nothing", Arc::new(NullArray::new(3))),
    ]);
    let project = Project::with("p.parquet", table);
    let rows = project
        .rows(&json!({"files": ["p.parquet"], "columns": {"prompt": "q", "label": "nothing", "license": "color"}}));
    assert_eq!(texts(&rows, "prompt"), ["一", "b", "c"]);
    assert_eq!(texts(&rows, "license"), ["red", "null", "red"]);
    assert_eq!(texts(&rows, "label"), ["null"; 3]);
    assert_eq!(
        extra(&rows[0]),
        json!({"struct": {"x": 1, "y": null}, "list": [1, null], "big": u64::MAX, "float": 0.1, "decimal": "18.50",
            "time": "1970-01-01T00:00:00.000001", "date": "1970-01-01", "map": {"k\"": "v"}})
    );
    let second = extra(&rows[1]);
    assert!(
        second["struct"].is_null() && second["list"].is_null() && second["big"].is_null() && second["map"].is_null()
    );
    assert_eq!(second["float"], "NaN");
    assert_eq!((&extra(&rows[2])["list"], &extra(&rows[2])["map"]), (&json!([]), &json!({})));
}
