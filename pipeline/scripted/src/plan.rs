//! What is sent, when and how; and the faults that a plan can have.

use std::borrow::Cow;
use std::time::Duration;

use crate::fault::Fault;
use crate::http::{Body, Reply, Request};
use crate::limits::with_wait;
use crate::options::LimitWait;
use crate::service::Service;

/// What happens to one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) delay: Duration,
    pub(crate) reply: Reply,
    pub(crate) delivery: Delivery,
    /// Wait between the events of a stream.
    pub(crate) pace: Duration,
    /// Whether the client then has an answer in hands.
    pub(crate) is_answer: bool,
}

/// How a reply goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Delivery {
    Whole,
    /// In drops, over that time.
    Drip(Duration),
    /// Half of it, then the end of the connection.
    Half {
        resets: bool,
    },
    /// Nothing: the connection is reset.
    Reset,
    /// Nothing, for that time or until the client goes.
    Hang(Option<Duration>),
}

impl Plan {
    pub(crate) fn of(reply: Reply, delay: Duration) -> Self {
        let is_answer = reply.status == 200;
        Self { delay, reply, delivery: Delivery::Whole, pace: Duration::ZERO, is_answer }
    }
}

impl Service {
    /// The plan of a fault that comes instead of an answer.
    pub(crate) fn instead(&self, request: &Request, fault: Fault, delay: Duration) -> Option<Plan> {
        let wait = Duration::from_secs(u64::from(self.options.faults.retry_after.unwrap_or(1)));
        let limited = |shape| {
            let reply = self.error(request, 429, "rate_limit_error", "rate_limit_exceeded", "too many requests");
            Plan::of(with_wait(reply, shape, wait), Duration::ZERO)
        };
        let failed =
            |status, message| Plan::of(self.error(request, status, "server_error", "server_error", message), delay);
        let closed = |delivery| Plan { delivery, is_answer: false, ..Plan::of(Reply::json(200, ""), delay) };
        Some(match fault {
            Fault::RateLimited => limited(LimitWait::None),
            Fault::RateLimitedSeconds => limited(LimitWait::Seconds),
            Fault::RateLimitedDate => limited(LimitWait::Date),
            Fault::Error500 => failed(500, "the server had an error"),
            Fault::Error502 => Plan::of(page(502, "502 Bad Gateway"), delay),
            Fault::Error503 => failed(503, "the server is loading the model"),
            Fault::Error503Wait => {
                let mut plan = failed(503, "the server is busy");
                plan.reply = with_wait(plan.reply, LimitWait::Seconds, wait);
                plan
            }
            Fault::Error529 => failed(529, "overloaded"),
            Fault::Reset => closed(Delivery::Reset),
            Fault::Hang => closed(Delivery::Hang(self.options.latency.hang_for)),
            _ => return None,
        })
    }

    /// The plan of an answer with a fault in it.
    pub(crate) fn spoiled(&self, mut plan: Plan, fault: Fault, request: &Request) -> Plan {
        plan.is_answer &= fault.is_answer();
        match fault {
            Fault::CutBody => plan.delivery = Delivery::Half { resets: false },
            Fault::ResetBody => plan.delivery = Delivery::Half { resets: true },
            Fault::Drip => {
                let over = self.options.latency.drip_over.unwrap_or(Duration::from_secs(2));
                plan.delivery = Delivery::Drip(over);
            }
            Fault::CutJson => match &mut plan.reply.body {
                Body::Whole(body) => body.truncate(body.len() * 2 / 3),
                Body::Events(events) => {
                    events.truncate(events.len().div_ceil(2));
                    if let Some(last) = events.last_mut() {
                        last.truncate(last.len() * 2 / 3);
                    }
                }
            },
            Fault::ErrorIn200 => {
                let error = self.error(request, 200, "server_error", "server_error", "the engine stopped");
                match (&mut plan.reply.body, error.body) {
                    (Body::Events(events), Body::Whole(error)) => {
                        events.truncate(events.len().min(3));
                        events.push([b"data: ", error.as_slice(), b"\n\n"].concat());
                    }
                    (body, error) => *body = error,
                }
            }
            Fault::Html => plan.reply = page(200, "Please sign in to the network"),
            Fault::WrongType => plan.reply.content_type = Cow::Borrowed("text/plain"),
            Fault::NoChoices => {
                plan.reply = Reply::json(200, r#"{"id":"chatcmpl-0","object":"chat.completion","choices":[]}"#);
            }
            _ => {}
        }
        plan
    }
}

fn page(status: u16, words: &str) -> Reply {
    let mut reply =
        Reply::json(status, format!("<html><head><title>{words}</title></head><body><h1>{words}</h1></body></html>\n"));
    reply.content_type = Cow::Borrowed("text/html");
    reply
}
