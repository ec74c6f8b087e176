//! One request over the network: sent, and its reply read to the end.
//!
//! Silence is limited and the whole is not: a long generation is no failure.

use std::time::{Duration, Instant, SystemTime};

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use tokio::time::timeout;

use super::ask::Server;
use super::classify::carried_status;
use super::connect;
use super::limits::{Limits, limits};
use super::stream::{Assembled, Stream};

/// No reply is longer; a guard against a server that never ends.
const MOST_BYTES: usize = 128 << 20;
/// The same for an error.
const MOST_ERROR: usize = 1 << 20;
/// After the last event of a stream its connection should end; where it does not, it is not used again.
const LAST_EVENT: Duration = Duration::from_secs(20);
/// How long to wait for the end of a connection after the last event.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Status of an error in a stream that carries none.
const SERVER_ERROR: u16 = 500;

/// A reply that was read to its end.
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    pub(super) limits: Limits,
    /// Of a streamed answer the whole, put together.
    pub(super) body: String,
    pub(super) latency: Duration,
}

impl HttpReply {
    /// Makes the reply what a stream came to.
    fn take(&mut self, assembled: Assembled) {
        match assembled {
            Assembled::Answer(body) => self.body = body,
            Assembled::Error(body) => {
                self.status = carried_status(&body).unwrap_or(SERVER_ERROR);
                self.body = body;
            }
        }
    }
}

/// No reply, or not all of it.
pub(super) enum Lost {
    /// The server was silent for too long.
    TimedOut(String),
    /// No connection: nothing was sent.
    OutOfReach(String),
    /// A broken connection.
    Broken(String),
}

impl Lost {
    pub(super) fn into_message(self) -> String {
        match self {
            Self::TimedOut(message) | Self::OutOfReach(message) | Self::Broken(message) => message,
        }
    }

    fn of(error: reqwest::Error) -> Self {
        let (timed_out, no_connection) = (error.is_timeout(), error.is_connect());
        let message = connect::chain(&error.without_url());
        match (no_connection, timed_out) {
            (true, _) => Self::OutOfReach(message),
            (false, true) => Self::TimedOut(message),
            (false, false) => Self::Broken(message),
        }
    }
}

impl Server {
    /// Sends and reads to the end.
    pub(super) async fn exchange(&self, body: Vec<u8>, max_tokens: u32) -> Result<HttpReply, Lost> {
        let started = Instant::now();
        let silence = self.silence(max_tokens);
        let send = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body).send();
        let response = timeout(silence, send)
            .await
            .map_err(|_| Lost::TimedOut(format!("no reply within {} s", silence.as_secs_f32())))?
            .map_err(Lost::of)?;
        let headers = response.headers();
        let mut reply = HttpReply {
            status: response.status().as_u16(),
            retry_after: text(headers, RETRY_AFTER.as_str()).map(str::to_owned),
            limits: limits(headers, SystemTime::now()),
            body: String::new(),
            latency: Duration::ZERO,
        };
        let is_stream = text(headers, CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("text/event-stream"));
        if is_stream && response.status().is_success() {
            let assembled = self.read_stream(response, silence).await?;
            reply.take(assembled);
        } else {
            let most = if response.status().is_success() { MOST_BYTES } else { MOST_ERROR };
            reply.body = self.read_whole(response, most).await?;
            if reply.body.starts_with("data:") && (200..300).contains(&reply.status) {
                // a stream under a wrong type
                let mut stream = Stream::default();
                stream.feed(reply.body.as_bytes()).map_err(Lost::Broken)?;
                reply.take(stream.finish().map_err(Lost::Broken)?);
            }
        }
        reply.latency = started.elapsed();
        Ok(reply)
    }

    async fn read_whole(&self, mut response: Response, most: usize) -> Result<String, Lost> {
        let expected = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(expected.min(1 << 20));
        while let Some(chunk) = self.chunk(&mut response, self.timing.idle).await? {
            if bytes.len() + chunk.len() > most {
                return Err(Lost::Broken("the reply does not end".to_owned()));
            }
            bytes.extend_from_slice(&chunk);
        }
        String::from_utf8(bytes).map_err(|_| Lost::Broken("the reply is not UTF-8".to_owned()))
    }

    /// Reads a stream. Headers may come before the server has begun: its queue is waited for once more.
    async fn read_stream(&self, mut response: Response, silence: Duration) -> Result<Assembled, Lost> {
        let mut stream = Stream::default();
        let mut length = 0;
        let mut patience = silence;
        loop {
            let chunk = match self.chunk(&mut response, patience).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // all is there but the word that it is
                Err(_) if stream.has_ended() => break,
                Err(lost) => return Err(lost),
            };
            patience = self.timing.idle;
            length += chunk.len();
            if length > MOST_BYTES {
                return Err(Lost::Broken("the stream does not end".to_owned()));
            }
            stream.feed(&chunk).map_err(Lost::Broken)?;
            if stream.has_ended() {
                patience = LAST_EVENT.min(self.timing.idle);
            }
            if stream.is_done() {
                // What is read to its end leaves a connection that can be used again.
                let _ = timeout(LAST_WAIT, response.chunk()).await;
                break;
            }
        }
        stream.finish().map_err(Lost::Broken)
    }

    async fn chunk(
        &self,
        response: &mut Response,
        patience: Duration,
    ) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]> + use<>>, Lost> {
        timeout(patience, response.chunk())
            .await
            .map_err(|_| Lost::TimedOut(format!("the reply stopped for {} s", patience.as_secs_f32())))?
            .map_err(Lost::of)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
