//! An answer that is sent when all its choices have ended.

use serde_json::{Value, json};
use stage_candle::decode::{Drawn, End};

use super::{Form, Header, Offsets, Usage, Wish, finish_reason, logprobs};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::inbox::{News, Wanted};

/// What has been told of a choice.
struct Choice {
    text: String,
    tokens: Vec<Drawn>,
    written: usize,
    end: Option<End>,
    offsets: Offsets,
}

/// Waits for all choices. `echoes` has one text a choice, which stands before the answer.
///
/// # Errors
/// When one of them cannot be answered; the others are given up.
pub(crate) async fn whole(
    engine: &dyn Engine,
    header: &Header,
    mut wanted: Wanted,
    echoes: Vec<String>,
    prompt_tokens: usize,
    wish: Wish,
) -> Result<Value, ApiError> {
    let begin = |echo: String| {
        let offsets = Offsets::after(&echo);
        Choice { text: echo, tokens: Vec::new(), written: 0, end: None, offsets }
    };
    let mut choices: Vec<Choice> = echoes.into_iter().map(begin).collect();
    let mut open = choices.len();
    while open > 0 {
        let (index, news) = wanted.next().await.ok_or_else(ApiError::ending)?;
        let Some(choice) = choices.get_mut(index) else { continue };
        match news {
            News::Piece { text, tokens } => {
                choice.text.push_str(&text);
                choice.written += tokens.len();
                if wish.logprobs {
                    choice.tokens.extend(tokens);
                }
            }
            News::End(end @ (End::Complete | End::Cut)) => {
                choice.end = Some(end);
                open -= 1;
            }
            News::End(end) => {
                finish_reason(end)?;
            }
        }
    }
    let usage = Usage { prompt: prompt_tokens, completion: choices.iter().map(|choice| choice.written).sum() };
    let mut parts = Vec::with_capacity(choices.len());
    for (index, mut choice) in choices.into_iter().enumerate() {
        let reason = finish_reason(choice.end.take().unwrap_or(End::Cut))?;
        let logprobs = logprobs(header.form, engine, &choice.tokens, wish, &mut choice.offsets);
        parts.push(match header.form {
            Form::Chat => json!({
                "index": index, "message": {"role": "assistant", "content": choice.text, "refusal": null},
                "logprobs": logprobs, "finish_reason": reason,
            }),
            Form::Text => {
                json!({"index": index, "text": choice.text, "logprobs": logprobs, "finish_reason": reason})
            }
        });
    }
    let mut answer = header.with(false, parts);
    answer["usage"] = usage.json();
    Ok(answer)
}
