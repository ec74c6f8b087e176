//! Columns between arrow and polars, without copying them.
//!
//! Both libraries implement the Arrow C data interface: two C structs that own their buffers through a release
//! callback. A column is exported by one side and imported by the other. Texts that are views, numbers and lists keep
//! their buffers. All `unsafe` of the crate is in this file.

use std::mem::{align_of, size_of, transmute};

use arrow::array::{Array, ArrayRef, RecordBatch, make_array};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use pipeline_core::StageError;
use polars::error::PolarsError;
use polars::frame::DataFrame;
use polars::prelude::{CompatLevel, IntoColumn as _, Series};
use polars_arrow::datatypes::Field;
use polars_arrow::ffi::{
    ArrowArray, ArrowSchema, export_array_to_c, export_field_to_c, import_array_from_c, import_field_from_c,
};

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<ArrowArray>());
const _: () = assert!(size_of::<FFI_ArrowSchema>() == size_of::<ArrowSchema>());
const _: () = assert!(align_of::<FFI_ArrowSchema>() == align_of::<ArrowSchema>());

/// What polars says, as a fault of this program: conditions are checked before they meet data.
pub fn fault(error: &PolarsError) -> StageError {
    StageError::Internal(format!("polars: {error}"))
}

/// A column of arrow as a series of polars.
///
/// # Errors
/// When the type is not known to polars.
#[expect(unsafe_code, reason = "the C data interface is the only way between the two libraries without a copy")]
pub fn series(name: &str, array: &dyn Array) -> Result<Series, StageError> {
    let (array, schema) = to_ffi(&array.to_data())?;
    // SAFETY: both pairs of types are the C data interface's structs, `repr(C)` with the same fields (sizes and
    // alignments are asserted above), so the bytes of one are a value of the other. `transmute` moves: the release
    // callback runs once, when the imported array (or, for the schema, the local) is dropped.
    let array = unsafe { transmute::<FFI_ArrowArray, ArrowArray>(array) };
    // SAFETY: as above.
    let schema = unsafe { transmute::<FFI_ArrowSchema, ArrowSchema>(schema) };
    // SAFETY: the two structs were exported together by arrow just above, so they are valid and belong together.
    let imported = unsafe {
        let field = import_field_from_c(&schema).map_err(|error| fault(&error))?;
        import_array_from_c(array, field.dtype().clone()).map_err(|error| fault(&error))?
    };
    Series::from_arrow(name.into(), imported).map_err(|error| fault(&error))
}

/// A series of polars as a column of arrow.
///
/// # Errors
/// When the type is not known to arrow.
#[expect(unsafe_code, reason = "the C data interface is the only way between the two libraries without a copy")]
pub fn array(series: &Series) -> Result<ArrayRef, StageError> {
    let series = series.rechunk();
    let exported = series.to_arrow(0, CompatLevel::newest());
    let field = Field::new(series.name().clone(), exported.dtype().clone(), true);
    let (schema, array) = (export_field_to_c(&field), export_array_to_c(exported));
    // SAFETY: as in `series`: one layout, and each struct is moved, not copied.
    let array = unsafe { transmute::<ArrowArray, FFI_ArrowArray>(array) };
    // SAFETY: as above.
    let schema = unsafe { transmute::<ArrowSchema, FFI_ArrowSchema>(schema) };
    // SAFETY: the two structs were exported together by polars just above, so they are valid and belong together.
    let data = unsafe { from_ffi(array, &schema)? };
    Ok(make_array(data))
}

/// The named columns of a batch as a frame of the same height, in the given order.
///
/// # Errors
/// When a column is missing or its type is not known to polars.
pub fn frame<'a>(batch: &RecordBatch, columns: impl IntoIterator<Item = &'a str>) -> Result<DataFrame, StageError> {
    let columns = columns
        .into_iter()
        .map(|name| Ok(series(name, pipeline_core::rows::column(batch, name)?.as_ref())?.into_column()))
        .collect::<Result<Vec<_>, StageError>>()?;
    DataFrame::new(batch.num_rows(), columns).map_err(|error| fault(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Float64Array, Int64Array, ListArray, StringViewArray, UInt64Array};
    use arrow::buffer::Buffer;
    use arrow::datatypes::Int64Type;

    use super::*;

    fn buffers(array: &dyn Array) -> Vec<*const u8> {
        fn collect(data: &arrow::array::ArrayData, found: &mut Vec<*const u8>) {
            found.extend(data.buffers().iter().map(Buffer::as_ptr));
            data.child_data().iter().for_each(|child| collect(child, found));
        }
        let mut found = Vec::new();
        collect(&array.to_data(), &mut found);
        found
    }

    fn there_and_back(array: &dyn Array) -> ArrayRef {
        super::array(&series("x", array).unwrap()).unwrap()
    }

    #[test]
    fn texts_and_numbers_keep_their_buffers_both_ways() {
        let long = "数学: a text that is longer than twelve bytes and so lies in a buffer";
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::from(vec![Some(long), None, Some("短"), Some(long), Some("")])),
            Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MIN), Some(i64::MAX), Some(0)])),
            Arc::new(Float64Array::from(vec![Some(0.5), None, Some(f64::NAN), Some(-0.0), Some(1e300)])),
            Arc::new(UInt64Array::from(vec![0, 1, 2, 3, u64::MAX])),
        ];
        for column in columns {
            let back = there_and_back(column.as_ref());
            assert_eq!(back.data_type(), column.data_type());
            assert_eq!(buffers(back.as_ref()), buffers(column.as_ref()), "{}", column.data_type());
            assert_eq!(back.nulls(), column.nulls());
        }
    }

    #[test]
    fn the_values_of_a_list_are_not_copied() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![]),
            Some(vec![Some(4)]),
        ]);
        let back = there_and_back(&list);
        let values = |array: &dyn Array| *buffers(array).last().unwrap();
        assert_eq!(values(back.as_ref()), values(&list));
        assert_eq!(back.len(), 4);
        assert!(back.is_null(1));
    }

    #[test]
    fn slices_and_bits_keep_their_values() {
        let bits = BooleanArray::from(vec![Some(true), None, Some(false), Some(true), Some(true)]);
        assert_eq!(there_and_back(&bits).as_ref(), &bits as &dyn Array);
        assert_eq!(there_and_back(&bits.slice(1, 3)).as_ref(), &bits.slice(1, 3) as &dyn Array);
        let texts = StringViewArray::from(vec!["一", "a text that is longer than twelve bytes", "三"]);
        assert_eq!(there_and_back(&texts.slice(1, 2)).as_ref(), &texts.slice(1, 2) as &dyn Array);
        assert_eq!(there_and_back(&texts.slice(0, 0)).len(), 0);
    }

    #[test]
    fn a_column_outlives_the_batch_it_came_from() {
        let series = {
            let texts = StringViewArray::from(vec!["a text that is longer than twelve bytes"; 3]);
            series("x", &texts).unwrap()
        };
        let back = array(&series).unwrap();
        drop(series);
        assert_eq!(back.len(), 3);
        assert_eq!(arrow::array::AsArray::as_string_view(&back).value(2), "a text that is longer than twelve bytes");
    }
}
