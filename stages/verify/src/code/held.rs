//! What a judge works with: borrowed for a while, or shared for as long as it lives.

use std::ops::Deref;
use std::sync::Arc;

/// A borrowed or a shared value.
#[derive(Debug)]
pub enum Held<'a, T> {
    /// Borrowed.
    Borrowed(&'a T),
    /// Shared.
    Shared(Arc<T>),
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<'a, T> From<&'a T> for Held<'a, T> {
    fn from(value: &'a T) -> Self {
        Self::Borrowed(value)
    }
}

impl<T> From<Arc<T>> for Held<'_, T> {
    fn from(value: Arc<T>) -> Self {
        Self::Shared(value)
    }
}
