//! `import`: users' files as they are, made into a table.
//!
//! The report starts from collected open data; sets of it differ in format, in the names of their columns and in how
//! they write a label down. An import changes none of the text: it maps columns, finds the label, gives every row an
//! id that depends on its content alone, and keeps what it has no place for in `extra`.

mod answer;
mod build;
mod cell;
mod extra;
mod files;
mod label;
mod making;
mod mapping;
mod path;
mod read;
mod row;
mod run;
mod soundness;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use pipeline_core::{
    Env, Example, External, Output, ParamError, Port, Ports, Source, Stage, StageError, Step, TableType, Task,
};
use schemars::JsonSchema;
use schemas::{Table, queries, traces};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use files::Format;
use mapping::Mapping;

/// Reads your files as they are, maps their columns to a table, gives stable ids, and keeps every column that has no
/// place in the table in `extra`.
///
/// Files may be Parquet, JSON lines, one JSON array, or CSV with a header line, each also packed with gzip or
/// Zstandard. Rows are read as a stream. Text is never changed; a number that becomes a text keeps its digits.
///
/// ```toml
/// [stages.seeds]
/// kind = "import"
/// files = ["gsm8k/*.jsonl"]
/// domain = "math"
/// columns = { prompt = "question", label = "answer" }
/// label_after = "####"
/// ```
///
/// Rows fall out with the reasons `no_prompt` (no user message with text), `no_label` (`label_after` or `label_boxed`
/// finds nothing), `no_response` and `no_items` (traces), and, only if the stage sets `max_errors`, `broken_line` (a
/// line that cannot be read) and `bad_value` (a value of the wrong type, a constraint that cannot be checked); without `max_errors` the last two end the
/// run with file and line. A mapped column that no row of a file has ends the run too.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Files to read, in this order: names or globs (`*`, `?`, `[...]`, `**`), relative to the folder of `dag.toml`.
    files: Vec<String>,
    /// Table to make.
    #[serde(default)]
    rows: RowsOf,
    /// Format of all files. Default: by each file's name (`.json` may hold an array or JSON lines).
    #[serde(default)]
    format: Option<Format>,
    /// For each column of the table, the column of your files that fills it: a name, or a path into nested values
    /// such as `reward_model.ground_truth`, `prompt[0].content` or `messages[-1].content`. At least `prompt` (a text)
    /// or `messages` (a list of `{role, content, tool_calls}`, which goes first) is needed; `system` makes a system
    /// message. Several paths, as a list, are joined by `join` for a text, make the items of a list of texts, for
    /// `constraints` give ids and kwargs, and for `tests` the fields of one object: `tests = ["test_setup_code",
    /// "test_list"]`. Ids and `extra` are computed.
    columns: BTreeMap<String, Paths>,
    /// Domain of all rows: math, code, stem, chat or instruct (or map `columns.domain`).
    #[serde(default)]
    domain: Option<String>,
    /// Value of `source` in all rows. Default: the file's name.
    #[serde(default)]
    source: Option<String>,
    /// Licence of all rows, as SPDX expression or `LicenseRef-...` (or map `columns.license`).
    #[serde(default)]
    license: Option<String>,
    /// Name of the model that wrote all traces (or map `columns.model`).
    #[serde(default)]
    model: Option<String>,
    /// Text between the parts of a column that several paths fill. Default: one space.
    #[serde(default = "space")]
    join: String,
    /// The label is what stands after the last occurrence of this text, white space around it removed. The whole
    /// value stays in `extra`.
    #[serde(default)]
    label_after: Option<String>,
    /// The label is the content of the last closed `\boxed{...}`. The whole value stays in `extra`.
    #[serde(default)]
    label_boxed: bool,
    /// The label is the 0-based position of an option and becomes its letter; a letter stays.
    #[serde(default)]
    label_index: bool,
    /// Takes `A)`, `(A)`, `A.` or `A:` off the options of a row in which each option has its own letter. The options
    /// as they were stay in `extra`.
    #[serde(default)]
    options_strip: bool,
    /// Makes several traces of one row.
    #[serde(default)]
    each: Option<Each>,
    /// Takes only the first so many rows of the files, in order.
    #[serde(default)]
    limit: Option<u64>,
}

/// How one row becomes several traces; one of the two.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Each {
    /// Columns that are lists of equal length: trace number i has item i of each as that column's value, and
    /// `sample` = i. Example: `each = { lists = ["code", "score"] }` with `columns = { response = "code", ... }`.
    #[serde(default)]
    lists: Vec<String>,
    /// Columns that hold one answer each: every trace has its answer as column `item` and the column's name as
    /// `item_name`, which is also its `model` unless that is given. Nulls make no trace. Example:
    /// `each = { columns = ["small", "large"] }` with `columns = { response = "item.solution", ... }`.
    #[serde(default)]
    columns: Vec<String>,
}

/// Table that an import makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowsOf {
    /// Problems with their supervision.
    #[default]
    Queries,
    /// Answers of a model, with their query's columns.
    Traces,
}

impl RowsOf {
    fn table(self) -> &'static Table {
        match self {
            Self::Queries => &queries::TABLE,
            Self::Traces => &traces::TABLE,
        }
    }
}

/// One path or several.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Paths {
    /// One.
    One(String),
    /// Several, in order.
    Several(Vec<String>),
}

impl Paths {
    fn list(&self) -> &[String] {
        match self {
            Self::One(path) => std::slice::from_ref(path),
            Self::Several(paths) => paths,
        }
    }
}

fn space() -> String {
    " ".to_owned()
}

impl Stage for Import {
    const KIND: &'static str = "import";
    const VERSION: u32 = 2;
    const PORTS: &'static [Port] = &[];

    fn example() -> Example {
        Example {
            params: json!({
                "files": ["problems.jsonl"],
                "domain": "math",
                "columns": {"prompt": "question", "label": "answer"},
                "label_after": "####",
                "license": "CC-BY-4.0",
            }),
            inputs: Vec::new(),
            files: vec![(
                "problems.jsonl",
                concat!(
                    "{\"question\": \"What is 7 + 5?\", \"answer\": \"7 + 5 = 12\\n#### 12\", \"level\": 1}\n",
                    "{\"question\": null, \"answer\": \"#### 3\"}\n",
                    "{\"question\": \"小明有3个苹果，又买了4个，一共有几个？\", \"answer\": \"#### 7\"}\n",
                ),
            )],
            written: 2,
            rejected: vec![row::NO_PROMPT],
        }
    }

    fn validate(&self) -> Result<(), ParamError> {
        if self.files.is_empty() {
            return Err(ParamError::new("files", "`files` is empty"));
        }
        if self.limit == Some(0) {
            return Err(ParamError::new("limit", "`limit` must be at least 1"));
        }
        Mapping::new(self).map(|_| ())
    }

    fn outputs(&self, _inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let mapping = Mapping::new(self)?;
        let rows = TableType::of(mapping.table, mapping.filled.iter().map(|column| column.name));
        Ok(vec![if self.each.is_some() { Output::counted(rows) } else { Output::same(rows) }])
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        let files = files::expand(env, &self.files)?;
        let external = |file: files::UserFile| {
            let digest = env.digest_of(&env.base.join(&file.path))?;
            Ok(External { name: format!("file {}", file.name), digest: digest.to_string(), sliced: true })
        };
        files.into_iter().map(external).collect()
    }

    fn sources(&self, env: &Env) -> Result<Vec<Source>, StageError> {
        files::sources(env, &files::expand(env, &self.files)?, self.format, self.limit)
    }

    fn source_rows(&self, env: &Env) -> Result<Option<u64>, StageError> {
        files::count(env, &files::expand(env, &self.files)?, self.format, self.limit).map(Some)
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        run::run(self, task)
    }
}
