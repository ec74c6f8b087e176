//! Pass@K from samples, and means with their errors.

/// Unbiased estimate of the chance that at least one of `k` samples is correct, from `samples` of which `correct` are:
/// `1 - C(n - c, k) / C(n, k)`. `None` where there are fewer samples than `k`, or more correct ones than samples.
///
/// The quotient of binomials is a product of `1 - k / i` for `i` from `n - c + 1` to `n`, which stays between 0 and 1.
pub fn pass_at_k(samples: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || k > samples || correct > samples {
        return None;
    }
    if samples - correct < k {
        return Some(1.0);
    }
    let missed: f64 = (samples - correct + 1..=samples).map(|i| 1.0 - k as f64 / i as f64).product();
    Some(1.0 - missed)
}

/// A mean over independent parts, such as problems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Its standard error: the parts' standard deviation (over `n - 1`) by the root of `n`; `None` for fewer than two.
    pub standard_error: Option<f64>,
    /// Number of parts.
    pub count: usize,
}

/// The mean of values; `None` without any.
///
/// For Pass@K give the estimate of each problem: the error is then that of drawing other problems of the same kind, with
/// the noise of sampling in it.
pub fn mean(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let count = values.len() as f64;
    let value = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
    let standard_error = (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
    Some(Estimate { value, standard_error, count: values.len() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The chance over all subsets, counted one by one.
    fn counted(samples: u32, correct: u32, k: u32) -> f64 {
        let subsets = (0_u32..1 << samples).filter(|subset| subset.count_ones() == k);
        let (mut all, mut passed) = (0.0, 0.0);
        for subset in subsets {
            all += 1.0;
            passed += f64::from(u8::from(subset & ((1 << correct) - 1) != 0));
        }
        passed / all
    }

    proptest! {
        #[test]
        fn the_estimate_is_the_share_of_subsets_with_a_correct_sample(n in 1_u32..11, c in 0_u32..11, k in 1_u32..11) {
            let (c, k) = (c.min(n), k.min(n));
            let estimate = pass_at_k(u64::from(n), u64::from(c), u64::from(k)).unwrap();
            prop_assert!((estimate - counted(n, c, k)).abs() < 1e-12);
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(pass_at_k(4, 1, 1), Some(0.25));
        assert_eq!(pass_at_k(4, 2, 3), Some(1.0));
        assert_eq!(pass_at_k(100_000, 0, 64), Some(0.0));
        assert_eq!([pass_at_k(3, 1, 4), pass_at_k(3, 4, 1), pass_at_k(3, 1, 0)], [None; 3]);
    }

    #[test]
    fn a_mean_of_one_has_no_error() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[0.5]), Some(Estimate { value: 0.5, standard_error: None, count: 1 }));
        // deviations -1, 0, 1: variance 1, error sqrt(1 / 3)
        let three = mean(&[1.0, 2.0, 3.0]).unwrap();
        assert!((three.value - 2.0).abs() < 1e-15);
        assert!((three.standard_error.unwrap() - (1.0_f64 / 3.0).sqrt()).abs() < 1e-15);
    }
}
