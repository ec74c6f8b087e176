//! Columns of an exported row, and how a batch of the stage becomes one of the export.
//!
//! `messages` and `prompt-completion` are the conversational shapes that trainers read: lists of `{role, content}`. A
//! trace's reasoning stands in a `<think>` block before the answer, one form for every server that wrote it, since a
//! message has no other place for it that all chat templates know. Tool calls are written only when some message has
//! any: as a struct field that is null everywhere they would change how a chat template renders the conversation.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringViewArray, StringViewBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use pipeline_core::StageError;
use pipeline_core::rows::{self, text_at};
use schemas::column::LIST_ITEM;
use schemas::{queries, traces};

use crate::error::ExportError;
use crate::request::{ExportRequest, Format};

/// Column of the answer in `prompt-completion`.
pub const COMPLETION: &str = "completion";

/// Columns carried beside the conversation when none are named.
const CARRIED: [&str; 8] = [
    traces::TRACE_ID,
    queries::QUERY_ID,
    queries::DOMAIN,
    queries::LABEL,
    traces::MODEL,
    traces::VERDICT,
    queries::SOURCE,
    queries::LICENSE,
];

/// Columns that the card is counted from, and those that make up a conversation.
const READ: [&str; 9] = [
    queries::QUERY_ID,
    queries::MESSAGES,
    queries::SOURCE,
    queries::LICENSE,
    traces::TRACE_ID,
    traces::MODEL,
    traces::REASONING,
    traces::ANSWER_TEXT,
    traces::RESPONSE,
];

/// What is read of a stage, and what is written.
#[derive(Debug, Clone)]
pub struct Layout {
    format: Format,
    has_answers: bool,
    tool_calls: bool,
    schema: SchemaRef,
    reads: Vec<String>,
}

impl Layout {
    /// The layout of a request over a stage's columns; `tool_calls` where messages are to carry them.
    ///
    /// # Errors
    /// When the format does not fit the table, or a named column is missing or stands for something else there.
    pub fn new(request: &ExportRequest, input: &SchemaRef, tool_calls: bool) -> Result<Self, ExportError> {
        let has_answers = match request.table.as_str() {
            "traces" => true,
            "queries" => false,
            other => {
                return Err(ExportError::Table { stage: request.stage.clone(), table: other.to_owned() });
            }
        };
        if request.format == Format::PromptCompletion && !has_answers {
            return Err(ExportError::NoAnswers { stage: request.stage.clone(), format: request.format });
        }
        let mut fields: Vec<Arc<Field>> = conversation_fields(request.format, tool_calls);
        for name in carried(request, input) {
            if matches!(name, queries::PROMPT | COMPLETION) && request.format != Format::Parquet {
                return Err(ExportError::column(
                    name,
                    format!("means something else to readers of format `{}`; use `parquet`", request.format),
                ));
            }
            if fields.iter().any(|field| field.name() == name) {
                return Err(ExportError::column(name, "would be there twice"));
            }
            let index = input
                .index_of(name)
                .map_err(|_| ExportError::column(name, format!("is not in the output of stage `{}`", request.stage)))?;
            fields.push(Arc::clone(&input.fields()[index]));
        }
        let is_needed = |name: &str| READ.contains(&name) || fields.iter().any(|field| field.name() == name);
        let reads = input.fields().iter().map(|field| field.name().clone());
        Ok(Self {
            format: request.format,
            has_answers,
            tool_calls,
            reads: reads.filter(|name| is_needed(name)).collect(),
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// Columns of the export.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Columns of the stage that are needed.
    pub fn reads(&self) -> Vec<&str> {
        self.reads.iter().map(String::as_str).collect()
    }

    /// Whether rows are traces.
    pub fn has_answers(&self) -> bool {
        self.has_answers
    }

    /// Turns a batch of the stage into rows of the export; `None` when a message has tool calls and this layout no
    /// place for them. `first` is the batch's first row in the file at `path`.
    ///
    /// # Errors
    /// When a row has no messages, or a trace no answer, or a column another type.
    pub fn convert(&self, batch: &RecordBatch, path: &Path, first: u64) -> Result<Option<RecordBatch>, ExportError> {
        if self.format == Format::Parquet {
            return Ok(Some(rows::with_columns(batch, &self.schema, &[])?));
        }
        let messages = rows::Messages::new(batch, queries::MESSAGES)?;
        let answers = if self.has_answers { Some(Answers::new(batch)?) } else { None };
        let mut conversation = Conversation::new(self.tool_calls);
        let mut completion = Conversation::new(false);
        for row in 0..batch.num_rows() {
            let fault = |message: &str| ExportError::Row {
                path: path.to_owned(),
                row: first + row as u64,
                id: row_id(batch, row),
                message: message.to_owned(),
            };
            let turns = messages.at(row);
            if turns.is_empty() {
                return Err(fault("has no messages"));
            }
            for turn in turns {
                if turn.tool_calls.is_some() && !self.tool_calls {
                    return Ok(None);
                }
                conversation.push(turn.role, turn.content, turn.tool_calls)?;
            }
            if let Some(answers) = &answers {
                let text = answers.text(row).ok_or_else(|| fault("has no answer text; `select` drops such rows"))?;
                let target = if self.format == Format::Messages { &mut conversation } else { &mut completion };
                target.push("assistant", &text, None)?;
            }
            conversation.end_row()?;
            completion.end_row()?;
        }
        let replaced = match self.format {
            Format::Messages => vec![(queries::MESSAGES, conversation.finish()?)],
            _ => vec![(queries::PROMPT, conversation.finish()?), (COMPLETION, completion.finish()?)],
        };
        Ok(Some(rows::with_columns(batch, &self.schema, &replaced)?))
    }
}

fn conversation_fields(format: Format, tool_calls: bool) -> Vec<Arc<Field>> {
    let field = |name: &str, tool_calls| Arc::new(Field::new(name, messages_type(tool_calls), false));
    match format {
        Format::Messages => vec![field(queries::MESSAGES, tool_calls)],
        Format::PromptCompletion => {
            vec![field(queries::PROMPT, tool_calls), field(COMPLETION, false)]
        }
        Format::Parquet => Vec::new(),
    }
}

fn carried<'a>(request: &'a ExportRequest, input: &'a SchemaRef) -> Vec<&'a str> {
    if let Some(columns) = &request.columns {
        return columns.iter().map(String::as_str).collect();
    }
    match request.format {
        Format::Parquet => input.fields().iter().map(|field| field.name().as_str()).collect(),
        _ => CARRIED.into_iter().filter(|name| input.index_of(name).is_ok()).collect(),
    }
}

/// The id of a row, for messages.
pub fn row_id(batch: &RecordBatch, row: usize) -> String {
    let id = |name| rows::texts(batch, name).ok().and_then(|ids| text_at(ids, row));
    id(traces::TRACE_ID).or_else(|| id(queries::QUERY_ID)).unwrap_or_default().to_owned()
}

/// The parts of traces that make up the assistant's turn.
#[derive(Debug)]
pub struct Answers<'a> {
    reasoning: Option<&'a StringViewArray>,
    answer_text: Option<&'a StringViewArray>,
    response: Option<&'a StringViewArray>,
}

impl<'a> Answers<'a> {
    /// Binds the columns; those that the stage lacks count as null.
    ///
    /// # Errors
    /// When one has another type.
    pub fn new(batch: &'a RecordBatch) -> Result<Self, StageError> {
        let texts = |name| batch.column_by_name(name).map(|_| rows::texts(batch, name)).transpose();
        Ok(Self {
            reasoning: texts(traces::REASONING)?,
            answer_text: texts(traces::ANSWER_TEXT)?,
            response: texts(traces::RESPONSE)?,
        })
    }

    /// Reasoning, and what stands after it: the answer text, or the raw response where it was never split.
    pub fn parts(&self, row: usize) -> (Option<&'a str>, Option<&'a str>) {
        let at = |texts: Option<&'a StringViewArray>| texts.and_then(|texts| text_at(texts, row));
        let reasoning = at(self.reasoning).filter(|text| !text.is_empty());
        let answer = at(self.answer_text);
        (reasoning, if reasoning.is_none() { answer.or_else(|| at(self.response)) } else { answer })
    }

    /// Whether the trace stops inside its reasoning.
    pub fn is_unfinished(&self, row: usize) -> bool {
        let (reasoning, answer) = self.parts(row);
        reasoning.is_some() && answer.is_none_or(str::is_empty)
    }

    /// The assistant's turn, `None` where the trace has no text at all. Reasoning that was never finished stays open,
    /// as the model left it.
    pub fn text(&self, row: usize) -> Option<Cow<'a, str>> {
        match self.parts(row) {
            (None, answer) => answer.map(Cow::Borrowed),
            (Some(reasoning), None | Some("")) => Some(Cow::Owned(format!("<think>\n{reasoning}"))),
            (Some(reasoning), Some(answer)) => Some(Cow::Owned(format!("<think>\n{reasoning}\n</think>\n\n{answer}"))),
        }
    }
}

fn messages_type(tool_calls: bool) -> DataType {
    let item = DataType::Struct(message_fields(tool_calls));
    DataType::List(Arc::new(Field::new(LIST_ITEM, item, true)))
}

fn message_fields(tool_calls: bool) -> Fields {
    let names: &[&str] = if tool_calls { &["role", "content", "tool_calls"] } else { &["role", "content"] };
    names.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect()
}

/// A column of messages while it grows.
struct Conversation {
    offsets: Vec<i32>,
    length: usize,
    roles: StringViewBuilder,
    contents: StringViewBuilder,
    tool_calls: Option<StringViewBuilder>,
}

impl Conversation {
    fn new(tool_calls: bool) -> Self {
        Self {
            offsets: vec![0],
            length: 0,
            roles: StringViewBuilder::new(),
            contents: StringViewBuilder::new(),
            tool_calls: tool_calls.then(StringViewBuilder::new),
        }
    }

    fn push(&mut self, role: &str, content: &str, tool_calls: Option<&str>) -> Result<(), StageError> {
        self.roles.try_append_value(role)?;
        self.contents.try_append_value(content)?;
        if let Some(column) = &mut self.tool_calls {
            match tool_calls {
                Some(calls) => column.try_append_value(calls)?,
                None => column.append_null(),
            }
        }
        self.length += 1;
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), StageError> {
        let end = i32::try_from(self.length)
            .map_err(|_| StageError::Internal("a batch has more than 2^31 messages".to_owned()))?;
        self.offsets.push(end);
        Ok(())
    }

    fn finish(mut self) -> Result<ArrayRef, StageError> {
        let fields = message_fields(self.tool_calls.is_some());
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.roles.finish()), Arc::new(self.contents.finish())];
        if let Some(mut column) = self.tool_calls {
            columns.push(Arc::new(column.finish()));
        }
        let items = StructArray::try_new(fields.clone(), columns, None)?;
        let item = Arc::new(Field::new(LIST_ITEM, DataType::Struct(fields), true));
        let offsets = OffsetBuffer::new(self.offsets.into());
        Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(items), None)?))
    }
}
