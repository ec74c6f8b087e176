//! Columns of a row as variables of a template.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use pipeline_core::{ParamError, TableType, json_rows};
use schemas::queries;
use serde_json::{Map, Value};

use crate::template::Template;

/// The columns of a row that a template names. `extra` comes as the object that its text holds.
pub fn variables(batch: &RecordBatch, row: usize, template: &Template) -> Map<String, Value> {
    let schema = batch.schema();
    let named = schema.fields().iter().zip(batch.columns()).filter(|(field, _)| template.names(field.name()));
    let value = |(field, column): (&std::sync::Arc<arrow::datatypes::Field>, &arrow::array::ArrayRef)| {
        let mut value = json_rows::value_at(column.as_ref(), row);
        if field.name() == queries::EXTRA {
            let parsed = value.as_str().and_then(|text| serde_json::from_str(text).ok());
            value = parsed.filter(Value::is_object).unwrap_or_else(|| Value::Object(Map::new()));
        }
        (field.name().clone(), value)
    };
    named.map(value).collect()
}

/// Refuses a template that names neither a column of the rows nor one of `others`.
///
/// # Errors
/// At the parameter of the template, with what there is.
pub fn ensure_columns(template: &Template, rows: &TableType, others: &[&str]) -> Result<(), ParamError> {
    let known: BTreeSet<&str> =
        rows.schema.fields().iter().map(|field| field.name().as_str()).chain(others.iter().copied()).collect();
    let Some(unknown) = template.variables().iter().find(|name| !known.contains(name.as_str())) else {
        return Ok(());
    };
    let message = format!("the template names `{unknown}`, and the rows have no such column");
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(name, unknown), *name)).min();
    let error = ParamError::new(template.parameter(), message);
    Err(match nearest {
        Some((distance, name)) if distance <= 2 => error.hint(format!("did you mean `{name}`?")),
        _ => error.hint(format!("there are: {}", known.into_iter().collect::<Vec<_>>().join(", "))),
    })
}
