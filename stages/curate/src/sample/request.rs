//! What is asked for a row: messages, sampling and seed.

use std::sync::Arc;

use arrow::array::{ListArray, RecordBatch, StringViewArray};
use minijinja::context;
use pipeline_core::rows::{self, Messages, list_texts, text_at};
use pipeline_core::{Seed, Stage as _, StageError, Task};
use pipeline_models::{Message, Model, Request, Sampling};
use schemas::queries;

use super::{Sample, TEMPLATE};
use crate::template::Template;

/// A model and all that its requests share.
pub(super) struct Asking<'a> {
    pub(super) model: Arc<dyn Model>,
    pub(super) sample: &'a Sample,
    preamble: Vec<Message>,
    template: Option<Template>,
    seed: u64,
}

/// The columns that requests are made of.
pub(super) struct Rows<'a> {
    ids: &'a StringViewArray,
    messages: Messages<'a>,
    prompts: &'a StringViewArray,
    domains: &'a StringViewArray,
    subdomains: &'a StringViewArray,
    options: &'a ListArray,
}

impl<'a> Asking<'a> {
    pub(super) fn new(sample: &'a Sample, task: &Task<'_>, model: Arc<dyn Model>) -> Result<Self, StageError> {
        let (text, file) = (sample.template.as_deref(), sample.template_file.as_deref());
        let template = Template::given(task, text, file, TEMPLATE)?;
        Ok(Self { model, sample, preamble: sample.preamble(), template, seed: task.seed() })
    }

    pub(super) fn rows(batch: &RecordBatch) -> Result<Rows<'_>, StageError> {
        Ok(Rows {
            ids: rows::texts(batch, queries::QUERY_ID)?,
            messages: Messages::new(batch, queries::MESSAGES)?,
            prompts: rows::texts(batch, queries::PROMPT)?,
            domains: rows::texts(batch, queries::DOMAIN)?,
            subdomains: rows::texts(batch, queries::SUBDOMAIN)?,
            options: rows::lists(batch, queries::OPTIONS)?,
        })
    }

    /// All requests of a batch, sample by sample within a row.
    pub(super) fn requests(&self, batch: &RecordBatch) -> Result<Vec<Request>, StageError> {
        let columns = Self::rows(batch)?;
        let mut requests = Vec::with_capacity(batch.num_rows() * self.sample.n as usize);
        for row in 0..batch.num_rows() {
            for sample in 0..self.sample.n {
                requests.push(self.request(&columns, row, sample)?);
            }
        }
        Ok(requests)
    }

    /// The request for one sample of a row.
    pub(super) fn request(&self, columns: &Rows<'_>, row: usize, sample: u32) -> Result<Request, StageError> {
        let stage = self.sample;
        let id = text_at(columns.ids, row).unwrap_or_default();
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
            let text = Self::render(template, columns, row)?;
            match messages.iter_mut().rev().find(|message| message.role == "user") {
                Some(last) => last.content = text,
                None => messages.push(Message::new("user", text)),
            }
        }
        let seed = Seed::for_row(self.seed, Sample::KIND, &stage.salt, id, u64::from(sample));
        Ok(Request {
            messages,
            sampling: Sampling {
                temperature: stage.temperature,
                top_p: stage.top_p,
                top_k: Some(stage.top_k),
                min_p: Some(stage.min_p),
                max_tokens: stage.max_tokens,
                stop: stage.stop.clone(),
                seed: Some(seed.small()),
                logprobs: stage.logprobs,
            },
            sample,
            salt: (!stage.salt.is_empty()).then(|| stage.salt.clone()),
            schema: None,
            attempt: 0,
        })
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
        Err(StageError::Param(pipeline_core::ParamError::new("template", message)))
    }

    fn render(template: &Template, columns: &Rows<'_>, row: usize) -> Result<String, StageError> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let options = list_texts(columns.options, row);
        let variables = context! {
            prompt => owned(text_at(columns.prompts, row)),
            domain => owned(text_at(columns.domains, row)),
            subdomain => owned(text_at(columns.subdomains, row)),
            options => options.map(|options| options.into_iter().map(str::to_owned).collect::<Vec<_>>()),
        };
        template.render(variables)
    }
}
