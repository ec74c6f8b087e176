//! The order of rows inside their groups: by score or by draw, ties by the row's id and then by its place.
//!
//! The order is total, so it is the same for any cut of the rows into tasks and batches and for any number of threads.
//! polars sorts; it sees group numbers, keys, ids and ordinals, and answers with ordinals.

use arrow::array::{ArrayRef, AsArray as _, Float64Array, Int64Array, StringViewArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::UInt32Type;
use pipeline_core::StageError;
use polars::prelude::{DataFrame, IntoColumn as _, IntoLazy as _, SortMultipleOptions, col};

use crate::bridge::{self, fault};

/// What decides the order inside a group.
#[derive(Debug, Clone, Copy)]
pub enum Key<'a> {
    /// A score, ascending. Rows that compete have one.
    Ascending(&'a Float64Array),
    /// A score, descending. Rows that compete have one.
    Descending(&'a Float64Array),
    /// A random number.
    Draw(&'a Int64Array),
}

impl Key<'_> {
    fn taken(&self, rows: &UInt32Array) -> Result<ArrayRef, StageError> {
        Ok(match self {
            Self::Ascending(scores) | Self::Descending(scores) => take(scores, rows, None)?,
            Self::Draw(draws) => take(draws, rows, None)?,
        })
    }
}

/// Most rows of one table that are ranked together.
pub const MOST_ROWS: u64 = u32::MAX as u64 - 1;

/// The rows, group after group, each group in order. `groups` and `ids` are indexed by row, as the key is; groups come
/// in order of their numbers.
///
/// # Errors
/// When polars refuses, which would be a fault of this program.
pub fn ordered(rows: Vec<u32>, groups: &[u32], key: Key<'_>, ids: &StringViewArray) -> Result<Vec<u32>, StageError> {
    let group = UInt32Array::from_iter_values(rows.iter().map(|row| groups[*row as usize]));
    let rows = UInt32Array::from(rows);
    let columns = [
        bridge::series("group", &group)?,
        bridge::series("key", &key.taken(&rows)?)?,
        bridge::series("id", &take(ids, &rows, None)?)?,
        bridge::series("row", &rows)?,
    ];
    let frame = DataFrame::new(rows.len(), columns.into_iter().map(polars::prelude::Series::into_column).collect())
        .map_err(|error| fault(&error))?;
    let descending = matches!(key, Key::Descending(_));
    let order = SortMultipleOptions::default().with_order_descending_multi([false, descending, false, false]);
    let sorted = frame
        .lazy()
        .sort(["group", "key", "id", "row"], order)
        .select([col("row")])
        .collect()
        .map_err(|error| fault(&error))?;
    let sorted = sorted.column("row").map_err(|error| fault(&error))?.as_materialized_series().clone();
    let sorted = bridge::array(&sorted)?;
    let sorted = sorted.as_primitive_opt::<UInt32Type>();
    let sorted = sorted.ok_or_else(|| StageError::Internal("polars changed the type of row numbers".to_owned()))?;
    Ok(sorted.values().to_vec())
}

/// Ordered rows, group by group.
pub fn by_group<'a>(ordered: &'a [u32], groups: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
    ordered.chunk_by(|one, two| groups[*one as usize] == groups[*two as usize])
}

/// The value at a percentile by nearest rank: the smallest of the `sorted` values that at least `percentile` percent
/// of them do not exceed; the smallest of all for 0. `None` without values.
pub fn nearest_rank(sorted: &[f64], percentile: f64) -> Option<f64> {
    let rank = (percentile * sorted.len() as f64 / 100.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank lies between 0 and the length")]
    let rank = (rank as usize).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_percentile_is_a_value_of_the_group() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(nearest_rank(&sorted, 0.0), Some(1.0));
        assert_eq!(nearest_rank(&sorted, 50.0), Some(50.0));
        assert_eq!(nearest_rank(&sorted, 99.0), Some(99.0));
        assert_eq!(nearest_rank(&sorted, 99.5), Some(100.0));
        assert_eq!(nearest_rank(&sorted, 100.0), Some(100.0));
        assert_eq!(nearest_rank(&sorted[..3], 50.0), Some(2.0));
        assert_eq!(nearest_rank(&[], 50.0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_order_is_that_of_a_plain_sort(
            rows in prop::collection::vec((0_u32..3, -3_i32..3, "[ab题]{0,2}"), 0..40),
            descending: bool,
        ) {
            let groups: Vec<u32> = rows.iter().map(|row| row.0).collect();
            let scores: Float64Array = rows.iter().map(|row| Some(f64::from(row.1) / 2.0)).collect();
            let ids = StringViewArray::from_iter_values(rows.iter().map(|row| row.2.as_str()));
            let key = if descending { Key::Descending(&scores) } else { Key::Ascending(&scores) };
            let candidates: Vec<u32> = (0..u32::try_from(rows.len()).unwrap()).collect();
            let mut naive = candidates.clone();
            naive.sort_by(|one, two| {
                let (a, b) = (&rows[*one as usize], &rows[*two as usize]);
                let score = if descending { b.1.cmp(&a.1) } else { a.1.cmp(&b.1) };
                a.0.cmp(&b.0).then(score).then(a.2.as_bytes().cmp(b.2.as_bytes())).then(one.cmp(two))
            });
            prop_assert_eq!(ordered(candidates, &groups, key, &ids).unwrap(), naive);
        }
    }
}
