//! The shared wait after "too many requests".
//!
//! All requests of a model share it, so that a refusal costs one wait and not one for each request in flight. After it a
//! single request goes first: only when that was not refused do the others follow. Refusals of requests that were sent
//! before the wait began tell nothing new. No row is ever dropped for a wait.

use std::time::{Duration, Instant};

/// Seconds to wait where the server does not say, by the number of refusals without an answer in between. Limits of a
/// minute are the most common, so for the first minute the looks stay close; then the server has another trouble.
const WAITS: [u64; 14] = [1, 2, 4, 7, 7, 7, 7, 7, 7, 7, 7, 15, 30, 60];
/// A first request that was not refused for so long was taken: refusals come at once, answers may not.
const TAKEN: Duration = Duration::from_secs(1);
/// How soon to look again whether the first request was taken.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Waits that the server asked for are lengthened by up to this share, and at most by this, so that programs which share
/// a key part.
const SPREAD: f64 = 0.1;
const MOST_SPREAD: Duration = Duration::from_secs(2);

/// The wait, and what comes after it.
#[derive(Debug, Default)]
pub(super) struct CoolDown {
    began: Option<Instant>,
    until: Option<Instant>,
    trial: Trial,
    /// Refusals without an answer in between, one counted for each wait.
    step: usize,
    since: Option<Instant>,
}

/// Whether the server takes requests again.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Trial {
    /// As far as is known.
    #[default]
    Over,
    /// The next request finds out.
    Due,
    /// A request went out to find out.
    Sent(Instant),
}

/// The wait would last longer than the run's patience.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Impatient {
    pub(super) wait: Duration,
}

impl CoolDown {
    /// A request sent at `sent` was refused: begins or lengthens the wait. Gives the wait when a new one begins.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        sent: Instant,
        asked: Option<Duration>,
        patience: Duration,
        jitter: f64,
    ) -> Result<Option<Duration>, Impatient> {
        let is_waiting = self.until.is_some_and(|until| until > now);
        let is_late = self.began.is_some_and(|began| sent < began);
        if asked.is_none() && (is_waiting || is_late) {
            return Ok(None);
        }
        let is_new = !is_waiting && !is_late;
        let own = Duration::from_secs(WAITS[self.step.min(WAITS.len() - 1)]);
        if is_new {
            self.step += 1;
        }
        let wait = asked.unwrap_or(own);
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) + wait > patience {
            return Err(Impatient { wait });
        }
        if self.until.is_none_or(|until| until < now + wait) {
            let spread = asked.unwrap_or_default().mul_f64(SPREAD * jitter.clamp(0.0, 1.0)).min(MOST_SPREAD);
            self.until = Some(now + wait + spread);
        }
        if is_new {
            self.began = Some(now);
        }
        self.trial = Trial::Due;
        Ok(is_new.then_some(wait))
    }

    /// A request sent at `sent` was not refused. Whether that ends a trial.
    pub(super) fn taken(&mut self, sent: Instant) -> bool {
        if self.began.is_some_and(|began| sent < began) {
            return false;
        }
        let is_trial = self.trial != Trial::Over;
        self.trial = Trial::Over;
        self.step = 0;
        self.since = None;
        is_trial
    }

    /// How long the next request has to wait, and whether a trial has just ended well.
    pub(super) fn wait(&mut self, now: Instant) -> (Duration, bool) {
        if let Some(until) = self.until.filter(|until| *until > now) {
            return (until - now, false);
        }
        match self.trial {
            Trial::Sent(sent) if now.saturating_duration_since(sent) < TAKEN => (LOOK_AGAIN, false),
            Trial::Sent(_) => {
                self.trial = Trial::Over;
                (Duration::ZERO, true)
            }
            Trial::Due | Trial::Over => (Duration::ZERO, false),
        }
    }

    /// A request goes out.
    pub(super) fn sent(&mut self, now: Instant) {
        if self.trial == Trial::Due {
            self.trial = Trial::Sent(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_mins(15);
    const SECOND: Duration = Duration::from_secs(1);

    fn refuse(cool: &mut CoolDown, now: Instant, asked: Option<Duration>) -> Result<Option<Duration>, Impatient> {
        cool.refused(now, now, asked, PATIENCE, 0.0)
    }

    #[test]
    fn many_refusals_at_once_are_one_wait() {
        let mut cool = CoolDown::default();
        let before = Instant::now();
        let now = before + SECOND;
        assert_eq!(refuse(&mut cool, now, None), Ok(Some(SECOND)));
        for _ in 0..100 {
            assert_eq!(refuse(&mut cool, now, None), Ok(None));
        }
        assert_eq!(cool.wait(now), (SECOND, false));
        assert_eq!(cool.wait(now + SECOND), (Duration::ZERO, false));
        let late = cool.refused(now + 5 * SECOND, before, None, PATIENCE, 0.0);
        assert_eq!(late, Ok(None), "sent before the wait began");
    }

    #[test]
    fn waits_grow_until_an_answer_comes() {
        let mut cool = CoolDown::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..15 {
            let wait = refuse(&mut cool, now, None).unwrap().unwrap();
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 7, 7, 7, 7, 7, 7, 7, 7, 15, 30, 60, 60]);
        cool.taken(now);
        assert_eq!(refuse(&mut cool, now, None), Ok(Some(SECOND)));
    }

    #[test]
    fn the_wait_asked_for_is_the_wait_and_the_longest_counts() {
        let mut cool = CoolDown::default();
        let now = Instant::now();
        assert_eq!(refuse(&mut cool, now, Some(7 * SECOND)), Ok(Some(7 * SECOND)));
        refuse(&mut cool, now, Some(3 * SECOND)).unwrap();
        assert_eq!(cool.wait(now).0, 7 * SECOND);
        refuse(&mut cool, now, Some(9 * SECOND)).unwrap();
        assert_eq!(cool.wait(now).0, 9 * SECOND);
        let mut spread = CoolDown::default();
        spread.refused(now, now, Some(10 * SECOND), PATIENCE, 0.5).unwrap();
        assert_eq!(spread.wait(now).0, Duration::from_millis(10_500));
    }

    #[test]
    fn patience_ends_after_waits_without_any_answer() {
        let mut cool = CoolDown::default();
        let now = Instant::now();
        assert!(refuse(&mut cool, now, Some(500 * SECOND)).is_ok());
        let later = now + 500 * SECOND;
        assert_eq!(refuse(&mut cool, later, Some(500 * SECOND)), Err(Impatient { wait: 500 * SECOND }));
        cool.taken(later);
        assert!(refuse(&mut cool, later, Some(500 * SECOND)).is_ok());
    }

    #[test]
    fn after_a_wait_one_request_goes_first() {
        let mut cool = CoolDown::default();
        let before = Instant::now();
        let now = before + SECOND;
        refuse(&mut cool, now, None).unwrap();
        let then = now + SECOND;
        assert_eq!(cool.wait(then), (Duration::ZERO, false));
        cool.sent(then);
        assert_eq!(cool.wait(then), (LOOK_AGAIN, false));
        assert!(!cool.taken(before), "an answer to what was sent before the refusal says nothing");
        assert_eq!(cool.wait(then), (LOOK_AGAIN, false));
        assert!(cool.taken(then));
        assert_eq!(cool.wait(then), (Duration::ZERO, false));
        refuse(&mut cool, then, None).unwrap();
        cool.sent(then + SECOND);
        assert_eq!(cool.wait(then + SECOND + TAKEN), (Duration::ZERO, true), "answers may take long, refusals do not");
    }
}
