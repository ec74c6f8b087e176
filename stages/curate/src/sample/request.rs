//! What is asked for a row: messages, sampling and seed.

use std::sync::Arc;

use arrow::array::{ListArray, RecordBatch, StringViewArray};
use minijinja::value::Serde;
use pipeline_core::rows::{self, Messages, list_texts, text_at};
use pipeline_core::{ParamError, Seed, Stage as _, StageError, Task};
use pipeline_models::{Message, Model, ModelError, Recorded, Request, Sampling};
use rayon::prelude::*;
use schemas::queries;

use super::{Sample, TEMPLATE, Truncated};
use crate::asking;
use crate::calls::{self, Used};
use crate::template::Template;

/// Answers that one thread reads from the call store together.
const READ_TOGETHER: usize = 256;

/// A model and all that its requests share.
pub(crate) struct Asking<'a> {
    pub(crate) model: Arc<dyn Model>,
    pub(super) sample: &'a Sample,
    preamble: Vec<Message>,
    template: Option<Template>,
    seed: u64,
}

/// A sample and what is known about it.
pub(crate) struct Told {
    pub(crate) request: Request,
    pub(crate) recorded: Recorded,
}

/// Whether an answer was cut at its cap.
pub(super) fn is_cut(recorded: &Recorded) -> bool {
    matches!(recorded, Recorded::Answer(answer) if answer.finish_reason.as_deref() == Some("length"))
}

/// The columns that requests are made of.
struct Rows<'a> {
    batch: &'a RecordBatch,
    ids: &'a StringViewArray,
    messages: Messages<'a>,
    options: &'a ListArray,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(sample: &'a Sample, task: &Task<'_>, model: Arc<dyn Model>) -> Result<Self, StageError> {
        let (text, file) = (sample.template.as_deref(), sample.template_file.as_deref());
        let template = Template::given(task, text, file, TEMPLATE)?;
        Ok(Self { model, sample, preamble: sample.preamble(), template, seed: task.seed() })
    }

    fn rows(batch: &RecordBatch) -> Result<Rows<'_>, StageError> {
        Ok(Rows {
            batch,
            ids: rows::texts(batch, queries::QUERY_ID)?,
            messages: Messages::new(batch, queries::MESSAGES)?,
            options: rows::lists(batch, queries::OPTIONS)?,
        })
    }

    /// All requests of some rows, sample by sample within a row.
    pub(crate) fn requests(&self, batch: &RecordBatch) -> Result<Vec<Request>, StageError> {
        let columns = Self::rows(batch)?;
        let mut requests = Vec::with_capacity(batch.num_rows() * self.sample.n as usize);
        for row in 0..batch.num_rows() {
            let messages = self.messages(&columns, row)?;
            let id = text_at(columns.ids, row).unwrap_or_default();
            requests.extend((0..self.sample.n).map(|sample| self.request(id, messages.clone(), sample)));
        }
        Ok(requests)
    }

    /// Requests with the larger cap, for those of some rows whose answers were cut.
    pub(super) fn retries(&self, batch: &RecordBatch) -> Result<Vec<Request>, StageError> {
        let requests = self.requests(batch)?;
        let answers = self.model.answers(&requests).map_err(|error| calls::model_error(&error))?;
        let cut = requests.into_iter().zip(answers).filter(|(_, recorded)| is_cut(recorded));
        Ok(cut.map(|(request, _)| self.retry(request)).collect())
    }

    /// The same request with the larger cap.
    fn retry(&self, request: Request) -> Request {
        let sampling = Sampling { max_tokens: self.sample.retry_cap(), ..request.sampling };
        Request { sampling, attempt: 1, ..request }
    }

    /// What is known about every sample of some rows; of one that was cut and asked for again, the second answer.
    pub(crate) fn told(&self, batch: &RecordBatch, used: &mut Used) -> Result<Vec<Told>, StageError> {
        let requests = self.requests(batch)?;
        let recorded = self.answers(&requests)?;
        for recorded in &recorded {
            used.add(recorded);
        }
        let mut told: Vec<Told> =
            requests.into_iter().zip(recorded).map(|(request, recorded)| Told { request, recorded }).collect();
        if self.sample.truncated != Truncated::Retry {
            return Ok(told);
        }
        let cut: Vec<usize> = (0..told.len()).filter(|at| is_cut(&told[*at].recorded)).collect();
        let requests: Vec<Request> = cut.iter().map(|at| self.retry(told[*at].request.clone())).collect();
        for ((at, request), recorded) in cut.into_iter().zip(&requests).zip(self.answers(&requests)?) {
            used.add(&recorded);
            // a server that refuses the larger cap leaves what was cut at the smaller one
            if !matches!(recorded, Recorded::RowError { .. }) {
                told[at] = Told { request: request.clone(), recorded };
            }
        }
        Ok(told)
    }

    fn answers(&self, requests: &[Request]) -> Result<Vec<Recorded>, StageError> {
        // what one thread reads stays in its caches and its part of the heap
        if requests.len() <= READ_TOGETHER {
            return self.model.answers(requests).map_err(|error| calls::model_error(&error));
        }
        let parts: Result<Vec<Vec<Recorded>>, ModelError> =
            requests.par_chunks(READ_TOGETHER).map(|part| self.model.answers(part)).collect();
        Ok(parts.map_err(|error| calls::model_error(&error))?.into_iter().flatten().collect())
    }

    /// What the teacher sees for a row.
    fn messages(&self, columns: &Rows<'_>, row: usize) -> Result<Vec<Message>, StageError> {
        let mut messages = self.preamble.clone();
        let own = columns.messages.at(row).into_iter().map(|message| Message {
            role: message.role.to_owned(),
            content: message.content.to_owned(),
            tool_calls: message.tool_calls.map(str::to_owned),
        });
        messages.extend(own);
        if self.template.is_none() {
            Self::ensure_options_are_asked(columns, row, &messages)?;
        }
        if let Some(template) = &self.template {
            let text = template.render(Serde(asking::variables(columns.batch, row, template)).into())?;
            if text.trim().is_empty() {
                let id = text_at(columns.ids, row).unwrap_or_default();
                let message = format!("it renders to nothing for query `{id}`, and an empty prompt asks nothing");
                return Err(StageError::Param(ParamError::new(TEMPLATE, message)));
            }
            match messages.iter_mut().rev().find(|message| message.role == "user") {
                Some(last) => last.content = text,
                None => messages.push(Message::new("user", text)),
            }
        }
        Ok(messages)
    }

    /// The request for one sample of the row with this id.
    fn request(&self, id: &str, messages: Vec<Message>, sample: u32) -> Request {
        let stage = self.sample;
        let seed = Seed::for_row(self.seed, Sample::KIND, &stage.salt, id, u64::from(sample));
        Request {
            messages,
            sampling: Sampling {
                temperature: stage.temperature,
                top_p: stage.top_p,
                top_k: Some(stage.top_k),
                min_p: Some(stage.min_p),
                max_tokens: stage.max_tokens,
                stop: stage.stop.clone(),
                seed: Some(seed.small()),
                logprobs: stage.logprobs.are_asked_for(),
            },
            sample,
            salt: (!stage.salt.is_empty()).then(|| stage.salt.clone()),
            schema: None,
            attempt: 0,
        }
    }

    /// A multiple-choice question without its options cannot be answered, and the mistake shows nowhere else.
    fn ensure_options_are_asked(columns: &Rows<'_>, row: usize, messages: &[Message]) -> Result<(), StageError> {
        let options = list_texts(columns.options, row).unwrap_or_default();
        let is_shown = |option: &&str| messages.iter().any(|message| message.content.contains(*option));
        if options.iter().all(is_shown) {
            return Ok(());
        }
        let message = format!(
            "query `{}` has options that are not in its messages, so the model would not see them; name them in a \
             `template`, such as '{{{{ prompt }}}}{{% for option in options %}} ({{{{ \"ABCDEFGHIJ\"[loop.index0] }}}}) {{{{ option }}}}{{% endfor %}}', \
             or join them to the prompt in the import: `prompt = [\"question\", \"choices[0]\", ...]`",
            text_at(columns.ids, row).unwrap_or_default()
        );
        Err(StageError::Param(ParamError::new(TEMPLATE, message)))
    }
}
