//! The two endpoints that write: from a body to jobs, from jobs to an answer.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use stage_candle::decode::Job;
use stage_tokens::Turn;

use crate::admission;
use crate::answer::{Form, Header, Wish, stream, whole};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::inbox::Wanted;
use crate::request::{Asked, Chat, Completion, Prompt};
use crate::server::{Names, Shared};

/// `POST /v1/chat/completions`
pub(crate) async fn chat(State(shared): State<Shared>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    answer(shared, &headers, body, prepare_chat).await
}

/// `POST /v1/completions`
pub(crate) async fn completions(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    answer(shared, &headers, body, prepare_completion).await
}

/// A request that can be answered.
struct Ready {
    form: Form,
    model: String,
    prompts: Vec<Vec<u32>>,
    /// The prompts' texts where they are to stand before the answers.
    echoes: Option<Vec<String>>,
    asked: Asked,
    top_logprobs: Option<u8>,
}

type Prepare = fn(&dyn Engine, &Names, &Value) -> Result<Ready, ApiError>;

async fn answer(shared: Shared, headers: &HeaderMap, body: Body, prepare: Prepare) -> Result<Response, ApiError> {
    let ready = {
        let _turn = shared.readers.acquire_many(admission::weight(headers)).await.map_err(|_| ApiError::ending())?;
        let bytes = admission::read(headers, body).await?;
        let (engine, names) = (Arc::clone(&shared.engine), Arc::clone(&shared.names));
        // encoding a long text takes a while
        let prepared =
            tokio::task::spawn_blocking(move || prepare(engine.as_ref(), &names, &admission::parse(&bytes)?));
        prepared.await.map_err(|error| ApiError::internal(format!("the request could not be read: {error}")))??
    };
    let wanted = submit(&shared, &ready)?;
    let prompt_tokens = ready.prompts.iter().map(Vec::len).sum();
    let header = Header::new(ready.form, ready.model, shared.engine.fingerprint());
    let wish = Wish { logprobs: ready.top_logprobs.is_some(), include_usage: ready.asked.include_usage };
    let texts = ready.echoes.unwrap_or_else(|| vec![String::new(); ready.prompts.len()]);
    let echoes: Vec<String> =
        texts.into_iter().flat_map(|text| std::iter::repeat_n(text, ready.asked.n as usize)).collect();
    if ready.asked.stream {
        return Ok(stream(Arc::clone(&shared.engine), header, wanted, &echoes, prompt_tokens, wish));
    }
    let body = whole(shared.engine.as_ref(), &header, wanted, echoes, prompt_tokens, wish).await?;
    Ok(Json(body).into_response())
}

/// Hands a job for each choice to the engine: all of the first prompt, then all of the second.
fn submit(shared: &Shared, ready: &Ready) -> Result<Wanted, ApiError> {
    let choices = u32::try_from(ready.prompts.len()).unwrap_or(u32::MAX).saturating_mul(ready.asked.n);
    if choices as usize > shared.queue {
        let message = format!("{choices} answers are asked for, and the queue holds {}; ask for fewer", shared.queue);
        return Err(ApiError::bad_value("n", message));
    }
    let places = Arc::clone(&shared.places).try_acquire_many_owned(choices);
    let places = places.map_err(|_| ApiError::queue_full(shared.queue))?;
    let wanted = Wanted::new(shared.ending.clone(), places);
    let context = shared.engine.context();
    let mut choice = 0;
    for prompt in &ready.prompts {
        let room = u32::try_from(context.saturating_sub(prompt.len())).unwrap_or(u32::MAX);
        for sample in 0..ready.asked.n {
            let draw = ready.asked.draw(sample, room, ready.top_logprobs);
            shared.engine.submit(Job { prompt: prompt.clone(), draw, listener: wanted.listener(choice) });
            choice += 1;
        }
    }
    Ok(wanted)
}

fn prepare_chat(engine: &dyn Engine, names: &Names, body: &Value) -> Result<Ready, ApiError> {
    let chat = Chat::read(body)?;
    names.check(&chat.model)?;
    let turns: Vec<Turn<'_>> = chat
        .said
        .iter()
        .map(|said| Turn { role: said.role, content: &said.content, tool_calls: said.tool_calls.as_deref() })
        .collect();
    let prompt = engine.chat(&turns).map_err(|error| ApiError::bad_value("messages", error.to_string()))?;
    ensure_fits(engine, "messages", &prompt)?;
    Ok(Ready {
        form: Form::Chat,
        model: chat.model,
        prompts: vec![prompt],
        echoes: None,
        asked: chat.asked,
        top_logprobs: chat.top_logprobs,
    })
}

fn prepare_completion(engine: &dyn Engine, names: &Names, body: &Value) -> Result<Ready, ApiError> {
    let completion = Completion::read(body)?;
    names.check(&completion.model)?;
    let mut prompts = Vec::with_capacity(completion.prompts.len());
    let mut echoes = Vec::new();
    let is_one = completion.prompts.len() == 1;
    for (index, prompt) in completion.prompts.into_iter().enumerate() {
        let at = if is_one { "prompt".to_owned() } else { format!("prompt[{index}]") };
        let (text, tokens) = match prompt {
            Prompt::Text(text) => {
                let tokens = engine.encode(&text);
                (text, tokens)
            }
            Prompt::Tokens(tokens) => (text_of(engine, &at, &tokens)?, tokens),
        };
        if tokens.is_empty() {
            return Err(ApiError::bad_value(&at, format!("`{at}` is empty; there must be a token to go on from")));
        }
        ensure_fits(engine, &at, &tokens)?;
        prompts.push(tokens);
        echoes.push(text);
    }
    Ok(Ready {
        form: Form::Text,
        model: completion.model,
        prompts,
        echoes: completion.echo.then_some(echoes),
        asked: completion.asked,
        top_logprobs: completion.top_logprobs,
    })
}

/// The text of token ids; control tokens have none.
fn text_of(engine: &dyn Engine, at: &str, tokens: &[u32]) -> Result<String, ApiError> {
    let mut bytes = Vec::new();
    for (index, &id) in tokens.iter().enumerate() {
        if id as usize >= engine.vocabulary() {
            let path = format!("{at}[{index}]");
            let message = format!("`{path}` is {id}, and the vocabulary has {} tokens", engine.vocabulary());
            return Err(ApiError::bad_value(&path, message));
        }
        bytes.extend_from_slice(engine.bytes_of(id));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn ensure_fits(engine: &dyn Engine, param: &str, prompt: &[u32]) -> Result<(), ApiError> {
    let context = engine.context();
    if prompt.len() < context { Ok(()) } else { Err(ApiError::too_long(param, prompt.len(), context)) }
}
