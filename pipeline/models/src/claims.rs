//! Requests that are being worked on, so that two passes never ask the same at the same time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::key::CallKey;

/// The requests that some pass over one model has taken.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    taken: Mutex<HashSet<CallKey>>,
    given_back: Notify,
}

/// A request taken by one pass; given back when dropped.
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    key: CallKey,
}

impl Claims {
    /// Waits until no other pass has the request.
    pub(crate) async fn take(&self, key: CallKey) -> Claim<'_> {
        loop {
            let given_back = self.given_back.notified();
            tokio::pin!(given_back);
            given_back.as_mut().enable();
            if let Some(claim) = self.try_take(key) {
                return claim;
            }
            given_back.await;
        }
    }

    /// Takes the request unless some pass has it.
    pub(crate) fn try_take(&self, key: CallKey) -> Option<Claim<'_>> {
        let is_free = self.lock().insert(key);
        // made only when it is free: a claim that is dropped gives the request back
        is_free.then(|| Claim { claims: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<CallKey>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.key);
        self.claims.given_back.notify_waiters();
    }
}
