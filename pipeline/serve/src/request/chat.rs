//! The body of `POST /v1/chat/completions`.

use serde_json::Value;

use super::{Asked, is_empty, is_none, never};
use crate::error::{ApiError, shortened};
use crate::fields::{Fields, list, text};

/// Most tokens whose log-probabilities are given beside a drawn one.
const MOST_TOP: u32 = 20;

/// A conversation to be continued.
#[derive(Debug, PartialEq)]
pub(crate) struct Chat {
    pub(crate) model: String,
    pub(crate) said: Vec<Said>,
    pub(crate) asked: Asked,
    pub(crate) top_logprobs: Option<u8>,
}

/// One turn of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) role: &'static str,
    pub(crate) content: String,
    /// JSON text of a list.
    pub(crate) tool_calls: Option<String>,
}

impl Chat {
    /// Reads the body.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let mut fields = Fields::of(body, "")?;
        refuse(&mut fields)?;
        let model = fields.text("model")?.ok_or_else(|| ApiError::missing("model"))?.to_owned();
        let messages = fields.take("messages").ok_or_else(|| ApiError::missing("messages"))?;
        let messages = list(messages, "messages")?;
        if messages.is_empty() {
            return Err(ApiError::bad_value("messages", "`messages` is empty; there must be at least one"));
        }
        let said = messages.iter().enumerate().map(|(index, message)| said(message, &format!("messages[{index}]")));
        let said = said.collect::<Result<_, _>>()?;
        let top_logprobs = top_logprobs(&mut fields)?;
        let asked = Asked::take(&mut fields)?;
        fields.finish()?;
        Ok(Self { model, said, asked, top_logprobs })
    }
}

/// What the protocol has for chats and this server has not.
fn refuse(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    let tools = "the model is given no tools";
    fields.refuse("tools", is_empty, tools)?;
    fields.refuse("tool_choice", is_none, tools)?;
    fields.refuse("parallel_tool_calls", never, tools)?;
    fields.refuse("functions", is_empty, tools)?;
    fields.refuse("function_call", is_none, tools)?;
    let is_text = |value: &Value| value.get("type").is_some_and(|kind| kind == "text");
    fields.refuse("response_format", is_text, "answers are free text; say what form you want and check what comes")?;
    let only_text = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(|part| part == "text"));
    fields.refuse("modalities", only_text, "the model writes text only")?;
    fields.refuse("audio", never, "the model writes text only")?;
    fields.refuse("prediction", never, "nothing is predicted ahead of the model")?;
    fields.refuse("reasoning_effort", never, "the model decides how long it reasons")?;
    fields.refuse("verbosity", never, "the model decides how much it writes")?;
    fields.refuse("web_search_options", never, "the model has no network")?;
    fields.refuse("service_tier", |value| value == "auto" || value == "default", "there is one tier")
}

fn top_logprobs(fields: &mut Fields<'_>) -> Result<Option<u8>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.whole("top_logprobs", 0..=MOST_TOP)?;
    match (wanted, top) {
        (false, Some(top)) if top > 0 => {
            Err(ApiError::bad_value("top_logprobs", "`top_logprobs` goes with `logprobs: true` only"))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(u8::try_from(top.unwrap_or(0)).unwrap_or(u8::MAX))),
    }
}

fn said(message: &Value, at: &str) -> Result<Said, ApiError> {
    let mut fields = Fields::of(message, at)?;
    let role_at = fields.path("role");
    let role = match fields.text("role")?.ok_or_else(|| ApiError::missing(&role_at))? {
        // the two names mean the same; chat templates know the older one, and some drop roles that they do not know
        "system" | "developer" => "system",
        "user" => "user",
        "assistant" => "assistant",
        "tool" => "tool",
        other => {
            let message = format!(
                "`{role_at}` must be `system`, `developer`, `user`, `assistant` or `tool`, not `{}`",
                shortened(other)
            );
            return Err(ApiError::bad_value(&role_at, message));
        }
    };
    let tool_calls = tool_calls(&mut fields, role)?;
    let content_at = fields.path("content");
    let content = match fields.take("content") {
        Some(value) => content(value, &content_at)?,
        None if tool_calls.is_some() => String::new(),
        None => return Err(ApiError::missing(&content_at)),
    };
    fields.refuse("name", never, "chat templates have no place for it; put the name into the text")?;
    fields.refuse("refusal", never, "put the text into `content`")?;
    fields.refuse("audio", never, "the model reads text only")?;
    fields.refuse("function_call", never, "use `tool_calls`")?;
    if role == "tool" {
        // the order of turns says which call was answered
        let _ = fields.text("tool_call_id")?;
    }
    if role == "assistant" {
        fields.ignore(&["annotations"]);
    }
    fields.finish()?;
    Ok(Said { role, content, tool_calls })
}

fn tool_calls(fields: &mut Fields<'_>, role: &str) -> Result<Option<String>, ApiError> {
    let at = fields.path("tool_calls");
    let Some(value) = fields.take("tool_calls") else { return Ok(None) };
    let calls = list(value, &at)?;
    if calls.is_empty() {
        return Ok(None);
    }
    if role != "assistant" {
        return Err(ApiError::bad_value(&at, format!("`{at}` stands in a turn of `{role}`; only the assistant calls")));
    }
    for (index, call) in calls.iter().enumerate() {
        if !call.is_object() {
            return Err(ApiError::bad_type(&format!("{at}[{index}]"), "an object", call));
        }
    }
    Ok(Some(value.to_string()))
}

/// A text, or a list of parts that are texts.
fn content(value: &Value, at: &str) -> Result<String, ApiError> {
    let Value::Array(parts) = value else {
        if value.is_string() {
            return text(value, at).map(str::to_owned);
        }
        return Err(ApiError::bad_type(at, "a string or a list of parts", value));
    };
    let mut whole = String::new();
    for (index, part) in parts.iter().enumerate() {
        let mut fields = Fields::of(part, format!("{at}[{index}]"))?;
        let kind_at = fields.path("type");
        let kind = fields.text("type")?.ok_or_else(|| ApiError::missing(&kind_at))?;
        if kind != "text" {
            return Err(ApiError::unsupported(&kind_at, &format!("a part `{}`; only `text` is read", shortened(kind))));
        }
        let text_at = fields.path("text");
        whole.push_str(fields.text("text")?.ok_or_else(|| ApiError::missing(&text_at))?);
        fields.finish()?;
    }
    Ok(whole)
}
