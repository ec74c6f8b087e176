//! An answer, and how it is read out of what a server sent.
//!
//! The store keeps the reply's body as it came; everything here is derived from it, so that a better
//! parser costs no new call. Servers differ in what they add: unknown fields are ignored, and
//! what may be missing is an `Option`. Token log-probabilities are those the server gives: for llama.cpp
//! and vLLM the raw log-softmax at temperature 1, natural logarithm, not that of the sampling.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::reasoning::split_reasoning;

/// One answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text of the message, byte for byte as the server gave it.
    pub text: String,
    /// The chain of thought: see [`split_reasoning`].
    pub reasoning: Option<String>,
    /// The text after the chain of thought.
    pub answer_text: String,
    /// `stop`, `length` (cut at the limit: truncated, not wrong) or what else the server says.
    pub finish_reason: Option<String>,
    /// Tokens of the request by the model's own tokenizer.
    pub prompt_tokens: Option<u64>,
    /// Of these, tokens that the server had in its prompt cache; `None` where it does not tell.
    pub cached_tokens: Option<u64>,
    /// Tokens of the answer by the model's own tokenizer, reasoning included.
    pub completion_tokens: Option<u64>,
    /// Ids of the answer's tokens, the end token included; `None` unless the server gives as many as it counts.
    pub token_ids: Option<Vec<u32>>,
    /// Log-probability of each token of the answer; `None` unless the server gives all of them.
    pub token_logprobs: Option<Vec<f32>>,
    /// The server listed tokens, but others than it counts: what it listed is left out above. llama.cpp's server lists
    /// the tokens of a character that has several as one, and leaves the end token out of streams.
    pub tokens_incomplete: bool,
    /// Tool calls of the message as JSON text.
    pub tool_calls: Option<String>,
    /// Name under which the server says it answered.
    pub model: Option<String>,
    /// Digest of the tokenizer behind `token_ids`, where it is told.
    pub tokenizer: Option<String>,
    /// Digest of the chat template behind the prompt, where it is told.
    pub template: Option<String>,
}

/// A body that is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// Reads the body of a chat (or text) completion.
///
/// # Errors
/// JSON that is cut or malformed, an error object, or a body without a choice.
pub fn parse_answer(raw: &str) -> Result<Answer, ParseError> {
    let raw = raw.trim_start_matches('\u{feff}');
    match read_answer(raw) {
        // servers in Python write halves of characters, where a token ends within one
        Err(error) => surrogates_mended(raw).map_or(Err(error), |mended| read_answer(&mended)),
        answer => answer,
    }
}

fn read_answer(raw: &str) -> Result<Answer, ParseError> {
    let body: Body<'_> = serde_json::from_str(raw).map_err(|error| ParseError(error.to_string()))?;
    let Some(choice) = body.choices.unwrap_or_default().into_iter().flatten().next() else {
        return Err(ParseError("the reply holds no choice".to_owned()));
    };
    if choice.message.is_none() && choice.text.is_none() {
        return Err(ParseError("the choice holds no message".to_owned()));
    }
    let message = choice.message.unwrap_or_default();
    let text = message.content.map(content_text).or(choice.text).unwrap_or_default();
    let separate = [message.reasoning_content, message.reasoning]
        .into_iter()
        .flatten()
        .find_map(|value| value.as_str().map(str::to_owned).filter(|text| !text.is_empty()));
    let split = split_reasoning(&text, separate.as_deref());
    let usage: Counts = body.usage.and_then(if_readable).unwrap_or_default();
    let tokens = choice.logprobs.and_then(if_readable).map(|logprobs| Tokens::of(&logprobs)).unwrap_or_default();
    let listed = choice.token_ids.and_then(if_readable);
    let listed = listed.and_then(|ids: Value| ids.as_array()?.iter().map(token_id).collect());
    let ids: Option<Vec<u32>> = listed.or(tokens.ids);
    let completion_tokens = usage.completion_tokens.as_ref().and_then(count);
    let tokens_incomplete =
        ids.as_ref().is_some_and(|ids| completion_tokens.is_some_and(|count| count != ids.len() as u64));
    Ok(Answer {
        text,
        reasoning: split.reasoning,
        answer_text: split.answer,
        finish_reason: choice.finish_reason.and_then(into_text),
        prompt_tokens: usage.prompt_tokens.as_ref().and_then(count),
        cached_tokens: usage.cached(),
        completion_tokens,
        token_ids: ids.filter(|_| !tokens_incomplete),
        token_logprobs: tokens.logprobs.filter(|_| !tokens_incomplete),
        tokens_incomplete,
        tool_calls: message
            .tool_calls
            .filter(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty()))
            .map(|calls| calls.to_string()),
        model: body.model.and_then(into_text),
        tokenizer: body.tokenizer.and_then(into_text),
        template: body.template.and_then(into_text),
    })
}

// Fields whose type differs between servers are taken as any JSON value, so that an oddity in what we
// can do without never costs an answer.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Option<Choice<'a>>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    model: Option<Value>,
    tokenizer: Option<Value>,
    template: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    message: Option<Reply>,
    text: Option<String>,
    finish_reason: Option<Value>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    token_ids: Option<&'a RawValue>,
}

/// What we can do without is nothing where it has another shape.
fn if_readable<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// JSON text with U+FFFD in the place of escaped halves of surrogate pairs; `None` where there are none.
fn surrogates_mended(raw: &str) -> Option<String> {
    let unit =
        |at: usize| raw.get(at..at + 2).filter(|start| *start == "\\u").and_then(|_| hex(raw.get(at + 2..at + 6)?));
    let mut mended = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = raw[at..].find('\\') {
        let start = at + found;
        at = match (unit(start), unit(start + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => start + 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push_str(&raw[copied..start]);
                mended.push('\u{fffd}');
                copied = start + 6;
                copied
            }
            // the escaped letter goes with its backslash
            _ => start + 1 + raw[start + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    (copied > 0).then(|| mended + &raw[copied..])
}

fn hex(digits: &str) -> Option<u32> {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[derive(Deserialize, Default)]
struct Reply {
    content: Option<Value>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    tool_calls: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Counts {
    prompt_tokens: Option<Value>,
    completion_tokens: Option<Value>,
    prompt_tokens_details: Option<Value>,
    prompt_cache_hit_tokens: Option<Value>,
}

impl Counts {
    /// Tokens that came from the prompt cache, under either of the names in use.
    fn cached(&self) -> Option<u64> {
        let details = self.prompt_tokens_details.as_ref().and_then(|details| details.get("cached_tokens"));
        details.or(self.prompt_cache_hit_tokens.as_ref()).and_then(count)
    }
}

/// The text of a value that is one.
fn into_text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Content is a text, or a list of parts of which the texts count.
pub(crate) fn content_text(content: Value) -> String {
    match content {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

#[derive(Default)]
struct Tokens {
    ids: Option<Vec<u32>>,
    logprobs: Option<Vec<f32>>,
}

impl Tokens {
    /// Reads `content[]` with one object a token, or the older arrays side by side.
    fn of(logprobs: &Value) -> Self {
        if let Some(content) = logprobs.get("content").and_then(Value::as_array) {
            return Self {
                ids: content.iter().map(|token| token_id(token.get("id")?)).collect(),
                logprobs: content.iter().map(|token| logprob(token.get("logprob")?)).collect(),
            };
        }
        let older = logprobs.get("token_logprobs").and_then(Value::as_array);
        Self { ids: None, logprobs: older.and_then(|values| values.iter().map(logprob).collect()) }
    }
}

/// No request has so many tokens: what is told from here on is no count.
const MOST_COUNT: u64 = 1_000_000_000;

/// Counts are whole numbers, but some servers write them as floats.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().filter(|count| *count < MOST_COUNT).or_else(|| {
        let number = value.as_f64().filter(|number| (0.0..MOST_COUNT as f64).contains(number))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked above")]
        let whole = number as u64;
        Some(whole)
    })
}

fn token_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn logprob(value: &Value) -> Option<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "log-probabilities are single precision by nature")]
    let number = value.as_f64()? as f32;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unknown_fields_and_missing_ones_do_not_matter() {
        let raw = r#"{"id":"x","model":"other","choices":[{"index":0,"finish_reason":"length","stop_reason":null,
            "message":{"role":"assistant","content":"七\u2028","refusal":null,"tool_calls":[]},"logprobs":null}],
            "usage":{"prompt_tokens":5,"completion_tokens":2.0,"prompt_tokens_details":{"cached_tokens":1}},"timings":{}}"#;
        let answer = parse_answer(raw).unwrap();
        assert_eq!(answer.text, "七\u{2028}");
        assert_eq!(answer.answer_text, answer.text);
        assert_eq!(answer.finish_reason.as_deref(), Some("length"));
        assert_eq!((answer.prompt_tokens, answer.completion_tokens), (Some(5), Some(2)));
        assert_eq!(answer.model.as_deref(), Some("other"));
        assert_eq!(answer.tool_calls, None);
        let bare = parse_answer(r#"{"choices":[{"message":{"content":null}}]}"#).unwrap();
        assert_eq!((bare.text.as_str(), bare.prompt_tokens), ("", None));
    }

    #[test]
    fn oddities_in_what_we_can_do_without_cost_no_answer() {
        let body =
            |choice: &str, more: &str| format!(r#"{{"choices":[{{"message":{{"content":"12"}}{choice}}}]{more}}}"#);
        let odd = [
            body("", r#","usage":[]"#),
            body("", r#","usage":"x""#),
            body("", r#","usage":{"prompt_tokens":1e400}"#),
            body("", r#","usage":{"prompt_tokens":18446744073709551615,"completion_tokens":-3}"#),
            body(r#","logprobs":{"content":[{"id":7,"logprob":-1e400}]}"#, ""),
            body(r#","token_ids":{"a":1},"logprobs":7"#, ""),
            format!("\u{feff}{}", body("", "")),
            r#"{"choices":[null,{"message":{"content":"12"}}]}"#.to_owned(),
        ];
        for raw in odd {
            let answer = parse_answer(&raw).unwrap_or_else(|error| panic!("{raw}: {error}"));
            assert_eq!((answer.text.as_str(), answer.prompt_tokens, answer.token_ids), ("12", None, None), "{raw}");
        }
    }

    #[test]
    fn halves_of_characters_are_replaced_and_whole_ones_stay() {
        let text = |escaped: &str| {
            parse_answer(&format!(r#"{{"choices":[{{"message":{{"content":"{escaped}"}}}}]}}"#)).unwrap().text
        };
        assert_eq!(text(r"a\ud83d\ude00b\ud83dc"), "a😀b\u{fffd}c");
        assert_eq!(text(r"\ude00\ud83d\u4e03 \\ud83d"), "\u{fffd}\u{fffd}七 \\ud83d");
        assert_eq!(text(r"\ud83d"), "\u{fffd}");
    }

    #[test]
    fn reasoning_is_found_in_either_field() {
        for field in ["reasoning_content", "reasoning"] {
            let raw = format!(r#"{{"choices":[{{"message":{{"content":"12","{field}":"7+5"}}}}]}}"#);
            let answer = parse_answer(&raw).unwrap();
            assert_eq!(answer.reasoning.as_deref(), Some("7+5"));
            assert_eq!(answer.answer_text, "12");
        }
    }

    #[test]
    fn token_ids_and_log_probabilities_are_all_there_or_absent() {
        let raw = r#"{"choices":[{"message":{"content":"12"},"logprobs":{"content":[
            {"id":7,"token":"12","logprob":-0.5,"bytes":[49,50]},{"id":2,"token":"","logprob":-0.25}]}}]}"#;
        let answer = parse_answer(raw).unwrap();
        assert_eq!(answer.token_ids, Some(vec![7, 2]));
        assert_eq!(answer.token_logprobs, Some(vec![-0.5, -0.25]));
        assert!(!answer.tokens_incomplete);
        // a count that is not that of the list
        for (count, is_whole) in [(2, true), (1, false), (3, false)] {
            let counted = raw.replace("]}}]}", &format!("]}}}}],\"usage\":{{\"completion_tokens\":{count}}}}}"));
            let answer = parse_answer(&counted).unwrap();
            assert_eq!(answer.completion_tokens, Some(count));
            assert_eq!(answer.tokens_incomplete, !is_whole);
            assert_eq!((answer.token_ids.is_some(), answer.token_logprobs.is_some()), (is_whole, is_whole));
        }
        let without_ids = raw.replace(r#""id":7,"#, "");
        let answer = parse_answer(&without_ids).unwrap();
        assert_eq!(answer.token_ids, None);
        assert_eq!(answer.token_logprobs.map(|values| values.len()), Some(2));
        let older =
            r#"{"choices":[{"text":"12","logprobs":{"tokens":["12"],"token_logprobs":[-0.5]},"token_ids":[7]}]}"#;
        let answer = parse_answer(older).unwrap();
        assert_eq!((answer.token_ids, answer.token_logprobs), (Some(vec![7]), Some(vec![-0.5])));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let bodies = [
            "",
            "{",
            "null",
            "[]",
            r#"{"choices":[]}"#,
            r#"{"choices":[{}]}"#,
            r#"{"error":{"message":"x"}}"#,
            "<html>",
        ];
        for body in bodies {
            assert!(parse_answer(body).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in any::<String>()) {
            let _ = parse_answer(&text);
        }
    }
}
