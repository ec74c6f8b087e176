//! When the next request may go out.
//!
//! Four things decide, and the latest of their times counts: the shared wait after a refusal ([`CoolDown`]), the rates of
//! the configuration, what the server says is left ([`Quota`]), and the rate it was seen to take ([`Learned`]). Requests
//! stand in one queue and the first of them looks at the clock, so that news reaches all that wait. All rules take the
//! time as an argument, so that they can be tested without waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cool::{CoolDown, Impatient};
use super::learned::Learned;
use super::limits::Limits;
use super::quota::Quota;

/// Rates may be used ahead by this much, so that a pause does not waste them.
const BURST: Duration = Duration::from_secs(1);
/// The same for requests: just enough that a late timer costs nothing.
const SLACK: Duration = Duration::from_millis(50);
/// The share of a configured rate that is used: spacing is never quite even on the way to the server.
const MARGIN: f64 = 0.985;
/// The first of the queue looks again after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// No request waits longer for tokens.
const MOST_WAIT: Duration = Duration::from_mins(10);

/// The rules of one model, and the queue of requests.
#[derive(Debug)]
pub(super) struct Pace {
    a_request: Option<Duration>,
    a_token: Option<Duration>,
    patience: Duration,
    state: Mutex<State>,
    queue: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    cool: CoolDown,
    learned: Learned,
    requests: Quota,
    tokens: Quota,
    next_request: Instant,
    next_tokens: Instant,
    /// Requests sent.
    number: u64,
    /// Answers, and what they needed in all.
    answers: u64,
    needed: u64,
}

/// A request's place in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// What it was taken to need, to be corrected by what it did need.
    tokens: u64,
    number: u64,
    sent: Instant,
}

impl Pace {
    /// Requests and tokens a minute as the configuration has them; `patience` is the longest time without an answer.
    pub(super) fn new(requests: Option<u32>, tokens: Option<u32>, patience: Duration, now: Instant) -> Self {
        let interval = |rate: u32| Duration::from_mins(1).div_f64(f64::from(rate.max(1)) * MARGIN);
        Self {
            a_request: requests.map(interval),
            a_token: tokens.map(interval),
            patience,
            state: Mutex::new(State {
                cool: CoolDown::default(),
                learned: Learned::default(),
                requests: Quota::default(),
                tokens: Quota::default(),
                next_request: now,
                next_tokens: now,
                number: 0,
                answers: 0,
                needed: 0,
            }),
            queue: tokio::sync::Mutex::new(()),
        }
    }

    /// Waits for the next place. `most` is what the request needs at most.
    pub(super) async fn turn(&self, most: u64) -> Taken {
        let _first = self.queue.lock().await;
        loop {
            match self.try_take(Instant::now(), most) {
                Ok(taken) => return taken,
                Err(wait) => tokio::time::sleep(wait.min(LOOK_AGAIN)).await,
            }
        }
    }

    /// Takes the next place, or says how long to wait for it. The tokens of a request are guessed from the mean of those
    /// before it, at first from `most`.
    pub(super) fn try_take(&self, now: Instant, most: u64) -> Result<Taken, Duration> {
        let mut state = self.state();
        let (wait, is_over) = state.cool.wait(now);
        if is_over {
            let number = state.number;
            state.learned.resumed(now, number);
        }
        if !wait.is_zero() {
            return Err(wait);
        }
        let mean = state.needed.checked_div(state.answers);
        let tokens = mean.map_or(most, |mean| mean.min(most));
        let mut ready = state.learned.ready(now);
        if self.a_request.is_some() {
            ready = ready.max(state.next_request);
        }
        if self.a_token.is_some() {
            ready = ready.max(state.next_tokens);
        }
        let of_requests = state.requests.ready(now, 1.0, self.patience);
        let of_tokens = state.tokens.ready(now, tokens as f64, self.patience);
        ready = ready.max(of_requests).max(of_tokens);
        if ready > now {
            return Err(ready - now);
        }
        if let Some(interval) = self.a_request {
            state.next_request = late(state.next_request, now, SLACK) + interval;
        }
        if let Some(interval) = self.a_token {
            state.next_tokens = late(state.next_tokens, now, BURST) + times(interval, tokens);
        }
        state.requests.sent(now, 1.0, of_requests);
        state.tokens.sent(now, tokens as f64, of_tokens);
        state.learned.sent(now);
        state.cool.sent(now);
        state.number += 1;
        Ok(Taken { tokens, number: state.number, sent: now })
    }

    /// The server did not refuse a request. Requests a minute, when they were learned by it for the first time.
    pub(super) fn taken(&self, now: Instant, taken: Taken) -> Option<f64> {
        let mut state = self.state();
        let is_over = state.cool.taken(taken.sent);
        let number = state.number;
        is_over.then(|| state.learned.resumed(now, number))?
    }

    /// Corrects a guess by what the request needed.
    pub(super) fn correct(&self, taken: Taken, tokens: u64) {
        let mut state = self.state();
        state.answers += 1;
        state.needed += tokens;
        if let Some(interval) = self.a_token {
            let correction = times(interval, tokens.abs_diff(taken.tokens));
            state.next_tokens = if tokens >= taken.tokens {
                state.next_tokens + correction
            } else {
                state.next_tokens.checked_sub(correction).unwrap_or(state.next_tokens)
            };
        }
    }

    /// The server refused a request, and may have asked to wait. Gives the wait when a new one begins.
    pub(super) fn refused(
        &self,
        now: Instant,
        taken: Taken,
        asked: Option<Duration>,
        jitter: f64,
    ) -> Result<Option<Duration>, Impatient> {
        let mut state = self.state();
        if state.requests.is_known() {
            state.learned.forget();
        } else {
            state.learned.refused(taken.number);
        }
        state.cool.refused(now, taken.sent, asked, self.patience, jitter)
    }

    /// The server was out of reach: all wait, as after a refusal, and nothing is learned of its limits. `patience` is
    /// the longest time that it may be so.
    pub(super) fn out_of_reach(&self, now: Instant, taken: Taken, patience: Duration) -> Result<(), Impatient> {
        self.state().cool.refused(now, taken.sent, None, patience, 0.0).map(drop)
    }

    /// Takes in what the reply to a request says of the limits.
    pub(super) fn tell(&self, now: Instant, taken: Taken, limits: &Limits) {
        if limits.is_empty() {
            return;
        }
        let mut state = self.state();
        let latency = now.saturating_duration_since(taken.sent);
        let later = (state.number - taken.number) as f64;
        let each = state.needed.checked_div(state.answers).unwrap_or(taken.tokens);
        if let Some(limit) = limits.requests {
            state.requests.tell(now, taken.number, latency, limit, later);
        }
        if let Some(limit) = limits.tokens {
            state.tokens.tell(now, taken.number, latency, limit, later * each as f64);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The planned place, or one that is no further in the past than `slack`.
fn late(planned: Instant, now: Instant, slack: Duration) -> Instant {
    planned.max(now.checked_sub(slack).unwrap_or(now))
}

fn times(interval: Duration, count: u64) -> Duration {
    Duration::try_from_secs_f64(interval.as_secs_f64() * count as f64).unwrap_or(MOST_WAIT)
}

/// A number in [0, 1) from a key and an attempt: jitter without a source of randomness.
pub(super) fn jitter(key: &[u8; 32], attempt: u32) -> f64 {
    let mixed = xxhash_rust::xxh3::xxh3_64_with_seed(key, u64::from(attempt));
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod simulated;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_mins(15);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_a_minute_are_evenly_spaced() {
        let mut now = Instant::now();
        let start = now;
        let pace = Pace::new(Some(120), None, PATIENCE, now);
        let mut places = Vec::new();
        while places.len() < 5 {
            match pace.try_take(now, 10) {
                Ok(_) => places.push((now - start).as_millis()),
                Err(wait) => now += wait,
            }
        }
        assert_eq!(places, [0, 507, 1015, 1522, 2030]);
        now += 60 * SECOND;
        assert!(pace.try_take(now, 10).is_ok());
        assert!(pace.try_take(now, 10).is_err(), "a pause is no reason for a burst");
    }

    #[test]
    fn tokens_a_minute_follow_what_requests_really_need() {
        let now = Instant::now();
        let pace = Pace::new(None, Some(60), PATIENCE, now);
        let taken = pace.try_take(now, 10).unwrap();
        pace.correct(taken, 4);
        let wait = pace.try_take(now, 10).unwrap_err();
        assert!((wait.as_secs_f64() - 4.0 / MARGIN).abs() < 1e-6, "{wait:?}");
        pace.try_take(now + wait, 10).unwrap();
        let next = pace.try_take(now + wait, 10).unwrap_err();
        assert!(next < wait + SECOND, "the mean is 4 now: {next:?}");
    }

    #[test]
    fn without_rates_nothing_waits() {
        let now = Instant::now();
        let pace = Pace::new(None, None, PATIENCE, now);
        for _ in 0..1000 {
            assert!(pace.try_take(now, 1 << 40).is_ok());
        }
    }

    proptest! {
        #[test]
        fn jitter_stays_below_one(key in any::<[u8; 32]>(), attempt in any::<u32>()) {
            prop_assert!((0.0..1.0).contains(&jitter(&key, attempt)));
        }
    }
}
