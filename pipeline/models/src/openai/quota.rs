//! What a server says is left of a limit, spread over the time until it is renewed.
//!
//! Waiting `reset / remaining` between requests is right for most ways of counting. Where all is renewed at once it spreads
//! what is left to the end of the window. Where room comes back steadily, and `reset` is the time until all is back, it
//! settles at the server's rate with half of the room left. Only where the last minute is counted and `reset` is always a
//! whole minute it settles at half the rate; so as long as something is left, requests also go at the rate of the whole
//! limit a minute, and when nothing is, room comes back as our own requests grow older than a minute. Requests sent after
//! the one that a reply answers are taken off what the reply says is left.

use std::collections::VecDeque;
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
/// A time to the renewal that is the longest for so long does not run down.
const STANDING: Duration = Duration::from_secs(5);
const ROUNDED: Duration = Duration::from_secs(1);
const LEAST_WINDOW: Duration = Duration::from_secs(1);
/// Windows are at least so long where nothing else is known.
const MINUTE: Duration = Duration::from_mins(1);
/// The share of the whole limit that is used: spacing is never quite even on the way to the server.
const MARGIN: f64 = 0.985;

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
    /// Since when the time to the renewal has been the longest.
    standing: Option<Instant>,
    /// What was sent in the last window, and when.
    sent: VecDeque<(Instant, f64)>,
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
        let (left, until) = (limit.remaining - later, now + limit.reset + GUARD);
        let told = self.0.get_or_insert_with(|| Told {
            left,
            until,
            limit: None,
            window: LEAST_WINDOW,
            last: now,
            number,
            standing: None,
            sent: VecDeque::new(),
        });
        let window = told.window.max(limit.reset);
        let is_longest = limit.reset + ROUNDED >= window && limit.reset > ROUNDED;
        told.standing = told.standing.or(Some(now)).filter(|_| is_longest);
        (told.left, told.until, told.limit, told.window, told.number) = (left, until, limit.allowed, window, number);
    }

    /// When a request may go that needs `cost`. `patience` is the longest wait for a renewal.
    pub(super) fn ready(&mut self, now: Instant, cost: f64, patience: Duration) -> Instant {
        let Some(told) = &mut self.0 else { return now };
        if told.until <= now {
            told.left = told.limit.unwrap_or(f64::INFINITY);
            told.until = now + told.window;
        }
        if told.standing.is_some_and(|since| now.saturating_duration_since(since) >= STANDING) {
            told.let_age(now);
        }
        let time = told.until - now;
        if told.left < cost.min(told.limit.unwrap_or(cost)) {
            // Beyond the patience the request may as well go and be refused: then the run ends with a reason.
            return if time > patience { now } else { told.renewal() };
        }
        if time > MOST_SPREAD {
            return now;
        }
        let whole = told.limit.map_or(0.0, |limit| MARGIN * limit / told.window.max(MINUTE).as_secs_f64());
        let a_second = (told.left / time.as_secs_f64()).max(whole);
        told.last + Duration::try_from_secs_f64(cost / a_second).unwrap_or_default()
    }

    /// A request goes out that needs `cost`.
    pub(super) fn sent(&mut self, now: Instant, cost: f64, ready: Instant) {
        if let Some(told) = &mut self.0 {
            told.left -= cost;
            while told.sent.front().is_some_and(|(sent, _)| *sent + told.window + ROUNDED < now) {
                told.sent.pop_front();
            }
            told.sent.push_back((now, cost));
            told.last = ready.clamp(now.checked_sub(SLACK).unwrap_or(now), now);
        }
    }
}

impl Told {
    /// Gives back the room of requests that the server no longer counts.
    fn let_age(&mut self, now: Instant) {
        while let Some((sent, cost)) = self.sent.front().copied()
            && sent + self.window + GUARD <= now
        {
            self.left += cost;
            self.sent.pop_front();
        }
    }

    /// When there is room again.
    fn renewal(&self) -> Instant {
        let oldest = self.sent.front().filter(|_| self.standing.is_some());
        oldest.map_or(self.until, |(sent, _)| self.until.min(*sent + self.window + GUARD))
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
        quota.tell(now, 1, SECOND, told(60.0, 30 * SECOND), 0.0);
        let wait = quota.ready(now, 1.0, PATIENCE) - now;
        assert!((wait.as_secs_f64() - 0.5).abs() < 0.01, "{wait:?}");
        quota.tell(now, 2, SECOND, told(40.0, 20 * SECOND), 20.0);
        let wait = quota.ready(now, 1.0, PATIENCE) - now;
        assert!((0.9..1.1).contains(&wait.as_secs_f64()), "later requests are taken off: {wait:?}");
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
    fn a_limit_of_the_last_minute_is_used_as_a_whole() {
        let now = Instant::now();
        let mut quota = Quota::default();
        quota.tell(now, 1, SECOND, told(3.0, 60 * SECOND), 0.0);
        let wait = quota.ready(now, 1.0, PATIENCE) - now;
        assert!((wait.as_secs_f64() - 1.0 / MARGIN).abs() < 0.01, "{wait:?}");
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
