//! Passes over a scripted desk: they end, whatever fails.

use std::collections::{BTreeMap, VecDeque};
use std::thread::spawn;

use super::*;

/// Hands out requests, keeps what it is told, and waits for more until it is closed if `is_open`.
pub(crate) struct ScriptedDesk<Q, A> {
    requests: Mutex<(VecDeque<(CallKey, Q)>, bool)>,
    changed: Condvar,
    told: Mutex<BTreeMap<CallKey, Result<A, Refusal>>>,
    is_cancelled: AtomicBool,
    /// Most requests that were out at the same time.
    most: Mutex<(usize, usize)>,
}

pub(crate) fn key(number: usize) -> CallKey {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    CallKey(bytes)
}

impl<Q, A> ScriptedDesk<Q, A> {
    pub fn new(requests: impl IntoIterator<Item = Q>, is_open: bool) -> Self {
        let requests = requests.into_iter().enumerate().map(|(index, request)| (key(index), request)).collect();
        Self {
            requests: Mutex::new((requests, is_open)),
            changed: Condvar::new(),
            told: Mutex::new(BTreeMap::new()),
            is_cancelled: AtomicBool::new(false),
            most: Mutex::new((0, 0)),
        }
    }

    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        self.requests.lock().unwrap().0.clear();
        self.close_all();
    }

    pub fn told(self) -> Vec<Result<A, Refusal>> {
        self.told.into_inner().unwrap().into_values().collect()
    }

    pub fn count(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    fn close_all(&self) {
        self.requests.lock().unwrap().1 = false;
        self.changed.notify_all();
    }
}

impl<Q: Send, A: Send> Desk<Q, A> for ScriptedDesk<Q, A> {
    fn next(&self) -> Option<(CallKey, Q)> {
        let requests = self.requests.lock().unwrap();
        let is_waiting = |(requests, is_open): &mut (VecDeque<_>, bool)| requests.is_empty() && *is_open;
        let next = self.changed.wait_while(requests, is_waiting).unwrap().0.pop_front();
        let mut most = self.most.lock().unwrap();
        most.0 += usize::from(next.is_some());
        most.1 = most.1.max(most.0);
        next
    }

    fn done(&self, key: CallKey, outcome: Result<A, Refusal>) {
        self.most.lock().unwrap().0 -= 1;
        assert!(self.told.lock().unwrap().insert(key, outcome).is_none(), "told twice");
    }

    fn close(&self) {
        self.close_all();
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }
}

#[test]
fn every_request_is_told_its_own_outcome_and_few_are_out() {
    let desk = ScriptedDesk::new(0..50_u32, false);
    let result = serve(&desk, 3, &|_, number, reporter| {
        spawn(move || reporter.tell(if number == 7 { Err(End::refused("seven", "7")) } else { Ok(number) }));
    });
    assert_eq!(result, Ok(()));
    assert!(desk.most.lock().unwrap().1 <= 3);
    let refusal = Refusal { code: "seven".to_owned(), message: "7".to_owned() };
    let expected: Vec<_> = (0..50).map(|number| if number == 7 { Err(refusal.clone()) } else { Ok(number) }).collect();
    assert_eq!(desk.told(), expected);
}

#[test]
fn outcomes_are_told_while_the_desk_waits_for_more() {
    let desk = ScriptedDesk::new(0..2_u32, true);
    scope(|scope| {
        let pass = scope.spawn(|| serve(&desk, 9, &|_, number, reporter| reporter.tell(Ok(number))));
        while desk.count() < 2 {
            std::thread::yield_now();
        }
        desk.close_all();
        assert_eq!(pass.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_failure_ends_the_pass_even_while_the_desk_waits_for_more() {
    let desk = ScriptedDesk::new(0..2_u32, true);
    let result = serve::<u32, u32>(&desk, 9, &|_, _, reporter| reporter.tell(Err(End::failed("no more memory"))));
    assert_eq!(result, Err(WeightsError::new("no more memory")));
    assert_eq!(desk.count(), 0);
}

#[test]
fn a_cancelled_pass_gives_up_what_is_out() {
    let desk = ScriptedDesk::<u32, u32>::new(0..20, true);
    scope(|scope| {
        let pass = scope.spawn(|| {
            serve(&desk, 4, &|_, _, reporter| {
                spawn(move || {
                    while reporter.is_wanted() {
                        std::thread::yield_now();
                    }
                    reporter.tell(Err(End::GivenUp));
                });
            })
        });
        while desk.most.lock().unwrap().1 < 4 {
            std::thread::yield_now();
        }
        desk.cancel();
        assert_eq!(pass.join().unwrap(), Ok(()));
    });
    assert_eq!(desk.count(), 0);
}

#[test]
fn a_panic_while_a_request_is_prepared_is_an_error() {
    let desk = ScriptedDesk::<u32, u32>::new(0..2, false);
    let result = serve(&desk, 4, &|_, number, reporter| {
        assert!(number == 0, "not prepared for {number}");
        reporter.tell(Ok(number));
    });
    assert!(result.is_err());
    assert_eq!(desk.told(), [Ok(0)]);
}
