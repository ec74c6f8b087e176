//! Draws that depend on a seed and on what is asked, never on time or order, so that a test can be run again.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Hash of a path and a body.
pub(crate) fn hash_of(path: &str, body: &[u8]) -> u64 {
    xxh3_64_with_seed(body, xxh3_64(path.as_bytes()))
}

/// A new number from two.
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    xxh3_64_with_seed(&left.to_le_bytes(), right)
}

/// The number as a share, from 0 up to but not including 1.
pub(crate) fn share_of(number: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (number >> 11) as f64 / STEPS
}

/// One of `count` places, evenly; 0 where there is none.
pub(crate) fn place_of(number: u64, count: usize) -> usize {
    let place = number % (count.max(1) as u64);
    usize::try_from(place).unwrap_or_default()
}
