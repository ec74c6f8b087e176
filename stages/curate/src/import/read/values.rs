//! Arrow values as JSON text.
//!
//! Integers and floats become numbers with all their digits (a 32-bit float is written as the 64-bit float it equals);
//! decimals, dates, times and durations become text, since JSON has no exact form for them; bytes become text where
//! they are UTF-8, else hexadecimal digits; floats that are no numbers become the texts `NaN`, `Infinity`,
//! `-Infinity`. Nulls stay nulls.

use std::fmt::Write as _;
use std::io::Write as _;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use pipeline_core::StageError;

/// Appends a row as a JSON object.
///
/// # Errors
/// When a value's type is unknown to Arrow's own formatter.
pub fn write_row(out: &mut Vec<u8>, batch: &RecordBatch, row: usize) -> Result<(), StageError> {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().as_str());
    write_object(out, names, batch.columns(), row)
}

fn write_object<'a>(
    out: &mut Vec<u8>,
    names: impl Iterator<Item = &'a str>,
    columns: &[ArrayRef],
    row: usize,
) -> Result<(), StageError> {
    out.push(b'{');
    for (index, (name, column)) in names.zip(columns).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, name)?;
        out.push(b':');
        write_value(out, column.as_ref(), row)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_text(out: &mut Vec<u8>, text: &str) -> Result<(), StageError> {
    serde_json::to_writer(out, text).map_err(|error| StageError::Internal(error.to_string()))
}

fn write_display(out: &mut Vec<u8>, value: impl std::fmt::Display) -> Result<(), StageError> {
    write!(out, "{value}").map_err(|error| StageError::Internal(error.to_string()))
}

fn write_float(out: &mut Vec<u8>, value: f64) -> Result<(), StageError> {
    if value.is_finite() {
        return serde_json::to_writer(out, &value).map_err(|error| StageError::Internal(error.to_string()));
    }
    write_text(
        out,
        if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        },
    )
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), StageError> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return write_text(out, text);
    }
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(digits, "{byte:02x}").map_err(|error| StageError::Internal(error.to_string()))?;
    }
    write_text(out, &digits)
}

fn write_list(out: &mut Vec<u8>, items: &dyn Array) -> Result<(), StageError> {
    out.push(b'[');
    for index in 0..items.len() {
        if index > 0 {
            out.push(b',');
        }
        write_value(out, items, index)?;
    }
    out.push(b']');
    Ok(())
}

fn write_value(out: &mut Vec<u8>, array: &dyn Array, row: usize) -> Result<(), StageError> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Utf8View => write_text(out, array.as_string_view().value(row)),
        DataType::Utf8 => write_text(out, array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => write_text(out, array.as_string::<i64>().value(row)),
        DataType::Boolean => write_display(out, array.as_boolean().value(row)),
        DataType::Int8 => write_display(out, array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => write_display(out, array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => write_display(out, array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => write_display(out, array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => write_display(out, array.as_primitive::<UInt8Type>().value(row)),
        DataType::UInt16 => write_display(out, array.as_primitive::<UInt16Type>().value(row)),
        DataType::UInt32 => write_display(out, array.as_primitive::<UInt32Type>().value(row)),
        DataType::UInt64 => write_display(out, array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float16 => write_float(out, array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => write_float(out, f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => write_float(out, array.as_primitive::<Float64Type>().value(row)),
        DataType::BinaryView => write_bytes(out, array.as_binary_view().value(row)),
        DataType::Binary => write_bytes(out, array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => write_bytes(out, array.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => write_bytes(out, array.as_fixed_size_binary().value(row)),
        DataType::List(_) => write_list(out, array.as_list::<i32>().value(row).as_ref()),
        DataType::LargeList(_) => write_list(out, array.as_list::<i64>().value(row).as_ref()),
        DataType::FixedSizeList(_, _) => write_list(out, array.as_fixed_size_list().value(row).as_ref()),
        DataType::Struct(fields) => {
            write_object(out, fields.iter().map(|field| field.name().as_str()), array.as_struct().columns(), row)
        }
        DataType::Map(_, _) => write_map(out, array, row),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys().get(row).copied().unwrap_or_default();
            write_value(out, dictionary.values().as_ref(), key)
        }
        _ => write_text(out, &arrow::util::display::array_value_to_string(array, row)?),
    }
}

/// A map with text keys is an object, another one a list of `{key, value}`.
fn write_map(out: &mut Vec<u8>, array: &dyn Array, row: usize) -> Result<(), StageError> {
    let entries = array.as_map().value(row);
    let (keys, values) = (entries.column(0), entries.column(1));
    let is_text = matches!(keys.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if !is_text {
        return write_list(out, &entries);
    }
    out.push(b'{');
    for index in 0..entries.len() {
        if index > 0 {
            out.push(b',');
        }
        write_value(out, keys.as_ref(), index)?;
        out.push(b':');
        write_value(out, values.as_ref(), index)?;
    }
    out.push(b'}');
    Ok(())
}
