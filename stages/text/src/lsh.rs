//! Finds pairs of similar sketches without comparing all pairs: locality-sensitive hashing in bands.
//!
//! A sketch is cut into b bands of r components. Two rows meet when one band is equal, which for rows of
//! Jaccard index s happens with probability 1 - (1 - s^r)^b. Band hashes are sorted, so equal ones are
//! neighbours; every candidate is verified by the caller before two rows are joined, since transitive joins
//! of unverified candidates melt unrelated rows into one cluster.

use crate::error::TextError;
use crate::ngram::mix;

/// Bands and rows for a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bands {
    /// Number of bands, b.
    pub bands: usize,
    /// Components of a band, r; b r is at most the components of a sketch.
    pub rows: usize,
}

impl Bands {
    /// Chance that a pair of Jaccard index `similarity` becomes a candidate: 1 - (1 - s^r)^b.
    pub fn probability(self, similarity: f64) -> f64 {
        let power = |base: f64, exponent: usize| base.powi(i32::try_from(exponent).unwrap_or(i32::MAX));
        1.0 - power(1.0 - power(similarity, self.rows), self.bands)
    }
}

/// Bands that minimise the area of false positives below `threshold` plus that of false negatives above it.
///
/// # Errors
/// [`TextError::Parameter`] for a threshold outside 0 to 1 (both excluded) and for a sketch without components.
pub fn bands_for(threshold: f64, components: usize) -> Result<Bands, TextError> {
    weighted_bands_for(threshold, components, 0.5, 0.0)
}

/// The same with the weight of false negatives (0 to 1) chosen: candidates are verified, so a missed pair costs
/// more than a needless one, and a weight above 0.5 may be wanted. Only bands that find a pair exactly at the threshold
/// with a chance of at least `least_found` (0 to 1) are looked at; where a sketch is too short for that, each component
/// is a band.
///
/// # Errors
/// As [`bands_for`].
pub fn weighted_bands_for(
    threshold: f64,
    components: usize,
    missed_weight: f64,
    least_found: f64,
) -> Result<Bands, TextError> {
    if !(threshold > 0.0 && threshold < 1.0) {
        let reason = format!("{threshold} is not between 0 and 1");
        return Err(TextError::Parameter { name: "threshold", reason });
    }
    if components == 0 {
        let reason = "a sketch has at least 1 component".to_owned();
        return Err(TextError::Parameter { name: "components", reason });
    }
    let mut best = Bands { bands: components, rows: 1 };
    let mut least = f64::INFINITY;
    for rows in 1..=components {
        for bands in 1..=components / rows {
            let candidate = Bands { bands, rows };
            if candidate.probability(threshold) < least_found {
                continue;
            }
            let needless = area(0.0, threshold, |s| candidate.probability(s));
            let missed = area(threshold, 1.0, |s| 1.0 - candidate.probability(s));
            let cost = needless * (1.0 - missed_weight) + missed * missed_weight;
            if cost < least {
                (best, least) = (candidate, cost);
            }
        }
    }
    Ok(best)
}

/// One hash a band of a sketch, appended to `out`; a row adds `bands.bands` of them.
pub fn band_hashes(sketch: &[u64], bands: Bands, out: &mut Vec<u64>) {
    for band in 0..bands.bands {
        let components = sketch.iter().skip(band * bands.rows).take(bands.rows);
        out.push(components.fold(mix(band as u64 + 1), |hash, component| mix(hash.rotate_left(23) ^ component)));
    }
}

/// Area under `curve` from `start` to `end` by Simpson's rule.
fn area(start: f64, end: f64, curve: impl Fn(f64) -> f64) -> f64 {
    const STEPS: u32 = 64;
    let width = (end - start) / f64::from(STEPS);
    let inner: f64 =
        (1..STEPS).map(|step| curve(start + f64::from(step) * width) * if step % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (curve(start) + inner + curve(end)) * width / 3.0
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::minhash::SketchMethod;

    #[test]
    fn bands_fit_the_sketch_and_cut_near_the_threshold() {
        for threshold in [0.3, 0.5, 0.7, 0.8, 0.9] {
            let bands = bands_for(threshold, 128).unwrap();
            assert!(bands.bands * bands.rows <= 128, "{bands:?}");
            let (below, above) = (bands.probability(threshold - 0.2), bands.probability((threshold + 0.15).min(1.0)));
            assert!(below < 0.5 && above > 0.7, "{threshold}: {bands:?} {below} {above}");
        }
    }

    #[test]
    fn more_weight_on_missed_pairs_finds_more() {
        let even = bands_for(0.8, 128).unwrap();
        let careful = weighted_bands_for(0.8, 128, 0.9, 0.0).unwrap();
        assert!(careful.probability(0.8) > even.probability(0.8));
    }

    #[test]
    fn a_pair_at_the_threshold_is_found_as_often_as_asked() {
        for threshold in [0.3, 0.8, 0.97] {
            let bands = weighted_bands_for(threshold, 128, 0.5, 0.98).unwrap();
            assert!(bands.probability(threshold) >= 0.98, "{threshold} {bands:?}");
        }
        assert_eq!(weighted_bands_for(0.8, 2, 0.5, 0.98).unwrap(), Bands { bands: 2, rows: 1 });
    }

    #[test]
    fn a_threshold_without_room_is_refused() {
        for threshold in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(bands_for(threshold, 128).is_err());
        }
        assert!(bands_for(0.5, 0).is_err());
    }

    #[test]
    fn the_same_components_in_another_band_do_not_meet() {
        let bands = Bands { bands: 2, rows: 2 };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        band_hashes(&[1, 2, 3, 4], bands, &mut first);
        band_hashes(&[3, 4, 1, 2], bands, &mut second);
        assert!(first[0] != second[0] && first[1] != second[1] && first[0] != second[1]);
    }

    #[test]
    fn pairs_become_candidates_as_often_as_the_curve_says() {
        let bands = weighted_bands_for(0.8, 128, 0.99, 0.0).unwrap();
        let mut sketcher = SketchMethod::OnePermutation.sketcher(NonZeroUsize::new(128).unwrap(), 3);
        let mut hashes_of = |items: &mut dyn Iterator<Item = u64>| {
            let (mut sketch, mut hashes) = (Vec::new(), Vec::new());
            sketcher.sketch(&items.map(mix).collect::<Vec<u64>>(), &mut sketch);
            band_hashes(&sketch, bands, &mut hashes);
            hashes
        };
        // sets of 24 and of 300 shingles, of which each has `own` that the other lacks
        for (all, own) in [(24_u64, 8_u64), (24, 4), (24, 2), (24, 1), (300, 100), (300, 60), (300, 33), (300, 16)] {
            let pairs = 500;
            let met = (0..pairs)
                .filter(|pair| {
                    let start = pair * 1_000;
                    let first = hashes_of(&mut (start..start + all));
                    let second = hashes_of(&mut (start + own..start + all + own));
                    first.iter().zip(&second).any(|(one, two)| one == two)
                })
                .count();
            let similarity = (all - own) as f64 / (all + own) as f64;
            let (expected, seen) = (bands.probability(similarity), met as f64 / 500.0);
            // four standard deviations; components of small sets are drawn almost without replacement, which only helps
            let error = 4.0 * (expected * (1.0 - expected) / 500.0).sqrt() + 0.02;
            assert!((seen - expected).abs() < error, "{all} {own}: {seen} against {expected}");
        }
    }
}
