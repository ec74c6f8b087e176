//! When the next request may go out: one shared wait after "too many requests", and rates a minute.
//!
//! All requests of a model share one cool-down, so that a refusal costs one wait and not one for each
//! request in flight; after it they start spread out. No row is ever dropped for it. All functions
//! take the time as an argument, so that the rules can be tested without waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const FIRST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_mins(1);
const MOST_SPREAD: Duration = Duration::from_secs(2);
/// Rates may be used ahead by this much, so that a pause does not waste them.
const BURST: Duration = Duration::from_secs(1);

/// The shared wait after a refusal.
#[derive(Debug, Default)]
pub(super) struct CoolDown(Mutex<Cooling>);

#[derive(Debug, Default)]
struct Cooling {
    until: Option<Instant>,
    spread: Duration,
    /// Refusals without an answer in between, one counted for each wait.
    step: u32,
    since: Option<Instant>,
}

/// The wait would last longer than the run's patience.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Impatient {
    pub(super) wait: Duration,
}

impl CoolDown {
    /// A request was refused: begins or lengthens the wait. Gives the wait when a new one begins.
    pub(super) fn refused(
        &self,
        now: Instant,
        asked: Option<Duration>,
        patience: Duration,
    ) -> Result<Option<Duration>, Impatient> {
        let mut cooling = self.state();
        let is_new = cooling.until.is_none_or(|until| until <= now);
        if is_new {
            cooling.step += 1;
        }
        let own = FIRST_WAIT.saturating_mul(1 << (cooling.step.clamp(1, 7) - 1)).min(MOST_WAIT);
        let wait = asked.unwrap_or(if is_new { own } else { Duration::ZERO });
        let since = *cooling.since.get_or_insert(now);
        if now.saturating_duration_since(since) + wait > patience {
            return Err(Impatient { wait });
        }
        let until = now + wait;
        if cooling.until.is_none_or(|known| known < until) {
            cooling.until = Some(until);
            cooling.spread = (wait / 4).min(MOST_SPREAD);
        }
        Ok(is_new.then_some(wait))
    }

    /// A request was answered: the server takes requests again.
    pub(super) fn answered(&self) {
        let mut cooling = self.state();
        cooling.step = 0;
        cooling.since = None;
    }

    /// How long a request has to wait now; `jitter` in [0, 1) spreads requests after the wait.
    pub(super) fn wait(&self, now: Instant, jitter: f64) -> Duration {
        let cooling = self.state();
        match cooling.until {
            Some(until) if until > now => until - now + cooling.spread.mul_f64(jitter.clamp(0.0, 1.0)),
            _ => Duration::ZERO,
        }
    }

    fn state(&self) -> MutexGuard<'_, Cooling> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests and tokens a minute, evenly spaced.
#[derive(Debug)]
pub(super) struct Pace {
    a_request: Option<Duration>,
    a_token: Option<Duration>,
    state: Mutex<PaceState>,
}

#[derive(Debug)]
struct PaceState {
    next_request: Instant,
    next_tokens: Instant,
    answers: u64,
    tokens: u64,
}

/// What a request was taken to need, to be corrected by what it did need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    tokens: u64,
}

impl Pace {
    pub(super) fn new(requests: Option<u32>, tokens: Option<u32>, now: Instant) -> Self {
        let interval = |rate: u32| Duration::from_mins(1).div_f64(f64::from(rate.max(1)));
        Self {
            a_request: requests.map(interval),
            a_token: tokens.map(interval),
            state: Mutex::new(PaceState { next_request: now, next_tokens: now, answers: 0, tokens: 0 }),
        }
    }

    /// Takes the next place: how long to wait for it. The tokens of a request are guessed from the mean of
    /// those before it, at first from `most`.
    pub(super) fn take(&self, now: Instant, most: u64) -> (Duration, Taken) {
        let mut state = self.state();
        let mean = state.tokens.checked_div(state.answers);
        let tokens = mean.map_or(most, |mean| mean.min(most));
        let request = self.a_request.map_or(now, |interval| {
            let place = state.next_request.max(now);
            state.next_request = place + interval;
            place
        });
        let token = self.a_token.map_or(now, |interval| {
            // A time in the past is room that was left unused, up to the burst.
            let place = state.next_tokens.max(now.checked_sub(BURST).unwrap_or(now));
            state.next_tokens = place + times(interval, tokens);
            place
        });
        (request.max(token).saturating_duration_since(now), Taken { tokens })
    }

    /// Corrects a guess by what the request needed.
    pub(super) fn correct(&self, taken: Taken, tokens: u64) {
        let mut state = self.state();
        state.answers += 1;
        state.tokens += tokens;
        if let Some(interval) = self.a_token {
            let correction = times(interval, tokens.abs_diff(taken.tokens));
            state.next_tokens = if tokens >= taken.tokens {
                state.next_tokens + correction
            } else {
                state.next_tokens.checked_sub(correction).unwrap_or(state.next_tokens)
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, PaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_mins(15);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn many_refusals_at_once_are_one_wait() {
        let cool = CoolDown::default();
        let now = Instant::now();
        assert_eq!(cool.refused(now, None, PATIENCE), Ok(Some(SECOND)));
        for _ in 0..100 {
            assert_eq!(cool.refused(now, None, PATIENCE), Ok(None));
        }
        assert_eq!(cool.wait(now, 0.0), SECOND);
        assert_eq!(cool.wait(now + SECOND, 0.9), Duration::ZERO);
    }

    #[test]
    fn waits_double_until_an_answer_comes() {
        let cool = CoolDown::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = cool.refused(now, None, PATIENCE).unwrap().unwrap();
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        cool.answered();
        assert_eq!(cool.refused(now, None, PATIENCE), Ok(Some(SECOND)));
    }

    #[test]
    fn the_wait_asked_for_is_the_wait_and_the_longest_counts() {
        let cool = CoolDown::default();
        let now = Instant::now();
        assert_eq!(cool.refused(now, Some(7 * SECOND), PATIENCE), Ok(Some(7 * SECOND)));
        cool.refused(now, Some(3 * SECOND), PATIENCE).unwrap();
        assert_eq!(cool.wait(now, 0.0), 7 * SECOND);
        cool.refused(now, Some(9 * SECOND), PATIENCE).unwrap();
        assert_eq!(cool.wait(now, 0.0), 9 * SECOND);
        assert!(cool.wait(now, 0.5) > 9 * SECOND);
    }

    #[test]
    fn patience_ends_after_waits_without_any_answer() {
        let cool = CoolDown::default();
        let now = Instant::now();
        assert!(cool.refused(now, Some(500 * SECOND), PATIENCE).is_ok());
        let later = now + 500 * SECOND;
        assert_eq!(cool.refused(later, Some(500 * SECOND), PATIENCE), Err(Impatient { wait: 500 * SECOND }));
        cool.answered();
        assert!(cool.refused(later, Some(500 * SECOND), PATIENCE).is_ok());
    }

    #[test]
    fn requests_a_minute_are_evenly_spaced() {
        let now = Instant::now();
        let pace = Pace::new(Some(120), None, now);
        let waits: Vec<u128> = (0..4).map(|_| pace.take(now, 10).0.as_millis()).collect();
        assert_eq!(waits, [0, 500, 1000, 1500]);
        assert_eq!(pace.take(now + 60 * SECOND, 10).0, Duration::ZERO);
    }

    #[test]
    fn tokens_a_minute_follow_what_requests_really_need() {
        let now = Instant::now();
        let pace = Pace::new(None, Some(60), now);
        let (wait, taken) = pace.take(now, 10);
        assert_eq!(wait, Duration::ZERO);
        pace.correct(taken, 4);
        assert_eq!(pace.take(now, 10).0, 4 * SECOND);
        assert_eq!(pace.take(now, 10).0, 8 * SECOND, "the mean is 4 now");
    }

    #[test]
    fn without_rates_nothing_waits() {
        let now = Instant::now();
        let pace = Pace::new(None, None, now);
        for _ in 0..1000 {
            assert_eq!(pace.take(now, 1 << 40).0, Duration::ZERO);
        }
    }

    proptest! {
        #[test]
        fn jitter_stays_below_one(key in any::<[u8; 32]>(), attempt in any::<u32>()) {
            prop_assert!((0.0..1.0).contains(&jitter(&key, attempt)));
        }
    }
}
