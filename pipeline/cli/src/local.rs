//! Weights of engine `local`: how they are opened.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pipeline_models::{WeightsError, WeightsOpener};
use stage_candle::LocalWeights;
use stage_candle::decode::ServiceOptions;

/// Texts that a thread works on together where `max_in_flight` says nothing.
const SLOTS: usize = 8;

/// How weights are opened, with at most `threads` threads that each work on a batch of their own.
///
/// Models of one project that have the same weights, as a teacher and a student may, share them.
pub fn opener(threads: usize) -> WeightsOpener {
    type Opened = BTreeMap<(PathBuf, Option<NonZeroU32>), Weak<LocalWeights>>;
    let opened: Mutex<Opened> = Mutex::default();
    Arc::new(move |path, in_flight| {
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = opened.get(&(place.clone(), in_flight)).and_then(Weak::upgrade) {
            return Ok(weights);
        }
        let weights = Arc::new(LocalWeights::open(path, &service(threads, in_flight)).map_err(WeightsError::new)?);
        opened.insert((place, in_flight), Arc::downgrade(&weights));
        Ok(weights)
    })
}

/// Threads and slots for `in_flight` texts in work together, [`SLOTS`] for each thread where no number is given.
fn service(threads: usize, in_flight: Option<NonZeroU32>) -> ServiceOptions {
    let threads = threads.max(1);
    let Some(in_flight) = in_flight.and_then(|number| usize::try_from(number.get()).ok()) else {
        return ServiceOptions { threads, slots: SLOTS, ..ServiceOptions::default() };
    };
    let threads = threads.min(in_flight);
    ServiceOptions { threads, slots: in_flight.div_ceil(threads), ..ServiceOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_work_are_spread_over_the_threads() {
        let spread = |threads, in_flight| {
            let options = service(threads, NonZeroU32::new(in_flight));
            (options.threads, options.slots)
        };
        assert_eq!([spread(2, 0), spread(2, 16), spread(2, 5), spread(4, 1)], [(2, 8), (2, 8), (2, 3), (1, 1)]);
    }
}
