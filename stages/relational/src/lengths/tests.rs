//! A small tokenizer for tests, and the real one on the texts of Parquet files.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pipeline_core::json_rows::to_json;
use serde_json::{Map, Value, json};
use stage_tokens::{ChatTemplate, Turn};

use super::*;

/// A `tokenizer.json` of letters, the space, and these merges.
pub(crate) fn tokenizer_json(merges: &[[&str; 2]]) -> String {
    let mut vocabulary = Map::new();
    for text in std::iter::once("<unk>".to_owned()).chain(('a'..='z').map(String::from)).chain(["Ġ".to_owned()]) {
        vocabulary.insert(text, json!(vocabulary.len()));
    }
    for [left, right] in merges {
        vocabulary.insert(format!("{left}{right}"), json!(vocabulary.len()));
    }
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": merges},
    })
    .to_string()
}

fn shared_data() -> Option<PathBuf> {
    let folder = PathBuf::from("../../../shared/data");
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return None;
    }
    Some(folder)
}

fn rows_of(path: &Path) -> Vec<Map<String, Value>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    reader.flat_map(|batch| to_json(&batch.unwrap())).collect()
}

fn each_text(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(values) => values.iter().for_each(|value| each_text(value, each)),
        Value::Object(map) => map.values().for_each(|value| each_text(value, each)),
        _ => {}
    }
}

#[test]
fn ids_equal_those_of_tokenizers_on_every_text_of_the_parquet_files() {
    let Some(data) = shared_data() else { return };
    let json = std::fs::read(data.join("smollm2-tokenizer/tokenizer.json")).unwrap();
    let ours = Tokenizer::from_json(&json).unwrap();
    let mut theirs = tokenizers::Tokenizer::from_bytes(&json).unwrap();
    theirs.set_encode_special_tokens(true);
    let mut texts = 0;
    for file in [
        "smollm2-rollouts/rollouts.parquet",
        "vibethinker-eval/aime.parquet",
        "vibethinker-eval/aime25.parquet",
        "vibethinker-eval/hmmt25.parquet",
    ] {
        for row in rows_of(&data.join(file)) {
            for value in row.values() {
                each_text(value, &mut |text| {
                    let ids = ours.encode(text);
                    assert_eq!(ids, theirs.encode_fast(text, false).unwrap().get_ids(), "{text:?}");
                    assert_eq!((ours.count(text), ours.decode(&ids)), (ids.len(), text.as_bytes().to_vec()));
                    texts += 1;
                });
            }
        }
    }
    println!("{texts} texts");
    assert!(texts > 10_000, "{texts}");
}

fn numbers(value: &Value) -> Vec<u32> {
    let number = |value: &Value| value.to_string().trim_matches('"').parse().unwrap();
    value.as_array().unwrap().iter().map(number).collect()
}

/// What llama.cpp reported: ids of completions, and lengths of prompts by its own template and tokenizer.
#[test]
fn recorded_ids_decode_to_their_text_and_prompts_have_their_recorded_length() {
    let Some(data) = shared_data() else { return };
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let model = home.join(".cache/pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if !model.is_file() {
        println!("skipped: {} is absent (datasets/quickstart/fetch_model.sh fetches it)", model.display());
        return;
    }
    let (tokenizer, template) = (Tokenizer::open(&model).unwrap(), ChatTemplate::open(&model).unwrap());
    let (mut decoded, mut prompts, mut same) = (0, 0, 0);
    let rows = rows_of(&data.join("smollm2-rollouts/rollouts.parquet"));
    for row in &rows {
        let (ids, completion) = (numbers(&row["token_ids"]), row["completion"].as_str().unwrap());
        decoded += usize::from(tokenizer.decode(&ids) == completion.as_bytes());
        let spoken: Vec<u32> = ids.iter().copied().filter(|id| !tokenizer.is_special(*id)).collect();
        same += usize::from(tokenizer.encode(completion) == spoken);
        let messages = match &row["messages"] {
            Value::String(text) => serde_json::from_str(text).unwrap(),
            other => other.clone(),
        };
        let turns: Vec<Turn<'_>> = messages
            .as_array()
            .unwrap()
            .iter()
            .map(|message| Turn {
                role: message["role"].as_str().unwrap(),
                content: message["content"].as_str().unwrap(),
                tool_calls: None,
            })
            .collect();
        let length = numbers(&json!([row["prompt_tokens"]]))[0] as usize;
        prompts += usize::from(template.encode(&tokenizer, &turns, true).unwrap().len() == length);
    }
    println!("{} rows: {decoded} decoded, {same} encoded again to the same ids, {prompts} prompts", rows.len());
    assert_eq!((rows.len(), prompts), (1116, 1116));
    assert!(decoded >= 1115, "{decoded}");
    assert!(same >= 1080, "{same}");
}
