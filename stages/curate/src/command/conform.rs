//! Columns as other programs write them, turned into those that were declared, where nothing is lost by it.
//!
//! Data frames write integers with nulls as floats, columns that are null throughout without a type, and lists whose
//! items have other names; all this means what was declared. What would lose something, or is of another type, is told.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Float64Type};

/// The column as declared.
///
/// # Errors
/// What does not fit, in words that follow the column's name.
pub fn conform(array: &ArrayRef, field: &Field) -> Result<ArrayRef, String> {
    let typed = typed(array, field.data_type())?;
    if !field.is_nullable() && typed.null_count() > 0 {
        return Err("has rows without a value, and every row needs one".to_owned());
    }
    Ok(typed)
}

fn typed(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    let found = array.data_type();
    if found == wanted {
        return Ok(Arc::clone(array));
    }
    match (found, wanted) {
        (DataType::Null, _) => Ok(new_null_array(wanted, array.len())),
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let items = typed(list.values(), item.data_type())?;
            let made = ListArray::try_new(Arc::clone(item), list.offsets().clone(), items, list.nulls().cloned());
            made.map(|list| Arc::new(list) as ArrayRef).map_err(|error| error.to_string())
        }
        (DataType::Struct(_), DataType::Struct(_)) => of_structs(array.as_struct(), wanted),
        (from, DataType::Int64) if from.is_integer() => cast(array, wanted),
        (DataType::Float32 | DataType::Float64, DataType::Int64) => whole_numbers(array),
        (from, DataType::Float64 | DataType::Float32) if from.is_numeric() => cast(array, wanted),
        (from, DataType::UInt32) if from.is_integer() => cast(array, wanted),
        (DataType::Utf8 | DataType::LargeUtf8, DataType::Utf8View) => cast(array, wanted),
        _ => Err(format!("is {}, {} is needed", name(found), name(wanted))),
    }
}

fn of_structs(found: &StructArray, wanted: &DataType) -> Result<ArrayRef, String> {
    let DataType::Struct(fields) = wanted else { return Err(format!("is no {}", name(wanted))) };
    if let Some(other) = found.fields().iter().find(|field| fields.find(field.name()).is_none()) {
        return Err(format!("has an unknown part `{}`", other.name()));
    }
    let parts = fields.iter().map(|field| match found.column_by_name(field.name()) {
        Some(part) => typed(part, field.data_type()),
        None => Ok(new_null_array(field.data_type(), found.len())),
    });
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let made = StructArray::try_new(fields.clone(), parts, found.nulls().cloned());
    made.map(|made| Arc::new(made) as ArrayRef).map_err(|error| error.to_string())
}

/// Floats that are whole numbers, as data frames write integers beside nulls.
fn whole_numbers(array: &ArrayRef) -> Result<ArrayRef, String> {
    let floats = cast(array, &DataType::Float64)?;
    let floats = floats.as_primitive::<Float64Type>();
    match floats.iter().flatten().find(|value| value.fract() != 0.0 || value.abs() >= 9_007_199_254_740_992.0) {
        Some(value) => Err(format!("holds {value}, an integer is needed")),
        None => cast(array, &DataType::Int64),
    }
}

fn cast(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, wanted, &options).map_err(|error| error.to_string())
}

/// A type in words.
fn name(kind: &DataType) -> String {
    match kind {
        DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8 => "text".to_owned(),
        DataType::Boolean => "true/false".to_owned(),
        DataType::Float64 => "a number".to_owned(),
        DataType::Int64 => "an integer".to_owned(),
        DataType::List(item) => format!("a list of {}", name(item.data_type())),
        DataType::Struct(fields) => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            format!("{{{}}}", names.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int32Array, NullArray, StringArray, StringViewArray};

    use super::*;

    fn to(kind: DataType, array: impl Array + 'static) -> Result<ArrayRef, String> {
        conform(&(Arc::new(array) as ArrayRef), &Field::new("x", kind, true))
    }

    #[test]
    fn what_data_frames_write_becomes_what_was_declared() {
        assert_eq!(to(DataType::Utf8View, StringArray::from(vec!["a"])).unwrap().data_type(), &DataType::Utf8View);
        assert_eq!(to(DataType::Int64, Int32Array::from(vec![1])).unwrap().data_type(), &DataType::Int64);
        let with_null = to(DataType::Int64, Float64Array::from(vec![Some(1.0), None])).unwrap();
        assert_eq!((with_null.data_type(), with_null.null_count()), (&DataType::Int64, 1));
        assert_eq!(to(DataType::Boolean, NullArray::new(3)).unwrap().null_count(), 3);
    }

    #[test]
    fn what_would_lose_something_is_told() {
        assert_eq!(to(DataType::Int64, Float64Array::from(vec![1.5])).unwrap_err(), "holds 1.5, an integer is needed");
        assert_eq!(to(DataType::Int64, StringArray::from(vec!["1"])).unwrap_err(), "is text, an integer is needed");
        assert_eq!(to(DataType::Utf8View, Int32Array::from(vec![1])).unwrap_err(), "is Int32, text is needed");
        let required = Field::new("x", DataType::Utf8View, false);
        let array = Arc::new(StringViewArray::from(vec![Some("a"), None])) as ArrayRef;
        assert!(conform(&array, &required).unwrap_err().contains("every row needs one"));
    }
}
