//! What rows are ranked and grouped by: their ids, the groups they belong to, and draws that depend on ids alone.

use std::collections::HashMap;

use arrow::array::{Array as _, AsArray as _, Int64Array, RecordBatch, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use pipeline_core::{ParamError, Seed, StageError, TableType, rows};
use rayon::prelude::*;
use schemas::{queries, traces};

/// Stands between the values of a group of several columns.
const BETWEEN: char = '\u{1f}';
/// Stands for a null among them.
const MISSING: &str = "\u{0}";

/// The column that names a row: the trace's id, else the query's.
pub fn id_column(schema: &Schema) -> Option<&'static str> {
    [traces::TRACE_ID, queries::QUERY_ID].into_iter().find(|name| schema.column_with_name(name).is_some())
}

/// Refuses a column that is missing, that nothing fills, or that is no text, number or true/false.
///
/// # Errors
/// As said; `param` names the parameter.
pub fn ensure_simple<'a>(param: &str, name: &str, table: &'a TableType) -> Result<&'a DataType, ParamError> {
    let Ok(field) = table.schema.field_with_name(name) else {
        return Err(ParamError::new(param, format!("there is no column `{name}`")));
    };
    if !table.filled.contains(name) {
        return Err(ParamError::new(param, format!("no stage before fills column `{name}`")));
    }
    match field.data_type() {
        kind @ (DataType::Utf8View | DataType::Int64 | DataType::Float64 | DataType::Boolean) => Ok(kind),
        other => {
            Err(ParamError::new(param, format!("column `{name}` is {other}; a text, number or true/false is needed")))
        }
    }
}

/// Refuses a column that is no number.
///
/// # Errors
/// As said; `param` names the parameter.
pub fn ensure_number(param: &str, name: &str, table: &TableType) -> Result<(), ParamError> {
    match ensure_simple(param, name, table)? {
        DataType::Int64 | DataType::Float64 => Ok(()),
        other => Err(ParamError::new(param, format!("column `{name}` is {other}; a number is needed"))),
    }
}

/// A column as text; null stays null.
///
/// # Errors
/// When the column is missing.
pub fn texts(batch: &RecordBatch, name: &str) -> Result<StringViewArray, StageError> {
    let text = cast(rows::column(batch, name)?, &DataType::Utf8View)?;
    Ok(text.as_string_view().clone())
}

/// The group of each row as one text: equal texts mean equal values in all `columns`, and null is a value like others.
///
/// # Errors
/// When a column is missing.
pub fn groups(batch: &RecordBatch, columns: &[String]) -> Result<StringViewArray, StageError> {
    let parts = columns.iter().map(|name| texts(batch, name)).collect::<Result<Vec<_>, _>>()?;
    if let [only] = parts.as_slice() {
        return Ok(only.clone());
    }
    let mut joined = StringViewBuilder::with_capacity(batch.num_rows());
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        text.clear();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                text.push(BETWEEN);
            }
            text.push_str(rows::text_at(part, row).unwrap_or(MISSING));
        }
        joined.append_value(&text);
    }
    Ok(joined.finish())
}

/// A number column as 64-bit floats; what is no number (NaN) is null.
///
/// # Errors
/// When the column is missing or holds no numbers.
pub fn numbers(batch: &RecordBatch, name: &str) -> Result<arrow::array::Float64Array, StageError> {
    let numbers = cast(rows::column(batch, name)?, &DataType::Float64)?;
    let numbers = numbers.as_primitive::<arrow::datatypes::Float64Type>();
    // adding zero makes -0 the same as 0
    Ok(numbers.iter().map(|number| number.filter(|number| !number.is_nan()).map(|number| number + 0.0)).collect())
}

/// The id of each row; its ordinal where the table has no ids.
///
/// # Errors
/// When the id column is no text.
pub fn ids(batch: &RecordBatch, ordinal: u64) -> Result<StringViewArray, StageError> {
    if let Some(name) = id_column(&batch.schema()) {
        return Ok(rows::texts(batch, name)?.clone());
    }
    let ordinals = (ordinal..).take(batch.num_rows());
    Ok(StringViewArray::from_iter_values(ordinals.map(|ordinal| format!("{ordinal:020}"))))
}

/// A random number for each row, the same wherever a row of that id stands.
pub fn draws(ids: &StringViewArray, seed: u64, kind: &str, salt: &str) -> Int64Array {
    let draws: Vec<i64> = (0..ids.len())
        .into_par_iter()
        .with_min_len(512)
        .map(|row| {
            let id = rows::text_at(ids, row).unwrap_or_default();
            i64::try_from(Seed::for_row(seed, kind, salt, id, 0).value() >> 1).unwrap_or(i64::MAX)
        })
        .collect();
    Int64Array::from(draws)
}

/// Texts as small numbers, in order of appearance; null is a text of its own.
#[derive(Debug, Default)]
pub struct Interned {
    /// Number of each row's text.
    pub numbers: Vec<u32>,
    /// The texts.
    pub texts: Vec<Option<String>>,
}

impl Interned {
    /// Numbers the texts of a column.
    pub fn new(column: &StringViewArray) -> Self {
        let mut known: HashMap<Option<&str>, u32> = HashMap::new();
        let mut texts = Vec::new();
        let mut numbers = Vec::with_capacity(column.len());
        for row in 0..column.len() {
            let text = rows::text_at(column, row);
            let number = *known.entry(text).or_insert_with(|| {
                texts.push(text.map(str::to_owned));
                u32::try_from(texts.len() - 1).unwrap_or(u32::MAX)
            });
            numbers.push(number);
        }
        Self { numbers, texts }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_several_columns_do_not_run_together() {
        let table = &schemas::queries::TABLE;
        let rows = [
            json!({"query_id": "1", "domain": "a", "subdomain": "bc"}),
            json!({"query_id": "2", "domain": "ab", "subdomain": "c"}),
            json!({"query_id": "3", "domain": "a", "subdomain": null}),
            json!({"query_id": "4", "domain": "a", "subdomain": "bc"}),
        ];
        let batch = pipeline_core::json_rows::from_json(&table.schema(), &rows).unwrap();
        let groups = groups(&batch, &["domain".to_owned(), "subdomain".to_owned()]).unwrap();
        let interned = Interned::new(&groups);
        assert_eq!(interned.numbers, [0, 1, 2, 0]);
    }

    #[test]
    fn a_draw_depends_on_the_id_alone() {
        let one = draws(&StringViewArray::from(vec!["a", "b", "c"]), 7, "select", "");
        let two = draws(&StringViewArray::from(vec!["c", "a"]), 7, "select", "");
        assert_eq!((one.value(2), one.value(0)), (two.value(0), two.value(1)));
        assert_ne!(one.value(0), draws(&StringViewArray::from(vec!["a"]), 8, "select", "").value(0));
        assert_ne!(one.value(0), draws(&StringViewArray::from(vec!["a"]), 7, "select", "b").value(0));
    }
}
