//! The rate of a server that refuses without telling its limit: learned from what it took.
//!
//! From the end of one time of refusals to the end of the next, a server takes what it allows: all of its minute's
//! requests at once and then none, or a few each second. So requests taken in such a cycle, over its length, are the
//! rate, whatever window the server counts in. Requests go out at that rate from then on, evenly spaced. After a quiet
//! while it is raised a little, and more each time, so that a rate learned too low does not stay; a raise that is refused
//! makes the next quiet while twice as long.

use std::time::{Duration, Instant};

/// Fewer requests taken than this say nothing of a rate.
const LEAST_TAKEN: u64 = 2;
/// The rate used, as a share of the one seen: spacing is never quite even on the way to the server.
const MARGIN: f64 = 0.99;
const FIRST_RAISE: f64 = 0.02;
const MOST_RAISE: f64 = 1.0;
/// Bounds of the quiet while before a raise, which begins as a few cycles.
const LEAST_QUIET: Duration = Duration::from_secs(5);
const FIRST_QUIET: Duration = Duration::from_mins(1);
const MOST_QUIET: Duration = Duration::from_mins(16);
const CYCLES: u32 = 4;
/// A cycle a little longer than a minute was one: limits of a minute are the most common, and its end is seen late.
const MINUTE: Duration = Duration::from_mins(1);
const LATEST: Duration = Duration::from_secs(72);
/// Places may be used so much later than planned without being lost.
const SLACK: Duration = Duration::from_millis(50);

/// What is known of a server's rate from its refusals.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// When the cycle began.
    began: Option<Instant>,
    /// Requests of the cycle that were not refused.
    taken: u64,
    is_refusing: bool,
    known: Option<Rate>,
}

#[derive(Debug)]
struct Rate {
    a_second: f64,
    next: Instant,
    quiet: Duration,
    quiet_since: Instant,
    raise: f64,
    is_raised: bool,
}

impl Learned {
    /// When the next request may go.
    pub(super) fn ready(&mut self, now: Instant) -> Instant {
        let Some(rate) = &mut self.known else { return now };
        if !self.is_refusing && now.saturating_duration_since(rate.quiet_since) >= rate.quiet {
            rate.a_second *= 1.0 + rate.raise;
            rate.raise = (rate.raise * 2.0).min(MOST_RAISE);
            rate.is_raised = true;
            rate.quiet_since = now;
        }
        rate.next
    }

    /// A request goes out.
    pub(super) fn sent(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        self.taken += 1;
        if let Some(rate) = &mut self.known {
            let from = rate.next.max(now.checked_sub(SLACK).unwrap_or(now));
            rate.next = from + Duration::try_from_secs_f64(1.0 / rate.a_second).unwrap_or(MOST_QUIET);
        }
    }

    /// A request was refused.
    pub(super) fn refused(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        if self.is_refusing {
            return;
        }
        self.is_refusing = true;
        if let Some(rate) = &mut self.known {
            if rate.is_raised {
                rate.quiet = (rate.quiet * 2).min(MOST_QUIET);
            }
            rate.raise = FIRST_RAISE;
            rate.is_raised = false;
        }
    }

    /// The server takes requests again: ends a cycle. Gives requests a minute when they are learned for the first time.
    pub(super) fn resumed(&mut self, now: Instant) -> Option<f64> {
        if !self.is_refusing {
            return None;
        }
        self.is_refusing = false;
        let length = now.saturating_duration_since(*self.began.get_or_insert(now));
        let taken = std::mem::take(&mut self.taken);
        self.began = Some(now);
        if taken < LEAST_TAKEN || length.is_zero() {
            return None;
        }
        let counted = if (MINUTE..=LATEST).contains(&length) { MINUTE } else { length };
        let a_second = MARGIN * taken as f64 / counted.as_secs_f64();
        if let Some(rate) = &mut self.known {
            rate.a_second = a_second;
            rate.quiet_since = now;
            return None;
        }
        let quiet = (length * CYCLES).clamp(LEAST_QUIET, FIRST_QUIET);
        self.known = Some(Rate { a_second, next: now, quiet, quiet_since: now, raise: FIRST_RAISE, is_raised: false });
        Some(a_second * 60.0)
    }

    /// Forgets the rate: the server tells its limits itself.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_minutes_requests_taken_at_once_are_the_rate_of_a_minute() {
        let mut learned = Learned::default();
        let start = Instant::now();
        (0..600).for_each(|_| learned.sent(start));
        learned.sent(start + SECOND);
        learned.refused();
        learned.sent(start + 63 * SECOND);
        let rate = learned.resumed(start + 63 * SECOND).unwrap();
        assert!((rate - 601.0 * MARGIN).abs() < 1e-9, "{rate}");
        let now = start + 63 * SECOND;
        assert_eq!(learned.ready(now), now);
        learned.sent(now);
        let wait = learned.ready(now) - now;
        assert!((wait.as_secs_f64() - 60.0 / rate).abs() < 0.001 + SLACK.as_secs_f64(), "{wait:?}");
    }

    #[test]
    fn a_few_a_second_are_the_same_rate() {
        let mut learned = Learned::default();
        let start = Instant::now();
        (0..10).for_each(|_| learned.sent(start));
        learned.refused();
        let rate = learned.resumed(start + SECOND).unwrap();
        assert!((rate - 9.0 * 60.0 * MARGIN).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn a_quiet_while_raises_the_rate_more_and_more() {
        let mut learned = Learned::default();
        let start = Instant::now();
        (0..61).for_each(|_| learned.sent(start));
        learned.refused();
        learned.resumed(start + 60 * SECOND);
        let rates: Vec<f64> = (2..10_u32)
            .map(|minute| {
                learned.ready(start + 60 * SECOND * minute);
                learned.known.as_ref().unwrap().a_second
            })
            .collect();
        assert!(rates.windows(2).all(|pair| pair[1] > pair[0]) && rates[0] < 1.02, "{rates:?}");
        assert!(rates[7] > 10.0, "{rates:?}");
        learned.refused();
        assert_eq!(learned.known.as_ref().unwrap().quiet, 2 * FIRST_QUIET);
    }

    #[test]
    fn refusals_of_everything_teach_nothing() {
        let mut learned = Learned::default();
        let now = Instant::now();
        for _ in 0..20 {
            learned.sent(now);
            learned.refused();
        }
        learned.sent(now + SECOND);
        assert_eq!(learned.resumed(now + SECOND), None);
        assert_eq!(learned.ready(now), now);
    }
}
