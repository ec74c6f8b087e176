//! A row of the table, made from one row of the user's.

use std::borrow::Cow;

use schemas::ids::{self, MessageRef};
use schemas::{Type, queries as query, traces as trace};
use serde_json::Value;
use serde_json::value::RawValue;
use stage_verify::instruct::Constraint;

use super::cell::{self, Cell, Message};
use super::extra::left_over;
use super::label;
use super::mapping::Target;
use super::path::{Found, Path, RowText};
use super::row::{BAD_VALUE, Context, Fall, NO_LABEL, NO_PROMPT, brief};

/// A row of the table while it is made.
pub struct Making<'a, 'r> {
    pub(super) context: Context<'a>,
    pub(super) row: &'r RowText<'a>,
    cells: Vec<Cell<'a>>,
    /// Paths whose values the cells hold whole.
    pub(super) taken: Vec<&'a Path>,
}

impl<'a, 'r> Making<'a, 'r> {
    /// Begins a row.
    pub fn new(context: Context<'a>, row: &'r RowText<'a>) -> Self {
        let cells = context.mapping.filled.iter().map(|_| Cell::Null).collect();
        Self { context, row, cells, taken: Vec::new() }
    }

    /// Makes it; `sample` is its position under `each`.
    ///
    /// # Errors
    /// Why the row falls out.
    pub fn make(mut self, sample: Option<i64>) -> Result<Vec<Cell<'a>>, Fall> {
        let mapping = self.context.mapping;
        for (slot, text) in &mapping.constants {
            self.put(*slot, Cell::Text(Cow::Borrowed(text)));
        }
        if !mapping.maps(query::SOURCE) && self.context.import.source.is_none() {
            self.set(query::SOURCE, Cell::Text(Cow::Borrowed(self.context.source)));
        }
        for target in &mapping.targets {
            self.fill(target)?;
        }
        self.options_and_label()?;
        let mut messages = self.messages()?;
        let is_trace = mapping.table.name == trace::TABLE.name;
        if is_trace {
            self.response(&mut messages)?;
        }
        self.prompt(&messages)?;
        let id = self.query_id(&messages);
        if is_trace {
            self.trace_columns(&id, sample)?;
        }
        self.set(query::QUERY_ID, Cell::Text(Cow::Owned(id)));
        self.set(query::MESSAGES, Cell::Messages(messages));
        if let Some(extra) = left_over(self.row, &self.taken) {
            self.set(query::EXTRA, Cell::Text(Cow::Owned(extra)));
        }
        Ok(self.cells)
    }

    fn put(&mut self, slot: usize, cell: Cell<'a>) {
        if let Some(place) = self.cells.get_mut(slot) {
            *place = cell;
        }
    }

    pub(super) fn set(&mut self, column: &str, cell: Cell<'a>) {
        if let Some(slot) = self.context.mapping.slot(column) {
            self.put(slot, cell);
        }
    }

    pub(super) fn cell(&self, column: &str) -> Option<&Cell<'a>> {
        self.context.mapping.slot(column).and_then(|slot| self.cells.get(slot))
    }

    pub(super) fn text(&self, column: &str) -> Option<Cow<'a, str>> {
        match self.cell(column) {
            Some(Cell::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn path(&self, place: usize) -> Option<&'a Path> {
        self.context.mapping.paths.get(place).map(|(_, path)| path)
    }

    /// The value at a path for a column; a null is taken at once.
    fn value(&mut self, column: &str, place: usize) -> Result<Option<(&'a Path, &'a RawValue)>, Fall> {
        let Some(path) = self.path(place) else {
            return Ok(None);
        };
        match path.follow(self.row) {
            Found::Missing => Ok(None),
            Found::Null => {
                if self.row.get(&path.text).is_some() || path.hops.len() == 1 {
                    self.taken.push(path);
                }
                Ok(None)
            }
            Found::Value(value) if self.context.empty_is_null && value.get() == "\"\"" => {
                self.taken.push(path);
                Ok(None)
            }
            Found::Value(value) => Ok(Some((path, value))),
            Found::NoParts(value) => Err(Fall::bad(column, path, "an object or list", value)),
        }
    }

    fn fill(&mut self, target: &'a Target) -> Result<(), Fall> {
        let (name, kind) = (target.column.name, target.column.kind);
        if let [place] = target.paths.as_slice() {
            let Some((path, value)) = self.value(name, *place)? else {
                return Ok(());
            };
            let (cell, is_exact) = if name == query::TESTS && value.get().starts_with(['[', '{']) {
                (Cell::Text(Cow::Borrowed(value.get())), true)
            } else {
                cell::convert(kind, value).map_err(|needed| Fall::bad(name, path, needed, value))?
            };
            ensure_known(name, path, &cell)?;
            self.put(target.slot, cell);
            if is_exact {
                self.taken.push(path);
            }
            return Ok(());
        }
        self.fill_from_several(target)
    }

    fn fill_from_several(&mut self, target: &'a Target) -> Result<(), Fall> {
        let (name, kind) = (target.column.name, target.column.kind);
        let mut values = Vec::with_capacity(target.paths.len());
        for place in &target.paths {
            values.extend(self.value(name, *place)?);
        }
        if values.is_empty() {
            return Ok(());
        }
        let is_whole = values.len() == target.paths.len();
        if kind == Type::Constraints {
            let [(ids, first), (_, second)] = values.as_slice() else {
                return Ok(());
            };
            let zipped = cell::zipped_constraints(first, second);
            let cell =
                zipped.ok_or_else(|| Fall::bad(name, ids, "a list of ids as long as that of `kwargs`", first))?;
            ensure_known(name, ids, &cell)?;
            self.put(target.slot, cell);
            self.taken.extend(values.iter().map(|(path, _)| *path));
            return Ok(());
        }
        if name == query::TESTS {
            let fields = values.iter().map(|(path, value)| format!("{}: {value}", Value::from(path.last_key())));
            self.put(target.slot, Cell::Text(Cow::Owned(format!("{{{}}}", fields.collect::<Vec<_>>().join(", ")))));
            self.taken.extend(values.iter().map(|(path, _)| *path));
            return Ok(());
        }
        let mut texts = Vec::with_capacity(values.len());
        for (path, value) in &values {
            texts.push(cell::text(value).ok_or_else(|| Fall::bad(name, path, "text", value))?);
        }
        if kind == Type::TextList {
            self.put(target.slot, Cell::Texts(texts));
            if is_whole {
                self.taken.extend(values.iter().map(|(path, _)| *path));
            }
        } else {
            self.put(target.slot, Cell::Text(Cow::Owned(texts.join(&self.context.import.join))));
        }
        Ok(())
    }

    /// A value that was changed on its way in stays in `extra` as it was.
    fn keep_in_extra(&mut self, column: &str) {
        let mapping = self.context.mapping;
        let Some(target) = mapping.targets.iter().find(|target| target.column.name == column) else {
            return;
        };
        let paths: Vec<&Path> = target.paths.iter().filter_map(|place| self.path(*place)).collect();
        self.taken.retain(|taken| !paths.contains(taken));
    }

    fn options_and_label(&mut self) -> Result<(), Fall> {
        let import = self.context.import;
        let mut count = None;
        if let Some(Cell::Texts(mut options)) = self.cell(query::OPTIONS).cloned() {
            count = Some(options.len());
            if import.options_strip && label::strip_letters(&mut options) {
                self.keep_in_extra(query::OPTIONS);
                self.set(query::OPTIONS, Cell::Texts(options));
            }
        }
        let Some(text) = self.text(query::LABEL) else {
            return Ok(());
        };
        let mut new: Cow<'_, str> = text.clone();
        if let Some(marker) = &import.label_after {
            let found = label::after(&text, marker);
            let missing = || Fall::at(query::LABEL, NO_LABEL, format!("there is no `{marker}` in {}", brief(&text)));
            new = Cow::Owned(found.ok_or_else(missing)?.to_owned());
        } else if import.label_boxed {
            let missing = || Fall::at(query::LABEL, NO_LABEL, format!("there is no closed box in {}", brief(&text)));
            new = Cow::Owned(label::last_box(&text).ok_or_else(missing)?.to_owned());
        }
        if import.label_index {
            let wrong = || {
                let message = format!("{} is no 0-based position or letter of an option", brief(&new));
                Fall::at(query::LABEL, BAD_VALUE, message)
            };
            new = Cow::Owned(label::letter(&new, count).ok_or_else(wrong)?.into_owned());
        }
        if new != text {
            let new = new.into_owned();
            self.keep_in_extra(query::LABEL);
            self.set(query::LABEL, Cell::Text(Cow::Owned(new)));
        }
        Ok(())
    }

    /// The conversation: `messages`, else `prompt` as one user message; `system` goes before it.
    fn messages(&mut self) -> Result<Vec<Message<'a>>, Fall> {
        let mapping = self.context.mapping;
        let mut messages = Vec::new();
        if let Some(place) = mapping.messages
            && let Some((path, value)) = self.value(query::MESSAGES, place)?
        {
            let converted = cell::convert(Type::Messages, value);
            let (cell, is_exact) = converted.map_err(|needed| Fall::bad(query::MESSAGES, path, needed, value))?;
            if let Cell::Messages(found) = cell {
                messages = found;
            }
            if is_exact {
                self.taken.push(path);
            }
        }
        if messages.is_empty() {
            messages.extend(self.prompt_message()?);
        }
        if let Some(place) = mapping.system
            && let Some((path, value)) = self.value("system", place)?
        {
            let content = cell::text(value).ok_or_else(|| Fall::bad("system", path, "text", value))?;
            if messages.first().is_none_or(|first| first.role != "system") {
                messages.insert(0, Message { role: Cow::Borrowed("system"), content, tool_calls: None });
                self.taken.push(path);
            }
        }
        Ok(messages)
    }

    fn prompt_message(&mut self) -> Result<Option<Message<'a>>, Fall> {
        let mapping = self.context.mapping;
        let (mut texts, mut paths) = (Vec::new(), Vec::new());
        for place in &mapping.prompt {
            if let Some((path, value)) = self.value(query::PROMPT, *place)? {
                texts.push(cell::text(value).ok_or_else(|| Fall::bad(query::PROMPT, path, "text", value))?);
                paths.push(path);
            }
        }
        let content = match texts.len() {
            0 => return Ok(None),
            1 if mapping.prompt.len() == 1 => {
                self.taken.append(&mut paths);
                texts.remove(0)
            }
            _ => Cow::Owned(texts.join(&self.context.import.join)),
        };
        Ok(Some(Message { role: Cow::Borrowed("user"), content, tool_calls: None }))
    }

    fn prompt(&mut self, messages: &[Message<'a>]) -> Result<(), Fall> {
        let last = messages.iter().rev().find(|message| message.role == "user");
        match last.map(|message| message.content.clone()).filter(|content| !content.trim().is_empty()) {
            Some(prompt) => {
                self.set(query::PROMPT, Cell::Text(prompt));
                Ok(())
            }
            None => Err(Fall::at(query::PROMPT, NO_PROMPT, "there is no user message with text")),
        }
    }

    fn query_id(&self, messages: &[Message<'a>]) -> String {
        let domain = self.text(query::DOMAIN);
        let options: Option<Vec<&str>> = match self.cell(query::OPTIONS) {
            Some(Cell::Texts(options)) => Some(options.iter().map(AsRef::as_ref).collect()),
            _ => None,
        };
        let messages = messages.iter().map(|message| MessageRef {
            role: &message.role,
            content: &message.content,
            tool_calls: message.tool_calls.as_deref(),
        });
        ids::query_id(domain.as_deref(), messages, options.as_deref())
    }
}

/// Refuses constraints that cannot be checked: what nobody checks would pass for done.
fn ensure_known(column: &str, path: &Path, cell: &Cell<'_>) -> Result<(), Fall> {
    let Cell::Constraints(constraints) = cell else { return Ok(()) };
    for (id, kwargs) in constraints {
        let wrong = |error: &dyn std::fmt::Display| Fall::at(column, BAD_VALUE, format!("`{path}`: {error}"));
        let kwargs = serde_json::from_str(kwargs).map_err(|error| wrong(&error))?;
        Constraint::parse(id, &kwargs).map_err(|error| wrong(&error))?;
    }
    Ok(())
}
