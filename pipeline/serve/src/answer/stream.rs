//! An answer that is sent as it is written, as server-sent events: one JSON object a line after `data: `.
//!
//! Nothing is made before the connection takes what was made before, so that a client that reads slowly costs no more
//! than its answers. While nothing happens a comment is sent now and then: it keeps proxies from closing the
//! connection, and shows when there is nobody at the other end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use serde_json::{Value, json};

use super::{Form, Header, Offsets, Usage, Wish, finish_reason, logprobs};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::inbox::{News, Wanted};

/// Events are joined up to about this many bytes when the connection has fallen behind.
const BATCH: usize = 16 << 10;
/// Longest silence.
const SILENCE: Duration = Duration::from_secs(15);

struct Events {
    engine: Arc<dyn Engine>,
    header: Header,
    wanted: Wanted,
    wish: Wish,
    offsets: Vec<Offsets>,
    usage: Usage,
    /// Choices that have not ended.
    open: usize,
    /// Events that are ready.
    ready: String,
    is_over: bool,
}

/// Sends events until all choices have ended or the client goes away. `echoes` as for [`super::whole`].
pub(crate) fn stream(
    engine: Arc<dyn Engine>,
    header: Header,
    wanted: Wanted,
    echoes: &[String],
    prompt_tokens: usize,
    wish: Wish,
) -> Response {
    let mut events = Events {
        engine,
        header,
        wanted,
        wish,
        offsets: echoes.iter().map(|echo| Offsets::after(echo)).collect(),
        usage: Usage { prompt: prompt_tokens, completion: 0 },
        open: echoes.len(),
        ready: String::new(),
        is_over: false,
    };
    events.begin(echoes);
    let bodies = futures::stream::unfold(events, |mut events| async move {
        let next = events.next().await?;
        Some((Ok::<_, Infallible>(next), events))
    });
    let mut response = Response::new(Body::from_stream(bodies));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Events {
    /// The first delta of each choice: who speaks, or the prompt given back.
    fn begin(&mut self, echoes: &[String]) {
        for (index, echo) in echoes.iter().enumerate() {
            match self.header.form {
                Form::Chat => {
                    let delta = json!({"role": "assistant", "content": "", "refusal": null});
                    self.push_choice(index, delta, Value::Null, Value::Null);
                }
                Form::Text if !echo.is_empty() => {
                    self.push_choice(index, json!(echo), Value::Null, Value::Null);
                }
                Form::Text => {}
            }
        }
    }

    /// The next bytes to send; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        while self.ready.is_empty() && !self.is_over {
            match tokio::time::timeout(SILENCE, self.wanted.next()).await {
                Err(_) => self.ready.push_str(": waiting\n\n"),
                Ok(None) => self.fail(&ApiError::ending()),
                Ok(Some((choice, news))) => self.tell(choice, news),
            }
            while self.ready.len() < BATCH && !self.is_over {
                let Some((choice, news)) = self.wanted.take() else { break };
                self.tell(choice, news);
            }
        }
        let ready = std::mem::take(&mut self.ready);
        (!ready.is_empty()).then_some(ready)
    }

    fn tell(&mut self, choice: usize, news: News) {
        let Some(offsets) = self.offsets.get_mut(choice) else { return };
        match news {
            News::Piece { text, tokens } => {
                self.usage.completion += tokens.len();
                let logprobs = logprobs(self.header.form, self.engine.as_ref(), &tokens, self.wish, offsets);
                if text.is_empty() && (tokens.is_empty() || logprobs.is_null()) {
                    return;
                }
                let delta = match self.header.form {
                    Form::Chat => json!({"content": text}),
                    Form::Text => json!(text),
                };
                self.push_choice(choice, delta, logprobs, Value::Null);
            }
            News::End(end) => match finish_reason(end) {
                Err(error) => self.fail(&error),
                Ok(reason) => {
                    let delta = match self.header.form {
                        Form::Chat => json!({}),
                        Form::Text => json!(""),
                    };
                    self.push_choice(choice, delta, Value::Null, json!(reason));
                    self.open -= 1;
                    if self.open == 0 {
                        self.finish();
                    }
                }
            },
        }
    }

    fn push_choice(&mut self, index: usize, delta: Value, logprobs: Value, reason: Value) {
        let name = match self.header.form {
            Form::Chat => "delta",
            Form::Text => "text",
        };
        let mut choice = json!({"index": index});
        choice[name] = delta;
        choice["logprobs"] = logprobs;
        choice["finish_reason"] = reason;
        let mut chunk = self.header.with(true, vec![choice]);
        if self.wish.include_usage {
            chunk["usage"] = Value::Null;
        }
        self.push(&chunk);
    }

    fn finish(&mut self) {
        if self.wish.include_usage {
            let mut chunk = self.header.with(true, Vec::new());
            chunk["usage"] = self.usage.json();
            self.push(&chunk);
        }
        self.ready.push_str("data: [DONE]\n\n");
        self.is_over = true;
    }

    fn fail(&mut self, error: &ApiError) {
        self.push(&error.body());
        self.is_over = true;
    }

    fn push(&mut self, event: &Value) {
        self.ready.push_str("data: ");
        self.ready.push_str(&event.to_string());
        self.ready.push_str("\n\n");
    }
}
