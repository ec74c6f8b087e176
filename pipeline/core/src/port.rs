//! Ports: what a kind reads and writes, checked for the whole graph before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use schemas::Table;

use crate::error::ParamError;

/// Something a kind reads.
#[derive(Debug, Clone, Copy)]
pub struct Port {
    /// Name in `inputs = { name = ... }`.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// Tables that fit; empty = any.
    pub tables: &'static [&'static str],
    /// Columns that some stage before must have filled.
    pub needs: &'static [&'static str],
    /// Whether several stages may be given.
    pub many: bool,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it brings evaluation items, which `--limit` must not cut.
    pub evaluation: bool,
}

impl Port {
    /// The port whose rows a kind works through; it comes first in [`crate::Stage::PORTS`].
    pub const fn rows(tables: &'static [&'static str], needs: &'static [&'static str]) -> Self {
        Self {
            name: "rows",
            doc: "the rows to work through",
            tables,
            needs,
            many: false,
            optional: false,
            evaluation: false,
        }
    }

    /// Renames a port and says what it is for.
    #[must_use]
    pub const fn named(mut self, name: &'static str, doc: &'static str) -> Self {
        self.name = name;
        self.doc = doc;
        self
    }

    /// Lets the port take several stages.
    #[must_use]
    pub const fn many(mut self) -> Self {
        self.many = true;
        self
    }

    /// Lets the port be left out.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Marks the port as bringing evaluation items.
    #[must_use]
    pub const fn evaluation(mut self) -> Self {
        self.evaluation = true;
        self
    }
}

/// What flows along an edge.
#[derive(Debug, Clone)]
pub struct TableType {
    /// Table the rows belong to; `None` for rows of a kind's own shape.
    pub table: Option<&'static Table>,
    /// Columns.
    pub schema: SchemaRef,
    /// Columns that some stage fills; the others are null throughout.
    pub filled: BTreeSet<String>,
}

impl TableType {
    /// The full schema of a table, with `filled` columns that hold values.
    pub fn of<'a>(table: &'static Table, filled: impl IntoIterator<Item = &'a str>) -> Self {
        Self { table: Some(table), schema: table.schema(), filled: filled.into_iter().map(str::to_owned).collect() }
    }

    /// Name of the table, or `rows`.
    pub fn name(&self) -> &'static str {
        self.table.map_or("rows", |table| table.name)
    }

    /// Marks columns as filled; a name without a column is an error of the kind and is ignored here.
    #[must_use]
    pub fn fill<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.filled.extend(columns.into_iter().map(str::to_owned));
        self
    }

    /// Adds a column, filled; one that is there keeps its place and must have the same type.
    ///
    /// # Errors
    /// When a column of that name has another type.
    pub fn with_column(mut self, field: &Field) -> Result<Self, ParamError> {
        if let Ok(present) = self.schema.field_with_name(field.name()) {
            if present.data_type() != field.data_type() {
                return Err(ParamError::new(
                    "",
                    format!(
                        "column `{}` is {} here and would become {}",
                        field.name(),
                        present.data_type(),
                        field.data_type()
                    ),
                ));
            }
        } else {
            let mut fields: Vec<Arc<Field>> = self.schema.fields().iter().cloned().collect();
            fields.push(Arc::new(field.clone()));
            self.schema = Arc::new(Schema::new(fields));
        }
        self.filled.insert(field.name().clone());
        Ok(self)
    }
}

/// What flows into each port of a stage, in the order of `inputs`.
#[derive(Debug, Clone, Default)]
pub struct Ports(pub BTreeMap<String, Vec<TableType>>);

impl Ports {
    /// The first table of a port.
    pub fn first(&self, port: &str) -> Option<&TableType> {
        self.0.get(port).and_then(|tables| tables.first())
    }

    /// All tables of a port.
    pub fn all(&self, port: &str) -> &[TableType] {
        self.0.get(port).map_or(&[], Vec::as_slice)
    }

    /// The first table of a port that must be there.
    ///
    /// # Errors
    /// When the port has no input; the engine has checked that before, so this is a fault of the kind.
    pub fn expect(&self, port: &str) -> Result<&TableType, ParamError> {
        self.first(port).ok_or_else(|| ParamError::new("inputs", format!("port `{port}` has no input")))
    }
}

/// How many rows come out for rows that go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// Each row read is written or rejected; the engine counts by itself.
    OneToOne,
    /// Rows are multiplied or merged; the stage says how many of those it read live on ([`crate::Task::kept`]).
    Counted,
}

/// Something a kind writes.
#[derive(Debug, Clone)]
pub struct Output {
    /// Name in `inputs = "stage.name"`; the first output is the main one and needs no name.
    pub name: &'static str,
    /// Its rows.
    pub rows: TableType,
    /// How its rows relate to those read.
    pub cardinality: Cardinality,
}

/// Name of the main output.
pub const MAIN: &str = "main";

impl Output {
    /// The main output: each row read is written or rejected.
    pub fn same(rows: TableType) -> Self {
        Self { name: MAIN, rows, cardinality: Cardinality::OneToOne }
    }

    /// The main output of a kind that multiplies or merges rows.
    pub fn counted(rows: TableType) -> Self {
        Self { name: MAIN, rows, cardinality: Cardinality::Counted }
    }

    /// A further output.
    pub fn named(name: &'static str, rows: TableType) -> Self {
        Self { name, rows, cardinality: Cardinality::Counted }
    }
}
