//! The tokenizer that a GGUF file's metadata describes, in the form of a `tokenizer.json`.
//!
//! The metadata holds tokens, their types and merges; the pre-tokenizer is only named (`tokenizer.ggml.pre`). What a name
//! means is written out here for those that are known; guessing for others would give ids that look right and are not.

use serde_json::{Map, Value, json};

use crate::error::TokensError;
use crate::gguf::{self, Gguf};
use crate::pieces::{LLAMA3, QWEN2};

/// Types of tokens in `tokenizer.ggml.token_type`.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// A `tokenizer.json` of the tokenizer that a GGUF file's metadata describes.
///
/// # Errors
/// When there is none, or it is of a kind that the metadata does not describe in full.
pub fn gguf_tokenizer(gguf: &Gguf) -> Result<String, TokensError> {
    Ok(as_json(gguf)?.to_string())
}

/// The tokenizer as a `tokenizer.json`.
pub(crate) fn as_json(gguf: &Gguf) -> Result<Value, TokensError> {
    let missing = |error: TokensError| match error {
        TokensError::Metadata { key, message, .. } => TokensError::NoTokenizer(format!("`{key}`: {message}")),
        other => other,
    };
    let model = gguf.text("tokenizer.ggml.model").map_err(missing)?;
    if model != "gpt2" {
        return Err(TokensError::NoTokenizer(format!(
            "its tokenizer is of kind `{model}`, not byte-level BPE (`gpt2`)"
        )));
    }
    let (normalizer, pre_tokenizer, ignore_merges) = preparation(gguf.text("tokenizer.ggml.pre").map_err(missing)?)?;
    let tokens = texts(gguf, "tokenizer.ggml.tokens").map_err(missing)?;
    let merges = texts(gguf, "tokenizer.ggml.merges").map_err(missing)?;
    let types = match gguf.value("tokenizer.ggml.token_type") {
        Some(_) => gguf.array("tokenizer.ggml.token_type")?,
        None => &[],
    };
    if !types.is_empty() && types.len() != tokens.len() {
        let message = format!("{} tokens have {} types", tokens.len(), types.len());
        return Err(TokensError::NoTokenizer(message));
    }
    let (mut vocabulary, mut added) = (Map::new(), Vec::new());
    for (id, token) in tokens.iter().enumerate() {
        let kind = types.get(id).and_then(gguf::Value::as_u64).unwrap_or(1);
        if kind == UNUSED {
            continue;
        }
        if kind == CONTROL || kind == USER_DEFINED {
            added.push(json!({
                "id": id, "content": token, "special": kind == CONTROL,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }));
        }
        if vocabulary.insert((*token).to_owned(), json!(id)).is_some() {
            return Err(TokensError::NoTokenizer(format!("token `{token}` stands twice")));
        }
    }
    let unknown = gguf.value("tokenizer.ggml.unknown_token_id").and_then(gguf::Value::as_u64);
    let unknown = unknown.and_then(|id| tokens.get(usize::try_from(id).ok()?));
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "post_processor": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE",
            "unk_token": unknown,
            "ignore_merges": ignore_merges,
            "byte_fallback": false,
            "fuse_unk": false,
            "vocab": vocabulary,
            "merges": merges,
        },
    }))
}

fn texts<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>, TokensError> {
    let text = |value: &'a gguf::Value| {
        value.as_str().ok_or_else(|| TokensError::NoTokenizer(format!("`{key}` is not an array of texts")))
    };
    gguf.array(key)?.iter().map(text).collect()
}

/// Normalizer, pre-tokenizer, and whether a piece that is a token is taken whole.
fn preparation(name: &str) -> Result<(Value, Value, bool), TokensError> {
    let bytes =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let split = |pattern: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
    };
    match name {
        "gpt-2" => Ok((Value::Null, bytes(true), false)),
        "smollm" => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            Ok((Value::Null, json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]}), false))
        }
        "qwen2" | "deepseek-r1-qwen" => Ok((json!({"type": "NFC"}), split(QWEN2), false)),
        "llama-bpe" | "llama3" | "llama-v3" => Ok((Value::Null, split(LLAMA3), true)),
        other => Err(TokensError::NoTokenizer(format!("its pre-tokenizer `{other}` is not known here"))),
    }
}
