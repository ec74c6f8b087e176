//! How many requests may be in flight: found by trying, like the window of a transport protocol.
//!
//! It starts small and doubles with each round of answers (slow start) until the server refuses or it is as large as the
//! configuration allows. A refusal (429, 503, 529) or a time-out takes a third of it, once for each round trip: refusals
//! of requests that were sent before the last cut tell nothing new. From then on it grows by a small step a round. Long
//! generations answer late, so a second with a full window and without any refusal counts as a round of answers: servers
//! that refuse do so at once. Time is an argument, so that the rules can be tested without waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests in flight at the start.
const START: usize = 16;
/// Share of the window that is left after a refusal.
const CUT: f64 = 0.65;
/// After slow start a round of answers adds one part in so many of the most allowed, and at least one.
const STEPS: usize = 32;
/// A full window without a refusal for so long has been taken by the server.
const ROUND: Duration = Duration::from_secs(1);

/// The window of one model. It bounds what is sent, never what is asked for.
#[derive(Debug)]
pub(super) struct Window {
    most: usize,
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    size: usize,
    /// Part of the next place that was earned.
    earned: f64,
    is_slow_start: bool,
    in_flight: usize,
    /// Places to take away as soon as they are given back.
    owed: usize,
    /// Counts the cuts: an answer or refusal of an earlier round says nothing of this window.
    round: u64,
    /// Since when the window is full and grew no more.
    full: Option<Instant>,
}

/// A request's place in the window; given back when dropped.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    window: &'a Window,
    permit: Option<SemaphorePermit<'a>>,
    round: u64,
}

impl Window {
    /// At most `most` requests in flight.
    pub(super) fn new(most: usize) -> Self {
        let size = most.clamp(1, START);
        let state = State { size, earned: 0.0, is_slow_start: true, in_flight: 0, owed: 0, round: 0, full: None };
        Self { most: most.max(1), places: Semaphore::new(size), state: Mutex::new(state) }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self) -> Entry<'_> {
        // The semaphore is never closed; without a permit the request would go uncounted, and nothing else.
        let permit = self.places.acquire().await.ok();
        self.entered(permit, Instant::now())
    }

    /// Takes a place if one is free.
    #[cfg(test)]
    pub(super) fn try_enter(&self, now: Instant) -> Option<Entry<'_>> {
        let permit = self.places.try_acquire().ok()?;
        Some(self.entered(Some(permit), now))
    }

    fn entered<'a>(&'a self, permit: Option<SemaphorePermit<'a>>, now: Instant) -> Entry<'a> {
        let mut state = self.state();
        state.in_flight += 1;
        if state.in_flight >= state.size {
            state.full.get_or_insert(now);
        }
        Entry { window: self, permit, round: state.round }
    }

    /// Lets the window grow where it has been full for a round without a refusal.
    pub(super) fn look(&self, now: Instant) {
        let mut state = self.state();
        let since = state.full.filter(|_| state.in_flight >= state.size);
        if since.is_some_and(|since| now.saturating_duration_since(since) >= ROUND) {
            let added = if state.is_slow_start { state.size } else { self.step() };
            state.full = Some(now);
            self.grow(&mut state, added);
        }
    }

    /// Most requests in flight now.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.state().size
    }

    fn step(&self) -> usize {
        (self.most / STEPS).max(1)
    }

    fn grow(&self, state: &mut State, added: usize) {
        let added = added.min(self.most - state.size);
        state.size += added;
        let repaid = added.min(state.owed);
        state.owed -= repaid;
        self.places.add_permits(added - repaid);
        if state.in_flight < state.size {
            state.full = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry<'_> {
    /// The server answered: the window grows, if it was in use.
    pub(super) fn answered(&self) {
        let mut state = self.window.state();
        let is_used = state.in_flight * 2 > state.size;
        if self.round != state.round || !is_used || state.size >= self.window.most {
            return;
        }
        state.earned += if state.is_slow_start { 1.0 } else { self.window.step() as f64 / state.size as f64 };
        if state.earned >= 1.0 {
            state.earned -= 1.0;
            self.window.grow(&mut state, 1);
        }
    }

    /// The server refused, or did not answer in time: the window shrinks, once a round.
    pub(super) fn refused(&self) {
        let mut state = self.window.state();
        if self.round != state.round {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
        let size = ((state.size as f64 * CUT) as usize).max(1);
        let removed = state.size - size;
        state.owed += removed - self.window.places.forget_permits(removed);
        state.size = size;
        state.earned = 0.0;
        state.is_slow_start = false;
        state.round += 1;
        state.full = None;
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.window.state();
        state.in_flight -= 1;
        if state.in_flight < state.size {
            state.full = None;
        }
        if let Some(permit) = self.permit.take()
            && state.owed > 0
        {
            state.owed -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn enter_all(window: &Window, now: Instant) -> Vec<Entry<'_>> {
        std::iter::from_fn(|| window.try_enter(now)).collect()
    }

    #[test]
    fn the_window_doubles_until_it_is_as_large_as_configured() {
        let window = Window::new(1000);
        let now = Instant::now();
        let mut sizes = Vec::new();
        while window.size() < 1000 {
            let entries = enter_all(&window, now);
            sizes.push(entries.len());
            entries.iter().for_each(Entry::answered);
        }
        assert_eq!(sizes, [16, 32, 64, 128, 256, 512]);
        assert_eq!(enter_all(&window, now).len(), 1000);
        assert_eq!(Window::new(3).size(), 3);
    }

    #[test]
    fn many_refusals_of_one_round_are_one_cut() {
        let window = Window::new(1000);
        let now = Instant::now();
        while window.size() < 1000 {
            enter_all(&window, now).iter().for_each(Entry::answered);
        }
        let entries = enter_all(&window, now);
        entries[..600].iter().for_each(Entry::refused);
        assert_eq!(window.size(), 650);
        drop(entries);
        let entries = enter_all(&window, now);
        assert_eq!(entries.len(), 650);
        entries[0].refused();
        entries[1].answered();
        assert_eq!(window.size(), 422, "what was sent before the cut does not let it grow");
    }

    #[test]
    fn after_a_cut_a_round_of_answers_adds_a_small_step() {
        let window = Window::new(320);
        let now = Instant::now();
        enter_all(&window, now)[0].refused();
        assert_eq!(window.size(), 10);
        enter_all(&window, now).iter().for_each(Entry::answered);
        assert!((15..=20).contains(&window.size()), "{}", window.size());
        let small = Window::new(8);
        enter_all(&small, now)[0].refused();
        enter_all(&small, now).iter().for_each(Entry::answered);
        assert!(small.size() <= 6, "{}", small.size());
    }

    #[test]
    fn a_window_that_nobody_fills_does_not_grow() {
        let window = Window::new(100);
        let now = Instant::now();
        for _ in 0..100 {
            window.try_enter(now).unwrap().answered();
            window.look(now + Duration::from_mins(1));
        }
        assert_eq!(window.size(), START);
    }

    #[test]
    fn long_generations_do_not_keep_the_window_small() {
        let window = Window::new(1000);
        let start = Instant::now();
        let mut entries = enter_all(&window, start);
        window.look(start + ROUND / 2);
        assert_eq!(window.size(), 16);
        for (second, size) in [(1, 32), (2, 64), (3, 128), (4, 256), (5, 512), (6, 1000), (7, 1000)] {
            let now = start + ROUND * second;
            window.look(now);
            assert_eq!(window.size(), size);
            entries.extend(enter_all(&window, now));
            assert_eq!(entries.len(), size);
        }
    }

    #[test]
    fn a_window_of_one_stays_one_and_goes_on() {
        let window = Window::new(1);
        for _ in 0..5 {
            let entries = enter_all(&window, Instant::now());
            assert_eq!(entries.len(), 1);
            entries[0].answered();
            entries[0].refused();
            assert_eq!(window.size(), 1);
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_as_many_fit_as_the_window_is_large(steps in prop::collection::vec(0..5_u8, 0..400), most in 1..200_usize) {
            let window = Window::new(most);
            let now = Instant::now();
            let mut entries = std::collections::VecDeque::new();
            for step in steps {
                match (step, entries.front()) {
                    (0 | 1, _) => entries.extend(window.try_enter(now)),
                    (2, Some(entry)) => Entry::answered(entry),
                    (3, Some(entry)) => Entry::refused(entry),
                    _ => drop(entries.pop_front()),
                }
                prop_assert!((1..=most).contains(&window.size()));
            }
            entries.clear();
            prop_assert_eq!(enter_all(&window, now).len(), window.size());
        }
    }
}
