//! Columns of a batch from cells, with builders, so that no row is held as a tree.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, ListBuilder, RecordBatch,
    StringViewBuilder, StructBuilder, UInt32Builder,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use pipeline_core::{StageError, rows};
use schemas::{Column, Type};

use super::cell::Cell;

/// Builders of the columns that an import fills; the others are typed nulls.
pub struct Batch {
    columns: Vec<(&'static Column, Builder)>,
    rows: usize,
}

enum Builder {
    Text(StringViewBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Texts(ListBuilder<StringViewBuilder>),
    Tokens(ListBuilder<UInt32Builder>),
    Floats(ListBuilder<Float32Builder>),
    Structs(ListBuilder<StructBuilder>),
}

fn item(kind: Type) -> Option<FieldRef> {
    match kind.arrow() {
        DataType::List(item) => Some(item),
        _ => None,
    }
}

fn list<B: ArrayBuilder>(kind: Type, values: B) -> ListBuilder<B> {
    let builder = ListBuilder::new(values);
    match item(kind) {
        Some(field) => builder.with_field(field),
        None => builder,
    }
}

fn structs(kind: Type) -> StructBuilder {
    match item(kind).as_deref().map(Field::data_type) {
        Some(DataType::Struct(fields)) => {
            let builders = fields.iter().map(|_| Box::new(StringViewBuilder::new()) as Box<dyn ArrayBuilder>);
            StructBuilder::new(fields.clone(), builders.collect())
        }
        _ => StructBuilder::new(arrow::datatypes::Fields::empty(), Vec::new()),
    }
}

impl Builder {
    fn new(kind: Type) -> Self {
        match kind {
            Type::Text => Self::Text(StringViewBuilder::new()),
            Type::Int => Self::Int(Int64Builder::new()),
            Type::Float => Self::Float(Float64Builder::new()),
            Type::Bool => Self::Bool(BooleanBuilder::new()),
            Type::TextList => Self::Texts(list(kind, StringViewBuilder::new())),
            Type::TokenList => Self::Tokens(list(kind, UInt32Builder::new())),
            Type::FloatList => Self::Floats(list(kind, Float32Builder::new())),
            Type::Messages | Type::Constraints => Self::Structs(list(kind, structs(kind))),
        }
    }

    /// Appends a cell; one of another type than the column's becomes a null.
    fn append(&mut self, cell: &Cell<'_>) {
        match (self, cell) {
            (Self::Text(builder), Cell::Text(text)) => builder.append_value(text),
            (Self::Text(builder), _) => builder.append_null(),
            (Self::Int(builder), Cell::Int(value)) => builder.append_value(*value),
            (Self::Int(builder), _) => builder.append_null(),
            (Self::Float(builder), Cell::Float(value)) => builder.append_value(*value),
            (Self::Float(builder), _) => builder.append_null(),
            (Self::Bool(builder), Cell::Bool(value)) => builder.append_value(*value),
            (Self::Bool(builder), _) => builder.append_null(),
            (Self::Texts(builder), Cell::Texts(texts)) => {
                for text in texts {
                    builder.values().append_value(text);
                }
                builder.append(true);
            }
            (Self::Texts(builder), _) => builder.append(false),
            (Self::Tokens(builder), Cell::Tokens(tokens)) => {
                builder.values().append_slice(tokens);
                builder.append(true);
            }
            (Self::Tokens(builder), _) => builder.append(false),
            (Self::Floats(builder), Cell::Floats(floats)) => {
                for float in floats {
                    builder.values().append_option(*float);
                }
                builder.append(true);
            }
            (Self::Floats(builder), _) => builder.append(false),
            (Self::Structs(builder), Cell::Messages(messages)) => {
                for message in messages {
                    let parts = [Some(&message.role), Some(&message.content), message.tool_calls.as_ref()];
                    append_texts(builder.values(), &parts.map(|part| part.map(AsRef::as_ref)));
                }
                builder.append(true);
            }
            (Self::Structs(builder), Cell::Constraints(constraints)) => {
                for (id, kwargs) in constraints {
                    append_texts(builder.values(), &[Some(id), Some(kwargs)]);
                }
                builder.append(true);
            }
            (Self::Structs(builder), _) => builder.append(false),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::Float(builder) => Arc::new(builder.finish()),
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Texts(builder) => Arc::new(builder.finish()),
            Self::Tokens(builder) => Arc::new(builder.finish()),
            Self::Floats(builder) => Arc::new(builder.finish()),
            Self::Structs(builder) => Arc::new(builder.finish()),
        }
    }
}

fn append_texts(builder: &mut StructBuilder, texts: &[Option<&str>]) {
    for (index, text) in texts.iter().enumerate() {
        if let Some(column) = builder.field_builder::<StringViewBuilder>(index) {
            column.append_option(*text);
        }
    }
    builder.append(true);
}

impl Batch {
    /// Builders for columns, in this order.
    pub fn new(columns: &[&'static Column]) -> Self {
        Self { columns: columns.iter().map(|column| (*column, Builder::new(column.kind))).collect(), rows: 0 }
    }

    /// Appends a row: one cell for each column.
    pub fn append(&mut self, cells: &[Cell<'_>]) {
        for ((_, builder), cell) in self.columns.iter_mut().zip(cells) {
            builder.append(cell);
        }
        self.rows += 1;
    }

    /// The batch so far, in the table's schema.
    ///
    /// # Errors
    /// When a required column holds a null.
    pub fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, StageError> {
        let arrays: Vec<(&str, ArrayRef)> =
            self.columns.iter_mut().map(|(column, builder)| (column.name, builder.finish())).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        let rows = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
        rows::with_columns(&rows, schema, &arrays)
    }
}
