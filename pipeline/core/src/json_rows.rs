//! Rows as JSON and back, for `show --json`, for examples and for tests.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch,
    StringViewArray, StructArray, UInt32Array, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, SchemaRef, UInt32Type, UInt64Type};
use serde_json::{Map, Value};

use crate::error::StageError;

/// The rows of a batch as JSON objects; nulls are kept.
pub fn to_json(batch: &RecordBatch) -> Vec<Map<String, Value>> {
    let schema = batch.schema();
    (0..batch.num_rows())
        .map(|row| {
            let columns = schema.fields().iter().zip(batch.columns());
            columns.map(|(field, column)| (field.name().clone(), value_at(column.as_ref(), row))).collect()
        })
        .collect()
}

/// One value of a column as JSON.
pub fn value_at(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|item| value_at(items.as_ref(), item)).collect()
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            columns.map(|(field, column)| (field.name().clone(), value_at(column.as_ref(), row))).collect()
        }
        _ => arrow::util::display::array_value_to_string(array, row).map_or(Value::Null, Value::String),
    }
}

/// Builds a batch of `schema` from JSON objects; keys that are missing become nulls.
///
/// # Errors
/// When a value does not fit its column, or a key names no column.
pub fn from_json(schema: &SchemaRef, rows: &[Value]) -> Result<RecordBatch, StageError> {
    for row in rows {
        let known = |key: &String| schema.column_with_name(key).is_some();
        if let Some(key) = row.as_object().and_then(|row| row.keys().find(|key| !known(key))) {
            return Err(StageError::column(key, "is no column of the table"));
        }
    }
    let columns = schema
        .fields()
        .iter()
        .map(|field| {
            let values: Vec<&Value> = rows.iter().map(|row| row.get(field.name()).unwrap_or(&Value::Null)).collect();
            array_of(field.data_type(), &values).map_err(|message| StageError::column(field.name(), message))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Reads each value with `read`; null stays null, anything that does not fit is an error.
fn scalars<T>(values: &[&Value], what: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<Option<T>>, String> {
    values
        .iter()
        .map(|value| match value {
            Value::Null => Ok(None),
            value => read(value).map(Some).ok_or_else(|| format!("{value} is not {what}")),
        })
        .collect()
}

/// Builds an array of one type from JSON values.
///
/// # Errors
/// When a value does not fit; the message says which.
pub fn array_of(kind: &DataType, values: &[&Value]) -> Result<ArrayRef, String> {
    Ok(match kind {
        DataType::Utf8View => {
            let texts = scalars(values, "text", |value| value.as_str().map(str::to_owned))?;
            Arc::new(texts.into_iter().collect::<StringViewArray>())
        }
        DataType::Boolean => Arc::new(BooleanArray::from(scalars(values, "true/false", Value::as_bool)?)),
        DataType::Int64 => Arc::new(Int64Array::from(scalars(values, "an integer", Value::as_i64)?)),
        DataType::UInt64 => Arc::new(UInt64Array::from(scalars(values, "a row number", Value::as_u64)?)),
        DataType::UInt32 => {
            let read = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
            Arc::new(UInt32Array::from(scalars(values, "a token id", read)?))
        }
        DataType::Float64 => Arc::new(Float64Array::from(scalars(values, "a number", Value::as_f64)?)),
        DataType::Float32 => {
            #[expect(clippy::cast_possible_truncation, reason = "the column holds 32-bit floats")]
            let read = |value: &Value| value.as_f64().map(|number| number as f32);
            Arc::new(Float32Array::from(scalars(values, "a number", read)?))
        }
        DataType::List(item) => {
            let lists = scalars(values, "a list", |value| value.as_array().cloned())?;
            let nulls: NullBuffer = lists.iter().map(Option::is_some).collect();
            let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
            let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
            let items: Vec<&Value> = lists.iter().flatten().flatten().collect();
            let items = array_of(item.data_type(), &items)?;
            Arc::new(ListArray::new(Arc::clone(item), offsets, items, Some(nulls)))
        }
        DataType::Struct(fields) => {
            let nulls: NullBuffer = values.iter().map(|value| !value.is_null()).collect();
            let columns = fields
                .iter()
                .map(|field| {
                    let inner: Vec<&Value> =
                        values.iter().map(|value| value.get(field.name()).unwrap_or(&Value::Null)).collect();
                    array_of(field.data_type(), &inner)
                })
                .collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::new(fields.clone(), columns, Some(nulls)))
        }
        other => return Err(format!("has a type that examples do not cover: {other}")),
    })
}
