//! One connection: requests in, replies out, or whatever goes wrong instead.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::counts::{Counts, Ending};
use crate::draw::hash_of;
use crate::http::{Body, Inbox, LAST_CHUNK, Reply, Request, chunk};
use crate::plan::{Delivery, Plan};
use crate::service::{Service, bare};

/// Parts of a body that drips.
const DROPS: u32 = 20;

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: TcpStream, service: Arc<Service>) {
    let _ = stream.set_nodelay(true);
    service.counts.connected();
    let mut connection = Connection { stream, inbox: Inbox::default(), service };
    loop {
        match connection.inbox.request(&mut connection.stream).await {
            Ok(Some(request)) => {
                if !connection.exchange(&request).await || request.closes {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let reply = Reply::error(400, "invalid_request_error", "bad_request", &error.to_string());
                let _ = connection.stream.write_all(&bytes_of(&reply)).await;
                return;
            }
            Ok(None) | Err(_) => return,
        }
    }
}

struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    service: Arc<Service>,
}

/// Counts a chat request as in flight; it leaves once.
struct InFlight<'a> {
    counts: &'a Counts,
    is_gone: bool,
}

impl InFlight<'_> {
    fn leave(&mut self) {
        if !self.is_gone {
            self.is_gone = true;
            self.counts.leave();
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The client closed the connection.
struct Gone;

impl Connection {
    /// Answers one request; says whether the connection goes on.
    async fn exchange(&mut self, request: &Request) -> bool {
        let service = Arc::clone(&self.service);
        let path = bare(&request.path);
        match (request.method.as_str(), path) {
            ("GET", "/stats") => {
                let stats = serde_json::to_vec(&service.counts.stats()).unwrap_or_default();
                self.stream.write_all(&bytes_of(&Reply::json(200, stats))).await.is_ok()
            }
            ("GET", "/health") => {
                self.stream.write_all(&bytes_of(&Reply::json(200, r#"{"status":"ok"}"#))).await.is_ok()
            }
            ("POST", "/chat/completions") => self.chat(&service, request).await,
            _ => {
                let plan = service.other(request);
                let sends = matches!(plan.delivery, Delivery::Whole | Delivery::Drip(_));
                if sends {
                    service.counts.other_status(plan.reply.status);
                }
                self.deliver(&plan, || {}).await.is_ok() && sends
            }
        }
    }

    async fn chat(&mut self, service: &Service, request: &Request) -> bool {
        let hash = hash_of(bare(&request.path), &request.body);
        let counts = &service.counts;
        let arrival = counts.arrive(hash);
        let mut in_flight = InFlight { counts, is_gone: false };
        let place = match &service.places {
            None => None,
            Some(places) => {
                let Ok(place) = self.unless_gone(places.acquire()).await else {
                    in_flight.leave();
                    counts.end(hash, Ending::Aborted);
                    return false;
                };
                place.ok()
            }
        };
        let plan = service.chat(request, hash, &arrival);
        let ending = match plan.delivery {
            Delivery::Whole | Delivery::Drip(_) => {
                Ending::Sent { status: plan.reply.status, is_answer: plan.is_answer }
            }
            _ => Ending::Closed,
        };
        // counted before the last bytes go: who reads the answer finds it in the counts
        let mut counted = None;
        let delivered = self
            .deliver(&plan, || {
                in_flight.leave();
                counted = Some(counts.end(hash, ending));
            })
            .await;
        drop(place);
        if delivered.is_err() {
            if let Some(is_new) = counted {
                counts.undo(hash, ending, is_new);
            }
            in_flight.leave();
            counts.end(hash, Ending::Aborted);
        }
        delivered.is_ok() && ending != Ending::Closed
    }

    /// Carries a plan out. `before_last` is called once, right before the last bytes, or the end of the connection.
    async fn deliver(&mut self, plan: &Plan, mut before_last: impl FnMut()) -> Result<(), Gone> {
        if !plan.delay.is_zero() {
            self.unless_gone(sleep(plan.delay)).await?;
        }
        match plan.delivery {
            Delivery::Whole => match &plan.reply.body {
                Body::Events(events) if !plan.pace.is_zero() => self.paced(plan, events, before_last).await,
                _ => {
                    before_last();
                    self.write(&bytes_of(&plan.reply)).await
                }
            },
            Delivery::Drip(over) => {
                let bytes = bytes_of(&plan.reply);
                let size = bytes.len().div_ceil(DROPS as usize).max(1);
                let drops: Vec<&[u8]> = bytes.chunks(size).collect();
                for (place, drop) in drops.iter().enumerate() {
                    self.unless_gone(sleep(over / DROPS)).await?;
                    if place + 1 == drops.len() {
                        before_last();
                    }
                    self.write(drop).await?;
                }
                Ok(())
            }
            Delivery::Half { resets } => {
                let head = plan.reply.head().len();
                let bytes = bytes_of(&plan.reply);
                self.write(&bytes[..head + (bytes.len() - head) / 2]).await?;
                before_last();
                self.close(resets).await;
                Ok(())
            }
            Delivery::Reset => {
                before_last();
                self.close(true).await;
                Ok(())
            }
            Delivery::Hang(time) => {
                match time {
                    Some(time) => self.unless_gone(sleep(time)).await?,
                    None => self.unless_gone(std::future::pending::<()>()).await?,
                }
                before_last();
                self.close(false).await;
                Ok(())
            }
        }
    }

    /// A stream event by event.
    async fn paced(&mut self, plan: &Plan, events: &[Vec<u8>], mut before_last: impl FnMut()) -> Result<(), Gone> {
        self.write(&plan.reply.head()).await?;
        for (place, event) in events.iter().enumerate() {
            let mut bytes = chunk(event);
            if place + 1 == events.len() {
                bytes.extend_from_slice(LAST_CHUNK);
                before_last();
            }
            self.write(&bytes).await?;
            if place + 1 < events.len() {
                self.unless_gone(sleep(plan.pace)).await?;
            }
        }
        Ok(())
    }

    /// Waits for something, or for the client to go.
    async fn unless_gone<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, Gone> {
        tokio::select! {
            biased;
            done = wait => Ok(done),
            () = self.inbox.gone(&self.stream) => Err(Gone),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.stream.write_all(bytes).await.map_err(|_| Gone)
    }

    /// Ends the connection, in an orderly way or not.
    async fn close(&mut self, resets: bool) {
        if resets {
            // what was sent must arrive before the reset, which would overtake it
            sleep(Duration::from_millis(1)).await;
            let _ = self.stream.set_zero_linger();
        } else {
            let _ = self.stream.shutdown().await;
        }
    }
}

/// A reply as it goes over the wire.
fn bytes_of(reply: &Reply) -> Vec<u8> {
    let mut bytes = reply.head();
    match &reply.body {
        Body::Whole(body) => bytes.extend_from_slice(body),
        Body::Events(events) => {
            for event in events {
                bytes.extend(chunk(event));
            }
            bytes.extend_from_slice(LAST_CHUNK);
        }
    }
    bytes
}
