//! `where`: an SQL condition over the columns of a row, checked before the first row and evaluated by polars.
//!
//! A condition must look at one row at a time. An aggregate or a window would see whatever rows happen to share a
//! batch, so that the result would depend on how the rows were cut; such conditions are refused.

use arrow::array::{Array as _, AsArray as _, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use pipeline_core::{ParamError, StageError, TableType};
use polars::prelude::{AggExpr, Column, DataFrame, DataType as PolarsType, Expr, IntoLazy as _, Schema};
use polars::sql::sql_expr;
use polars_plan::plans::{ExprToIRContext, is_elementwise_rec, to_expr_ir};
use polars_plan::prelude::Arena;
use polars_plan::utils::expr_to_leaf_column_names;
use serde_json::{Map, Value};

use crate::bridge;

const PARAM: &str = "where";
/// Terms that a condition may join: each is a level of the tree that is walked on the stack.
const MAX_TERMS: usize = 100;
/// Column of the answers, inside polars.
const HELD: &str = "held";
/// Bytes up to which evidence quotes a text.
const QUOTED: usize = 200;

/// A condition, read.
#[derive(Debug, Clone)]
pub struct Condition {
    expression: Expr,
    columns: Vec<String>,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// When it is no SQL expression.
    pub fn read(text: &str) -> Result<Self, ParamError> {
        let joined =
            text.split_whitespace().filter(|word| word.eq_ignore_ascii_case("or") || word.eq_ignore_ascii_case("and"));
        if joined.count() > MAX_TERMS {
            let message = format!("the condition joins more than {MAX_TERMS} terms with AND and OR");
            return Err(
                ParamError::new(PARAM, message).hint("lists of values are written `query_id IN ('a', 'b', 'c')`")
            );
        }
        let expression = sql_expr(text).map_err(|error| {
            ParamError::new(PARAM, format!("cannot read the condition `{text}`: {}", plain(&error.to_string())))
                .hint("write it as after SQL's WHERE: `pass_rate > 0.5 AND domain = 'math'`")
        })?;
        let mut columns: Vec<String> = Vec::new();
        for name in expr_to_leaf_column_names(&expression) {
            if !columns.iter().any(|column| *column == name.as_str()) {
                columns.push(name.to_string());
            }
        }
        columns.sort_unstable();
        Ok(Self { expression, columns })
    }

    /// Reads a condition and checks it against the rows it will see.
    ///
    /// # Errors
    /// When it names an unknown column or one that is no text, number or true/false, when types do not go together,
    /// when it looks at more than one row, or when no stage fills any of its columns.
    pub fn check(text: &str, rows: &TableType) -> Result<Self, ParamError> {
        let condition = Self::read(text)?;
        let mut schema = Schema::default();
        for name in &condition.columns {
            let kind = simple_type(&rows.schema, name)?;
            schema.with_column(name.as_str().into(), kind);
        }
        condition.check_row_wise(&schema)?;
        let empty = schema.iter().map(|(name, kind)| Column::new_empty(name.clone(), kind)).collect();
        let found = DataFrame::new(0, empty).and_then(|empty| condition.evaluate(empty)).map_err(|error| {
            ParamError::new(
                PARAM,
                format!("the condition `{text}` does not fit the columns: {}", plain(&error.to_string())),
            )
            .hint("compare texts with texts in single quotes, numbers with numbers")
        })?;
        if *found.dtype() != PolarsType::Boolean && *found.dtype() != PolarsType::Null {
            let message = format!("the condition `{text}` gives {}, not true or false", found.dtype());
            return Err(ParamError::new(PARAM, message));
        }
        if !condition.columns.is_empty() && !condition.columns.iter().any(|name| rows.filled.contains(name)) {
            let names = condition.columns.join("`, `");
            let message = format!("no stage before fills `{names}`, so the condition is the same for every row");
            return Err(ParamError::new(PARAM, message));
        }
        Ok(condition)
    }

    fn check_row_wise(&self, schema: &Schema) -> Result<(), ParamError> {
        let mut arena = Arena::with_capacity(16);
        let mut context = ExprToIRContext::new_no_verification(&mut arena, schema);
        let root = to_expr_ir(self.expression.clone().map_expr(constant_list), &mut context)
            .map_err(|error| {
                ParamError::new(PARAM, format!("cannot use the condition: {}", plain(&error.to_string())))
            })?
            .node();
        if is_elementwise_rec(root, &arena) {
            return Ok(());
        }
        Err(ParamError::new(PARAM, "the condition must look at one row at a time; it holds an aggregate or a window")
            .hint("use `by` with `top`, `percentile` and `group`"))
    }

    /// Columns that it reads, sorted.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    fn evaluate(&self, frame: DataFrame) -> Result<polars::prelude::Series, polars::error::PolarsError> {
        let answer = frame.lazy().select([self.expression.clone().alias(HELD)]).collect()?;
        Ok(answer.column(HELD)?.as_materialized_series().clone())
    }

    /// Whether it holds for each row of a batch; null counts as false. The mask has no nulls.
    ///
    /// # Errors
    /// When the batch lacks a column, or a value cannot be converted as the condition asks.
    pub fn mask(&self, batch: &RecordBatch) -> Result<BooleanArray, StageError> {
        let frame = bridge::frame(batch, self.columns.iter().map(String::as_str))?;
        let answer = self
            .evaluate(frame)
            .map_err(|error| ParamError::new(PARAM, format!("cannot evaluate: {}", plain(&error.to_string()))))?;
        let rows = batch.num_rows();
        if *answer.dtype() == PolarsType::Null {
            return Ok(BooleanArray::from(vec![false; rows]));
        }
        let held = bridge::array(&answer)?;
        let held = held.as_boolean_opt().ok_or_else(|| ParamError::new(PARAM, "gives no true or false"))?;
        let held_at = |row: usize| held.is_valid(row) && held.value(row);
        if held.len() == 1 && self.columns.is_empty() {
            return Ok(BooleanArray::from(vec![held_at(0); rows]));
        }
        if held.len() != rows {
            return Err(StageError::Internal(format!("{} answers of a condition for {rows} rows", held.len())));
        }
        Ok((0..rows).map(|row| Some(held_at(row))).collect())
    }

    /// The values that it saw at a row, for rejects; a long text is named by its length.
    ///
    /// # Errors
    /// When the batch lacks a column.
    pub fn evidence(&self, batch: &RecordBatch, row: usize) -> Result<Value, StageError> {
        let mut seen = Map::new();
        for name in &self.columns {
            let column = pipeline_core::rows::column(batch, name)?;
            let value = match pipeline_core::json_rows::value_at(column.as_ref(), row) {
                Value::String(text) if text.len() > QUOTED => {
                    serde_json::json!({ "characters": text.chars().count() })
                }
                value => value,
            };
            seen.insert(name.clone(), value);
        }
        Ok(Value::Object(seen))
    }
}

/// `IN (...)` gathers its list into one value; a list of constants is the same for every row and may stand as it is.
fn constant_list(expression: Expr) -> Expr {
    match expression {
        Expr::Agg(AggExpr::Implode { input, .. }) if matches!(*input, Expr::Literal(_)) => input.as_ref().clone(),
        other => other,
    }
}

/// The first line of a message of polars, without the plan that it appends.
fn plain(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim()
}

/// The polars type of a column that conditions may use.
fn simple_type(schema: &SchemaRef, name: &str) -> Result<PolarsType, ParamError> {
    let Ok(field) = schema.field_with_name(name) else {
        let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        return Err(ParamError::new(PARAM, format!("there is no column `{name}`"))
            .hint(format!("a text stands in single quotes: '{name}'; columns are {}", known.join(", "))));
    };
    match field.data_type() {
        DataType::Utf8View => Ok(PolarsType::String),
        DataType::Int64 => Ok(PolarsType::Int64),
        DataType::UInt64 => Ok(PolarsType::UInt64),
        DataType::Float64 => Ok(PolarsType::Float64),
        DataType::Boolean => Ok(PolarsType::Boolean),
        other => Err(ParamError::new(
            PARAM,
            format!("column `{name}` is {other}; a condition reads texts, numbers and true/false"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows() -> TableType {
        TableType::of(&schemas::traces::TABLE, ["query_id", "domain", "pass_rate", "tokens", "prompt", "verdict"])
    }

    fn batch() -> RecordBatch {
        let rows: Vec<Value> = [
            (Some("math"), Some(0.5), Some(10), "短题"),
            (Some("code"), None, Some(20), "a longer prompt"),
            (None, Some(1.0), None, "x"),
        ]
        .into_iter()
        .map(|(domain, rate, tokens, prompt)| {
            json!({"query_id": "q", "trace_id": "t", "domain": domain, "pass_rate": rate, "tokens": tokens, "prompt": prompt})
        })
        .collect();
        pipeline_core::json_rows::from_json(&schemas::traces::TABLE.schema(), &rows).unwrap()
    }

    fn held(text: &str) -> Vec<bool> {
        let mask = Condition::check(text, &rows()).unwrap().mask(&batch()).unwrap();
        (0..mask.len()).map(|row| mask.value(row)).collect()
    }

    fn refused(text: &str) -> ParamError {
        Condition::check(text, &rows()).map(|_| ()).expect_err(text)
    }

    #[test]
    fn null_counts_as_false() {
        assert_eq!(held("pass_rate >= 0.5"), [true, false, true]);
        assert_eq!(held("NOT (pass_rate >= 0.5)"), [false, false, false]);
        assert_eq!(held("pass_rate IS NULL"), [false, true, false]);
        assert_eq!(held("domain = 'math' OR pass_rate = 1"), [true, false, true]);
        assert_eq!(held("domain <> 'math'"), [false, true, false]);
        assert_eq!(held("domain IN ('math', 'stem')"), [true, false, false]);
        assert_eq!(held("domain IN ('code')"), [false, true, false]);
        assert_eq!(held("tokens NOT IN (10, 30)"), [false, true, false]);
        assert_eq!(held("domain NOT IN ('math')"), [false, true, false]);
        assert_eq!(held("tokens BETWEEN 10 AND 15"), [true, false, false]);
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        assert_eq!(held("length(prompt) = 2"), [true, false, false]);
        assert_eq!(held("prompt LIKE '%题'"), [true, false, false]);
    }

    #[test]
    fn a_constant_holds_for_every_row_or_none() {
        assert_eq!(held("1 = 1"), [true; 3]);
        assert_eq!(held("1 = 2"), [false; 3]);
        assert_eq!(held("NULL"), [false; 3]);
    }

    #[test]
    fn only_the_columns_it_names_are_read() {
        let condition = Condition::check("length(prompt) > 3 AND domain = 'math' AND domain <> 'x'", &rows()).unwrap();
        assert_eq!(condition.columns(), ["domain", "prompt"]);
        assert_eq!(condition.evidence(&batch(), 1).unwrap(), json!({"domain": "code", "prompt": "a longer prompt"}));
    }

    #[test]
    fn a_condition_that_cannot_work_is_refused_before_any_row() {
        assert!(refused("pas_rate > 0.5").message.contains("no column `pas_rate`"));
        assert!(refused("domain = math").hint.unwrap().contains("'math'"));
        assert!(refused("messages = 'x'").message.contains("reads texts"));
        assert!(refused("pass_rate > 'half'").message.contains("does not fit"));
        assert!(refused("domain > 3").message.contains("does not fit"));
        assert!(refused("tokens + 1").message.contains("not true or false"));
        assert!(refused("pass_rate >").message.contains("cannot read"));
        assert!(refused("pass_rate > 0.5; DROP TABLE x").message.contains("cannot read"));
        assert!(refused("learning_potential > 0.5").message.contains("no stage before fills"));
    }

    #[test]
    fn a_condition_over_several_rows_is_refused() {
        for text in [
            "pass_rate > avg(pass_rate)",
            "tokens = max(tokens)",
            "rank() OVER (ORDER BY tokens) < 3",
            "row_number() OVER (PARTITION BY domain ORDER BY tokens) < 3",
            "count(*) > 1",
            "tokens > lag(tokens) OVER (ORDER BY query_id)",
            "tokens IN (SELECT tokens FROM rows)",
        ] {
            let error = refused(text);
            assert_eq!(error.path, "where", "{text}");
        }
    }
}
