//! Rejected rows: the row as it was read, and why it fell out.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// A `snake_case` word, counted in the manifest.
pub const REJECT_REASON: &str = "reject_reason";
/// JSON object with what led to it: rule, span, figure, other row.
pub const REJECT_EVIDENCE: &str = "reject_evidence";

/// Schema of a rejects file for rows of schema `rows`: the same columns, each of which may be null (a line that could
/// not be read has no id), then reason and evidence.
pub fn schema(rows: &Schema) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> =
        rows.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
    fields.push(Arc::new(Field::new(REJECT_REASON, DataType::Utf8View, false)));
    fields.push(Arc::new(Field::new(REJECT_EVIDENCE, DataType::Utf8View, true)));
    Arc::new(Schema::new(fields))
}
