//! The body of `POST /v1/completions`.

use serde_json::Value;

use super::{Asked, is_empty, never};
use crate::error::ApiError;
use crate::fields::{Fields, list, text};

/// Most tokens whose log-probabilities are given beside a drawn one.
const MOST_TOP: u32 = 20;
/// Most prompts of a request.
const MOST_PROMPTS: usize = 128;

/// Texts to be continued.
#[derive(Debug, PartialEq)]
pub(crate) struct Completion {
    pub(crate) model: String,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) asked: Asked,
    pub(crate) top_logprobs: Option<u8>,
    pub(crate) echo: bool,
}

/// One of them.
#[derive(Debug, PartialEq)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

impl Completion {
    /// Reads the body.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let mut fields = Fields::of(body, "")?;
        let model = fields.text("model")?.ok_or_else(|| ApiError::missing("model"))?.to_owned();
        let prompts = prompts(fields.take("prompt").ok_or_else(|| ApiError::missing("prompt"))?)?;
        let top = fields.whole("logprobs", 0..=MOST_TOP)?;
        let top_logprobs = top.map(|top| u8::try_from(top).unwrap_or(u8::MAX));
        let echo = fields.flag("echo")?.unwrap_or(false);
        if echo && top_logprobs.is_some() {
            let why = "log-probabilities of the prompt are not given; ask for one of the two";
            return Err(ApiError::unsupported("echo", why));
        }
        let asked = Asked::take(&mut fields)?;
        if let Some(best_of) = fields.whole("best_of", 1..=u32::MAX)?
            && best_of != asked.n
        {
            return Err(ApiError::unsupported("best_of", "every choice that is drawn is given; use `n`"));
        }
        fields.refuse("suffix", is_empty, "text is written after the prompt only")?;
        fields.refuse("response_format", never, "answers are free text")?;
        fields.finish()?;
        Ok(Self { model, prompts, asked, top_logprobs, echo })
    }
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
fn prompts(value: &Value) -> Result<Vec<Prompt>, ApiError> {
    const FORMS: &str = "a string, a list of strings, or token ids";
    let parts = match value {
        Value::String(_) => return Ok(vec![Prompt::Text(text(value, "prompt")?.to_owned())]),
        Value::Array(parts) => parts,
        other => return Err(ApiError::bad_type("prompt", FORMS, other)),
    };
    let Some(first) = parts.first() else {
        return Err(ApiError::bad_value("prompt", format!("`prompt` is empty; give {FORMS}")));
    };
    if first.is_number() {
        return Ok(vec![Prompt::Tokens(tokens(value, "prompt")?)]);
    }
    if parts.len() > MOST_PROMPTS {
        let message = format!("`prompt` takes at most {MOST_PROMPTS} prompts, not {}", parts.len());
        return Err(ApiError::bad_value("prompt", message));
    }
    let places = parts.iter().enumerate().map(|(index, part)| (format!("prompt[{index}]"), part));
    let prompts = places.map(|(at, part)| match part {
        Value::String(_) => Ok(Prompt::Text(text(part, &at)?.to_owned())),
        Value::Array(_) => Ok(Prompt::Tokens(tokens(part, &at)?)),
        other => Err(ApiError::bad_type(&at, "a string or a list of token ids", other)),
    });
    prompts.collect()
}

fn tokens(value: &Value, at: &str) -> Result<Vec<u32>, ApiError> {
    let ids = list(value, at)?.iter().enumerate().map(|(index, id)| {
        let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
        number.ok_or_else(|| ApiError::bad_type(&format!("{at}[{index}]"), "a token id", id))
    });
    ids.collect()
}
