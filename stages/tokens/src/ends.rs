//! The ids that end a turn, or all that a model has to say.

use std::path::Path;

use serde_json::Value as Json;

use crate::error::TokensError;
use crate::gguf::Gguf;
use crate::template::{ChatTemplate, Turn, gguf_token, read_json, token_text};
use crate::tokenizer::{Tokenizer, is_gguf};

/// Ids at which generation stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndTokens {
    ids: Vec<u32>,
    turn: Option<u32>,
}

impl EndTokens {
    /// The ends that a model's files state: `eos` and `eot` of a `.gguf` file's metadata; `eos_token_id` of
    /// `generation_config.json`, `config.json`, and `eos_token` of `tokenizer_config.json` of a folder (that of a
    /// `tokenizer.json`). What the template puts after an assistant's turn is an end too, since models are taught to write
    /// it even where their files name another.
    ///
    /// # Errors
    /// When a file cannot be read, or no end is found at all: such a model would never stop.
    pub fn open(path: &Path, tokenizer: &Tokenizer, template: Option<&ChatTemplate>) -> Result<Self, TokensError> {
        let stated = if is_gguf(path) {
            of_gguf(&Gguf::open(path)?, tokenizer)
        } else {
            let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
            of_folder(folder, tokenizer)?
        };
        let ends = Self::new(stated, tokenizer, template);
        if ends.ids.is_empty() {
            let message = format!("`{}` names no token that ends a turn (`eos_token_id`)", path.display());
            return Err(TokensError::Tokenizer(message));
        }
        Ok(ends)
    }

    /// Ends from ids that are known, and from what the template puts after an assistant's turn.
    pub fn new(ids: Vec<u32>, tokenizer: &Tokenizer, template: Option<&ChatTemplate>) -> Self {
        let mut ids = ids;
        let turn = template.and_then(|template| after_a_turn(tokenizer, template));
        ids.extend(turn);
        ids.sort_unstable();
        ids.dedup();
        Self { turn: turn.or_else(|| ids.first().copied()), ids }
    }

    /// Whether generation stops at this id.
    pub fn ends_at(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// The id that the template puts after an assistant's turn; without a template, the smallest of [`Self::ids`].
    pub fn turn_end(&self) -> Option<u32> {
        self.turn
    }

    /// All ends, ascending.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

fn of_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Vec<u32> {
    let keys = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    let of_key = |key: &&str| {
        let id = gguf.value(key)?.as_u64().and_then(|id| u32::try_from(id).ok())?;
        // a tokenizer from beside the file may number its tokens otherwise
        gguf_token(gguf, key).and_then(|text| tokenizer.special(text)).or(Some(id))
    };
    keys.iter().filter_map(of_key).collect()
}

fn of_folder(folder: &Path, tokenizer: &Tokenizer) -> Result<Vec<u32>, TokensError> {
    let mut ids = Vec::new();
    for name in ["generation_config.json", "config.json"] {
        let file = folder.join(name);
        if file.is_file() {
            match read_json(&file)?.get("eos_token_id") {
                Some(Json::Array(several)) => ids.extend(several.iter().filter_map(Json::as_u64)),
                Some(one) => ids.extend(one.as_u64()),
                None => {}
            }
        }
    }
    let mut ids: Vec<u32> = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
    let file = folder.join("tokenizer_config.json");
    if file.is_file() {
        let settings = read_json(&file)?;
        ids.extend(token_text(settings.get("eos_token")).and_then(|text| tokenizer.special(text)));
    }
    Ok(ids)
}

/// The first control token after an assistant's words.
fn after_a_turn(tokenizer: &Tokenizer, template: &ChatTemplate) -> Option<u32> {
    const WORDS: &str = "wwwww";
    let turn = |role, content| Turn { role, content, tool_calls: None };
    let ids = template.encode(tokenizer, &[turn("user", "u"), turn("assistant", WORDS)], false).ok()?;
    let words = tokenizer.encode(WORDS);
    let start = ids.windows(words.len().max(1)).rposition(|window| window == words)? + words.len();
    ids.get(start..)?.iter().copied().find(|id| tokenizer.is_special(*id))
}
