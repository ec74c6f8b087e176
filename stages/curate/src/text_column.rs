//! What the kinds that look at one text column share: finding the column, showing a piece of a text, and turning the
//! text library's complaints into those of a parameter.

use arrow::datatypes::DataType;
use pipeline_core::{ParamError, TableType};
use stage_text::TextError;

/// Characters of a text that evidence shows.
const EXCERPT: usize = 200;

/// Refuses a column that is missing, holds no text, or is null throughout.
///
/// # Errors
/// When the column cannot be used.
pub fn ensure(rows: &TableType, column: &str) -> Result<(), ParamError> {
    let Ok(field) = rows.schema.field_with_name(column) else {
        return Err(ParamError::new("column", format!("the input has no column `{column}`")));
    };
    if field.data_type() != &DataType::Utf8View {
        return Err(ParamError::new("column", format!("column `{column}` holds no text")));
    }
    if !rows.filled.contains(column) {
        return Err(ParamError::new("column", format!("no stage before fills column `{column}`")));
    }
    Ok(())
}

/// A complaint of the text library, at its parameter.
#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by value")]
pub fn param_error(error: TextError) -> ParamError {
    match &error {
        TextError::Parameter { name, reason } => ParamError::new(*name, format!("`{name}`: {reason}")),
        other => ParamError::new("", other.to_string()),
    }
}

/// The text at a byte span, at most 200 characters of it.
pub fn excerpt(text: &str, span: (usize, usize)) -> String {
    text.get(span.0..span.1).unwrap_or_default().chars().take(EXCERPT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_counts_characters() {
        assert_eq!(excerpt("多少？", (0, 6)), "多少");
        assert_eq!(excerpt(&"多".repeat(300), (0, 900)).chars().count(), 200);
        assert_eq!(excerpt("多", (0, 9)), "");
    }
}
