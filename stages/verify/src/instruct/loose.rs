//! The eight readings of loose scoring.

use super::{characters::strip, views::Views};
use std::{borrow::Cow, cell::OnceCell};

/// A response as it stands, and the other readings when they are asked for.
pub(super) struct Readings<'a> {
    response: &'a str,
    plain: Views<'a>,
    altered: OnceCell<Vec<Views<'a>>>,
}

impl<'a> Readings<'a> {
    pub fn new(response: &'a str) -> Self {
        Self { response, plain: Views::new(response), altered: OnceCell::new() }
    }

    /// The response as it stands.
    pub fn plain(&self) -> &Views<'a> {
        &self.plain
    }

    /// The readings that differ from the response and from each other, without blank ones. A line ends at
    /// a line feed; what is left after a line was dropped loses its outer white space.
    pub fn altered(&self) -> &[Views<'a>] {
        self.altered.get_or_init(|| {
            let whole = self.response;
            let (first, last) = (whole.find('\n'), whole.rfind('\n'));
            let after_first = first.map_or("", |at| &whole[at + 1..]);
            let before_last = last.map_or("", |at| &whole[..at]);
            let between = match (first, last) {
                (Some(first), Some(last)) if first < last => &whole[first + 1..last],
                _ => "",
            };
            let parts = [whole, strip(after_first), strip(before_last), strip(between)];
            let mut readings: Vec<Cow<'a, str>> = Vec::with_capacity(7);
            for part in parts {
                let bare = part.contains('*').then(|| Cow::Owned(part.replace('*', "")));
                for reading in [Some(Cow::Borrowed(part)), bare].into_iter().flatten() {
                    if !strip(&reading).is_empty() && reading != whole && !readings.contains(&reading) {
                        readings.push(reading);
                    }
                }
            }
            readings.into_iter().map(Views::new).collect()
        })
    }
}
