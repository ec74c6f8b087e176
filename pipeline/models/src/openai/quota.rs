//! What a server says is left of a limit, spread over the time until it is renewed.
//!
//! Waiting `reset / remaining` between requests is right for every way of counting in use. Where all is renewed at once it
//! spreads what is left to the end of the window. Where room comes back steadily, and `reset` is the time until all is
//! back, it settles at the server's rate with half of the room left. Requests sent after the one that a reply answers are
//! taken off what the reply says is left.

use std::time::{Duration, Instant};

use super::limits::Limit;

/// Longer times are quotas of a day or so: they are used up and not spread.
const MOST_SPREAD: Duration = Duration::from_mins(2);
/// A reply that took longer was counted too long ago to say what is left now.
const FRESH: Duration = Duration::from_secs(5);
/// Added to the time of renewal, since servers round it.
const GUARD: Duration = Duration::from_millis(20);
/// Places may be used so much later than planned without being lost.
const SLACK: Duration = Duration::from_millis(50);
const LEAST_WINDOW: Duration = Duration::from_secs(1);

/// What is left of one limit.
#[derive(Debug, Default)]
pub(super) struct Quota(Option<Told>);

#[derive(Debug)]
struct Told {
    left: f64,
    until: Instant,
    limit: Option<f64>,
    /// Longest time to a renewal that was told.
    window: Duration,
    /// Place of the last request.
    last: Instant,
    /// Number of the last request whose reply was looked at.
    number: u64,
}

impl Quota {
    /// Whether the server has told anything.
    pub(super) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Takes in what the reply to request `number` tells, after `latency`. `later` is what requests sent since need.
    pub(super) fn tell(&mut self, now: Instant, number: u64, latency: Duration, limit: Limit, later: f64) {
        let is_old = self.0.as_ref().is_some_and(|told| number < told.number);
        if is_old || latency > FRESH {
            return;
        }
        let window = self.0.as_ref().map_or(LEAST_WINDOW, |told| told.window).max(limit.reset);
        let last = self.0.as_ref().map_or(now, |told| told.last);
        let (left, until) = (limit.remaining - later, now + limit.reset + GUARD);
        self.0 = Some(Told { left, until, limit: limit.allowed, window, last, number });
    }

    /// When a request may go that needs `cost`. `patience` is the longest wait for a renewal.
    pub(super) fn ready(&mut self, now: Instant, cost: f64, patience: Duration) -> Instant {
        let Some(told) = &mut self.0 else { return now };
        if told.until <= now {
            told.left = told.limit.unwrap_or(f64::INFINITY);
            told.until = now + told.window;
        }
        let time = told.until - now;
        if told.left < cost.min(told.limit.unwrap_or(cost)) {
            // Beyond the patience the request may as well go and be refused: then the run ends with a reason.
            return if time > patience { now } else { told.until };
        }
        if time > MOST_SPREAD {
            return now;
        }
        told.last + Duration::try_from_secs_f64(time.as_secs_f64() * cost / told.left).unwrap_or_default()
    }

    /// A request goes out that needs `cost`.
    pub(super) fn sent(&mut self, now: Instant, cost: f64, ready: Instant) {
        if let Some(told) = &mut self.0 {
            told.left -= cost;
            told.last = ready.clamp(now.checked_sub(SLACK).unwrap_or(now), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_mins(15);
    const SECOND: Duration = Duration::from_secs(1);

    fn told(remaining: f64, reset: Duration) -> Limit {
        Limit { allowed: Some(60.0), remaining, reset }
    }

    #[test]
    fn what_is_left_is_spread_to_the_renewal() {
        let now = Instant::now();
        let mut quota = Quota::default();
        assert_eq!(quota.ready(now, 1.0, PATIENCE), now);
        quota.tell(now, 1, SECOND, told(29.0, 30 * SECOND), 0.0);
        let wait = quota.ready(now, 1.0, PATIENCE) - now;
        assert!((wait.as_secs_f64() - 30.0 / 29.0).abs() < 0.01, "{wait:?}");
        quota.tell(now, 2, SECOND, told(29.0, 30 * SECOND), 14.0);
        assert!((quota.ready(now, 1.0, PATIENCE) - now).as_secs_f64() > 1.9, "later requests are taken off");
    }

    #[test]
    fn nothing_left_waits_for_the_renewal_and_goes_on_evenly() {
        let now = Instant::now();
        let mut quota = Quota::default();
        quota.tell(now, 1, SECOND, told(0.0, 7 * SECOND), 0.0);
        let ready = quota.ready(now, 1.0, PATIENCE);
        assert_eq!(ready, now + 7 * SECOND + GUARD);
        assert!(quota.ready(ready, 1.0, PATIENCE) <= ready);
        quota.sent(ready, 1.0, ready);
        assert!(quota.ready(ready, 1.0, PATIENCE) > ready);
    }

    #[test]
    fn old_news_is_no_news() {
        let now = Instant::now();
        let mut quota = Quota::default();
        quota.tell(now, 5, SECOND, told(50.0, SECOND), 0.0);
        quota.tell(now, 4, SECOND, told(0.0, 60 * SECOND), 0.0);
        quota.tell(now, 9, 2 * FRESH, told(0.0, 60 * SECOND), 0.0);
        assert!(quota.ready(now, 1.0, PATIENCE) < now + SECOND);
    }

    #[test]
    fn a_quota_of_a_day_is_used_and_not_spread() {
        let now = Instant::now();
        let mut quota = Quota::default();
        quota.tell(now, 1, SECOND, told(10.0, SECOND * 40_000), 0.0);
        assert_eq!(quota.ready(now, 1.0, PATIENCE), now);
        quota.tell(now, 2, SECOND, told(0.0, SECOND * 40_000), 0.0);
        assert_eq!(quota.ready(now, 1.0, PATIENCE), now, "the refusal itself ends the run, with its reason");
    }
}
