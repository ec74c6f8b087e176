//! What the card is counted from: licences, sources, models and languages of the rows that were written.

use std::collections::BTreeMap;

use arrow::array::{RecordBatch, StringViewArray};
use pipeline_core::StageError;
use pipeline_core::rows::{self, text_at};
use schemas::{queries, traces};

use crate::language::Scripts;
use crate::layout::Answers;

/// Sources that are told apart; rows of further ones are counted together, so that memory stays bounded where every
/// row names a source of its own.
const MOST_SOURCES: usize = 10_000;

/// Counts over all rows. An empty text stands for what a row does not say.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Rows.
    pub rows: u64,
    /// Rows by licence expression.
    pub licenses: BTreeMap<String, u64>,
    /// Rows by source and, within it, licence expression.
    pub sources: BTreeMap<String, BTreeMap<String, u64>>,
    /// Rows of sources beyond those told apart.
    pub further_sources: u64,
    /// Traces by model.
    pub models: BTreeMap<String, u64>,
    /// Rows by language of question or answer; one row may count for two.
    pub languages: BTreeMap<&'static str, u64>,
    /// Rows where neither question nor answer is of a known language.
    pub other_language: u64,
    /// Traces that stop inside their reasoning.
    pub unfinished: u64,
}

impl Tally {
    /// Counts the rows of a batch of the stage.
    ///
    /// # Errors
    /// When a column has another type than its table says.
    pub fn add(&mut self, batch: &RecordBatch, has_answers: bool) -> Result<(), StageError> {
        let texts = |name| batch.column_by_name(name).map(|_| rows::texts(batch, name)).transpose();
        let (licenses, sources) = (texts(queries::LICENSE)?, texts(queries::SOURCE)?);
        let models = if has_answers { texts(traces::MODEL)? } else { None };
        let answers = if has_answers { Some(Answers::new(batch)?) } else { None };
        let messages = batch
            .column_by_name(queries::MESSAGES)
            .map(|_| rows::Messages::new(batch, queries::MESSAGES))
            .transpose()?;
        for row in 0..batch.num_rows() {
            self.rows += 1;
            let at = |texts: Option<&'_ StringViewArray>| -> String {
                texts.and_then(|texts| text_at(texts, row)).unwrap_or_default().trim().to_owned()
            };
            let license = at(licenses);
            self.add_source(at(sources), &license);
            *self.licenses.entry(license).or_default() += 1;
            if has_answers {
                *self.models.entry(at(models)).or_default() += 1;
            }
            let question = messages.as_ref().and_then(|messages| {
                let mut scripts = Scripts::default();
                messages.at(row).iter().for_each(|message| scripts.add(message.content));
                scripts.language()
            });
            let answer = answers.as_ref().and_then(|answers| {
                self.unfinished += u64::from(answers.is_unfinished(row));
                let mut scripts = Scripts::default();
                let (reasoning, answer) = answers.parts(row);
                [reasoning, answer].into_iter().flatten().for_each(|text| scripts.add(text));
                scripts.language()
            });
            self.add_languages(question, answer);
        }
        Ok(())
    }

    fn add_source(&mut self, source: String, license: &str) {
        if self.sources.len() >= MOST_SOURCES && !self.sources.contains_key(&source) {
            self.further_sources += 1;
            return;
        }
        let of_source = self.sources.entry(source).or_default();
        match of_source.get_mut(license) {
            Some(count) => *count += 1,
            None => {
                of_source.insert(license.to_owned(), 1);
            }
        }
    }

    fn add_languages(&mut self, question: Option<&'static str>, answer: Option<&'static str>) {
        if let Some(language) = question {
            *self.languages.entry(language).or_default() += 1;
        }
        if let Some(language) = answer.filter(|_| answer != question) {
            *self.languages.entry(language).or_default() += 1;
        }
        self.other_language += u64::from(question.is_none() && answer.is_none());
    }
}
