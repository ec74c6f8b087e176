//! A pass over a desk: requests are taken as room becomes free, and outcomes are told the moment they are there.
//!
//! Taking may wait for as long as something is unanswered, so one thread takes and another one tells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::scope;
use std::time::Duration;

use pipeline_models::{CallKey, Desk, Refusal, WeightsError};

use crate::decode::End;

/// How often a pass looks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(10);

/// Where the outcome of one request goes.
pub(crate) struct Reporter<A> {
    key: CallKey,
    to: Sender<(CallKey, Result<A, End>)>,
    is_stopped: Arc<AtomicBool>,
}

impl<A> Reporter<A> {
    /// Tells the outcome.
    pub fn tell(&self, outcome: Result<A, End>) {
        // Nobody listens only when the pass has ended with a failure of its own.
        let _ = self.to.send((self.key, outcome));
    }

    /// Whether the pass still wants the outcome.
    pub fn is_wanted(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Takes requests while fewer than `most` are unanswered, hands each to `submit`, and tells the desk what comes of it.
///
/// # Errors
/// What a job failed with; then everything else that was taken is given up and not told.
pub(crate) fn serve<Q: Send, A: Send>(
    desk: &dyn Desk<Q, A>,
    most: usize,
    submit: &(dyn Fn(CallKey, Q, Reporter<A>) + Sync),
) -> Result<(), WeightsError> {
    let (to, outcomes) = channel();
    let is_stopped = Arc::new(AtomicBool::new(false));
    let room = Room { taken: Mutex::new(0), changed: Condvar::new(), most };
    scope(|scope| {
        let (room, stopped) = (&room, Arc::clone(&is_stopped));
        let taking = scope.spawn(move || {
            while room.wait(&stopped)
                && let Some((key, request)) = desk.next()
            {
                let reporter = Reporter { key, to: to.clone(), is_stopped: Arc::clone(&stopped) };
                submit(key, request, reporter);
            }
        });
        let told = tell(desk, &outcomes, room, &is_stopped);
        // All senders are gone, so taking is over too.
        let taken = taking.join().map_err(|_| WeightsError::new("the thread that takes requests panicked"));
        told.and(taken)
    })
}

/// Tells outcomes until nothing can come any more.
fn tell<Q, A>(
    desk: &dyn Desk<Q, A>,
    outcomes: &Receiver<(CallKey, Result<A, End>)>,
    room: &Room,
    is_stopped: &AtomicBool,
) -> Result<(), WeightsError> {
    let mut result = Ok(());
    loop {
        if desk.is_cancelled() {
            is_stopped.store(true, Ordering::Relaxed);
            room.changed.notify_all();
        }
        let (key, outcome) = match outcomes.recv_timeout(LOOK) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return result,
        };
        match outcome {
            Ok(answer) => desk.done(key, Ok(answer)),
            Err(End::Refused { code, message }) => desk.done(key, Err(Refusal { code, message })),
            Err(End::Failed { message }) => {
                result = result.and(Err(WeightsError::new(message)));
                is_stopped.store(true, Ordering::Relaxed);
                desk.close();
            }
            // Given up because the pass is stopped, and not told.
            Err(End::GivenUp | End::Complete | End::Cut) => {}
        }
        room.leave();
    }
}

/// Counts what is taken and not answered.
struct Room {
    taken: Mutex<usize>,
    changed: Condvar,
    most: usize,
}

impl Room {
    /// Waits for room for one more and takes it; `false` when the pass is stopped.
    fn wait(&self, is_stopped: &AtomicBool) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |taken: &mut usize| *taken >= self.most && !is_stopped.load(Ordering::Relaxed);
        let mut taken = self.changed.wait_while(taken, is_full).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        !is_stopped.load(Ordering::Relaxed)
    }

    fn leave(&self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_sub(1);
        drop(taken);
        self.changed.notify_all();
    }
}

#[cfg(test)]
pub(crate) mod tests;
