//! How many rows each group of a mix gets, so that the weights hold.

/// A group has fewer rows than its weight asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// The group.
    pub group: usize,
    /// Rows that it should give.
    pub wanted: u64,
    /// Rows that it has.
    pub available: u64,
}

/// Weights as shares of 1. All weights are finite and not negative, and one is positive.
fn normal(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Rows of each group for `total` rows, by largest remainders; ties go to the earlier group. They sum to `total`.
pub fn apportion(weights: &[f64], total: u64) -> Vec<u64> {
    let exact: Vec<f64> = normal(weights).iter().map(|share| share * total as f64).collect();
    // a product that should be whole may lie a rounding error below
    let mut rows: Vec<u64> = exact.iter().map(|exact| whole(exact + 1e-9 * exact.abs())).collect();
    let mut order: Vec<usize> = (0..weights.len()).filter(|group| weights[*group] > 0.0).collect();
    let rest = |group: usize| exact[group] - rows[group] as f64;
    order.sort_by(|one, two| rest(*two).total_cmp(&rest(*one)).then(one.cmp(two)));
    let mut missing = total.saturating_sub(rows.iter().sum());
    for group in order.into_iter().cycle() {
        if missing == 0 {
            break;
        }
        rows[group] += 1;
        missing -= 1;
    }
    rows
}

/// Rows of each group for the largest total that keeps the weights: the group that has least for its weight gives all
/// it has, the others their shares, rounded down.
pub fn largest(weights: &[f64], available: &[u64]) -> Vec<u64> {
    let tight = (0..weights.len()).filter(|group| weights[*group] > 0.0).min_by(|one, two| {
        let room = |group: usize| available[group] as f64 / weights[group];
        room(*one).total_cmp(&room(*two))
    });
    let Some(tight) = tight else { return vec![0; weights.len()] };
    let share = |weight: f64| available[tight] as f64 * weight / weights[tight];
    let rows = weights.iter().zip(available).map(|(weight, available)| {
        let exact = share(*weight);
        whole(exact + 1e-9 * exact).min(*available)
    });
    rows.collect()
}

fn whole(exact: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shares of row counts are not negative"
    )]
    let whole = exact.floor() as u64;
    whole
}

/// Rows of each group: for `total` rows where one is asked for, else for the largest total that keeps the weights.
/// With `shrink`, a total that the groups cannot give becomes the largest that they can.
///
/// # Errors
/// Names the first group that has too few rows for the total asked for.
pub fn targets(weights: &[f64], available: &[u64], total: Option<u64>, shrink: bool) -> Result<Vec<u64>, Short> {
    let Some(total) = total else { return Ok(largest(weights, available)) };
    let wanted = apportion(weights, total);
    let short = wanted.iter().zip(available).position(|(wanted, available)| wanted > available);
    match short {
        None => Ok(wanted),
        Some(_) if shrink => Ok(largest(weights, available)),
        Some(group) => Err(Short { group, wanted: wanted[group], available: available[group] }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_scarcest_group_decides_the_largest_total() {
        assert_eq!(largest(&[0.5, 0.3, 0.2], &[100, 100, 10]), [25, 15, 10]);
        assert_eq!(largest(&[1.0, 1.0], &[7, 3]), [3, 3]);
        assert_eq!(largest(&[1.0, 0.0], &[7, 3]), [7, 0]);
        assert_eq!(largest(&[0.1, 0.2], &[3, 6]), [3, 6]);
    }

    #[test]
    fn a_total_is_met_exactly_or_refused() {
        assert_eq!(apportion(&[1.0, 1.0, 1.0], 10), [4, 3, 3]);
        assert_eq!(targets(&[0.5, 0.5], &[10, 10], Some(5), false), Ok(vec![3, 2]));
        assert_eq!(targets(&[0.5, 0.5], &[10, 2], Some(10), false), Err(Short { group: 1, wanted: 5, available: 2 }));
        assert_eq!(targets(&[0.5, 0.5], &[10, 2], Some(10), true), Ok(vec![2, 2]));
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_total_and_stray_by_less_than_one(
            weights in prop::collection::vec(0_u32..100, 1..6), total in 0_u64..100_000,
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let rows = apportion(&weights, total);
            prop_assert_eq!(rows.iter().sum::<u64>(), total);
            let sum: f64 = weights.iter().sum();
            for (weight, rows) in weights.iter().zip(rows) {
                prop_assert!((weight / sum * total as f64 - rows as f64).abs() < 1.0 + 1e-6);
                prop_assert!(*weight > 0.0 || rows == 0);
            }
        }

        #[test]
        fn the_largest_total_uses_up_one_group_and_overdraws_none(
            groups in prop::collection::vec((1_u32..100, 0_u64..1000), 1..6),
        ) {
            let weights: Vec<f64> = groups.iter().map(|group| f64::from(group.0)).collect();
            let available: Vec<u64> = groups.iter().map(|group| group.1).collect();
            let rows = largest(&weights, &available);
            prop_assert!(rows.iter().zip(&available).all(|(rows, available)| rows <= available));
            prop_assert!(rows.iter().zip(&available).any(|(rows, available)| rows == available));
        }
    }
}
