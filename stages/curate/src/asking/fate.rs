//! What becomes of the rows of a batch once their answers are read.

use arrow::array::{BooleanArray, RecordBatch};
use pipeline_core::{Rejection, StageError, Task, rows};

/// What becomes of a row.
#[derive(Debug)]
pub enum Fate<T> {
    /// It stays, with this.
    Kept(T),
    /// It falls out.
    Rejected(Rejection),
    /// Its answer is missing for a passing reason.
    Missing,
}

/// Writes the rejected rows of a batch, and gives those that stay, with what they stay with, and the number of missing
/// ones.
///
/// # Errors
/// When the disk refuses.
pub fn settle<T>(
    task: &mut Task<'_>,
    batch: &RecordBatch,
    fates: Vec<Fate<T>>,
) -> Result<(RecordBatch, Vec<T>, u64), StageError> {
    let mask = |is: fn(&Fate<T>) -> bool| fates.iter().map(|fate| Some(is(fate))).collect::<BooleanArray>();
    let staying = rows::filter(batch, &mask(|fate| matches!(fate, Fate::Kept(_))))?;
    let fallen = rows::filter(batch, &mask(|fate| matches!(fate, Fate::Rejected(_))))?;
    let (mut kept, mut rejections, mut missing) = (Vec::new(), Vec::new(), 0);
    for fate in fates {
        match fate {
            Fate::Kept(value) => kept.push(value),
            Fate::Rejected(rejection) => rejections.push(rejection),
            Fate::Missing => missing += 1,
        }
    }
    task.reject(&fallen, &rejections)?;
    Ok((staying, kept, missing))
}
