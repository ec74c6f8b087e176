//! Text to ids and back.
//!
//! Byte-level BPE with a known pre-tokenizer, which is what today's open models have, is encoded by [`crate::bpe`]; all
//! else by the `tokenizers` crate. Ids are those of `tokenizers` with control tokens taken as plain text, but for one thing:
//! a byte for which the vocabulary has no token would there become the unknown token, which in `SmolLM2` is a control
//! token. It is left out here, as llama.cpp does, since no text may make a control token.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tokenizers::normalizers::NFC;
use tokenizers::{NormalizedString, Normalizer as _};

use crate::bpe::{Bpe, Scratch};
use crate::definition::{Added, Definition, Shape};
use crate::error::TokensError;
use crate::gguf::Gguf;
use crate::gguf_tokenizer;
use crate::pieces::{self, Classes};

/// A text that no vocabulary knows.
const STRANGE: &str = "\u{10fffd}\u{e123}";

/// A tokenizer: vocabulary, merges and control tokens of a model.
pub struct Tokenizer {
    encoder: Encoder,
    /// Bytes of each id; empty for control tokens and unused ids.
    bytes: Vec<Box<[u8]>>,
    special: BTreeMap<String, u32>,
    is_special: Vec<bool>,
    specials: Vec<Special>,
    matcher: Option<SpecialMatcher>,
    digest: String,
}

enum Encoder {
    Own(Box<Own>),
    Library(Box<tokenizers::Tokenizer>),
}

/// A control token.
pub(crate) struct Special {
    pub id: u32,
    pub text: String,
    /// Whether it takes in white space before it.
    pub takes_left: bool,
    /// Whether it takes in white space after it.
    pub takes_right: bool,
}

/// Finds control tokens in text; patterns in the order of [`Tokenizer::specials`].
pub(crate) struct SpecialMatcher {
    /// Every occurrence, overlapping ones too.
    pub anywhere: AhoCorasick,
    /// Occurrences from the left, the longest first.
    pub longest: AhoCorasick,
}

struct Own {
    bpe: Bpe,
    shape: Shape,
    classes: Classes,
    added: Option<(AhoCorasick, Vec<Option<u32>>)>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tokenizer").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// When it is not one, or contradicts itself.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokensError> {
        let file: Value = serde_json::from_slice(bytes)
            .map_err(|error| TokensError::Tokenizer(format!("this is not a `tokenizer.json`: {error}")))?;
        Self::from_value(&file)
    }

    /// Builds the tokenizer that the metadata of a GGUF file describes.
    ///
    /// # Errors
    /// When there is none, or it is of a kind that the metadata does not describe in full.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokensError> {
        Self::from_value(&gguf_tokenizer::as_json(gguf)?)
    }

    /// Opens a `.gguf` file, a folder with a `tokenizer.json`, or a `tokenizer.json`.
    ///
    /// A `tokenizer.json` beside a `.gguf` file is used only where the file's metadata has no usable tokenizer.
    ///
    /// # Errors
    /// As for [`Self::from_json`] and [`Self::from_gguf`], with the path.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        if is_gguf(path) {
            let beside = path.with_file_name("tokenizer.json");
            return match Self::from_gguf(&Gguf::open(path)?) {
                Err(TokensError::NoTokenizer(_)) if beside.is_file() => Self::open_json(&beside),
                Err(source @ (TokensError::NoTokenizer(_) | TokensError::Tokenizer(_))) => {
                    Err(TokensError::In { path: path.to_owned(), source: Box::new(source) })
                }
                other => other,
            };
        }
        let file: Cow<'_, Path> =
            if path.is_dir() { Cow::Owned(path.join("tokenizer.json")) } else { Cow::Borrowed(path) };
        Self::open_json(&file)
    }

    fn open_json(path: &Path) -> Result<Self, TokensError> {
        let bytes = std::fs::read(path).map_err(|source| TokensError::Read { path: path.to_owned(), source })?;
        Self::from_json(&bytes)
            .map_err(|source| TokensError::In { path: PathBuf::from(path), source: Box::new(source) })
    }

    fn from_value(file: &Value) -> Result<Self, TokensError> {
        let definition = Definition::new(file)?;
        let mut tokenizer = Self {
            encoder: Encoder::Library(Box::new(tokenizers::Tokenizer::new(tokenizers::models::bpe::BPE::default()))),
            bytes: Vec::new(),
            special: BTreeMap::new(),
            is_special: Vec::new(),
            specials: Vec::new(),
            matcher: None,
            digest: definition.digest.clone(),
        };
        let own = match &definition.fast {
            Ok(shape) => own(&definition, *shape)?,
            Err(_) => None,
        };
        let texts: Vec<(String, u32)> = if let Some(own) = own {
            tokenizer.encoder = Encoder::Own(Box::new(own));
            definition.vocabulary.iter().map(|(text, id)| (text.clone(), *id)).collect()
        } else {
            let library = library(file)?;
            let texts = library.get_vocab(true).into_iter().collect();
            tokenizer.encoder = Encoder::Library(Box::new(library));
            texts
        };
        tokenizer.fill(&texts, &definition);
        tokenizer.matcher = special_matcher(&tokenizer.specials)?;
        Ok(tokenizer)
    }

    fn fill(&mut self, texts: &[(String, u32)], definition: &Definition) {
        let ids = texts.iter().map(|(_, id)| *id).chain(definition.added.iter().map(|added| added.id));
        let count = ids.max().map_or(0, |largest| largest as usize + 1);
        self.bytes = vec![Box::default(); count];
        self.is_special = vec![false; count];
        for (text, id) in texts {
            if let Some(slot) = self.bytes.get_mut(*id as usize) {
                let bytes = if definition.is_byte_level { byte_level(text) } else { Some(plain(text)) };
                *slot = bytes.unwrap_or_else(|| text.as_bytes().to_vec()).into_boxed_slice();
            }
        }
        for added in &definition.added {
            let id = added.id as usize;
            if let (Some(slot), Some(is_special)) = (self.bytes.get_mut(id), self.is_special.get_mut(id)) {
                *is_special = added.special;
                *slot = if added.special { Box::default() } else { added.content.as_bytes().into() };
            }
            if added.special && !added.content.is_empty() {
                self.special.insert(added.content.clone(), added.id);
                self.specials.push(Special {
                    id: added.id,
                    text: added.content.clone(),
                    takes_left: added.lstrip,
                    takes_right: added.rstrip,
                });
            }
        }
    }

    /// The ids of ordinary text. Control tokens written in it are text like any other; nothing is put before or after.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        self.each(text, &mut |id| ids.push(id));
        ids
    }

    /// The number of ids that [`Self::encode`] gives.
    pub fn count(&self, text: &str) -> usize {
        let mut count = 0;
        self.each(text, &mut |_| count += 1);
        count
    }

    fn each(&self, text: &str, each: &mut impl FnMut(u32)) {
        match &self.encoder {
            Encoder::Own(own) => own.each(text, each),
            Encoder::Library(library) => {
                // that unknown characters can be encoded was tried when the tokenizer was made
                let ids = library.encode_fast(text, false).map(|encoding| encoding.get_ids().to_vec());
                for id in ids.unwrap_or_default() {
                    if !self.is_special(id) {
                        each(id);
                    }
                }
            }
        }
    }

    /// The bytes that ids stand for. Control tokens and unknown ids give nothing.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| self.bytes_of(*id)).copied().collect()
    }

    /// The bytes of one id; empty for control tokens and unknown ids. Not always whole characters.
    pub fn bytes_of(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], |bytes| bytes)
    }

    /// The id of a control token by its text, such as `<|im_end|>`.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.special.get(text).copied()
    }

    /// Whether an id is a control token.
    pub fn is_special(&self, id: u32) -> bool {
        self.is_special.get(id as usize).copied().unwrap_or(false)
    }

    /// The text of a control token by its id.
    pub fn special_text(&self, id: u32) -> Option<&str> {
        self.specials.iter().find(|special| special.id == id).map(|special| special.text.as_str())
    }

    /// The number of ids: 1 + the largest.
    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    /// `sha256:…` of all that decides ids; the same for a `tokenizer.json` and for GGUF metadata that describe one tokenizer.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether text is encoded by this crate's own code rather than by `tokenizers`.
    pub fn is_fast(&self) -> bool {
        matches!(self.encoder, Encoder::Own(_))
    }

    pub(crate) fn specials(&self) -> &[Special] {
        &self.specials
    }

    pub(crate) fn special_matcher(&self) -> Option<&SpecialMatcher> {
        self.matcher.as_ref()
    }
}

fn special_matcher(specials: &[Special]) -> Result<Option<SpecialMatcher>, TokensError> {
    if specials.is_empty() {
        return Ok(None);
    }
    let build = |kind: MatchKind| {
        let texts = specials.iter().map(|special| special.text.as_str());
        let built = AhoCorasick::builder().match_kind(kind).build(texts);
        built.map_err(|error| TokensError::Tokenizer(error.to_string()))
    };
    Ok(Some(SpecialMatcher { anywhere: build(MatchKind::Standard)?, longest: build(MatchKind::LeftmostLongest)? }))
}

impl Own {
    fn each(&self, text: &str, each: &mut impl FnMut(u32)) {
        let mut scratch = Scratch::default();
        let Some((matcher, ids)) = &self.added else { return self.plain(text, &mut scratch, each) };
        let mut start = 0;
        for found in matcher.find_iter(text) {
            // a control token is passed over, with all that it covers, as `tokenizers` does
            let Some(Some(id)) = ids.get(found.pattern().as_usize()) else { continue };
            self.plain(&text[start..found.start()], &mut scratch, each);
            each(*id);
            start = found.end();
        }
        self.plain(&text[start..], &mut scratch, each);
    }

    fn plain(&self, text: &str, scratch: &mut Scratch, each: &mut impl FnMut(u32)) {
        let text = if self.shape.nfc { nfc(text) } else { Cow::Borrowed(text) };
        pieces::each_piece(&text, self.shape.split, self.classes, |piece| self.bpe.piece(piece, scratch, each));
    }
}

/// The text in NFC, by the tables that `tokenizers` has.
fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || unicode_normalization::is_nfc(text) {
        return Cow::Borrowed(text);
    }
    let mut normal = NormalizedString::from(text);
    match NFC.normalize(&mut normal) {
        Ok(()) => Cow::Owned(normal.get().to_owned()),
        Err(_) => Cow::Borrowed(text),
    }
}

/// The own encoder; `None` where the vocabulary rules it out.
fn own(definition: &Definition, shape: Shape) -> Result<Option<Own>, TokensError> {
    let special: BTreeSet<u32> = definition.added.iter().filter(|added| added.special).map(|added| added.id).collect();
    let mut vocabulary = Vec::with_capacity(definition.vocabulary.len());
    for (text, id) in &definition.vocabulary {
        if special.contains(id) {
            continue;
        }
        match byte_level(text) {
            Some(bytes) if !bytes.is_empty() => vocabulary.push((bytes, *id)),
            // an added token, or one that no text can lead to
            _ => {}
        }
    }
    let is_missing = Bpe::missing(&vocabulary);
    let unknown = definition.unknown.as_ref().and_then(|unknown| definition.vocabulary.get(unknown)).copied();
    if is_missing && unknown.is_none() {
        return Ok(None);
    }
    let mut merges = Vec::with_capacity(definition.merges.len());
    let id = |text: &str| definition.vocabulary.get(text).copied();
    for (left, right) in &definition.merges {
        let (Some(left_id), Some(right_id), Some(into)) = (id(left), id(right), id(&format!("{left}{right}"))) else {
            let message = format!("the vocabulary lacks a part or the result of merge `{left} {right}`");
            return Err(TokensError::Tokenizer(message));
        };
        // what would make a control token of text stays in two
        if !special.contains(&into) {
            merges.push((left_id, right_id, into));
        }
    }
    let unknown = unknown.filter(|_| !definition.unknown_is_special());
    let bpe = Bpe::new(vocabulary, &merges, unknown, definition.ignore_merges)?;
    let added = if definition.added.iter().all(|added| added.special) {
        None
    } else {
        let failed = |error: aho_corasick::BuildError| TokensError::Tokenizer(error.to_string());
        let listed: Vec<&Added> =
            definition.added.iter().filter(|added| !added.normalized && !added.content.is_empty()).collect();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(listed.iter().map(|added| added.content.as_str()))
            .map_err(failed)?;
        Some((matcher, listed.iter().map(|added| (!added.special).then_some(added.id)).collect()))
    };
    Ok(Some(Own { bpe, shape, classes: pieces::classes()?, added }))
}

fn library(file: &Value) -> Result<tokenizers::Tokenizer, TokensError> {
    let failed = |error: tokenizers::Error| TokensError::Tokenizer(error.to_string());
    let bytes = serde_json::to_vec(file).map_err(|error| TokensError::Tokenizer(error.to_string()))?;
    let mut library = tokenizers::Tokenizer::from_bytes(bytes).map_err(failed)?;
    library.with_truncation(None).map_err(failed)?;
    library.with_padding(None);
    library.set_encode_special_tokens(true);
    // encoding fails only where a character has no token and there is no unknown token: found here, not at some text
    library.encode_fast(STRANGE, false).map_err(|error| {
        TokensError::Tokenizer(format!("characters without a token cannot be encoded: {error}; set `unk_token`"))
    })?;
    Ok(library)
}

/// The bytes of a token in the alphabet of byte-level BPE: printable Latin-1 characters stand for themselves, the other
/// bytes for characters from U+0100 on. `None` if a character is not of that alphabet.
fn byte_level(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The bytes of a token of a vocabulary that is not byte-level: `▁` is a space, `<0x0A>` a byte.
fn plain(text: &str) -> Vec<u8> {
    let byte = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match byte.filter(|digits| digits.len() == 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => text.replace('\u{2581}', " ").into_bytes(),
    }
}

pub(crate) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

#[cfg(test)]
pub(crate) mod tests;
