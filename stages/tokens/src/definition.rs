//! What a `tokenizer.json` says that decides ids, and a digest of just that.
//!
//! Two files that give the same ids for every text shall have one digest: the order of keys, the decoder, offsets, and
//! whether the file is a `tokenizer.json` or the metadata of a GGUF file are left out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::TokensError;
use crate::pieces::{GPT2, LLAMA3, QWEN2, Split};

/// Ids above are taken for a mistake: a table of this size is made.
const LARGEST_ID: u32 = 1 << 24;

/// An entry of `added_tokens`.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the file's own form")]
pub(crate) struct Added {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub special: bool,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Pair {
    Two([String; 2]),
    One(String),
}

/// The parts of a `tokenizer.json` that are looked at.
#[derive(Debug)]
pub(crate) struct Definition {
    pub kind: String,
    /// Text and id; for BPE and similar models.
    pub vocabulary: BTreeMap<String, u32>,
    pub merges: Vec<(String, String)>,
    pub added: Vec<Added>,
    pub unknown: Option<String>,
    pub ignore_merges: bool,
    pub digest: String,
    /// What the hand-written encoder needs, or why it cannot be used.
    pub fast: Result<Shape, String>,
    /// Whether tokens are written in the alphabet of bytes.
    pub is_byte_level: bool,
}

/// How text is prepared for merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub split: Split,
    pub nfc: bool,
}

impl Definition {
    pub(crate) fn new(file: &Value) -> Result<Self, TokensError> {
        let problem = |message: String| TokensError::Tokenizer(message);
        let model = file.get("model").ok_or_else(|| problem("`model` is missing".to_owned()))?;
        let merges = match model.get("merges") {
            Some(merges) => pairs(merges)?,
            None => Vec::new(),
        };
        // files from before types were written are BPE if they have merges
        let kind = model.get("type").and_then(Value::as_str).unwrap_or("BPE").to_owned();
        let vocabulary = vocabulary(model)?;
        let added: Vec<Added> = match file.get("added_tokens") {
            None | Some(Value::Null) => Vec::new(),
            Some(added) => {
                Deserialize::deserialize(added).map_err(|error| problem(format!("`added_tokens`: {error}")))?
            }
        };
        if let Some(large) = added.iter().map(|added| added.id).chain(vocabulary.values().copied()).max()
            && large > LARGEST_ID
        {
            return Err(problem(format!("id {large} is larger than any vocabulary")));
        }
        if model.get("dropout").and_then(Value::as_f64).is_some_and(|dropout| dropout > 0.0) {
            return Err(problem("`dropout` makes ids random; set it to null".to_owned()));
        }
        let mut definition = Self {
            kind,
            vocabulary,
            merges,
            added,
            unknown: model.get("unk_token").and_then(Value::as_str).map(str::to_owned),
            ignore_merges: flag(model, "ignore_merges"),
            digest: String::new(),
            fast: Err(String::new()),
            is_byte_level: has_type(file.get("decoder"), "ByteLevel")
                || has_type(file.get("pre_tokenizer"), "ByteLevel"),
        };
        definition.fast = definition.shape(file, model);
        definition.digest = definition.digest(file, model);
        Ok(definition)
    }

    /// The control token that unknown symbols become, if it is one.
    pub(crate) fn unknown_is_special(&self) -> bool {
        let unknown = self.unknown.as_deref();
        self.added.iter().any(|added| added.special && Some(added.content.as_str()) == unknown)
    }

    fn shape(&self, file: &Value, model: &Value) -> Result<Shape, String> {
        if self.kind != "BPE" || self.merges.is_empty() {
            return Err(format!("its model is {}", self.kind));
        }
        for name in ["byte_fallback", "fuse_unk"] {
            if flag(model, name) {
                return Err(format!("it has `{name}`"));
            }
        }
        for name in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if model.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
                return Err(format!("it has `{name}`"));
            }
        }
        if !has_type(file.get("decoder"), "ByteLevel") {
            return Err("its decoder is not ByteLevel".to_owned());
        }
        let plain = |added: &&Added| !added.single_word && !added.lstrip && !added.rstrip && !added.normalized;
        if let Some(odd) = self.added.iter().filter(|added| !added.special).find(|added| !plain(added)) {
            return Err(format!("its added token `{}` is matched in a way of its own", odd.content));
        }
        let nfc = match normalizers(file.get("normalizer"))?[..] {
            [] => false,
            ["NFC"] => true,
            ref other => return Err(format!("its normalizers are {other:?}")),
        };
        Ok(Shape { split: split(file.get("pre_tokenizer"))?, nfc })
    }

    fn digest(&self, file: &Value, model: &Value) -> String {
        let mut hash = Sha256::new();
        let mut field = |name: &str, value: &Value| {
            hash.update(name);
            hash.update([0]);
            // a map of serde_json would keep the file's order of keys
            hash.update(sorted(value).to_string());
            hash.update([0]);
        };
        let mut added: Vec<&Added> = self.added.iter().collect();
        added.sort_by_key(|added| added.id);
        for one in added {
            let mut flags = vec![one.special, one.lstrip, one.rstrip];
            // a control token is never looked for in text
            if !one.special {
                flags.extend([one.single_word, one.normalized]);
            }
            let flags = Value::from(flags);
            field("added", &Value::from(vec![Value::from(one.id), Value::from(one.content.as_str()), flags]));
        }
        if let Ok(shape) = &self.fast {
            field("split", &Value::from(shape.split.name()));
            field("nfc", &Value::from(shape.nfc));
        } else {
            for name in ["normalizer", "pre_tokenizer", "decoder"] {
                field(name, file.get(name).unwrap_or(&Value::Null));
            }
            for name in ["byte_fallback", "fuse_unk"] {
                field(name, &Value::from(flag(model, name)));
            }
            for name in ["continuing_subword_prefix", "end_of_word_suffix"] {
                field(name, &Value::from(model.get(name).and_then(Value::as_str).unwrap_or("")));
            }
        }
        field("kind", &Value::from(self.kind.as_str()));
        field("ignore_merges", &Value::from(self.ignore_merges));
        let unknown = self.unknown.as_deref().filter(|_| !self.unknown_is_special());
        field("unknown", &unknown.map_or(Value::from(self.unknown.is_some()), Value::from));
        let contents: std::collections::BTreeSet<&str> =
            self.added.iter().map(|added| added.content.as_str()).collect();
        let mut vocabulary: Vec<(u32, &str)> = self.vocabulary.iter().map(|(text, id)| (*id, text.as_str())).collect();
        vocabulary.retain(|(_, text)| !contents.contains(text));
        vocabulary.sort_unstable();
        for (id, text) in vocabulary {
            hash.update(format!("{id} {text}\0"));
        }
        for (left, right) in &self.merges {
            hash.update(format!("{left}\0{right}\0"));
        }
        if self.vocabulary.is_empty() {
            hash.update(sorted(model).to_string());
        }
        sha256_text(hash)
    }
}

/// `sha256:` and 64 hexadecimal digits.
pub(crate) fn sha256_text(hash: Sha256) -> String {
    let mut text = "sha256:".to_owned();
    for byte in hash.finalize() {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, &Value> = map.iter().collect();
            // offsets are not ids
            let kept = ordered.into_iter().filter(|(key, _)| *key != "trim_offsets");
            Value::Object(kept.map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn has_type(value: Option<&Value>, wanted: &str) -> bool {
    let Some(value) = value else { return false };
    if value.get("type").and_then(Value::as_str) == Some(wanted) {
        return true;
    }
    let parts = value.get("pretokenizers").or_else(|| value.get("decoders")).and_then(Value::as_array);
    parts.is_some_and(|parts| parts.iter().any(|part| has_type(Some(part), wanted)))
}

fn pairs(merges: &Value) -> Result<Vec<(String, String)>, TokensError> {
    let merges: Vec<Pair> = Deserialize::deserialize(merges)
        .map_err(|error| TokensError::Tokenizer(format!("`model.merges` are not pairs of texts: {error}")))?;
    let pair = |pair: Pair| match pair {
        Pair::Two([left, right]) => Ok((left, right)),
        Pair::One(text) => match text.split_once(' ') {
            Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
            None => Err(TokensError::Tokenizer(format!("merge `{text}` is not two tokens with a space between"))),
        },
    };
    merges.into_iter().map(pair).collect()
}

/// Text and id of a model whose vocabulary is a map; nothing for others, which only `tokenizers` reads.
fn vocabulary(model: &Value) -> Result<BTreeMap<String, u32>, TokensError> {
    match model.get("vocab") {
        Some(map @ Value::Object(_)) => Deserialize::deserialize(map)
            .map_err(|error| TokensError::Tokenizer(format!("`model.vocab` does not map texts to ids: {error}"))),
        Some(Value::Array(_)) => Ok(BTreeMap::new()),
        _ => Err(TokensError::Tokenizer("`model.vocab` is missing".to_owned())),
    }
}

fn normalizers(value: Option<&Value>) -> Result<Vec<&str>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => match (value.get("type").and_then(Value::as_str), value.get("normalizers")) {
            (Some("Sequence"), Some(Value::Array(parts))) => {
                parts.iter().map(|part| normalizers(Some(part))).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
            }
            (Some(name), _) => Ok(vec![name]),
            _ => Err("its normalizer has no type".to_owned()),
        },
    }
}

fn split(value: Option<&Value>) -> Result<Split, String> {
    let unknown = || "its pre-tokenizer is none of those written out here".to_owned();
    let value = value.ok_or_else(unknown)?;
    let parts = match value.get("pretokenizers").and_then(Value::as_array) {
        Some(parts) => parts.iter().collect(),
        None => vec![value],
    };
    let name = |part: &Value| part.get("type").and_then(Value::as_str).map(str::to_owned);
    // left out, `use_regex` is true and `add_prefix_space` too
    let is_byte_level = |part: &Value, regex: bool| {
        let uses_regex = part.get("use_regex").and_then(Value::as_bool).unwrap_or(true);
        let prefix = part.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(true);
        name(part).as_deref() == Some("ByteLevel") && uses_regex == regex && !prefix
    };
    match parts[..] {
        [only] if is_byte_level(only, true) => Ok(Split::Gpt2),
        [digits, bytes] if name(digits).as_deref() == Some("Digits") && is_byte_level(bytes, true) => {
            if flag(digits, "individual_digits") { Ok(Split::DigitsGpt2) } else { Err(unknown()) }
        }
        [cut, bytes] if name(cut).as_deref() == Some("Split") && is_byte_level(bytes, false) => {
            let behaviour = cut.get("behavior").and_then(Value::as_str);
            if behaviour != Some("Isolated") || flag(cut, "invert") {
                return Err(unknown());
            }
            match cut.pointer("/pattern/Regex").and_then(Value::as_str) {
                Some(GPT2) => Ok(Split::Gpt2),
                Some(QWEN2) => Ok(Split::Qwen2),
                Some(LLAMA3) => Ok(Split::Llama3),
                _ => Err(unknown()),
            }
        }
        _ => Err(unknown()),
    }
}
