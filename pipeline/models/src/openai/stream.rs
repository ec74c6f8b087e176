//! A streamed answer, put together as it comes.
//!
//! [`Stream`] takes the bytes as they arrive, cut anywhere, reads the server-sent events in them and adds each piece to
//! its choice. What comes out is the body that the server would have sent without streaming, so that the store holds one
//! shape and one parser reads it. Servers differ in small ways that do not matter here: `data:` with or without a space,
//! comments, any line ends, no content in the first piece, no choice in the last. A stream without a reason for its end
//! was cut, whatever else it holds.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::content_text;

/// What a stream came to.
#[derive(Debug, PartialEq)]
pub(super) enum Assembled {
    /// The body of an answer.
    Answer(String),
    /// The body of an error.
    Error(String),
}

/// A stream as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Bytes of a line that is not whole yet, and how many of them hold no line end.
    line: Vec<u8>,
    searched: usize,
    /// The last line ended with a carriage return: a line feed after it belongs to that.
    after_return: bool,
    data: String,
    is_error_event: bool,
    is_done: bool,
    error: Option<String>,
    answer: Pieces,
}

impl Stream {
    /// Takes the next bytes in.
    ///
    /// # Errors
    /// Text that is not UTF-8, or an event that is no JSON.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.line.extend_from_slice(bytes);
        let mut start = 0;
        let mut line = std::mem::take(&mut self.line);
        while let Some(found) = line[self.searched..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let end = self.searched + found;
            let is_rest_of_end = self.after_return && line[end] == b'\n' && end == start;
            self.after_return = line[end] == b'\r';
            if !is_rest_of_end {
                self.take_line(&line[start..end])?;
            }
            start = end + 1;
            self.searched = start;
        }
        if self.searched < line.len() {
            self.after_return = false;
        }
        line.drain(..start);
        self.searched = line.len();
        self.line = line;
        Ok(())
    }

    /// Whether the server has said that this is all.
    pub(super) fn is_done(&self) -> bool {
        self.is_done || self.error.is_some()
    }

    /// The whole, when the connection has ended.
    ///
    /// # Errors
    /// A stream that was cut.
    pub(super) fn finish(mut self) -> Result<Assembled, String> {
        if self.error.is_none() {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line)?;
            self.end_event()?;
        }
        match self.error {
            Some(error) => Ok(Assembled::Error(error)),
            None => self.answer.body().map(Assembled::Answer),
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "the stream is not UTF-8".to_owned())?;
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" if value.trim() == "[DONE]" => {
                self.end_event()?;
                self.is_done = true;
            }
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "event" => self.is_error_event = value.trim() == "error",
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self) -> Result<(), String> {
        let data = std::mem::take(&mut self.data);
        let is_error = std::mem::take(&mut self.is_error_event);
        if data.trim().is_empty() || self.is_done() {
            return Ok(());
        }
        // Some servers leave out the empty line between events: then one holds several values.
        for piece in serde_json::Deserializer::from_str(&data).into_iter::<Piece<'_>>() {
            let piece = piece.map_err(|error| format!("unreadable event in the stream: {error}"))?;
            if let Some(error) = piece.error {
                self.error = Some(format!("{{\"error\":{error}}}"));
                return Ok(());
            }
            if is_error {
                self.error = Some(data);
                return Ok(());
            }
            self.answer.add(piece)?;
        }
        Ok(())
    }
}

// As in the parser of whole answers, what differs between servers is taken as any JSON.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
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
struct Pieces {
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
    fn add(&mut self, piece: Piece<'_>) -> Result<(), String> {
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

    fn body(mut self) -> Result<String, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::parse_answer;
    use proptest::prelude::*;

    const WHOLE: &str = concat!(
        ": hello\r\n\r\n",
        "data: {\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},\"finish_reason\":null}],\"usage\":null}\r\n\r\n",
        "data:{\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"七加\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"die Straße \"}}]}\n\n",
        "event: message\nid: 4\ndata: {\"choices\":[{\"index\":0,\n",
        "data: \"delta\":{\"content\":\"→ 12\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r\r",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\n",
        "data: [DONE]\n\n",
    );

    fn assemble(text: &str) -> Result<Assembled, String> {
        let mut stream = Stream::default();
        stream.feed(text.as_bytes())?;
        stream.finish()
    }

    fn answer(text: &str) -> crate::Answer {
        match assemble(text).unwrap() {
            Assembled::Answer(body) => parse_answer(&body).unwrap(),
            Assembled::Error(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_stream_becomes_the_body_that_would_have_come_without_it() {
        let answer = answer(WHOLE);
        assert_eq!((answer.answer_text.as_str(), answer.reasoning.as_deref()), ("die Straße → 12", Some("七加")));
        assert_eq!((answer.prompt_tokens, answer.completion_tokens), (Some(5), Some(7)));
        assert_eq!((answer.finish_reason.as_deref(), answer.model.as_deref()), (Some("stop"), Some("m")));
    }

    #[test]
    fn where_the_bytes_are_cut_does_not_matter() {
        let expected = assemble(WHOLE).unwrap();
        for size in 1..40 {
            let mut stream = Stream::default();
            for chunk in WHOLE.as_bytes().chunks(size) {
                stream.feed(chunk).unwrap();
            }
            assert!(stream.is_done());
            assert_eq!(stream.finish().unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn a_stream_cut_anywhere_is_no_answer() {
        let end = WHOLE.find("\"finish_reason\":\"stop\"").unwrap();
        for cut in (0..end).filter(|cut| WHOLE.is_char_boundary(*cut)) {
            assert!(!matches!(assemble(&WHOLE[..cut]), Ok(Assembled::Answer(_))), "{cut}");
        }
        assert!(assemble("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n").is_err());
    }

    #[test]
    fn an_error_in_the_stream_is_an_error() {
        let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"boom\",\"code\":500}}\n\n";
        assert_eq!(assemble(text), Ok(Assembled::Error(r#"{"error":{"message":"boom","code":500}}"#.to_owned())));
        let event = "event: error\ndata: {\"message\":\"boom\"}\n\n";
        assert_eq!(assemble(event), Ok(Assembled::Error(r#"{"message":"boom"}"#.to_owned())));
    }

    #[test]
    fn log_probabilities_ids_and_tool_calls_come_in_pieces() {
        let text = concat!(
            r#"data: {"choices":[{"index":0,"delta":{"content":"1"},"logprobs":{"content":[{"id":7,"token":"1","logprob":-0.5}]},"token_ids":[7]}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"content":"2"},"logprobs":{"content":[{"id":8,"token":"2","logprob":-0.25}]},"token_ids":[8]}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"add","arguments":"{\"a\""}}]}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"}]}"#,
            "\n\n",
        );
        let whole = answer(text);
        assert_eq!((whole.token_ids, whole.token_logprobs), (Some(vec![7, 8]), Some(vec![-0.5, -0.25])));
        let calls: Value = serde_json::from_str(&whole.tool_calls.unwrap()).unwrap();
        assert_eq!(calls[0]["function"], serde_json::json!({"name": "add", "arguments": "{\"a\":1}"}));
        let gap =
            text.replacen(r#","logprobs":{"content":[{"id":8,"token":"2","logprob":-0.25}]},"token_ids":[8]"#, "", 1);
        let gap = answer(&gap);
        assert_eq!((gap.token_ids, gap.token_logprobs), (None, None), "not all of them");
    }

    #[test]
    fn several_choices_are_kept_apart() {
        let text = concat!(
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\"}},{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"c\"},\"finish_reason\":\"length\"}]}\n",
        );
        let Ok(Assembled::Answer(body)) = assemble(&text.replace("}\n", "}\n\n")) else { panic!() };
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&body["choices"][0]["message"]["content"], &body["choices"][1]["message"]["content"]),
            (&"a".into(), &"bc".into())
        );
        assert!(assemble("data: {\"choices\":[{\"index\":99999999,\"delta\":{}}]}\n\n").is_err());
    }

    #[test]
    fn a_long_answer_costs_time_in_proportion() {
        // A million pieces would take hours if each cost the length of what came before.
        let mut stream = Stream::default();
        let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n".repeat(100);
        for _ in 0..1000 {
            stream.feed(piece.as_bytes()).unwrap();
        }
        let long_line = vec![b' '; 1 << 16];
        (0..200).for_each(|_| stream.feed(&long_line).unwrap());
        stream.feed(b"\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n").unwrap();
        let Ok(Assembled::Answer(body)) = stream.finish() else { panic!() };
        assert!(body.len() > 500_000);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1..50_usize) {
            let mut stream = Stream::default();
            for chunk in bytes.chunks(cut) {
                if stream.feed(chunk).is_err() {
                    return Ok(());
                }
            }
            let _ = stream.finish();
        }
    }
}
