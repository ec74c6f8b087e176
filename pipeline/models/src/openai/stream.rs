//! A streamed answer, put together as it comes.
//!
//! [`Stream`] takes the bytes as they arrive, cut anywhere, reads the server-sent events in them and adds each piece to
//! its choice. What comes out is the body that the server would have sent without streaming, so that the store holds one
//! shape and one parser reads it. Servers differ in small ways that do not matter here: `data:` with or without a space,
//! comments, any line ends, no content in the first piece, no choice in the last. A stream without a reason for its end
//! was cut, whatever else it holds.

use super::pieces::{Piece, Pieces};

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

    /// Whether every choice has a reason for its end: what may follow are counts.
    pub(super) fn has_ended(&self) -> bool {
        self.answer.have_ended()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::parse_answer;
    use proptest::prelude::*;
    use serde_json::Value;

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
