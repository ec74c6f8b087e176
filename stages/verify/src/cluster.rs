//! Classes of equal answers, for voting: classes are counted, not strings.
//!
//! Most answers have an exact key, so a group is sorted out in one pass; only the rest are compared
//! pair by pair, in an order that depends on their text and not on their place.

use crate::math;
use std::collections::BTreeMap;

/// Class index of each answer, numbered by first appearance.
///
/// The content of the classes does not depend on the order of the answers.
///
/// ```
/// assert_eq!(stage_verify::cluster(&["1/2", "3", "0.5", "\\frac{6}{2}"]), [0, 1, 0, 1]);
/// ```
pub fn cluster(answers: &[&str]) -> Vec<usize> {
    // equal texts first, then equal keys
    let mut texts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut representatives: Vec<&str> = Vec::new();
    let mut keyed: BTreeMap<String, usize> = BTreeMap::new();
    let mut rest = Vec::new();
    let distinct: std::collections::BTreeSet<&str> = answers.iter().map(|answer| answer.trim()).collect();
    for text in distinct {
        let Some(key) = math::class_key(text) else {
            rest.push(text);
            continue;
        };
        let class = *keyed.entry(key).or_insert_with(|| {
            representatives.push(text);
            representatives.len() - 1
        });
        texts.insert(text, class);
    }
    for text in rest {
        let class =
            representatives.iter().position(|other| math::equivalent(other, text).is_correct()).unwrap_or_else(|| {
                representatives.push(text);
                representatives.len() - 1
            });
        texts.insert(text, class);
    }
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    answers
        .iter()
        .map(|answer| {
            let class = texts.get(answer.trim()).copied().unwrap_or(0);
            let next = numbers.len();
            *numbers.entry(class).or_insert(next)
        })
        .collect()
}
