//! The columns that answers go to: declared from the JSON schema before the first row, filled from checked answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use pipeline_core::json_rows::array_of;
use pipeline_core::{ParamError, StageError, TableType};
use pipeline_models::{Holds, Structured};
use schemas::Type;
use serde_json::Value;

/// The column of a whole answer.
const ANSWER: &str = "answer";

/// Where the parts of an answer go.
pub struct Columns {
    structured: Option<Structured>,
    columns: Vec<Column>,
}

struct Column {
    property: String,
    name: String,
    holds: Holds,
}

impl Column {
    fn kind(&self) -> Type {
        match self.holds {
            Holds::Integer => Type::Int,
            Holds::Number => Type::Float,
            Holds::Boolean => Type::Bool,
            Holds::Text | Holds::Json => Type::Text,
        }
    }

    /// The property of an answer, as its column holds it.
    fn of(&self, answer: &Value) -> Value {
        let value = answer.get(&self.property).cloned().unwrap_or_default();
        match (self.holds, value) {
            (Holds::Json, value) if !value.is_null() => Value::String(value.to_string()),
            (_, value) => value,
        }
    }
}

impl Columns {
    /// The columns for a schema (as an object or as JSON text) and the names that users gave.
    ///
    /// # Errors
    /// When the schema cannot be used, or the names do not fit it.
    pub fn new(schema: Option<&Value>, names: &BTreeMap<String, String>) -> Result<Self, ParamError> {
        let structured = schema.map(structured).transpose()?;
        let properties: Vec<(&str, Holds)> = match &structured {
            Some(structured) => structured.properties(),
            None => vec![(ANSWER, Holds::Text)],
        };
        if properties.is_empty() {
            let message = "the schema must describe an object with `properties`: each becomes a column";
            return Err(ParamError::new("schema", message));
        }
        if let Some(unknown) = names.keys().find(|name| !properties.iter().any(|(known, _)| known == name)) {
            let known = properties.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let message = format!("answers have no property `{unknown}`; there are {known}");
            return Err(ParamError::new(format!("columns.{unknown}"), message));
        }
        let column = |(property, holds): &(&str, Holds)| Column {
            property: (*property).to_owned(),
            name: names.get(*property).map_or(*property, String::as_str).to_owned(),
            holds: *holds,
        };
        let columns: Vec<Column> = properties.iter().map(column).collect();
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].iter().any(|other| other.name == column.name) {
                let message = format!("two properties would go to the column `{}`", column.name);
                return Err(ParamError::new("columns", message));
            }
        }
        Ok(Self { structured, columns })
    }

    /// What answers are held against; `None` for plain text.
    pub fn structured(&self) -> Option<&Structured> {
        self.structured.as_ref()
    }

    /// The rows with these columns added.
    ///
    /// # Errors
    /// When a column is there already and filled, or has another type.
    pub fn added_to(&self, rows: &TableType) -> Result<TableType, ParamError> {
        let mut added = rows.clone();
        for column in &self.columns {
            let rename = format!("give it another name: `columns = {{ {} = \"...\" }}`", column.property);
            if rows.filled.contains(&column.name) {
                let message =
                    format!("the rows have a column `{}` that is filled, and it is not overwritten", column.name);
                return Err(ParamError::new("columns", message).hint(rename));
            }
            let field = Field::new(&column.name, column.kind().arrow(), true);
            added =
                added.with_column(&field).map_err(|error| ParamError::new("columns", error.message).hint(rename))?;
        }
        Ok(added)
    }

    /// The columns of these answers.
    ///
    /// # Errors
    /// When an answer does not fit its column, which its check should have shown.
    pub fn filled(&self, answers: &[Value]) -> Result<Vec<(String, ArrayRef)>, StageError> {
        let array = |column: &Column| {
            let values: Vec<Value> = match &self.structured {
                Some(_) => answers.iter().map(|answer| column.of(answer)).collect(),
                None => answers.to_vec(),
            };
            let values: Vec<&Value> = values.iter().collect();
            let array = array_of(&column.kind().arrow(), &values);
            let array = array.map_err(|message| StageError::column(&column.name, message))?;
            Ok((column.name.clone(), Arc::clone(&array)))
        };
        self.columns.iter().map(array).collect()
    }
}

/// A schema given as an object or as JSON text.
fn structured(schema: &Value) -> Result<Structured, ParamError> {
    let parsed = match schema {
        Value::String(text) => serde_json::from_str(text)
            .map_err(|error| ParamError::new("schema", format!("this is no JSON: {error}")))?,
        other => other.clone(),
    };
    Structured::new(&parsed).map_err(|error| ParamError::new("schema", error.to_string()))
}
