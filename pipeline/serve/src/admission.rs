//! Who is let in: whoever has the key, as many answers as the queue holds, and bodies of bounded size.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde_json::Value;

use crate::error::ApiError;
use crate::server::Shared;

/// Largest body.
pub(crate) const MOST_BODY: usize = 32 << 20;
/// What is read of a body beyond that and thrown away, so that the client gets to read why.
const MOST_DRAINED: usize = 4 * MOST_BODY;
/// Longest time that a body may take.
const BODY_TIME: Duration = Duration::from_mins(1);

/// Lets a request pass that has the key, where there is one. `GET /health` needs none: supervisors ask it.
pub(crate) async fn check_key(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if let Some(key) = &shared.key
        && request.uri().path() != "/health"
    {
        let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(bearer);
        if !given.is_some_and(|given| key.is_equal_to(given)) {
            return ApiError::unauthorised().into_response();
        }
    }
    next.run(request).await
}

/// The word after `Bearer`, whose case does not matter.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Mebibytes that a body may take, by what it declares; small ones that come slowly hold up nobody then.
pub(crate) fn weight(headers: &HeaderMap) -> u32 {
    let length = declared(headers).unwrap_or(MOST_BODY).min(MOST_BODY);
    u32::try_from(length.div_ceil(1 << 20)).unwrap_or(1).max(1)
}

fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// Reads a body to its end.
///
/// # Errors
/// A body that is not declared as JSON, too large, too slow or broken off.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, ApiError> {
    if let Some(media) = headers.get(CONTENT_TYPE) {
        // a page in a browser may send other types to this machine without being asked
        let media = media.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::bad_media());
        }
    }
    if declared(headers).is_some_and(|length| length > MOST_DRAINED) {
        return Err(ApiError::too_large(MOST_BODY));
    }
    let read = tokio::time::timeout(BODY_TIME, collect(body)).await;
    read.unwrap_or_else(|_| Err(ApiError::too_slow(BODY_TIME.as_secs())))
}

async fn collect(body: Body) -> Result<Vec<u8>, ApiError> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut seen = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| ApiError::bad_json(format!("the body broke off: {error}")))?;
        seen += chunk.len();
        if seen > MOST_DRAINED {
            break;
        }
        if seen <= MOST_BODY {
            bytes.extend_from_slice(&chunk);
        }
    }
    if seen > MOST_BODY { Err(ApiError::too_large(MOST_BODY)) } else { Ok(bytes) }
}

/// The JSON of a body.
///
/// # Errors
/// What is no JSON, with the place.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::bad_json(format!("the body is no JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_a_key_may_be_in_any_case_and_nothing_else_passes() {
        assert_eq!(bearer(b"Bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer(b"bearer  abc "), Some(b"abc".as_slice()));
        for other in [b"Basic abc".as_slice(), b"Bearer", b"", b"abc"] {
            assert_eq!(bearer(other), None);
        }
    }
}
