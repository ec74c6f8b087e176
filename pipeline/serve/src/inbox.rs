//! From the threads that decode to the connection that waits.
//!
//! A decoding thread must not block, so what it tells is put down and a bell is rung. What a client that reads slowly
//! leaves here is at most the tokens of its own answers. When the connection goes away, [`Wanted`] is dropped and every
//! job of the request is given up at its next step.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stage_candle::decode::{Drawn, End, Listener, Piece};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

/// Something told of one choice.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    /// More of its text.
    Piece { text: String, tokens: Vec<Drawn> },
    /// It has ended.
    End(End),
}

#[derive(Debug, Default)]
struct Inbox {
    news: Mutex<VecDeque<(usize, News)>>,
    bell: Notify,
    is_gone: AtomicBool,
}

impl Inbox {
    fn put(&self, choice: usize, news: News) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push_back((choice, news));
        self.bell.notify_one();
    }

    fn take(&self) -> Option<(usize, News)> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// The reading end of a request's answers; dropping it gives up what is not answered yet.
#[derive(Debug)]
pub(crate) struct Wanted {
    inbox: Arc<Inbox>,
    ending: watch::Receiver<bool>,
    /// Its places among the answers in flight.
    _places: OwnedSemaphorePermit,
}

impl Wanted {
    /// An empty inbox. `ending` becomes true when nobody shall wait any longer.
    pub(crate) fn new(ending: watch::Receiver<bool>, places: OwnedSemaphorePermit) -> Self {
        Self { inbox: Arc::default(), ending, _places: places }
    }

    /// The writing end of one choice.
    pub(crate) fn listener(&self, choice: usize) -> Box<dyn Listener> {
        Box::new(Feed { inbox: Arc::clone(&self.inbox), choice, has_ended: false })
    }

    /// What is there already.
    pub(crate) fn take(&self) -> Option<(usize, News)> {
        self.inbox.take()
    }

    /// The next news; `None` when the server ends.
    pub(crate) async fn next(&mut self) -> Option<(usize, News)> {
        loop {
            if let Some(news) = self.inbox.take() {
                return Some(news);
            }
            tokio::select! {
                () = self.inbox.bell.notified() => {}
                _ = self.ending.wait_for(|ending| *ending) => return None,
            }
        }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.inbox.is_gone.store(true, Ordering::Relaxed);
    }
}

struct Feed {
    inbox: Arc<Inbox>,
    choice: usize,
    has_ended: bool,
}

impl Listener for Feed {
    fn piece(&mut self, piece: &Piece<'_>) -> bool {
        if self.inbox.is_gone() {
            return false;
        }
        let news = News::Piece { text: piece.text.to_owned(), tokens: piece.tokens.to_vec() };
        self.inbox.put(self.choice, news);
        true
    }

    fn end(&mut self, end: End) {
        self.has_ended = true;
        self.inbox.put(self.choice, News::End(end));
    }

    fn is_wanted(&self) -> bool {
        !self.inbox.is_gone()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.has_ended {
            // a decoding thread that dies must not leave a client waiting for ever
            let end = End::Failed { message: "the model stopped before the answer ended".to_owned() };
            self.inbox.put(self.choice, News::End(end));
        }
    }
}
