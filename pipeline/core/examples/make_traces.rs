//! Writes a Parquet file of made-up traces of about the given size in megabytes (before compression), for measurements.
//!
//! ```sh
//! cargo run --release --example make_traces -- traces.parquet 2048
//! ```

use std::error::Error;
use std::path::PathBuf;

use pipeline_core::json_rows::from_json;
use pipeline_core::table_io::TableWriter;
use serde_json::{Value, json};

/// Words that the texts are made of; enough that zstd shrinks them about as it shrinks real traces.
const WORDS: [&str; 24] = [
    "therefore",
    "we",
    "add",
    "the",
    "first",
    "term",
    "to",
    "both",
    "sides",
    "and",
    "divide",
    "by",
    "two",
    "so",
    "that",
    "x",
    "equals",
    "\\frac{a}{b}",
    "which",
    "gives",
    "因此",
    "我们",
    "得到",
    "答案",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: make_traces FILE MEGABYTES")?);
    let megabytes: u64 = arguments.next().ok_or("usage: make_traces FILE MEGABYTES")?.parse()?;
    let schema = schemas::traces::TABLE.schema();
    let mut writer = TableWriter::create(&path, &schema)?;
    let (mut state, mut bytes, mut number) = (1_u64, 0_u64, 0_u64);
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    while bytes < megabytes << 20 {
        let rows: Vec<Value> = (0..256)
            .map(|_| {
                number += 1;
                let words = 200 + next() % 1800;
                let text: Vec<String> = (0..words)
                    .map(|_| {
                        let pick = next();
                        match pick % 5 {
                            0 => (pick % 9973).to_string(),
                            _ => WORDS[usize::try_from(pick % 24).unwrap_or(0)].to_owned(),
                        }
                    })
                    .collect();
                let response = text.join(" ");
                bytes += 2 * response.len() as u64;
                let prompt = format!("Problem {number}: {}", text[..20].join(" "));
                json!({
                    "query_id": format!("{number:024x}"), "trace_id": format!("{number:024x}"), "domain": "math",
                    "messages": [{"role": "user", "content": prompt}], "prompt": prompt, "label": (number % 100).to_string(),
                    "source": "made", "license": "MIT", "model": "none", "sample": number % 8,
                    "answer_text": response, "response": response, "finish_reason": "stop",
                    "completion_tokens": words, "verdict": "correct",
                })
            })
            .collect();
        writer.write(&from_json(&schema, &rows)?)?;
    }
    let written = writer.finish()?;
    std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("{} rows, {} bytes\n", written.rows, written.bytes).as_bytes(),
    )?;
    Ok(())
}
