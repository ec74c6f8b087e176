//! What a trace has beside its query: the response and its parts, the model, the verdict, the id.

use std::borrow::Cow;

use pipeline_core::{Digest, canonical};
use pipeline_models::split_reasoning;
use schemas::{ids, traces as trace};
use serde_json::{Map, Value};

use super::cell::{Cell, Message};
use super::making::Making;
use super::mapping::{Expansion, ITEM_NAME};
use super::row::{BAD_VALUE, Fall, NO_RESPONSE, brief};

impl<'a> Making<'a, '_> {
    /// The raw response with its two parts. The last message of the assistant serves where no column does.
    pub(super) fn response(&mut self, messages: &mut Vec<Message<'a>>) -> Result<(), Fall> {
        let mapping = self.context.mapping;
        let has_columns = mapping.maps(trace::RESPONSE) || mapping.maps(trace::ANSWER_TEXT);
        if !has_columns
            && messages.last().is_some_and(|last| last.role == "assistant")
            && let Some(last) = messages.pop()
        {
            self.set(trace::RESPONSE, Cell::Text(last.content));
            let path = mapping.messages.and_then(|place| self.path(place));
            if last.tool_calls.is_some() {
                self.taken.retain(|taken| Some(*taken) != path);
            }
        }
        let reasoning = self.text(trace::REASONING);
        let response = match (self.text(trace::RESPONSE), self.text(trace::ANSWER_TEXT), &reasoning) {
            (Some(response), ..) => response,
            (None, Some(answer), Some(reasoning)) => Cow::Owned(format!("<think>\n{reasoning}\n</think>\n\n{answer}")),
            (None, Some(answer), None) => answer,
            (None, None, _) => {
                return Err(Fall::at(trace::RESPONSE, NO_RESPONSE, "there is no response"));
            }
        };
        if !mapping.maps(trace::ANSWER_TEXT) {
            let split = split_reasoning(&response, reasoning.as_deref());
            if !mapping.maps(trace::REASONING) {
                self.set(trace::REASONING, split.reasoning.map_or(Cell::Null, |text| Cell::Text(Cow::Owned(text))));
            }
            self.set(trace::ANSWER_TEXT, Cell::Text(Cow::Owned(split.answer)));
        }
        self.set(trace::RESPONSE, Cell::Text(response));
        Ok(())
    }

    pub(super) fn trace_columns(&mut self, query_id: &str, sample: Option<i64>) -> Result<(), Fall> {
        let mapping = self.context.mapping;
        if !mapping.maps(trace::SAMPLE)
            && let Some(sample) = sample
        {
            self.set(trace::SAMPLE, Cell::Int(sample));
        }
        let names_model = mapping.maps(trace::MODEL) || self.context.import.model.is_some();
        if let (Some(Expansion::Columns(names)), false) = (&mapping.expansion, names_model)
            && let Some((name, _)) =
                self.row.get(ITEM_NAME).and_then(|json| names.iter().find(|one| one.1.get() == json.get()))
        {
            self.set(trace::MODEL, Cell::Text(Cow::Borrowed(name)));
        }
        self.verdict()?;
        let mut sampling = Map::new();
        for name in [trace::TEMPERATURE, trace::TOP_P, trace::TOP_K, trace::MIN_P, trace::MAX_TOKENS, trace::SEED] {
            match self.cell(name) {
                Some(Cell::Float(value)) => sampling.insert(name.to_owned(), (*value).into()),
                Some(Cell::Int(value)) => sampling.insert(name.to_owned(), (*value).into()),
                _ => None,
            };
        }
        let sample = match self.cell(trace::SAMPLE) {
            Some(Cell::Int(sample)) => u32::try_from(*sample)
                .map_err(|_| Fall::at(trace::SAMPLE, BAD_VALUE, format!("{sample} is no index of a sample")))?,
            _ => 0,
        };
        // recorded answers differ by their text where nothing else is known to tell them apart
        let response = self.text(trace::RESPONSE).unwrap_or_default();
        let salt = format!("import {}", Digest::of(response.as_bytes()));
        let model = self.text(trace::MODEL).unwrap_or_default();
        let id = ids::trace_id(query_id, &model, &canonical::to_string(&Value::Object(sampling)), &salt, sample);
        self.set(trace::TRACE_ID, Cell::Text(Cow::Owned(id)));
        Ok(())
    }

    /// Verdicts come as one of the five words, or as true and false.
    fn verdict(&mut self) -> Result<(), Fall> {
        const WORDS: [&str; 5] = ["correct", "incorrect", "undecided", "no_answer", "label_unparsable"];
        let Some(text) = self.text(trace::VERDICT) else {
            return Ok(());
        };
        let word = match text.as_ref() {
            "true" | "True" => "correct",
            "false" | "False" => "incorrect",
            other => WORDS.into_iter().find(|word| *word == other).ok_or_else(|| {
                let message = format!("{} is neither true, false nor one of {}", brief(other), WORDS.join(", "));
                Fall::at(trace::VERDICT, BAD_VALUE, message)
            })?,
        };
        self.set(trace::VERDICT, Cell::Text(Cow::Borrowed(word)));
        Ok(())
    }
}
