//! The parameters of an import, checked and compiled: which path fills which column.

use std::collections::BTreeMap;

use pipeline_core::ParamError;
use schemas::{Column, Table, Type, queries as query, traces as trace};
use serde_json::value::RawValue;

use super::path::Path;
use super::{Each, Import, Paths, RowsOf};

/// Columns that an import computes itself.
const COMPUTED: [&str; 3] = [query::QUERY_ID, trace::TRACE_ID, query::EXTRA];
/// Key of `columns` that is no column: text of a system message.
pub const SYSTEM: &str = "system";
/// Column that holds the item under [`Each::columns`].
pub const ITEM: &str = "item";
/// Column that holds the name of the item's column under [`Each::columns`].
pub const ITEM_NAME: &str = "item_name";

/// A column that paths fill.
#[derive(Debug)]
pub struct Target {
    /// The table's column.
    pub column: &'static Column,
    /// Its place among the columns that are filled.
    pub slot: usize,
    /// Places in [`Mapping::paths`].
    pub paths: Vec<usize>,
}

/// How one row becomes several.
#[derive(Debug)]
pub enum Expansion {
    /// One row for each position of these lists.
    Lists(Vec<String>),
    /// One row for each of these columns, with its name as JSON.
    Columns(Vec<(String, Box<RawValue>)>),
}

/// A compiled import.
#[derive(Debug)]
pub struct Mapping {
    /// The table that is made.
    pub table: &'static Table,
    /// Columns that may hold values, in the table's order.
    pub filled: Vec<&'static Column>,
    /// Every path, with the parameter that names it.
    pub paths: Vec<(String, Path)>,
    /// Columns filled by paths, conversations apart.
    pub targets: Vec<Target>,
    /// Paths of the prompt's parts.
    pub prompt: Vec<usize>,
    /// Path of the conversation.
    pub messages: Option<usize>,
    /// Path of the system message.
    pub system: Option<usize>,
    /// Columns with the same text in every row.
    pub constants: Vec<(usize, String)>,
    /// How a row becomes several.
    pub expansion: Option<Expansion>,
    slots: BTreeMap<&'static str, usize>,
}

impl Mapping {
    /// Checks and compiles parameters.
    ///
    /// # Errors
    /// When a key names no column, a path is none, or parameters contradict each other.
    pub fn new(import: &Import) -> Result<Self, ParamError> {
        let table = import.rows.table();
        check_keys(import, table)?;
        check_labels(import)?;
        let filled = filled_columns(import, table);
        let slots: BTreeMap<_, _> = filled.iter().enumerate().map(|(slot, column)| (column.name, slot)).collect();
        let mut mapping = Self {
            table,
            filled,
            paths: Vec::new(),
            targets: Vec::new(),
            prompt: Vec::new(),
            messages: None,
            system: None,
            constants: Vec::new(),
            expansion: expansion(import)?,
            slots,
        };
        for (key, paths) in &import.columns {
            mapping.add(key, paths)?;
        }
        for (name, text) in constants(import) {
            if let (Some(text), Some(slot)) = (text, mapping.slot(name)) {
                mapping.constants.push((slot, text.clone()));
            }
        }
        mapping.add_each(import)?;
        Ok(mapping)
    }

    /// Place of a column among those that are filled.
    pub fn slot(&self, column: &str) -> Option<usize> {
        self.slots.get(column).copied()
    }

    /// Whether a path fills a column.
    pub fn maps(&self, column: &str) -> bool {
        self.targets.iter().any(|target| target.column.name == column)
    }

    fn add(&mut self, key: &str, paths: &Paths) -> Result<(), ParamError> {
        let at = format!("columns.{key}");
        let mut places = Vec::new();
        for text in paths.list() {
            let path = Path::parse(text).map_err(|message| ParamError::new(&at, message))?;
            places.push(self.paths.len());
            self.paths.push((at.clone(), path));
        }
        let first = places.first().copied().ok_or_else(|| ParamError::new(&at, "names no column of your files"))?;
        let column = self.table.column(key);
        let many = match column.map(|column| column.kind) {
            Some(Type::Text | Type::TextList) => true,
            Some(Type::Constraints) => places.len() == 2,
            _ => false,
        };
        if places.len() > 1 && !many {
            return Err(ParamError::new(&at, format!("`{key}` takes one path, found {}", places.len())));
        }
        match (key, column, self.slot(key)) {
            (query::PROMPT, ..) => self.prompt = places,
            (query::MESSAGES, ..) => self.messages = Some(first),
            (SYSTEM, ..) => self.system = Some(first),
            (_, Some(column), Some(slot)) => self.targets.push(Target { column, slot, paths: places }),
            _ => {}
        }
        Ok(())
    }

    /// Watches the columns that `each` names, so that a wrong name is found.
    fn add_each(&mut self, import: &Import) -> Result<(), ParamError> {
        let Some(each) = &import.each else {
            return Ok(());
        };
        for (part, names) in [("lists", &each.lists), ("columns", &each.columns)] {
            for name in names {
                let at = format!("each.{part}");
                let path = Path { text: name.clone(), hops: Vec::new() };
                if name.is_empty() {
                    return Err(ParamError::new(at, "a name is empty"));
                }
                self.paths.push((at, path));
            }
        }
        Ok(())
    }
}

fn constants(import: &Import) -> [(&'static str, &Option<String>); 4] {
    [
        (query::DOMAIN, &import.domain),
        (query::SOURCE, &import.source),
        (query::LICENSE, &import.license),
        (trace::MODEL, &import.model),
    ]
}

fn check_keys(import: &Import, table: &'static Table) -> Result<(), ParamError> {
    for key in import.columns.keys() {
        let at = format!("columns.{key}");
        if COMPUTED.contains(&key.as_str()) {
            return Err(ParamError::new(at, format!("`{key}` is computed and takes no column")));
        }
        if key == SYSTEM || table.column(key).is_some() {
            continue;
        }
        let error = ParamError::new(&at, format!("table `{}` has no column `{key}`", table.name));
        if trace::TABLE.column(key).is_some() {
            return Err(error.hint("set `rows = \"traces\"` to import answers of a model"));
        }
        let names = table.columns().map(|column| column.name).chain([SYSTEM]);
        return Err(match nearest(key, names) {
            Some(name) => error.hint(format!("did you mean `{name}`?")),
            None => error,
        });
    }
    if !import.columns.contains_key(query::PROMPT) && !import.columns.contains_key(query::MESSAGES) {
        let error = ParamError::new("columns", "`columns` maps neither `prompt` nor `messages`");
        return Err(error.hint("say which column holds the problem: `columns = { prompt = \"question\" }`"));
    }
    for (name, constant) in constants(import) {
        if constant.is_some() && import.columns.contains_key(name) {
            return Err(ParamError::new(name, format!("`{name}` and `columns.{name}` exclude each other")));
        }
    }
    if import.model.is_some() && import.rows == RowsOf::Queries {
        return Err(ParamError::new("model", "`model` belongs to traces; set `rows = \"traces\"`"));
    }
    let answers = [trace::RESPONSE, trace::ANSWER_TEXT, query::MESSAGES];
    if import.rows == RowsOf::Traces && !answers.iter().any(|name| import.columns.contains_key(*name)) {
        let error = ParamError::new("columns", "`columns` maps neither `response`, `answer_text` nor `messages`");
        return Err(error.hint("say which column holds the model's answer"));
    }
    Ok(())
}

fn check_labels(import: &Import) -> Result<(), ParamError> {
    let has = |name: &str| import.columns.contains_key(name);
    let needs =
        |parameter: &str, column: &str| ParamError::new(parameter, format!("`{parameter}` needs `columns.{column}`"));
    if import.label_after.as_deref() == Some("") {
        return Err(ParamError::new("label_after", "`label_after` is empty"));
    }
    if import.label_after.is_some() && !has(query::LABEL) {
        return Err(needs("label_after", query::LABEL));
    }
    if import.label_boxed && !has(query::LABEL) {
        return Err(needs("label_boxed", query::LABEL));
    }
    if import.label_index && !has(query::LABEL) {
        return Err(needs("label_index", query::LABEL));
    }
    if import.options_strip && !has(query::OPTIONS) {
        return Err(needs("options_strip", query::OPTIONS));
    }
    if import.label_boxed && import.label_after.is_some() {
        return Err(ParamError::new("label_boxed", "`label_boxed` and `label_after` exclude each other"));
    }
    Ok(())
}

/// Columns that may hold values; the declaration of the output is made of them.
fn filled_columns(import: &Import, table: &'static Table) -> Vec<&'static Column> {
    let is_trace = import.rows == RowsOf::Traces;
    let each_columns = import.each.as_ref().is_some_and(|each| !each.columns.is_empty());
    let is_filled = |name: &str| match name {
        query::QUERY_ID
        | query::MESSAGES
        | query::PROMPT
        | query::SOURCE
        | query::EXTRA
        | trace::TRACE_ID
        | trace::RESPONSE
        | trace::REASONING
        | trace::ANSWER_TEXT => true,
        trace::SAMPLE if is_trace && import.each.is_some() => true,
        trace::MODEL if each_columns || import.model.is_some() => true,
        query::DOMAIN if import.domain.is_some() => true,
        query::LICENSE if import.license.is_some() => true,
        _ => import.columns.contains_key(name),
    };
    table.columns().filter(|column| is_filled(column.name)).collect()
}

fn expansion(import: &Import) -> Result<Option<Expansion>, ParamError> {
    let Some(Each { lists, columns }) = &import.each else {
        return Ok(None);
    };
    if import.rows == RowsOf::Queries {
        return Err(ParamError::new("each", "`each` makes several traces of a row; set `rows = \"traces\"`"));
    }
    match (lists.is_empty(), columns.is_empty()) {
        (false, true) => Ok(Some(Expansion::Lists(lists.clone()))),
        (true, false) => {
            let named = columns.iter().map(|name| {
                let json = serde_json::value::to_raw_value(name);
                let json = json.map_err(|error| ParamError::new("each.columns", error.to_string()))?;
                Ok((name.clone(), json))
            });
            Ok(Some(Expansion::Columns(named.collect::<Result<_, ParamError>>()?)))
        }
        _ => Err(ParamError::new("each", "`each` takes either `lists` or `columns`")),
    }
}

/// The name most like `wanted`, if any is.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let scored = names.map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name));
    scored.filter(|(score, _)| *score > 0.75).max_by(|one, two| one.0.total_cmp(&two.0)).map(|(_, name)| name)
}
