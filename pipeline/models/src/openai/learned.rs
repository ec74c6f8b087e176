//! The rate of a server that refuses without telling its limit: learned from what it took.
//!
//! From the end of one time of refusals to the end of the next, a server takes what it allows: all of its minute's
//! requests at once and then none, or a few each second. So requests taken in such a cycle, over its length, are the
//! rate, whatever window the server counts in. Requests go out at that rate from then on, evenly spaced. After a quiet
//! while it is raised a little, and more each time, so that a rate learned too low does not stay; a raise that is refused
//! is taken back, and the next quiet while is twice as long.
//!
//! A limit refuses what comes after the first refusal, too. Where most of that was taken, refusals have nothing to do with
//! the rate, and nothing is learned: otherwise each of them would slow requests down, for ever.

use std::time::{Duration, Instant};

/// Fewer requests taken than this say nothing of a rate.
const LEAST_TAKEN: u64 = 2;
/// The rate used, as a share of the one seen: spacing is never quite even on the way to the server.
const MARGIN: f64 = 0.99;
const FIRST_RAISE: f64 = 0.02;
/// The same after a short cycle, which says less.
const SHORT_RAISE: f64 = 0.1;
const SHORT: Duration = Duration::from_secs(10);
/// No cycle slows requests down by more; and not by more than the second if a single refusal is all that was seen of it.
const MOST_SLOWER: f64 = 0.5;
const A_LITTLE_SLOWER: f64 = 0.9;
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
    /// The refusals that are going on, if any.
    refusing: Option<Refusing>,
    known: Option<Rate>,
}

#[derive(Debug)]
struct Refusing {
    /// Number of the first request that was refused, and how many were that went out after it.
    first: u64,
    after: u64,
}

#[derive(Debug)]
struct Rate {
    a_second: f64,
    /// The rate before it was raised.
    before: Option<f64>,
    first_raise: f64,
    next: Instant,
    quiet: Duration,
    quiet_since: Instant,
    raise: f64,
}

impl Learned {
    /// When the next request may go.
    pub(super) fn ready(&mut self, now: Instant) -> Instant {
        let Some(rate) = &mut self.known else { return now };
        if self.refusing.is_none() && now.saturating_duration_since(rate.quiet_since) >= rate.quiet {
            rate.before = Some(rate.a_second);
            rate.a_second *= 1.0 + rate.raise;
            rate.raise = (rate.raise * 2.0).min(MOST_RAISE);
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

    /// The request with this number was refused.
    pub(super) fn refused(&mut self, number: u64) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(refusing) = &mut self.refusing {
            refusing.after += u64::from(number > refusing.first);
            return;
        }
        self.refusing = Some(Refusing { first: number, after: 0 });
        if let Some(rate) = &mut self.known {
            if let Some(before) = rate.before.take() {
                rate.a_second = before;
                rate.quiet = (rate.quiet * 2).min(MOST_QUIET);
            }
            rate.raise = rate.first_raise;
        }
    }

    /// The server takes requests again, the last of which has this number: ends a cycle. Gives requests a minute when they
    /// are learned for the first time.
    pub(super) fn resumed(&mut self, now: Instant, number: u64) -> Option<f64> {
        let refusing = self.refusing.take()?;
        if let Some(rate) = &mut self.known {
            rate.quiet_since = now;
        }
        // The request that found out is not counted.
        let taken_after = number.saturating_sub(refusing.first).saturating_sub(refusing.after + 1);
        let is_single = refusing.after == 0 && taken_after == 0;
        if refusing.after <= taken_after && !(is_single && self.known.is_some()) {
            return None;
        }
        let length = now.saturating_duration_since(*self.began.get_or_insert(now));
        let taken = std::mem::take(&mut self.taken);
        self.began = Some(now);
        if taken < LEAST_TAKEN || length.is_zero() {
            return None;
        }
        let counted = if (MINUTE..=LATEST).contains(&length) { MINUTE } else { length };
        let a_second = MARGIN * taken as f64 / counted.as_secs_f64();
        if let Some(rate) = &mut self.known {
            let slower = if is_single { A_LITTLE_SLOWER } else { MOST_SLOWER };
            rate.a_second = a_second.max(rate.a_second * slower);
            return None;
        }
        let first_raise = if length < SHORT { SHORT_RAISE } else { FIRST_RAISE };
        self.known = Some(Rate {
            a_second,
            before: None,
            first_raise,
            next: now,
            quiet: (length * CYCLES).clamp(LEAST_QUIET, FIRST_QUIET),
            quiet_since: now,
            raise: first_raise,
        });
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

    /// Sends so many requests, numbered from `first`.
    fn send(learned: &mut Learned, now: Instant, first: u64, count: u64) {
        (first..first + count).for_each(|_| learned.sent(now));
    }

    #[test]
    fn a_minutes_requests_taken_at_once_are_the_rate_of_a_minute() {
        let mut learned = Learned::default();
        let start = Instant::now();
        send(&mut learned, start, 1, 603);
        (601..=603).for_each(|number| learned.refused(number));
        let now = start + 63 * SECOND;
        send(&mut learned, now, 604, 1);
        let rate = learned.resumed(now, 604).unwrap();
        assert!((rate - 601.0 * MARGIN).abs() < 1e-9, "{rate}");
        assert_eq!(learned.ready(now), now);
        learned.sent(now);
        let wait = learned.ready(now) - now;
        assert!((wait.as_secs_f64() - 60.0 / rate).abs() < 0.001 + SLACK.as_secs_f64(), "{wait:?}");
    }

    #[test]
    fn a_few_a_second_are_the_same_rate() {
        let mut learned = Learned::default();
        let start = Instant::now();
        send(&mut learned, start, 1, 16);
        (11..=16).for_each(|number| learned.refused(number));
        send(&mut learned, start + SECOND, 17, 1);
        let rate = learned.resumed(start + SECOND, 17).unwrap();
        assert!((rate - 11.0 * 60.0 * MARGIN).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn a_quiet_while_raises_the_rate_more_and_more_until_it_is_refused() {
        let mut learned = Learned::default();
        let start = Instant::now();
        send(&mut learned, start, 1, 62);
        (61..=62).for_each(|number| learned.refused(number));
        learned.resumed(start + 60 * SECOND, 63);
        let rates: Vec<f64> = (2..10_u32)
            .map(|minute| {
                learned.ready(start + 60 * SECOND * minute);
                learned.known.as_ref().unwrap().a_second
            })
            .collect();
        assert!(rates.windows(2).all(|pair| pair[1] > pair[0]) && rates[0] < 1.02, "{rates:?}");
        assert!(rates[7] > 10.0, "{rates:?}");
        learned.refused(1000);
        let rate = learned.known.as_ref().unwrap();
        assert_eq!((rate.a_second, rate.quiet), (rates[6], 2 * FIRST_QUIET));
    }

    #[test]
    fn refusals_of_everything_teach_nothing() {
        let mut learned = Learned::default();
        let now = Instant::now();
        for number in 1..20 {
            learned.sent(now);
            learned.refused(number);
        }
        learned.sent(now + SECOND);
        assert_eq!(learned.resumed(now + SECOND, 20), None);
        assert_eq!(learned.ready(now), now);
    }

    #[test]
    fn refusals_that_come_at_random_do_not_slow_requests_down() {
        let mut learned = Learned::default();
        let mut now = Instant::now();
        for episode in 0..100 {
            send(&mut learned, now, 100 * episode, 100);
            learned.refused(100 * episode + 20);
            learned.refused(100 * episode + 60);
            now += SECOND;
            assert_eq!(learned.resumed(now, 100 * (episode + 1)), None);
        }
        assert_eq!(learned.ready(now), now);
        assert!(learned.known.is_none());
    }
}
