//! A tokenizer for models that are made from nothing: every byte is a token.
//!
//! It needs no corpus and no download, has a token for every text, and is read by `tokenizers` as well as by this crate.

use serde_json::{Map, Value, json};

/// A `tokenizer.json` with a token for each byte, ids 0 to 255 in the order of bytes, and the given control tokens from id
/// 256 on. A control token that is listed twice keeps its first id.
pub fn byte_tokenizer(specials: &[&str]) -> String {
    let mut vocabulary = Map::new();
    for (byte, letter) in letters() {
        vocabulary.insert(letter.to_string(), json!(byte));
    }
    let mut added: Vec<Value> = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    for content in specials.iter().copied() {
        if !known.contains(&content) {
            known.push(content);
            added.push(json!({
                "id": 255 + known.len(), "content": content, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }));
        }
    }
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocabulary,
            "merges": [],
        },
    });
    format!("{file:#}")
}

/// The bytes with the characters that byte-level vocabularies write for them: printable ones stand for themselves, the
/// others for the characters from U+0100 on.
fn letters() -> impl Iterator<Item = (u8, char)> {
    let mut next = '\u{100}'..;
    (0..=u8::MAX).map(move |byte| match byte {
        33..=126 | 161..=172 | 174..=255 => (byte, char::from(byte)),
        _ => (byte, next.next().unwrap_or(char::REPLACEMENT_CHARACTER)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;

    const SPECIALS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|im_start|>"];
    const TEXT: &str = "Löse 2 + 2 = ?\r\n\t\u{0}\u{ad} 😀<|im_end|>";

    #[test]
    fn every_byte_is_its_own_id_and_control_tokens_follow() {
        let tokenizer = Tokenizer::from_json(byte_tokenizer(&SPECIALS).as_bytes()).unwrap();
        let bytes: Vec<u32> = TEXT.bytes().map(u32::from).collect();
        assert_eq!(tokenizer.encode(TEXT), bytes);
        assert_eq!(tokenizer.decode(&bytes), TEXT.as_bytes());
        assert_eq!(
            (0..256).map(|id| tokenizer.bytes_of(id)).collect::<Vec<_>>().concat(),
            (0..=255).collect::<Vec<u8>>()
        );
        assert_eq!((tokenizer.special("<|im_start|>"), tokenizer.special("<|im_end|>")), (Some(256), Some(257)));
        assert_eq!(tokenizer.vocabulary(), 258);
    }

    #[test]
    fn the_tokenizers_library_reads_the_same() {
        let library: tokenizers::Tokenizer = byte_tokenizer(&SPECIALS).parse().unwrap();
        let ids = library.encode(TEXT, false).unwrap().get_ids().to_vec();
        let mut expected: Vec<u32> = TEXT.bytes().map(u32::from).collect();
        expected.truncate(expected.len() - "<|im_end|>".len());
        expected.push(257);
        assert_eq!(ids, expected);
        assert_eq!(library.decode(&ids, false).unwrap(), TEXT);
    }
}
