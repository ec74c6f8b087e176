//! Classes of equal answers, for voting: classes are counted, not strings.
//!
//! Every answer is parsed once. Most have an exact key, and equal keys are one class; the rest are
//! compared with the members of their buckets only, in an order that depends on their text and not on
//! their place. So the work grows with the number of answers, not with its square.

use crate::math::Keyed;
use std::collections::BTreeMap;

/// Answers of one bucket that a new one is compared with; beyond it a bucket says too little.
const MOST_COMPARED: usize = 200;

/// Class index of each answer, numbered by first appearance.
///
/// The content of the classes does not depend on the order of the answers. Answers that cannot be read
/// are equal only when their text is, layout aside.
///
/// ```
/// assert_eq!(stage_verify::cluster(&["1/2", "3", "0.5", "\\frac{6}{2}"]), [0, 1, 0, 1]);
/// ```
pub fn cluster(answers: &[&str]) -> Vec<usize> {
    let mut texts: BTreeMap<&str, usize> = answers.iter().map(|answer| (answer.trim(), 0)).collect();
    let mut representatives: Vec<Keyed> = Vec::new();
    let mut exact: BTreeMap<String, usize> = BTreeMap::new();
    let mut buckets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut rest = Vec::new();
    let found = |keyed: Keyed, buckets: &mut BTreeMap<String, Vec<usize>>, representatives: &mut Vec<Keyed>| {
        let class = representatives.len();
        for bucket in &keyed.buckets {
            buckets.entry(bucket.clone()).or_default().push(class);
        }
        representatives.push(keyed);
        class
    };
    for (text, slot) in &mut texts {
        let keyed = Keyed::read(text);
        let Some(key) = keyed.exact.clone() else {
            rest.push((keyed, slot));
            continue;
        };
        *slot = match exact.get(&key) {
            Some(class) => *class,
            None => found(keyed, &mut buckets, &mut representatives),
        };
        exact.insert(key, *slot);
    }
    for (keyed, slot) in rest {
        let near = keyed.buckets.iter().filter_map(|bucket| buckets.get(bucket)).flatten().take(MOST_COMPARED);
        let equal = near.copied().find(|class| representatives[*class].equals(&keyed));
        *slot = equal.unwrap_or_else(|| found(keyed, &mut buckets, &mut representatives));
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
