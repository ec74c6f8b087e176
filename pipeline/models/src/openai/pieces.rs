//! The pieces of a streamed answer, and the body that they make.
//!
//! Each piece is added to its choice at the cost of its own length, so that long answers cost in proportion.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::content_text;

// As in the parser of whole answers, what differs between servers is taken as any JSON.
/// One event of a stream.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    created: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    system_fingerprint: Option<&'a RawValue>,
    #[serde(borrow)]
    tokenizer: Option<&'a RawValue>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    timings: Option<&'a RawValue>,
    #[serde(borrow)]
    choices: Option<Vec<PieceChoice<'a>>>,
}

#[derive(Deserialize)]
struct PieceChoice<'a> {
    index: Option<usize>,
    delta: Option<Delta>,
    text: Option<Value>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<PieceLogprobs<'a>>,
    #[serde(borrow)]
    token_ids: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct PieceLogprobs<'a> {
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
struct Delta {
    content: Option<Value>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    refusal: Option<Value>,
    tool_calls: Option<Vec<ToolDelta>>,
}

#[derive(Deserialize)]
struct ToolDelta {
    index: Option<usize>,
    id: Option<Value>,
    r#type: Option<Value>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<Value>,
    arguments: Option<Value>,
}

/// The body as far as it has come.
#[derive(Debug, Default, Serialize)]
pub(super) struct Pieces {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Box<RawValue>>,
    object: Completion,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<Box<RawValue>>,
    choices: Vec<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Serialize)]
enum Completion {
    #[default]
    #[serde(rename = "chat.completion")]
    Chat,
}

#[derive(Debug, Default, Serialize)]
struct Choice {
    index: usize,
    message: Message,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Logprobs>,
    #[serde(skip_serializing_if = "List::is_missing")]
    token_ids: List,
    finish_reason: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Serialize)]
struct Message {
    role: Assistant,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Tool>,
}

#[derive(Debug, Default, Serialize)]
enum Assistant {
    #[default]
    #[serde(rename = "assistant")]
    Assistant,
}

#[derive(Debug, Default, Serialize)]
struct Logprobs {
    content: List,
}

#[derive(Debug, Default, Serialize)]
struct Tool {
    id: String,
    r#type: String,
    function: Function,
}

#[derive(Debug, Default, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

/// Values of an array that comes in parts. With a part of the text that has none it is not the whole, and left out.
#[derive(Debug, Default)]
struct List {
    values: Vec<Box<RawValue>>,
    has_gap: bool,
}

impl Serialize for List {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.values.serialize(serializer)
    }
}

impl List {
    fn is_missing(&self) -> bool {
        self.values.is_empty() || self.has_gap
    }

    fn add(&mut self, part: Option<Vec<&RawValue>>, has_text: bool) {
        match part {
            Some(values) => self.values.extend(values.into_iter().map(ToOwned::to_owned)),
            None => self.has_gap |= has_text,
        }
    }
}

impl Pieces {
    /// Whether there are choices, and each has a reason for its end.
    pub(super) fn have_ended(&self) -> bool {
        let ended = |choice: &Choice| choice.finish_reason.as_ref().is_some_and(|reason| reason.get() != "null");
        !self.choices.is_empty() && self.choices.iter().all(ended)
    }

    /// Adds the next piece.
    pub(super) fn add(&mut self, piece: Piece<'_>) -> Result<(), String> {
        let first = |kept: &mut Option<Box<RawValue>>, value: Option<&RawValue>| {
            if kept.is_none() {
                *kept = value.map(ToOwned::to_owned);
            }
        };
        first(&mut self.id, piece.id);
        first(&mut self.created, piece.created);
        first(&mut self.model, piece.model);
        first(&mut self.system_fingerprint, piece.system_fingerprint);
        first(&mut self.tokenizer, piece.tokenizer);
        first(&mut self.template, piece.template);
        for (kept, value) in [(&mut self.usage, piece.usage), (&mut self.timings, piece.timings)] {
            if let Some(value) = value {
                *kept = Some(value.to_owned());
            }
        }
        for choice in piece.choices.unwrap_or_default() {
            let index = choice.index.unwrap_or(0);
            at(&mut self.choices, index)?.add(choice)?;
        }
        Ok(())
    }

    /// The whole, if it is one.
    pub(super) fn body(mut self) -> Result<String, String> {
        if self.choices.is_empty() || self.choices.iter().any(|choice| choice.finish_reason.is_none()) {
            return Err(
                "the stream ended without a `finish_reason` (a server that never sends one needs `stream = \"never\"`)"
                    .to_owned(),
            );
        }
        for (index, choice) in self.choices.iter_mut().enumerate() {
            choice.index = index;
            choice.logprobs = choice.logprobs.take().filter(|logprobs| !logprobs.content.is_missing());
        }
        serde_json::to_string(&self).map_err(|error| error.to_string())
    }
}

impl Choice {
    fn add(&mut self, piece: PieceChoice<'_>) -> Result<(), String> {
        let delta = piece.delta.unwrap_or_default();
        let message = &mut self.message;
        let has_text = append(&mut message.content, delta.content.or(piece.text));
        append(&mut message.reasoning_content, delta.reasoning_content);
        append(&mut message.reasoning, delta.reasoning);
        append(&mut message.refusal, delta.refusal);
        for tool in delta.tool_calls.unwrap_or_default() {
            // Without an index a piece with an id begins a call, and one without goes on with the last.
            let last = message.tool_calls.len();
            let index = tool.index.unwrap_or(if tool.id.is_some() { last } else { last.saturating_sub(1) });
            at(&mut message.tool_calls, index)?.add(tool);
        }
        let logprobs = piece.logprobs.and_then(|logprobs| logprobs.content);
        self.logprobs.get_or_insert_default().content.add(logprobs, has_text);
        self.token_ids.add(piece.token_ids, has_text);
        if let Some(reason) = piece.finish_reason {
            self.finish_reason = Some(reason.to_owned());
        }
        Ok(())
    }
}

impl Tool {
    fn add(&mut self, delta: ToolDelta) {
        let add = |kept: &mut String, value: Option<Value>| {
            if let Some(Value::String(text)) = value {
                kept.push_str(&text);
            }
        };
        // The id and type may come again with each piece.
        let set = |kept: &mut String, value: Option<Value>| {
            if let Some(Value::String(text)) = value.filter(|_| kept.is_empty()) {
                *kept = text;
            }
        };
        set(&mut self.id, delta.id);
        set(&mut self.r#type, delta.r#type);
        if let Some(function) = delta.function {
            set(&mut self.function.name, function.name);
            add(&mut self.function.arguments, function.arguments);
        }
    }
}

/// Adds to a text; whether there was something to add.
fn append(kept: &mut Option<String>, value: Option<Value>) -> bool {
    let text = match value {
        None | Some(Value::Null) => return false,
        Some(value) => content_text(value),
    };
    kept.get_or_insert_default().push_str(&text);
    !text.is_empty()
}

/// The entry at an index, made if it is not there yet.
fn at<T: Default>(entries: &mut Vec<T>, index: usize) -> Result<&mut T, String> {
    const MOST: usize = 1024;
    if index >= MOST {
        return Err(format!("the stream holds an entry with number {index}"));
    }
    if entries.len() <= index {
        entries.resize_with(index + 1, T::default);
    }
    entries.get_mut(index).ok_or_else(|| "the stream holds no such entry".to_owned())
}
