//! Answers become rows of `traces`.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float32Builder, Float64Array, Int64Array, ListBuilder, RecordBatch, StringViewArray, StringViewBuilder,
    StructBuilder, UInt32Builder, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, SchemaRef};
use pipeline_core::rows;
use pipeline_core::{StageError, Task, canonical};
use pipeline_models::{Answer, Message, Request};
use schemas::column::LIST_ITEM;
use schemas::{Type, ids, queries, traces as trace};
use serde_json::json;

use super::request::Asking;
use super::{Sample, Truncated};

/// Raw bytes after which a chunk is written.
const CHUNK_BYTES: usize = 16 << 20;
/// Traces after which a chunk is written.
const CHUNK_ROWS: usize = 4096;

struct Trace {
    row: usize,
    model: String,
    request: Request,
    answer: Answer,
}

/// Traces of one batch of queries that wait to be written.
pub(crate) struct Chunk<'a> {
    batch: &'a RecordBatch,
    traces: Vec<Trace>,
    bytes: usize,
}

impl<'a> Chunk<'a> {
    pub(crate) fn new(batch: &'a RecordBatch) -> Self {
        Self { batch, traces: Vec::new(), bytes: 0 }
    }

    /// The queries.
    pub(super) fn batch(&self) -> &'a RecordBatch {
        self.batch
    }

    pub(crate) fn push(&mut self, row: usize, asking: &Asking<'_>, request: Request, answer: Answer) {
        let asked: usize = request.messages.iter().map(|message| message.content.len()).sum();
        self.bytes += asked + answer.text.len() * 2;
        self.traces.push(Trace { row, model: asking.model.id().to_string(), request, answer });
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= CHUNK_BYTES || self.traces.len() >= CHUNK_ROWS
    }

    /// Writes what waits, in order.
    pub(super) fn flush(&mut self, task: &mut Task<'_>, sample: &Sample) -> Result<(), StageError> {
        let batch = self.take(sample, &task.schema()?)?;
        let tests = new_null_array(&DataType::Utf8View, batch.num_rows());
        task.write(&rows::with_columns(&batch, &task.schema()?, &[(queries::TESTS, tests)])?)
    }

    /// What waits as rows of `schema`, in order, with the tests of their queries.
    pub(crate) fn take(&mut self, sample: &Sample, schema: &SchemaRef) -> Result<RecordBatch, StageError> {
        let traces = std::mem::take(&mut self.traces);
        self.bytes = 0;
        let indices = UInt64Array::from_iter_values(traces.iter().map(|trace| trace.row as u64));
        let taken = arrow::compute::take_record_batch(self.batch, &indices)?;
        let ids = rows::texts(&taken, queries::QUERY_ID)?.clone();
        rows::with_columns(&taken, schema, &columns(&traces, sample, &ids))
    }
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let mut builder = StringViewBuilder::new();
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}

fn integers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.map(|value| value.and_then(|value| i64::try_from(value).ok())).collect::<Int64Array>())
}

fn columns(traces: &[Trace], sample: &Sample, ids: &StringViewArray) -> Vec<(&'static str, ArrayRef)> {
    let mut sampling = json!({
        "temperature": sample.temperature, "top_p": sample.top_p, "top_k": sample.top_k, "min_p": sample.min_p,
        "max_tokens": sample.max_tokens, "stop": sample.stop, "system": sample.system, "shots": sample.shots,
        "template": sample.template, "template_file": sample.template_file,
    });
    if sample.truncated == Truncated::Retry {
        sampling["retry_max_tokens"] = sample.retry_cap().into();
    }
    let sampling = canonical::to_string(&sampling);
    let trace_ids: Vec<String> = traces
        .iter()
        .enumerate()
        .map(|(index, trace)| {
            ids::trace_id(ids.value(index), &trace.model, &sampling, &sample.salt, trace.request.sample)
        })
        .collect();
    let every = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![value; traces.len()])) };
    let count = |value: u32| -> ArrayRef { Arc::new(Int64Array::from(vec![i64::from(value); traces.len()])) };
    let answers = || traces.iter().map(|trace| &trace.answer);
    vec![
        (trace::TRACE_ID, texts(trace_ids.iter().map(|id| Some(id.as_str())))),
        (trace::MODEL, texts(traces.iter().map(|trace| Some(trace.model.as_str())))),
        (trace::SAMPLE, integers(traces.iter().map(|trace| Some(u64::from(trace.request.sample))))),
        (trace::REQUEST_MESSAGES, messages(traces.iter().map(|trace| trace.request.messages.as_slice()))),
        (trace::REASONING, texts(answers().map(|answer| answer.reasoning.as_deref()))),
        (trace::ANSWER_TEXT, texts(answers().map(|answer| Some(answer.answer_text.as_str())))),
        (trace::RESPONSE, texts(answers().map(|answer| Some(answer.text.as_str())))),
        (trace::FINISH_REASON, texts(answers().map(|answer| answer.finish_reason.as_deref()))),
        (trace::PROMPT_TOKENS, integers(answers().map(|answer| answer.prompt_tokens))),
        (trace::COMPLETION_TOKENS, integers(answers().map(|answer| answer.completion_tokens))),
        (trace::TEMPERATURE, every(sample.temperature)),
        (trace::TOP_P, every(sample.top_p)),
        (trace::TOP_K, count(sample.top_k)),
        (trace::MIN_P, every(sample.min_p)),
        (trace::MAX_TOKENS, integers(traces.iter().map(|trace| Some(u64::from(trace.request.sampling.max_tokens))))),
        (trace::SEED, integers(traces.iter().map(|trace| trace.request.sampling.seed))),
        (trace::TOKEN_IDS, token_ids(answers())),
        (trace::TOKEN_LOGPROBS, log_probs(answers())),
        (trace::TOKENIZER, texts(answers().map(|answer| answer.tokenizer.as_deref()))),
        (trace::TEMPLATE, texts(answers().map(|answer| answer.template.as_deref()))),
    ]
}

fn messages<'a>(rows: impl Iterator<Item = &'a [Message]>) -> ArrayRef {
    let DataType::List(item) = Type::Messages.arrow() else { return new_null_array(&Type::Messages.arrow(), 0) };
    let DataType::Struct(fields) = item.data_type() else { return new_null_array(&Type::Messages.arrow(), 0) };
    let turns = StructBuilder::from_fields(fields.clone(), 0);
    let mut list = ListBuilder::new(turns).with_field(Arc::clone(&item));
    for row in rows {
        for message in row {
            let turn = list.values();
            let values = [Some(message.role.as_str()), Some(message.content.as_str()), message.tool_calls.as_deref()];
            for (field, value) in values.into_iter().enumerate() {
                if let Some(builder) = turn.field_builder::<StringViewBuilder>(field) {
                    builder.append_option(value);
                }
            }
            turn.append(true);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

fn token_ids<'a>(answers: impl Iterator<Item = &'a Answer>) -> ArrayRef {
    let item = Field::new(LIST_ITEM, DataType::UInt32, true);
    let mut list = ListBuilder::new(UInt32Builder::new()).with_field(item);
    for answer in answers {
        match &answer.token_ids {
            Some(ids) => list.append_value(ids.iter().copied().map(Some)),
            None => list.append_null(),
        }
    }
    Arc::new(list.finish())
}

fn log_probs<'a>(answers: impl Iterator<Item = &'a Answer>) -> ArrayRef {
    let item = Field::new(LIST_ITEM, DataType::Float32, true);
    let mut list = ListBuilder::new(Float32Builder::new()).with_field(item);
    for answer in answers {
        match &answer.token_logprobs {
            Some(values) => list.append_value(values.iter().copied().map(Some)),
            None => list.append_null(),
        }
    }
    Arc::new(list.finish())
}
