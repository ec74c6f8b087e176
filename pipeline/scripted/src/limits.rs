//! Requests and tokens allowed in a window of time, and the headers that tell.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::http::Reply;
use crate::options::{LimitHeaders, LimitWait, Limits, Window};

/// Counts what was admitted.
pub(crate) struct Limiter {
    limits: Limits,
    length: Duration,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    entries: VecDeque<(Instant, u64)>,
    tokens: u64,
    begin: Option<Instant>,
}

/// What the limiter says of one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Admission {
    pub(crate) is_admitted: bool,
    /// Until it would be admitted.
    wait: Duration,
    remaining_requests: u64,
    remaining_tokens: u64,
    /// Until nothing is used any more.
    reset: Duration,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let length = limits.window_length.unwrap_or(Duration::from_mins(1)).max(Duration::from_millis(1));
        Self { limits: limits.clone(), length, used: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.limits.requests_per_minute.is_some() || self.limits.tokens_per_minute.is_some()
    }

    /// Whether a request with that many tokens may pass now.
    pub(crate) fn admit(&self, now: Instant, tokens: u64) -> Admission {
        let most_requests = self.limits.requests_per_minute.map_or(u64::MAX, u64::from);
        let most_tokens = self.limits.tokens_per_minute.unwrap_or(u64::MAX);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget(&mut used, now);
        let requests = used.entries.len() as u64;
        let is_admitted = requests < most_requests && used.tokens.saturating_add(tokens) <= most_tokens;
        let wait = if is_admitted {
            used.entries.push_back((now, tokens));
            used.tokens += tokens;
            Duration::ZERO
        } else {
            self.wait(&used, now, most_requests, most_tokens.saturating_sub(tokens))
        };
        let last = match self.limits.window {
            Window::Sliding => used.entries.back().map(|(time, _)| *time),
            Window::Fixed => used.begin,
        };
        Admission {
            is_admitted,
            wait,
            remaining_requests: most_requests.saturating_sub(used.entries.len() as u64),
            remaining_tokens: most_tokens.saturating_sub(used.tokens),
            reset: last.map(|time| self.left(time, now)).unwrap_or_default(),
        }
    }

    fn forget(&self, used: &mut Used, now: Instant) {
        match self.limits.window {
            Window::Sliding => {
                while let Some((time, tokens)) = used.entries.front().copied() {
                    if now.duration_since(time) < self.length {
                        break;
                    }
                    used.entries.pop_front();
                    used.tokens -= tokens;
                }
            }
            Window::Fixed => {
                let begin = *used.begin.get_or_insert(now);
                let passed = now.duration_since(begin);
                if passed >= self.length {
                    let windows = passed.as_nanos() / self.length.as_nanos().max(1);
                    let windows = u32::try_from(windows).unwrap_or(u32::MAX);
                    used.begin = Some(begin + self.length.saturating_mul(windows));
                    used.entries.clear();
                    used.tokens = 0;
                }
            }
        }
    }

    /// Until fewer than `requests` and at most `tokens` are used.
    fn wait(&self, used: &Used, now: Instant, requests: u64, tokens: u64) -> Duration {
        if self.limits.window == Window::Fixed {
            return used.begin.map(|begin| self.left(begin, now)).unwrap_or_default();
        }
        let (mut left, mut left_tokens) = (used.entries.len() as u64, used.tokens);
        for (time, spent) in &used.entries {
            left -= 1;
            left_tokens -= spent;
            if left < requests && left_tokens <= tokens {
                return self.left(*time, now);
            }
        }
        self.length
    }

    fn left(&self, time: Instant, now: Instant) -> Duration {
        self.length.saturating_sub(now.duration_since(time))
    }

    /// The reply to a request that is not admitted.
    pub(crate) fn refusal(&self, admission: &Admission) -> Reply {
        let reply = Reply::error(429, "rate_limit_error", "rate_limit_exceeded", "rate limit reached; come back later");
        self.with_headers(with_wait(reply, self.limits.limit_wait, admission.wait), admission)
    }

    /// The reply with the headers that tell the limits.
    pub(crate) fn with_headers(&self, mut reply: Reply, admission: &Admission) -> Reply {
        let mut say = |name: &'static str, value: String| reply.headers.push((Cow::Borrowed(name), value));
        match self.limits.limit_headers {
            LimitHeaders::None => {}
            LimitHeaders::OpenAi => {
                if let Some(most) = self.limits.requests_per_minute {
                    say("x-ratelimit-limit-requests", most.to_string());
                    say("x-ratelimit-remaining-requests", admission.remaining_requests.to_string());
                    say("x-ratelimit-reset-requests", spelled(admission.reset));
                }
                if let Some(most) = self.limits.tokens_per_minute {
                    say("x-ratelimit-limit-tokens", most.to_string());
                    say("x-ratelimit-remaining-tokens", admission.remaining_tokens.to_string());
                    say("x-ratelimit-reset-tokens", spelled(admission.reset));
                }
            }
            LimitHeaders::Ietf => {
                if let Some(most) = self.limits.requests_per_minute {
                    say("ratelimit-limit", most.to_string());
                    say("ratelimit-remaining", admission.remaining_requests.to_string());
                    say("ratelimit-reset", whole_seconds(admission.reset).to_string());
                }
            }
        }
        reply
    }
}

/// The reply with a `Retry-After`.
pub(crate) fn with_wait(reply: Reply, shape: LimitWait, wait: Duration) -> Reply {
    let seconds = whole_seconds(wait);
    match shape {
        LimitWait::None => reply,
        LimitWait::Seconds => reply.with_header("retry-after", seconds.to_string()),
        LimitWait::Date => {
            let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds + 1));
            reply.with_header("retry-after", date)
        }
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// `12ms`, `7.25s` or `6m0s`.
fn spelled(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 {
        format!("{}m{}s", seconds / 60, seconds % 60)
    } else if seconds >= 1 {
        format!("{}s", f64::from(u32::try_from(time.as_millis()).unwrap_or(u32::MAX)) / 1000.0)
    } else {
        format!("{}ms", time.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter(window: Window, requests: Option<u32>, tokens: Option<u64>) -> Limiter {
        Limiter::new(&Limits { window, requests_per_minute: requests, tokens_per_minute: tokens, ..Limits::default() })
    }

    #[test]
    fn a_sliding_window_admits_no_more_than_allowed_in_any_stretch() {
        let limiter = limiter(Window::Sliding, Some(2), None);
        let start = Instant::now();
        let at = |seconds: u32| limiter.admit(start + SECOND * seconds, 1);
        assert!(at(0).is_admitted);
        assert!(at(30).is_admitted);
        let refused = at(40);
        assert!(!refused.is_admitted);
        assert_eq!(refused.wait, SECOND * 20);
        assert!(at(60).is_admitted);
        assert!(!at(89).is_admitted);
        assert!(at(90).is_admitted);
    }

    #[test]
    fn a_fixed_window_starts_anew() {
        let limiter = limiter(Window::Fixed, Some(2), None);
        let start = Instant::now();
        let at = |seconds: u32| limiter.admit(start + SECOND * seconds, 1);
        assert!(at(0).is_admitted && at(59).is_admitted);
        assert_eq!(at(59).wait, SECOND);
        assert!(at(60).is_admitted && at(61).is_admitted && !at(62).is_admitted);
        assert!(at(200).is_admitted);
    }

    #[test]
    fn tokens_are_limited_beside_requests() {
        let limiter = limiter(Window::Sliding, None, Some(100));
        let start = Instant::now();
        assert!(limiter.admit(start, 60).is_admitted);
        assert!(!limiter.admit(start, 50).is_admitted);
        assert!(limiter.admit(start, 40).is_admitted);
        assert!(limiter.admit(start + SECOND * 60, 100).is_admitted);
    }

    #[test]
    fn times_are_spelled_as_services_spell_them() {
        assert_eq!(spelled(Duration::from_millis(12)), "12ms");
        assert_eq!(spelled(Duration::from_millis(7250)), "7.25s");
        assert_eq!(spelled(Duration::from_mins(6)), "6m0s");
    }
}
