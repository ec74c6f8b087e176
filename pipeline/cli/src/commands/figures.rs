//! Figures at the end of a run: how hard the queries are for the model, and how much a student could learn.

use std::collections::BTreeMap;

use arrow::array::{Array, Float64Array};
use pipeline_core::rows;
use pipeline_core::table_io::TableFile;
use pipeline_engine::Status;
use pipeline_engine::record::grouped;
use schemas::{queries, traces};

use crate::output;
use crate::session::Session;

/// Histogram of the pass rates that the last stage of kind `difficulty` found.
pub fn pass_rates(session: &Session, statuses: &[Status]) -> Option<String> {
    let mut bins = [0_u64; 12];
    let stage = each_row(session, statuses, "difficulty", &[queries::PASS_RATE], |values| {
        if let Some(rate) = values[0] {
            bins[bin(rate)] += 1;
        }
    })?;
    let labels = [
        "0", "0-0.1", "0.1-0.2", "0.2-0.3", "0.3-0.4", "0.4-0.5", "0.5-0.6", "0.6-0.7", "0.7-0.8", "0.8-0.9", "0.9-1",
        "1",
    ];
    let most = bins.iter().copied().max().unwrap_or(0).max(1);
    let mut text = format!("pass rates of `{stage}` (queries)");
    for (label, count) in labels.iter().zip(bins) {
        let width = usize::try_from((count * 40).div_ceil(most)).unwrap_or(0);
        text += &format!("\n  {label:>7}  {:<40} {}", "#".repeat(width), grouped(count));
    }
    Some(text)
}

/// Learning potential by pass rate, of the last stage of kind `learning_potential`. Columns of the table: traces, then
/// least, median, greatest and mean value in nats per token.
pub fn learning_potential(session: &Session, statuses: &[Status]) -> Option<String> {
    let mut groups: BTreeMap<Option<u64>, Vec<f64>> = BTreeMap::new();
    let columns = [traces::LEARNING_POTENTIAL, queries::PASS_RATE];
    let stage = each_row(session, statuses, "learning_potential", &columns, |values| {
        if let Some(potential) = values[0] {
            groups.entry(values[1].map(thousandths)).or_default().push(potential);
        }
    })?;
    let all = groups.values().flatten().copied().collect();
    let rated = groups.into_iter().filter_map(|(rate, values)| Some((rate?, values)));
    let mut rows: Vec<Vec<String>> = rated
        .map(|(rate, values)| row(format!("{:.3}", f64::from(u32::try_from(rate).unwrap_or(0)) / 1000.0), values))
        .collect();
    rows.push(row("all".to_owned(), all));
    let headings = ["pass rate", "traces", "least", "median", "greatest", "mean"];
    Some(format!("learning potential of `{stage}` (nats per token)\n{}", output::table(&headings, rows, 1)))
}

/// Exactly equal rates share a row; a rate is a fraction of a few rollouts.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate from 0 to 1 times a thousand")]
fn thousandths(rate: f64) -> u64 {
    (rate.clamp(0.0, 1.0) * 1000.0).round() as u64
}

fn row(label: String, mut values: Vec<f64>) -> Vec<String> {
    values.sort_by(f64::total_cmp);
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let figures = [at(0), at(values.len().saturating_sub(1) / 2), at(values.len().saturating_sub(1)), mean];
    let mut row = vec![label, grouped(values.len() as u64)];
    row.extend(figures.map(|figure| format!("{figure:.3}")));
    row
}

/// Reads number columns of the output of the last successful stage of a kind, and gives its name. Null is `None`; a
/// column that the table lacks is all null.
fn each_row(
    session: &Session,
    statuses: &[Status],
    kind: &str,
    columns: &[&str],
    mut take: impl FnMut(&[Option<f64>]),
) -> Option<String> {
    let (node, status) = session
        .project
        .nodes
        .iter()
        .zip(statuses)
        .rfind(|(node, status)| node.entry.kind == kind && status.success().is_some())?;
    let version = session.store.current(&node.name)?;
    for file in &status.success()?.main()?.files {
        let table = TableFile::open(&version.folder.join(&file.file)).ok()?;
        for batch in table.read(0, file.rows, Some(columns)).ok()? {
            let batch = batch.ok()?;
            let numbers: Vec<_> = columns.iter().map(|column| rows::floats(&batch, column).ok()).collect();
            for row in 0..batch.num_rows() {
                let value = |column: Option<&Float64Array>| {
                    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
                };
                take(&numbers.iter().copied().map(value).collect::<Vec<_>>());
            }
        }
    }
    Some(node.name.clone())
}

/// Exactly 0 and exactly 1 have bins of their own, since such queries teach nothing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate from 0 to 1 times ten")]
fn bin(rate: f64) -> usize {
    if rate <= 0.0 {
        0
    } else if rate >= 1.0 {
        11
    } else {
        1 + ((rate * 10.0) as usize).min(9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_zero_and_one_stand_apart() {
        assert_eq!([bin(0.0), bin(0.05), bin(0.1), bin(0.999), bin(1.0)], [0, 1, 2, 10, 11]);
    }

    #[test]
    fn a_row_shows_the_lower_median() {
        assert_eq!(row("x".to_owned(), vec![4.0, 1.0, 3.0, 2.0]), ["x", "4", "1.000", "2.000", "4.000", "2.500"]);
    }
}
