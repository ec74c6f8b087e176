//! Ids held against the `tokenizers` crate, on real texts and on random ones.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::gguf::tests::written;
use crate::gguf::{self, Gguf};
use crate::pieces::{GPT2, LLAMA3, QWEN2};

fn shared() -> Option<PathBuf> {
    let shared = PathBuf::from("../../../shared/data");
    if !shared.is_dir() {
        eprintln!("skipped: {} is absent", shared.display());
        return None;
    }
    Some(shared)
}

/// The sample model, if it has been fetched.
pub(crate) fn model() -> Option<Gguf> {
    let path = model_path()?;
    Some(Gguf::open(&path).unwrap())
}

pub(crate) fn model_path() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = home.join(".cache/pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} is absent (datasets/quickstart/fetch_model.sh fetches it)", path.display());
        return None;
    }
    Some(path)
}

fn smollm2_json() -> Option<Vec<u8>> {
    Some(std::fs::read(shared()?.join("smollm2-tokenizer/tokenizer.json")).unwrap())
}

/// The `tokenizers` crate with control tokens as plain text, and ours.
struct Both {
    theirs: tokenizers::Tokenizer,
    ours: Tokenizer,
}

impl Both {
    fn new(json: &[u8]) -> Self {
        let mut theirs = tokenizers::Tokenizer::from_bytes(json).unwrap();
        theirs.set_encode_special_tokens(true);
        Self { theirs, ours: Tokenizer::from_json(json).unwrap() }
    }

    /// Ids by `tokenizers`, less the unknown token where it is a control token.
    fn expected(&self, text: &str) -> Vec<u32> {
        let encoding = self.theirs.encode_fast(text, false).unwrap();
        encoding.get_ids().iter().copied().filter(|id| !self.ours.is_special(*id)).collect()
    }

    fn agree(&self, text: &str) {
        let (ours, theirs) = (self.ours.encode(text), self.expected(text));
        assert!(ours == theirs, "{text:?}: {ours:?} where tokenizers gives {theirs:?}");
        assert_eq!(self.ours.count(text), ours.len());
    }
}

static SMOLLM2: LazyLock<Option<Both>> = LazyLock::new(|| smollm2_json().map(|json| Both::new(&json)));

/// The byte alphabet, and a vocabulary trained by hand-made merges on a few words.
fn synthetic(pattern: Option<&str>, ignore_merges: bool, special_in_vocabulary: bool) -> serde_json::Value {
    let letter = |byte: u8| (0_u32..0x180).filter_map(char::from_u32).find(|c| byte_of(*c) == Some(byte)).unwrap();
    let written = |text: &str| text.bytes().map(letter).collect::<String>();
    let mut vocabulary: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    let mut merges = Vec::new();
    let words = [
        "the", " the", "ing", "数学", "é", "e\u{301}", "\n\n", "  ", "    ", "return", "\\frac", "😀", "'s", "12", "()",
    ];
    for word in words {
        let mut left = String::new();
        for symbol in written(word).chars() {
            let whole = format!("{left}{symbol}");
            if !left.is_empty() && !vocabulary.contains(&whole) {
                merges.push(json!([left, symbol.to_string()]));
                vocabulary.push(whole.clone());
            }
            left = whole;
        }
    }
    let first = vocabulary.len();
    let mut added = Vec::new();
    let specials = [("<|im_start|>", true), ("<|im_end|>", true), ("<think>", false), ("</think>", false)];
    for (index, (text, special)) in specials.into_iter().enumerate() {
        added.push(json!({"id": first + index, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special}));
        if special_in_vocabulary {
            vocabulary.push(text.to_owned());
        }
    }
    let vocab: serde_json::Map<String, serde_json::Value> =
        vocabulary.into_iter().enumerate().map(|(id, text)| (text, json!(id))).collect();
    let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex});
    let (normalizer, pre_tokenizer) = match pattern {
        None => (json!(null), bytes(true)),
        Some(pattern) => {
            let split =
                json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            (json!({"type": "NFC"}), json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]}))
        }
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges, "vocab": vocab, "merges": merges},
    })
}

fn both(pattern: Option<&str>, ignore_merges: bool) -> Both {
    Both::new(&serde_json::to_vec(&synthetic(pattern, ignore_merges, false)).unwrap())
}

static QWEN: LazyLock<Both> = LazyLock::new(|| both(Some(QWEN2), false));
static LLAMA: LazyLock<Both> = LazyLock::new(|| both(Some(LLAMA3), true));
static PLAIN: LazyLock<Both> = LazyLock::new(|| both(None, false));

const CASES: [&str; 16] = [
    "",
    " ",
    "What is 2 + 3?  The answer is \\boxed{5}.\n\n",
    "  leading and trailing  \n \t\r\n x\r\n",
    "小明有12个苹果，他吃了½个。等于多少？",
    "e\u{301}cole \u{1100}\u{1161} \u{212b} caf\u{e9} n\u{303}\u{323}",
    "👩‍👩‍👧‍👦 😀🏳️‍🌈 ✓",
    "\0\u{1}\u{4}\u{6}\u{13}\u{7f}\u{85}\u{a0}\u{2028}\u{200b}\u{feff}",
    "def f(x):\n    return x**2  # it's\n\n\n\tif x!=1:\r\n",
    "\\frac{1}{2} \\sqrt[3]{x_1^{12}} $$\\int_0^\\infty e^{-x}$$",
    "I'LL we'Re 'Sx 'ſ ''s don't'",
    "１２３ Ⅷ ²³ ٣٤ 〇一二",
    "<|im_start|>user\nhi<|im_end|> <|endoftext|> <think>a</think>",
    "\u{10ffff}\u{f0000}\u{e000}\u{1f1e6}\u{50000}\u{90000}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学数学 the the",
];

#[test]
fn ids_equal_those_of_tokenizers_on_hard_cases() {
    for text in CASES {
        for both in [&QWEN, &LLAMA, &PLAIN] {
            both.agree(text);
        }
        if let Some(both) = &*SMOLLM2 {
            both.agree(text);
        }
    }
}

#[test]
fn known_tokenizers_take_the_fast_way_and_others_do_not() {
    assert!(QWEN.ours.is_fast() && LLAMA.ours.is_fast() && PLAIN.ours.is_fast());
    assert!(SMOLLM2.as_ref().is_none_or(|both| both.ours.is_fast()));
    let odd = both(Some(r"\w+|\W+"), false);
    assert!(!odd.ours.is_fast());
    for text in CASES {
        odd.agree(text);
    }
    assert!(both(Some(GPT2), false).ours.is_fast());
}

/// Every character by itself and between letters: the tables of the pieces are those of the pattern. Of the large blocks
/// whose characters are all alike, some.
#[test]
fn every_character_is_cut_as_tokenizers_cuts_it() {
    let is_alike = |c: char| matches!(u32::from(c), 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7a3 | 0xe000..=0xf8ff | 0x20000..);
    let characters: Vec<char> = ('\0'..=char::MAX).filter(|c| !is_alike(*c) || u32::from(*c) % 61 == 0).collect();
    for chunk in characters.chunks(4096) {
        // a space and a letter beside each, so that runs and optional spaces matter
        let text: String = chunk.iter().flat_map(|c| [*c, *c, ' ', *c, 'a', *c, ' ', ' ']).collect();
        QWEN.agree(&text);
        if let Some(both) = &*SMOLLM2 {
            both.agree(&text);
        }
    }
}

/// All texts of a JSON value.
fn texts(value: &serde_json::Value, each: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::String(text) => each(text),
        serde_json::Value::Array(values) => values.iter().for_each(|value| texts(value, each)),
        serde_json::Value::Object(map) => map.values().for_each(|value| texts(value, each)),
        _ => {}
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

/// The values of a file: JSON, JSON lines, compressed or not.
fn values(path: &Path) -> Option<Vec<serde_json::Value>> {
    let mut content = String::new();
    let extension = path.extension()?.to_str()?;
    if extension == "gz" {
        flate2::read::MultiGzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut content).unwrap();
    } else if extension == "json" || extension == "jsonl" {
        content = std::fs::read_to_string(path).unwrap();
    } else {
        return None;
    }
    match serde_json::from_str(&content) {
        Ok(value) => Some(vec![value]),
        Err(_) => Some(
            content
                .split('\n')
                .filter(|line| !line.trim().is_empty())
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        ),
    }
}

#[test]
fn ids_equal_those_of_tokenizers_on_every_text_of_the_real_data() {
    let (Some(shared), Some(both)) = (shared(), &*SMOLLM2) else { return };
    let mut found = Vec::new();
    files(&shared, &mut found);
    let (mut seen, mut read) = (BTreeSet::new(), 0);
    for path in &found {
        if path.ends_with("smollm2-tokenizer/tokenizer.json") {
            continue;
        }
        let Some(values) = values(path) else { continue };
        read += 1;
        for value in &values {
            texts(value, &mut |text| {
                if !seen.contains(text) {
                    both.agree(text);
                    assert_eq!(both.ours.decode(&both.ours.encode(text)), text.as_bytes());
                    seen.insert(text.to_owned());
                }
            });
        }
    }
    eprintln!("{} texts of {read} files", seen.len());
    assert!(read >= 40 && seen.len() > 30_000, "{} texts of {read} files", seen.len());
}

#[test]
fn metadata_and_json_give_one_tokenizer() {
    let (Some(gguf), Some(both)) = (model(), &*SMOLLM2) else { return };
    let of_metadata = Tokenizer::from_gguf(&gguf).unwrap();
    assert_eq!(of_metadata.digest(), both.ours.digest());
    assert!(of_metadata.is_fast());
    assert_eq!(of_metadata.vocabulary(), 49_152);
    for text in CASES {
        assert_eq!(of_metadata.encode(text), both.ours.encode(text));
    }
}

fn as_gguf(json: &serde_json::Value, pre: &str) -> Vec<u8> {
    let mut tokens: Vec<(u64, String, i64)> = Vec::new();
    for (text, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens.push((id.as_u64().unwrap(), text.clone(), 1));
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let kind = if added["special"] == true { 3 } else { 4 };
        tokens.retain(|(id, ..)| *id != added["id"].as_u64().unwrap());
        tokens.push((added["id"].as_u64().unwrap(), added["content"].as_str().unwrap().to_owned(), kind));
    }
    tokens.sort();
    tokens.push((tokens.len() as u64, "[PAD]".to_owned(), 5));
    let text = |text: &str| gguf::Value::Text(text.to_owned());
    let merge =
        |pair: &serde_json::Value| text(&format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    let metadata = [
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text(pre)),
        ("tokenizer.ggml.tokens", gguf::Value::Array(tokens.iter().map(|token| text(&token.1)).collect())),
        (
            "tokenizer.ggml.token_type",
            gguf::Value::Array(tokens.iter().map(|token| gguf::Value::Signed(token.2)).collect()),
        ),
        (
            "tokenizer.ggml.merges",
            gguf::Value::Array(json["model"]["merges"].as_array().unwrap().iter().map(merge).collect()),
        ),
    ];
    written(&metadata, &[], 0)
}

#[test]
fn metadata_of_qwen_gives_the_digest_of_its_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let json = synthetic(Some(QWEN2), false, false);
    std::fs::write(&path, as_gguf(&json, "qwen2")).unwrap();
    let of_metadata = Tokenizer::open(&path).unwrap();
    assert_eq!(of_metadata.digest(), QWEN.ours.digest());
    assert_eq!(of_metadata.encode("<think>数学</think>"), QWEN.ours.encode("<think>数学</think>"));
}

#[test]
fn an_unknown_pre_tokenizer_is_refused_unless_a_json_lies_beside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let json = synthetic(Some(QWEN2), false, false);
    std::fs::write(&path, as_gguf(&json, "viking")).unwrap();
    let message = Tokenizer::open(&path).unwrap_err().to_string();
    assert!(message.contains("`viking` is not known") && message.contains("`tokenizer.json` beside"), "{message}");
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    assert_eq!(Tokenizer::open(&path).unwrap().digest(), QWEN.ours.digest());
}

#[test]
fn another_kind_of_metadata_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, written(&[("tokenizer.ggml.model", gguf::Value::Text("llama".to_owned()))], &[], 0)).unwrap();
    let message = Tokenizer::open(&path).unwrap_err().to_string();
    assert!(message.contains("of kind `llama`"), "{message}");
    std::fs::write(&path, written(&[], &[], 0)).unwrap();
    assert!(Tokenizer::open(&path).unwrap_err().to_string().contains("`tokenizer.ggml.model`: it is missing"));
}

#[test]
fn control_tokens_in_text_stay_text() {
    for both in [Some(&*QWEN), Some(&*LLAMA), SMOLLM2.as_ref()].into_iter().flatten() {
        for text in CASES {
            assert!(both.ours.encode(text).iter().all(|id| !both.ours.is_special(*id)), "{text:?}");
        }
        let end = both.ours.special("<|im_end|>").unwrap();
        assert!(both.ours.bytes_of(end).is_empty());
        assert_eq!(both.ours.special_text(end), Some("<|im_end|>"));
    }
    assert_eq!(QWEN.ours.special("<think>"), None);
}

/// A control token whose text is in the vocabulary and is one piece must not come out of text either.
#[test]
fn a_control_token_that_is_a_whole_piece_stays_text() {
    let mut json = synthetic(Some(LLAMA3), true, true);
    let id = json["added_tokens"].as_array().unwrap().len() + 1000;
    json["added_tokens"].as_array_mut().unwrap().push(json!({"id": id, "content": "stop", "special": true}));
    json["model"]["vocab"]["stop"] = json!(id);
    let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.decode(&tokenizer.encode("stop")), b"stop");
    // nor one that merges lead to
    let id = json["model"]["vocab"]["the"].clone();
    json["added_tokens"].as_array_mut().unwrap().push(json!({"id": id, "content": "the", "special": true}));
    json["model"]["ignore_merges"] = json!(false);
    let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
    assert!(tokenizer.is_special(tokenizer.special("the").unwrap()));
    assert_eq!(tokenizer.decode(&tokenizer.encode("the the")), b"the the");
}

#[test]
fn bad_files_are_refused_with_a_reason() {
    let refused = |json: serde_json::Value| Tokenizer::from_json(json.to_string().as_bytes()).unwrap_err().to_string();
    assert!(Tokenizer::from_json(b"{").unwrap_err().to_string().contains("not a `tokenizer.json`"));
    assert!(refused(json!({})).contains("`model` is missing"));
    assert!(refused(json!({"model": {"type": "BPE"}})).contains("`model.vocab` is missing"));
    let mut json = synthetic(None, false, false);
    json["model"]["dropout"] = json!(0.1);
    assert!(refused(json).contains("`dropout`"));
    let mut json = synthetic(None, false, false);
    json["model"]["merges"].as_array_mut().unwrap().push(json!(["zz", "zz"]));
    assert!(refused(json).contains("merge `zz zz`"));
    let mut json = synthetic(Some(r"\w+|\W+"), false, false);
    json["model"]["vocab"].as_object_mut().unwrap().retain(|text, _| !text.starts_with('ô'));
    json["model"]["unk_token"] = json!("<unk>");
    assert!(refused(json).contains("set `unk_token`"));
    let mut json = synthetic(None, false, false);
    json["model"]["vocab"]["x"] = json!(4_000_000_000_u32);
    assert!(refused(json).contains("larger than any vocabulary"));
}

#[test]
fn what_decides_ids_decides_the_digest_and_nothing_else() {
    let digest =
        |json: &serde_json::Value| Tokenizer::from_json(json.to_string().as_bytes()).unwrap().digest().to_owned();
    let base = synthetic(Some(QWEN2), false, false);
    let mut same = base.clone();
    same["decoder"]["trim_offsets"] = json!(true);
    same["truncation"] = json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0});
    assert_eq!(digest(&same), digest(&base));
    let changes: [fn(&mut serde_json::Value); 5] = [
        |json| json["normalizer"] = json!(null),
        |json| json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!(LLAMA3),
        |json| json["model"]["ignore_merges"] = json!(true),
        |json| json["added_tokens"][0]["content"] = json!("<|start|>"),
        |json| json["model"]["merges"].as_array_mut().unwrap().swap(0, 3),
    ];
    for change in changes {
        let mut other = base.clone();
        change(&mut other);
        assert_ne!(digest(&other), digest(&base));
    }
}

/// Texts of many kinds: words, spaces, digits, code, LaTeX, Chinese, combining marks, emoji, control characters.
fn any_text() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        "[a-zA-Z' ]{0,12}",
        "[0-9 .,]{0,8}",
        "[ \t\r\n]{0,6}",
        r"\\[a-z]{1,6}\{[0-9a-z^_]{0,5}\}",
        "[\u{4e00}-\u{4fff}，。]{0,8}",
        "[e\u{301}\u{323}\u{1100}-\u{1112}\u{1161}-\u{1175}\u{11a8}]{0,6}",
        "[\u{1f600}-\u{1f64f}\u{200d}\u{fe0f}]{0,4}",
        "[\0-\u{1f}\u{7f}-\u{a0}]{0,4}",
        "(if|return|def)[ \n]{1,5}[a-z_]{1,5}\\([=!<>]{0,3}\\):",
        Just("<|im_end|>".to_owned()),
        Just("<think>".to_owned()),
        any::<String>(),
    ];
    proptest::collection::vec(fragment, 0..8).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn ids_equal_those_of_tokenizers_on_random_text(text in any_text()) {
        for both in [Some(&*QWEN), Some(&*LLAMA), Some(&*PLAIN), SMOLLM2.as_ref()].into_iter().flatten() {
            prop_assert_eq!(both.ours.encode(&text), both.expected(&text));
            prop_assert_eq!(both.ours.count(&text), both.ours.encode(&text).len());
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_again(text in any_text()) {
        prop_assert_eq!(PLAIN.ours.decode(&PLAIN.ours.encode(&text)), text.as_bytes());
        let ids = QWEN.ours.encode(&text);
        prop_assert_eq!(QWEN.ours.decode(&ids), nfc_between(&text));
        prop_assert!(ids.iter().all(|id| !QWEN.ours.is_special(*id)));
    }
}

/// NFC is applied between added tokens; the tokens of the test are ASCII, so cutting there changes nothing.
fn nfc_between(text: &str) -> Vec<u8> {
    nfc(text).into_owned().into_bytes()
}

/// One token a byte and no merges but one, with these control tokens behind them.
pub(crate) fn with_specials(specials: &[&str]) -> Tokenizer {
    let mut json = synthetic(None, false, false);
    let first = json["model"]["vocab"].as_object().unwrap().len();
    let added = |(index, text): (usize, &&str)| json!({"id": first + index, "content": text, "special": true});
    json["added_tokens"] = specials.iter().enumerate().map(added).collect();
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}
