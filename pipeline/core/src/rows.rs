//! Reading columns of a batch by name, with errors that name the column.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringViewArray,
    StructArray, UInt32Array, UInt64Array,
};
use arrow::compute;
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use schemas::ids::MessageRef;
use schemas::{queries, traces};

use crate::error::StageError;

/// A column of a batch.
///
/// # Errors
/// When there is no such column.
pub fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, StageError> {
    batch.column_by_name(name).ok_or_else(|| StageError::column(name, "is not in the input"))
}

fn wrong_type(name: &str, wanted: &str, found: &DataType) -> StageError {
    StageError::column(name, format!("is {found}, {wanted} is needed"))
}

/// A text column.
///
/// # Errors
/// When it is missing or of another type.
pub fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringViewArray, StageError> {
    let column = column(batch, name)?;
    column.as_string_view_opt().ok_or_else(|| wrong_type(name, "text", column.data_type()))
}

/// A number column.
///
/// # Errors
/// When it is missing or of another type.
pub fn floats<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Float64Array, StageError> {
    let column = column(batch, name)?;
    column.as_primitive_opt().ok_or_else(|| wrong_type(name, "a number", column.data_type()))
}

/// An integer column.
///
/// # Errors
/// When it is missing or of another type.
pub fn integers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array, StageError> {
    let column = column(batch, name)?;
    column.as_primitive_opt().ok_or_else(|| wrong_type(name, "an integer", column.data_type()))
}

/// A true/false column.
///
/// # Errors
/// When it is missing or of another type.
pub fn booleans<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray, StageError> {
    let column = column(batch, name)?;
    column.as_boolean_opt().ok_or_else(|| wrong_type(name, "true/false", column.data_type()))
}

/// A column of row numbers, which steps use among themselves.
///
/// # Errors
/// When it is missing or of another type.
pub fn row_numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a UInt64Array, StageError> {
    let column = column(batch, name)?;
    column.as_primitive_opt().ok_or_else(|| wrong_type(name, "row numbers", column.data_type()))
}

/// A list column.
///
/// # Errors
/// When it is missing or of another type.
pub fn lists<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ListArray, StageError> {
    let column = column(batch, name)?;
    column.as_list_opt().ok_or_else(|| wrong_type(name, "a list", column.data_type()))
}

/// The text at a row, `None` where it is null.
pub fn text_at(texts: &StringViewArray, row: usize) -> Option<&str> {
    texts.is_valid(row).then(|| texts.value(row))
}

/// A column of chat messages, borrowed row by row.
#[derive(Debug)]
pub struct Messages<'a> {
    lists: &'a ListArray,
    roles: &'a StringViewArray,
    contents: &'a StringViewArray,
    tool_calls: &'a StringViewArray,
}

impl<'a> Messages<'a> {
    /// Reads a column of messages.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn new(batch: &'a RecordBatch, name: &str) -> Result<Self, StageError> {
        let [roles, contents, tool_calls] =
            parts(batch, name, "a list of messages", ["role", "content", "tool_calls"])?;
        Ok(Self { lists: lists(batch, name)?, roles, contents, tool_calls })
    }

    /// The messages at a row; none where the list is null.
    pub fn at(&self, row: usize) -> Vec<MessageRef<'a>> {
        items_at(self.lists, row)
            .map(|index| MessageRef {
                role: text_at(self.roles, index).unwrap_or_default(),
                content: text_at(self.contents, index).unwrap_or_default(),
                tool_calls: text_at(self.tool_calls, index),
            })
            .collect()
    }
}

/// What a student is scored and trained on: conversations with the responses that follow them, borrowed row by row.
#[derive(Debug)]
pub struct Conversations<'a> {
    messages: Messages<'a>,
    responses: &'a StringViewArray,
    finish_reasons: &'a StringViewArray,
    token_ids: &'a ListArray,
    tokenizers: &'a StringViewArray,
}

/// A conversation with its response.
#[derive(Debug, Clone)]
pub struct Conversation<'a> {
    /// What comes before the response; at least one message.
    pub messages: Vec<MessageRef<'a>>,
    /// The response, not empty.
    pub response: &'a str,
    /// Whether the response is complete, so that the token that ends a turn follows it.
    pub is_complete: bool,
    /// Ids of the response as they were drawn, where a tokenizer is named.
    pub token_ids: Option<Vec<u32>>,
    /// Digest of the tokenizer behind `token_ids`.
    pub tokenizer: Option<&'a str>,
}

impl<'a> Conversations<'a> {
    /// Binds the columns of a batch of traces: `messages`, never `request_messages`.
    ///
    /// # Errors
    /// When one is missing or of another type.
    pub fn new(batch: &'a RecordBatch) -> Result<Self, StageError> {
        Ok(Self {
            messages: Messages::new(batch, queries::MESSAGES)?,
            responses: texts(batch, traces::RESPONSE)?,
            finish_reasons: texts(batch, traces::FINISH_REASON)?,
            token_ids: lists(batch, traces::TOKEN_IDS)?,
            tokenizers: texts(batch, traces::TOKENIZER)?,
        })
    }

    /// The conversation of a row.
    ///
    /// # Errors
    /// The reason why there is none: `no_messages` or `no_response`.
    pub fn at(&self, row: usize) -> Result<Conversation<'a>, &'static str> {
        let messages = self.messages.at(row);
        if messages.is_empty() {
            return Err("no_messages");
        }
        let response = text_at(self.responses, row).filter(|response| !response.is_empty()).ok_or("no_response")?;
        let tokenizer = text_at(self.tokenizers, row);
        let token_ids = tokenizer.and_then(|_| ids_at(self.token_ids, row));
        Ok(Conversation {
            messages,
            response,
            // files of users seldom say how a response ended; only one that is known to be cut has no end
            is_complete: !text_at(self.finish_reasons, row).is_some_and(traces::says_cut),
            tokenizer: tokenizer.filter(|_| token_ids.is_some()),
            token_ids,
        })
    }
}

/// The token ids of a row; none where some are missing.
fn ids_at(lists: &ListArray, row: usize) -> Option<Vec<u32>> {
    if lists.is_null(row) {
        return None;
    }
    let values = lists.value(row);
    let ids: &UInt32Array = values.as_primitive_opt::<UInt32Type>()?;
    (ids.null_count() == 0 && !ids.is_empty()).then(|| ids.values().to_vec())
}

/// A column of instruction constraints, borrowed row by row.
#[derive(Debug)]
pub struct Constraints<'a> {
    lists: &'a ListArray,
    ids: &'a StringViewArray,
    kwargs: &'a StringViewArray,
}

impl<'a> Constraints<'a> {
    /// Reads a column of constraints.
    ///
    /// # Errors
    /// When it is missing or of another type.
    pub fn new(batch: &'a RecordBatch, name: &str) -> Result<Self, StageError> {
        let [ids, kwargs] = parts(batch, name, "a list of constraints", ["id", "kwargs"])?;
        Ok(Self { lists: lists(batch, name)?, ids, kwargs })
    }

    /// The constraints at a row, as id and JSON text of the parameters; none where the list is null.
    pub fn at(&self, row: usize) -> Vec<(&'a str, Option<&'a str>)> {
        let items = items_at(self.lists, row);
        items.map(|index| (text_at(self.ids, index).unwrap_or_default(), text_at(self.kwargs, index))).collect()
    }
}

/// The text fields of a list of structs.
fn parts<'a, const N: usize>(
    batch: &'a RecordBatch,
    name: &str,
    wanted: &str,
    names: [&str; N],
) -> Result<[&'a StringViewArray; N], StageError> {
    let lists = lists(batch, name)?;
    let wrong = || wrong_type(name, wanted, lists.data_type());
    let items: &StructArray = lists.values().as_struct_opt().ok_or_else(wrong)?;
    let part = |part: &str| items.column_by_name(part).and_then(|column| column.as_string_view_opt());
    let found: Vec<&StringViewArray> = names.iter().filter_map(|name| part(name)).collect();
    found.try_into().map_err(|_| wrong())
}

/// Positions of a row's items among the values of a list column; none where the list is null.
fn items_at(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    if lists.is_null(row) {
        return 0..0;
    }
    let offsets = lists.value_offsets();
    usize::try_from(offsets[row]).unwrap_or(0)..usize::try_from(offsets[row + 1]).unwrap_or(0)
}

/// The texts of a list at a row; null items are left out.
pub fn list_texts(lists: &ListArray, row: usize) -> Option<Vec<&str>> {
    if lists.is_null(row) {
        return None;
    }
    let texts = lists.values().as_string_view_opt()?;
    let offsets = lists.value_offsets();
    let range = usize::try_from(offsets[row]).ok()?..usize::try_from(offsets[row + 1]).ok()?;
    Some(range.filter_map(|index| text_at(texts, index)).collect())
}

/// Builds a batch of `schema` from another: named columns are replaced, columns that the batch has are taken, and
/// those it lacks are typed nulls.
///
/// # Errors
/// When a column has another type than the schema says, or a required column would be null.
pub fn with_columns(
    batch: &RecordBatch,
    schema: &SchemaRef,
    replaced: &[(&str, ArrayRef)],
) -> Result<RecordBatch, StageError> {
    let columns: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .map(|field| {
            let name = field.name();
            if let Some((_, array)) = replaced.iter().find(|(replaced, _)| replaced == name) {
                return Arc::clone(array);
            }
            batch
                .column_by_name(name)
                .map_or_else(|| arrow::array::new_null_array(field.data_type(), batch.num_rows()), Arc::clone)
        })
        .collect();
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows())),
    )?)
}

/// The rows where `mask` is true. Text is not copied.
///
/// # Errors
/// When mask and batch differ in length.
pub fn filter(batch: &RecordBatch, mask: &BooleanArray) -> Result<RecordBatch, StageError> {
    Ok(compute::filter_record_batch(batch, mask)?)
}

/// One row of a batch, with the text columns that a kind asked for.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    columns: &'a [(&'static str, &'a StringViewArray)],
    index: usize,
}

impl<'a> Row<'a> {
    /// A row of columns bound beforehand.
    pub fn new(columns: &'a [(&'static str, &'a StringViewArray)], index: usize) -> Self {
        Self { columns, index }
    }

    /// The text in a column, `None` where it is null.
    ///
    /// # Errors
    /// When the column is not among those that the kind declared.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, StageError> {
        let (_, texts) = self
            .columns
            .iter()
            .find(|(column, _)| *column == name)
            .ok_or_else(|| StageError::Internal(format!("column `{name}` is read but not declared")))?;
        Ok(text_at(texts, self.index))
    }
}
