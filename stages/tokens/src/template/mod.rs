//! Chat templates: a conversation as the ids that a model was taught to see.
//!
//! The template is the model's own Jinja source. Only the template makes control tokens: what a message says, and a role's
//! name, is ordinary text even where it spells `<|im_end|>` (see [`guard`]).
//!
//! Rendering has no clock: `strftime_now` says 26 July 2024, the date that templates themselves fall back to, so that the
//! same messages give the same ids on every day.

mod guard;
mod python;

use std::path::{Path, PathBuf};

use minijinja::Environment;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::definition::sha256_text;
use crate::error::TokensError;
use crate::gguf::Gguf;
use crate::tokenizer::{Tokenizer, is_gguf};
use guard::Guard;
use python::OrderedMap;

/// Raised when the same template would give other ids.
const VERSION: u32 = 1;
const NAME: &str = "chat";

/// One message of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn<'a> {
    /// `system`, `user`, `assistant`, `tool`.
    pub role: &'a str,
    /// What it says.
    pub content: &'a str,
    /// JSON text of the tools that it calls; the template sees it as values, not as text.
    pub tool_calls: Option<&'a str>,
}

/// A model's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
    digest: String,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ChatTemplate").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// A template from its source; `bos` and `eos` are the texts of the tokens that it knows by these names, or empty.
    ///
    /// # Errors
    /// When the source is not a template; the message names the line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TokensError> {
        let mut environment = python::environment()?;
        environment
            .add_template_owned(NAME, python::without_generation_marks(source))
            .map_err(|error| python::problem(&error))?;
        let mut hash = Sha256::new();
        for part in [&VERSION.to_string(), source, bos, eos] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Ok(Self {
            environment,
            source: source.to_owned(),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            digest: sha256_text(hash),
        })
    }

    /// Opens the template of a model: of the metadata of a `.gguf` file or, in a folder (that of a `tokenizer.json`), of
    /// `chat_template.jinja` or `tokenizer_config.json`. Without one in its metadata, the folder of a `.gguf` file is
    /// looked at.
    ///
    /// # Errors
    /// When there is none, or it is not a template.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        if !is_gguf(path) {
            let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
            return Self::open_folder(folder);
        }
        let gguf = Gguf::open(path)?;
        let token = |key: &str| gguf_token(&gguf, key).unwrap_or_default();
        let (bos, eos) = (token("tokenizer.ggml.bos_token_id"), token("tokenizer.ggml.eos_token_id"));
        if gguf.value("tokenizer.chat_template").is_some() {
            return Self::new(gguf.text("tokenizer.chat_template")?, bos, eos).map_err(|source| within(path, source));
        }
        let file = path.with_file_name("chat_template.jinja");
        if !file.is_file() {
            return Err(TokensError::NoTemplate { path: path.to_owned() });
        }
        Self::new(&read(&file)?, bos, eos).map_err(|source| within(&file, source))
    }

    fn open_folder(folder: &Path) -> Result<Self, TokensError> {
        let (jinja, config) = (folder.join("chat_template.jinja"), folder.join("tokenizer_config.json"));
        let settings = if config.is_file() { read_json(&config)? } else { Json::Null };
        let token = |key: &str| token_text(settings.get(key)).unwrap_or_default();
        let (bos, eos) = (token("bos_token"), token("eos_token"));
        if jinja.is_file() {
            return Self::new(&read(&jinja)?, bos, eos).map_err(|source| within(&jinja, source));
        }
        let source = match settings.get("chat_template") {
            Some(Json::String(source)) => Some(source.as_str()),
            Some(Json::Array(named)) => named
                .iter()
                .find(|one| one.get("name").and_then(Json::as_str) == Some("default"))
                .and_then(|one| one.get("template"))
                .and_then(Json::as_str),
            _ => None,
        };
        let source = source.ok_or_else(|| TokensError::NoTemplate { path: folder.to_owned() })?;
        Self::new(source, bos, eos).map_err(|source| within(&config, source))
    }

    /// The Jinja source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The texts of the tokens that the template knows as `bos_token` and `eos_token`; empty where it has none.
    pub fn named_tokens(&self) -> (&str, &str) {
        (&self.bos, &self.eos)
    }

    /// `sha256:…` of all that decides the text: source, names of tokens, and this crate's rules.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The conversation as text, for people. To get ids take [`Self::encode`]: in this text nobody can tell a control token
    /// from one that a message spells.
    ///
    /// # Errors
    /// When the template refuses the conversation, or cannot be filled in.
    pub fn render(&self, messages: &[Turn<'_>], add_generation_prompt: bool) -> Result<String, TokensError> {
        self.filled(messages, &tool_calls(messages)?, add_generation_prompt, &str::to_owned)
    }

    /// The conversation as ids. Only the template makes control tokens. With `add_generation_prompt` it ends where the
    /// assistant begins to write.
    ///
    /// # Errors
    /// When the template refuses the conversation, or cannot be filled in.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Turn<'_>],
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>, TokensError> {
        let calls = tool_calls(messages)?;
        let spelled = calls.iter().flatten().map(Json::to_string);
        let texts = messages.iter().flat_map(|turn| [turn.role.to_owned(), turn.content.to_owned()]);
        let guard = Guard::new(tokenizer, texts.chain(spelled).chain([self.source.clone()]))?;
        let text = self.filled(messages, &calls, add_generation_prompt, &|text| guard.protect(text))?;
        Ok(guard.encode(&text))
    }

    fn filled(
        &self,
        messages: &[Turn<'_>],
        calls: &[Option<Json>],
        add_generation_prompt: bool,
        spelled: &dyn Fn(&str) -> String,
    ) -> Result<String, TokensError> {
        let text = |text: &str| minijinja::Value::from(spelled(text));
        let mut list = Vec::with_capacity(messages.len());
        for (turn, calls) in messages.iter().zip(calls) {
            let mut message = vec![("role".to_owned(), text(turn.role)), ("content".to_owned(), text(turn.content))];
            if let Some(calls) = calls {
                message.push(("tool_calls".to_owned(), python::value(calls, &text)));
            }
            list.push(minijinja::Value::from_object(OrderedMap::new(message)));
        }
        let context = minijinja::context! {
            messages => list,
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let template = self.environment.get_template(NAME).map_err(|error| python::problem(&error))?;
        template.render(context).map_err(|error| python::problem(&error))
    }
}

/// The tool calls of each message as values.
fn tool_calls(messages: &[Turn<'_>]) -> Result<Vec<Option<Json>>, TokensError> {
    let parsed = |(index, turn): (usize, &Turn<'_>)| {
        let Some(calls) = turn.tool_calls else { return Ok(None) };
        let calls = serde_json::from_str(calls).map_err(|source| TokensError::ToolCalls { index, source })?;
        Ok(Some(python::with_arguments(calls)))
    };
    messages.iter().enumerate().map(parsed).collect()
}

/// The text of the token whose id a key of the metadata holds.
pub(crate) fn gguf_token<'a>(gguf: &'a Gguf, key: &str) -> Option<&'a str> {
    let id = usize::try_from(gguf.value(key)?.as_u64()?).ok()?;
    gguf.value("tokenizer.ggml.tokens")?.as_array()?.get(id)?.as_str()
}

/// The text of a token in `tokenizer_config.json`: a text, or an object with one.
pub(crate) fn token_text(value: Option<&Json>) -> Option<&str> {
    let value = value?;
    value.as_str().or_else(|| value.get("content").and_then(Json::as_str))
}

pub(crate) fn read(path: &Path) -> Result<String, TokensError> {
    std::fs::read_to_string(path).map_err(|source| TokensError::Read { path: path.to_owned(), source })
}

pub(crate) fn read_json(path: &Path) -> Result<Json, TokensError> {
    let failed = |error: serde_json::Error| TokensError::Read { path: path.to_owned(), source: error.into() };
    serde_json::from_str(&read(path)?).map_err(failed)
}

fn within(path: &Path, source: TokensError) -> TokensError {
    TokensError::In { path: PathBuf::from(path), source: Box::new(source) }
}

#[cfg(test)]
mod tests;
