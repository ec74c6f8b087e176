//! Buckets: from edges or exact histograms to names that a reader understands.
//!
//! Bucket `i` holds the values from edge `i - 1` on and below edge `i`. A histogram counts every value there is, and
//! sums of counts do not depend on how rows were cut, so quantile edges are exact and the same for any sharding.

/// Adds equal values up: each value with its count, ascending.
pub fn histogram(mut values: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    values.sort_unstable_by(|one, two| one.0.total_cmp(&two.0));
    let mut counts: Vec<(f64, u64)> = Vec::new();
    for (value, count) in values {
        match counts.last_mut() {
            Some(last) if last.0.total_cmp(&value).is_eq() => last.1 += count,
            _ => counts.push((value, count)),
        }
    }
    counts
}

/// The `buckets - 1` edges that cut a histogram into parts of equal size: edge `k` is the value at position
/// ceil(k N / buckets) of all N values in order. Equal values stay together, so ties may leave a bucket small or empty.
pub fn quantile_edges(histogram: &[(f64, u64)], buckets: u32) -> Vec<f64> {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    let mut edges = Vec::new();
    let mut below = 0;
    let mut values = histogram.iter().copied();
    let mut current = values.next();
    for k in 1..u64::from(buckets) {
        let position = (u128::from(k) * u128::from(total)).div_ceil(u128::from(buckets));
        while let Some((_, count)) = current
            && u128::from(below + count) <= position
        {
            let Some(next) = values.next() else { break };
            below += count;
            current = Some(next);
        }
        edges.extend(current.map(|(value, _)| value));
    }
    edges
}

/// The bucket of a value.
pub fn bucket_of(edges: &[f64], value: f64) -> usize {
    edges.partition_point(|edge| *edge <= value)
}

/// What the values of a column can be, which decides how buckets are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Whole numbers from 0: `0-999`, `1000-4999`, `5000+`.
    Counts,
    /// Shares from 0 to 1: `0.00-0.25`, `0.25-1.00`.
    Shares,
    /// Any numbers: `<1.5`, `1.5-3`, `3+`.
    Numbers,
}

/// Names of the buckets that `edges` make.
pub fn names(edges: &[f64], scale: Scale) -> Vec<String> {
    (0..=edges.len())
        .map(|bucket| {
            let low = bucket.checked_sub(1).map(|below| edges[below]);
            let high = edges.get(bucket).copied();
            match scale {
                Scale::Counts => counted(low, high),
                Scale::Shares => format!("{}-{}", share(low.unwrap_or(0.0)), share(high.unwrap_or(1.0))),
                Scale::Numbers => match (low, high) {
                    (Some(low), Some(high)) => format!("{low}-{high}"),
                    (None, Some(high)) => format!("<{high}"),
                    (Some(low), None) => format!("{low}+"),
                    (None, None) => "all".to_owned(),
                },
            }
        })
        .collect()
}

/// Whole numbers below an edge end at the number before it.
fn counted(low: Option<f64>, high: Option<f64>) -> String {
    let low = low.unwrap_or(0.0).ceil();
    let Some(high) = high else { return format!("{low}+") };
    let last = high.ceil() - 1.0;
    if last <= low { format!("{low}") } else { format!("{low}-{last}") }
}

/// Two digits, or more where the edge has more.
fn share(edge: f64) -> String {
    let short = format!("{edge:.2}");
    if short.parse() == Ok(edge) { short } else { format!("{edge}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_read_like_ranges() {
        assert_eq!(names(&[1000.0, 5000.0], Scale::Counts), ["0-999", "1000-4999", "5000+"]);
        assert_eq!(names(&[1.0, 2.0], Scale::Counts), ["0", "1", "2+"]);
        assert_eq!(names(&[0.25, 0.5, 0.75], Scale::Shares), ["0.00-0.25", "0.25-0.50", "0.50-0.75", "0.75-1.00"]);
        assert_eq!(names(&[0.125], Scale::Shares), ["0.00-0.125", "0.125-1.00"]);
        assert_eq!(names(&[-1.0, 0.5], Scale::Numbers), ["<-1", "-1-0.5", "0.5+"]);
        assert_eq!(names(&[], Scale::Counts), ["0+"]);
    }

    #[test]
    fn an_edge_belongs_to_the_bucket_above_it() {
        assert_eq!(bucket_of(&[1.0, 5.0], 0.9), 0);
        assert_eq!(bucket_of(&[1.0, 5.0], 1.0), 1);
        assert_eq!(bucket_of(&[1.0, 5.0], 5.0), 2);
    }

    #[test]
    fn quantiles_without_values_have_no_edges() {
        assert!(quantile_edges(&[], 4).is_empty());
    }

    proptest! {
        #[test]
        fn quantile_edges_are_those_of_the_sorted_values(
            values in prop::collection::vec(-20_i32..20, 1..200), buckets in 2_u32..8, cut in 0_usize..200,
        ) {
            let mut sorted: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let counted = |part: &[f64]| histogram(part.iter().map(|value| (*value, 1)).collect());
            let (one, two) = sorted.split_at(cut.min(sorted.len()));
            let mut parts = counted(two);
            parts.extend(counted(one));
            let edges = quantile_edges(&histogram(parts), buckets);
            sorted.sort_by(f64::total_cmp);
            let naive: Vec<f64> = (1..u64::from(buckets))
                .map(|k| {
                    let position = (k * sorted.len() as u64).div_ceil(u64::from(buckets));
                    sorted[usize::try_from(position).unwrap().min(sorted.len() - 1)]
                })
                .collect();
            prop_assert_eq!(edges, naive);
        }

        #[test]
        fn distinct_values_fall_into_buckets_of_equal_size(count in 1_u32..300, buckets in 2_u32..8) {
            let histogram: Vec<(f64, u64)> = (0..count).map(|value| (f64::from(value), 1)).collect();
            let edges = quantile_edges(&histogram, buckets);
            let mut sizes = vec![0_u32; buckets as usize];
            for (value, _) in &histogram {
                sizes[bucket_of(&edges, *value)] += 1;
            }
            if count >= buckets {
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                prop_assert!(most - least <= 1, "{:?}", sizes);
            }
        }
    }
}
