//! Ends a pass when a server gives failures only.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rows given up in a row, after all their attempts, that count like a server out of reach.
const MOST_ROWS: u32 = 20;
/// Requests refused as malformed, without any answer, that count like a wrong configuration.
const MOST_REFUSED: u32 = 5;

/// Counts failures since the last answer.
#[derive(Debug)]
pub(super) struct Breaker {
    limit: u32,
    grace: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    transport: u32,
    is_out: bool,
    rows: u32,
    refused: u32,
    answered: Option<Instant>,
    answers: u64,
}

impl Breaker {
    pub(super) fn new(limit: u32, grace: Duration) -> Self {
        Self { limit: limit.max(1), grace, state: Mutex::default() }
    }

    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.state();
        *state = State { answered: Some(now), answers: state.answers + 1, ..State::default() };
    }

    /// Answers so far.
    pub(super) fn answers(&self) -> u64 {
        self.state().answers
    }

    /// The server spoke, though not with an answer: it is not out of reach.
    pub(super) fn spoke(&self) {
        let mut state = self.state();
        (state.transport, state.is_out) = (0, false);
    }

    /// An attempt found no server, or lost it. The number of such failures in a row if that is enough.
    pub(super) fn lost(&self, now: Instant) -> Option<u32> {
        let mut state = self.state();
        state.transport += 1;
        let in_grace = state.answered.is_some_and(|answered| now.saturating_duration_since(answered) < self.grace);
        (state.transport >= self.limit && !in_grace).then_some(state.transport)
    }

    /// An attempt found a server out of reach that has answered before. The number of failures in a row, and whether
    /// the outage begins with it; `None` if it never answered: then [`Breaker::lost`] decides.
    pub(super) fn out_of_reach(&self) -> Option<(u32, bool)> {
        let mut state = self.state();
        state.answered?;
        state.transport += 1;
        let is_first = !std::mem::replace(&mut state.is_out, true);
        Some((state.transport, is_first))
    }

    /// A row was given up after all its attempts.
    pub(super) fn gave_up(&self, now: Instant) -> Option<u32> {
        let mut state = self.state();
        state.rows += 1;
        let in_grace = state.answered.is_some_and(|answered| now.saturating_duration_since(answered) < self.grace);
        (state.rows >= MOST_ROWS && !in_grace).then_some(state.rows)
    }

    /// A request was refused as malformed. `Ok(true)` if the row is at fault, since others were answered;
    /// `Err` if it is time to stop.
    pub(super) fn refused(&self) -> Result<bool, u32> {
        let mut state = self.state();
        if state.answered.is_some() {
            return Ok(true);
        }
        state.refused += 1;
        if state.refused >= MOST_REFUSED { Err(state.refused) } else { Ok(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_never_reached_is_given_up_soon_and_a_restart_is_survived() {
        let now = Instant::now();
        let breaker = Breaker::new(3, Duration::from_mins(1));
        assert_eq!([breaker.lost(now), breaker.lost(now), breaker.lost(now)], [None, None, Some(3)]);
        breaker.answered(now);
        for _ in 0..10 {
            assert_eq!(breaker.lost(now + Duration::from_secs(59)), None);
        }
        assert_eq!(breaker.lost(now + Duration::from_mins(1)), Some(11));
    }

    #[test]
    fn a_refused_shape_is_the_rows_fault_only_once_another_was_answered() {
        let breaker = Breaker::new(3, Duration::ZERO);
        assert_eq!(breaker.refused(), Ok(false));
        breaker.answered(Instant::now());
        assert_eq!(breaker.refused(), Ok(true));
        let never = Breaker::new(3, Duration::ZERO);
        let outcomes: Vec<bool> = (0..5).map(|_| never.refused().is_err()).collect();
        assert_eq!(outcomes, [false, false, false, false, true]);
    }
}
