//! Column types as `dag.toml` users know them, and their Arrow counterparts.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};

/// Type of a column. Each has exactly one Arrow type, so two stages can never disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Byte-exact UTF-8.
    Text,
    /// Signed 64-bit integer.
    Int,
    /// 64-bit float.
    Float,
    /// True or false.
    Bool,
    /// List of texts.
    TextList,
    /// List of token ids (unsigned 32-bit).
    TokenList,
    /// List of 32-bit floats, one for each token.
    FloatList,
    /// Chat messages: list of `{role, content, tool_calls}`; `tool_calls` is JSON text.
    Messages,
    /// Instruction constraints: list of `{id, kwargs}`; `kwargs` is JSON text.
    Constraints,
}

/// Name of the item field in every list, as the Parquet format asks for.
pub const LIST_ITEM: &str = "element";

impl Type {
    /// The Arrow type of this column.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8View,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::TextList => list_of(DataType::Utf8View),
            Self::TokenList => list_of(DataType::UInt32),
            Self::FloatList => list_of(DataType::Float32),
            Self::Messages => list_of(DataType::Struct(text_fields(&["role", "content", "tool_calls"]))),
            Self::Constraints => list_of(DataType::Struct(text_fields(&["id", "kwargs"]))),
        }
    }

    /// The name users see in `pipeline kinds`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int => "integer",
            Self::Float => "number",
            Self::Bool => "true/false",
            Self::TextList => "list of text",
            Self::TokenList => "list of token ids",
            Self::FloatList => "list of numbers",
            Self::Messages => "list of {role, content, tool_calls}",
            Self::Constraints => "list of {id, kwargs}",
        }
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new(LIST_ITEM, item, true)))
}

fn text_fields(names: &[&str]) -> Fields {
    names.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect()
}

/// One column of a table. Every column but the ids may be null.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name in Parquet and in `where` conditions.
    pub name: &'static str,
    /// Type of its values.
    pub kind: Type,
    /// Whether a row may lack it.
    pub nullable: bool,
    /// What it holds, with units.
    pub doc: &'static str,
}

impl Column {
    /// A column that may be null.
    pub const fn new(name: &'static str, kind: Type, doc: &'static str) -> Self {
        Self { name, kind, nullable: true, doc }
    }

    /// A column that every row has.
    pub const fn required(name: &'static str, kind: Type, doc: &'static str) -> Self {
        Self { name, kind, nullable: false, doc }
    }

    /// The Arrow field.
    pub fn field(&self) -> Field {
        Field::new(self.name, self.kind.arrow(), self.nullable)
    }
}

/// A table: what a row means and which columns it has.
#[derive(Debug)]
pub struct Table {
    /// Name used in `rows = "..."`.
    pub name: &'static str,
    /// Raised when a column changes its meaning or type; part of every recipe.
    pub version: u32,
    /// What one row means.
    pub doc: &'static str,
    /// Columns of other tables that come first.
    pub base: &'static [Column],
    /// The table's own columns.
    pub own: &'static [Column],
}

impl Table {
    /// All columns in file order.
    pub fn columns(&self) -> impl Iterator<Item = &'static Column> {
        self.base.iter().chain(self.own)
    }

    /// Finds a column by name.
    pub fn column(&self, name: &str) -> Option<&'static Column> {
        self.columns().find(|column| column.name == name)
    }

    /// The Arrow schema of a file of this table.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns().map(Column::field).collect::<Vec<_>>()))
    }
}

/// Columns whose texts are long and rarely repeat: a Parquet dictionary or statistics of them cost and give nothing.
/// Reasons, verdicts and names are not among them.
pub fn is_long_text(name: &str) -> bool {
    const LONG: [&str; 11] = [
        "prompt",
        "response",
        "reasoning",
        "answer_text",
        "extra",
        "tests",
        "messages",
        "request_messages",
        "options",
        "reject_evidence",
        "judge_reason",
    ];
    LONG.contains(&name)
}
