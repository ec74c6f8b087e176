//! Figures of a checkpoint: Pass@K, distinct ways, lengths.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use stage_text::FoldedView;
use stage_text::shingle::{ShingleSet, ShingleUnit, Shingling};

/// Words of a shingle by which ways of solving are compared.
const WAY_WORDS: NonZeroUsize = NonZeroUsize::new(3).unwrap();
/// Jaccard index from which two answers go the same way.
const SAME_WAY: f64 = 0.5;

/// How a checkpoint fared with a query.
#[derive(Debug, Clone, Default)]
pub struct Solved {
    /// Answers asked for.
    pub n: u32,
    /// Correct ones.
    pub correct: u32,
    /// Answers that hit the cap.
    pub truncated: u32,
    answers: u32,
    tokens: i64,
    ways: Vec<ShingleSet>,
}

impl Solved {
    /// No answer yet of `n`.
    pub fn new(n: u32) -> Self {
        Self { n, ..Self::default() }
    }

    /// Adds an answer; `tokens` is its length.
    pub fn add(&mut self, is_correct: bool, text: &str, tokens: Option<i64>) {
        self.answers += 1;
        self.tokens += tokens.unwrap_or(0);
        self.correct += u32::from(is_correct);
        if is_correct {
            let shingling = Shingling { unit: ShingleUnit::Word, size: WAY_WORDS };
            self.ways.extend(ShingleSet::number_masked(&FoldedView::new(text), shingling));
        }
    }

    /// Unbiased estimate of the chance that one of `k` answers is correct: 1 - C(n-c, k) / C(n, k) (report section
    /// 2.2.2; the estimator is that of Chen and others 2021, arXiv 2107.03374, equation 1).
    pub fn pass_at(&self, k: u32) -> f64 {
        if self.n - self.correct < k {
            return 1.0;
        }
        let none =
            (self.n - self.correct + 1..=self.n).fold(1.0, |none, of| none * (1.0 - f64::from(k) / f64::from(of)));
        1.0 - none
    }

    /// Groups of correct answers that go the same way, directly or through others.
    fn ways(&self) -> usize {
        let mut group: Vec<usize> = (0..self.ways.len()).collect();
        for first in 0..self.ways.len() {
            for second in 0..first {
                if self.ways[first].jaccard(&self.ways[second]) >= SAME_WAY && group[first] != group[second] {
                    let (from, to) = (group[first], group[second]);
                    group.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
                }
            }
        }
        group.into_iter().collect::<BTreeSet<_>>().len()
    }
}

/// A figure over the queries of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The group, none for all queries.
    pub group: Option<String>,
    /// Its name, as in `pass@8`.
    pub metric: String,
    /// Mean over queries.
    pub value: f64,
    /// Standard error of that mean, from two queries on.
    pub std_err: Option<f64>,
    /// Queries.
    pub n: usize,
}

impl Figure {
    fn mean(group: Option<&str>, metric: impl Into<String>, values: &[f64]) -> Self {
        let n = values.len();
        let value = values.iter().sum::<f64>() / n.max(1) as f64;
        let squares = values.iter().map(|one| (one - value).powi(2)).sum::<f64>();
        let std_err = (n > 1).then(|| (squares / (n - 1) as f64 / n as f64).sqrt());
        Self { group: group.map(str::to_owned), metric: metric.into(), value, std_err, n }
    }

    /// The interval that covers the true mean 95 times of 100, by the normal approximation.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.std_err.map(|error| (self.value - 1.96 * error, self.value + 1.96 * error))
    }
}

/// All figures of a checkpoint: for each group, in order of names, and for all queries.
pub fn figures(solved: &[(&str, &Solved)], k: u32) -> Vec<Figure> {
    let groups: BTreeSet<&str> = solved.iter().map(|(group, _)| *group).filter(|group| !group.is_empty()).collect();
    let mut found = Vec::new();
    for group in groups.into_iter().map(Some).chain([None]) {
        let of_group = solved.iter().filter(|(own, _)| group.is_none_or(|group| group == *own));
        let of_group: Vec<&Solved> = of_group.map(|(_, solved)| *solved).collect();
        let each = |value: &dyn Fn(&Solved) -> f64| of_group.iter().map(|solved| value(solved)).collect::<Vec<f64>>();
        let share = |part: f64, solved: &Solved| part / f64::from(solved.answers.max(1));
        found.push(Figure::mean(group, "pass@1", &each(&|solved| solved.pass_at(1))));
        if k > 1 {
            found.push(Figure::mean(group, format!("pass@{k}"), &each(&|solved| solved.pass_at(k))));
        }
        found.push(Figure::mean(group, "distinct_correct", &each(&|solved| solved.ways() as f64)));
        found.push(Figure::mean(group, "mean_tokens", &each(&|solved| share(solved.tokens as f64, solved))));
        let truncated = each(&|solved| share(f64::from(solved.truncated), solved));
        found.push(Figure::mean(group, "truncated", &truncated));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn solved(n: u32, correct: u32) -> Solved {
        Solved { n, correct, ..Solved::default() }
    }

    fn choose(n: u32, k: u32) -> f64 {
        (0..k).fold(1.0, |all, index| all * f64::from(n - index) / f64::from(index + 1))
    }

    #[test]
    fn pass_at_k_has_the_values_of_the_formula() {
        assert!((solved(4, 1).pass_at(2) - 0.5).abs() < 1e-12);
        assert!((solved(16, 3).pass_at(8) - (1.0 - choose(13, 8) / choose(16, 8))).abs() < 1e-12);
        assert!(solved(8, 0).pass_at(8) <= 0.0 && solved(8, 1).pass_at(8) >= 1.0);
    }

    #[test]
    fn answers_that_differ_in_their_numbers_go_one_way() {
        let mut solved = Solved::new(3);
        solved.add(true, "First add 3 and 4, which gives 7, then double it to get 14.", Some(20));
        solved.add(true, "First add 4 and 3, which gives 7, then double it to get 14.", Some(20));
        solved.add(true, "Doubling each number before they are summed: 6 plus 8 makes 14.", Some(18));
        solved.add(false, "I do not know.", Some(5));
        assert_eq!((solved.correct, solved.ways()), (3, 2));
    }

    #[test]
    fn figures_are_means_over_queries_of_each_group_and_of_all() {
        let (first, second) = (solved(4, 4), solved(4, 0));
        let found = figures(&[("math", &first), ("code", &second)], 2);
        let all: Vec<&Figure> = found.iter().filter(|figure| figure.group.is_none()).collect();
        assert_eq!((all.len(), all[0].n, all[0].metric.as_str()), (5, 2, "pass@1"));
        assert!((all[0].value - 0.5).abs() < 1e-12 && (all[0].std_err.unwrap() - 0.5).abs() < 1e-12);
        let of_math = found.iter().find(|figure| figure.group.as_deref() == Some("math")).unwrap();
        assert_eq!((of_math.value.to_bits(), of_math.std_err), (1.0_f64.to_bits(), None));
    }

    /// The chance over all subsets of the answers, counted one by one.
    fn counted(n: u32, correct: u32, k: u32) -> f64 {
        let subsets = (0_u32..1 << n).filter(|subset| subset.count_ones() == k);
        let (mut all, mut passed) = (0.0, 0.0);
        for subset in subsets {
            all += 1.0;
            passed += f64::from(u8::from(subset & ((1 << correct) - 1) != 0));
        }
        passed / all
    }

    proptest! {
        #[test]
        fn the_estimate_is_the_share_of_subsets_with_a_correct_answer(n in 1_u32..11, correct in 0_u32..11, k in 1_u32..11) {
            let (correct, k) = (correct.min(n), k.min(n));
            prop_assert!((solved(n, correct).pass_at(k) - counted(n, correct, k)).abs() < 1e-12);
        }

        #[test]
        fn pass_at_k_is_a_chance_that_grows_with_k_and_with_correct_answers(n in 1_u32..40, correct in 0_u32..40, k in 1_u32..40) {
            let (correct, k) = (correct.min(n), k.min(n));
            let chance = solved(n, correct).pass_at(k);
            prop_assert!((0.0..=1.0).contains(&chance));
            prop_assert!((solved(n, correct).pass_at(1) - f64::from(correct) / f64::from(n)).abs() < 1e-12);
            if k < n {
                prop_assert!(solved(n, correct).pass_at(k + 1) >= chance - 1e-12);
            }
            if correct < n {
                prop_assert!(solved(n, correct + 1).pass_at(k) >= chance - 1e-12);
            }
        }
    }
}
