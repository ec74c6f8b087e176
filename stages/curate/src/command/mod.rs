//! The user's own program as a stage: Parquet in, Parquet out, every row accounted for.
//!
//! A program beside `dag.toml` is the way out where no kind fits. It gets what any stage has: reruns decided by content
//! (its files are digested), work in slices, rejects with reasons, and a check of its columns before anything after it
//! runs. It is the user's own and trusted: it runs with the user's rights and is not shut in, unlike the programs of the
//! data that `verify` runs.

mod account;
mod conform;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::env::SecretNames;
use pipeline_core::table_io::TableWriter;
use pipeline_core::{
    Env, Event, Example, External, Output, ParamError, Port, Ports, Stage, StageError, Step, TableType, Task, rows,
};
use schemars::JsonSchema;
use schemas::{Type, queries, rejects, traces};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use program::{Call, Paths};

/// The column by which rows are known again: their position in the program's input, from 0.
pub const ROW: &str = "_row";

/// Variables that every program gets.
const USUAL_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Where programs are looked for when there is no `PATH`.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Endings by which an argument is known as a script, so that a missing one is told before a run.
const SCRIPTS: [&str; 8] = ["py", "sh", "r", "R", "jl", "js", "pl", "rb"];

/// Runs your own program on the rows: Parquet in, Parquet out.
///
/// By default one process works on each slice of the rows, so each row must be judged by itself; `whole = true` gives
/// all rows to one process. The input has a further column `_row`, which the output must pass through: by it rows are
/// accounted for. A row that is not in the output falls out with the reason that the program wrote to `{rejects}`, else
/// as `dropped_by_command`. The output has the columns of the input (or of `table`) and those of `columns`; a missing,
/// additional or mistyped column is an error.
///
/// The program starts in the folder of `dag.toml`, without a shell, with the variables PATH, HOME, LANG, TMPDIR and those
/// of `env` (names only: their values decide no rerun). A relative or absolute path in `run` that names a file, and
/// `files`, decide by their content whether the stage reruns; the version of an interpreter found by its name does not.
/// A program that ends with another code than 0, or runs longer than `timeout_seconds`, fails the stage. It is your own
/// program and runs with your rights: it is not shut in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Program and arguments, such as `["python3", "clean.py", "{input}", "{output}"]`. `{input}` and `{output}` are
    /// paths of Parquet files; `{rejects}` is a Parquet file that may be written, with `_row`, `reject_reason` (a
    /// `snake_case` word) and, if there is more to say, `reject_evidence` (text, best a JSON object); `{params}` is a JSON
    /// file with `params`.
    run: Vec<String>,
    /// Further files that decide what the program writes, such as modules that it imports.
    #[serde(default)]
    files: Vec<String>,
    /// What the program finds in the JSON file `{params}`.
    #[serde(default)]
    params: Map<String, Value>,
    /// Columns that the program adds or fills, each with its type: `text`, `integer`, `number`, `boolean`, `texts`,
    /// `messages` or `constraints`.
    #[serde(default)]
    columns: BTreeMap<String, ColumnType>,
    /// Table of the output.
    #[serde(default)]
    table: OutputTable,
    /// Whether one process gets all rows at once.
    #[serde(default)]
    whole: bool,
    /// Whether the output may hold rows that are not in the input (`_row` is null there) and a row more than once.
    #[serde(default)]
    adds_rows: bool,
    /// Names of further environment variables that the program gets. Keys of models are refused.
    #[serde(default)]
    env: Vec<String>,
    /// Seconds after which a process is ended and the stage fails.
    #[serde(default = "an_hour")]
    timeout_seconds: u64,
}

fn an_hour() -> u64 {
    3600
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ColumnType {
    /// UTF-8.
    Text,
    /// 64 bits.
    Integer,
    /// 64 bits.
    Number,
    /// True or false.
    Boolean,
    /// List of texts.
    Texts,
    /// List of `{role, content, tool_calls}`.
    Messages,
    /// List of `{id, kwargs}`.
    Constraints,
}

impl ColumnType {
    fn arrow(self) -> DataType {
        let kind = match self {
            Self::Text => Type::Text,
            Self::Integer => Type::Int,
            Self::Number => Type::Float,
            Self::Boolean => Type::Bool,
            Self::Texts => Type::TextList,
            Self::Messages => Type::Messages,
            Self::Constraints => Type::Constraints,
        };
        kind.arrow()
    }
}

/// Table of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutputTable {
    /// That of the input.
    #[default]
    Same,
    /// `queries`; of its columns, only those of `columns` and the ids may hold values.
    Queries,
    /// `traces`; of its columns, only those of `columns` and the ids may hold values.
    Traces,
}

impl Stage for Command {
    const KIND: &'static str = "command";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[])];

    fn example() -> Example {
        let rows = vec![
            json!({"query_id": "a", "prompt": "How much is 3 + 4?"}),
            json!({"query_id": "b", "prompt": "三加四?"}),
        ];
        let run = ["sh", "-c", "cp \"$1\" \"$2\"", "copy", "{input}", "{output}"];
        Example::rows(json!({ "run": run }), "rows", &queries::TABLE, rows).gives(2, &[])
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.validate_run()?;
        for (index, name) in self.env.iter().enumerate() {
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = format!("`{name}` is no name of an environment variable");
                return Err(
                    ParamError::new(format!("env[{index}]"), message).hint("give the name alone, without a value")
                );
            }
        }
        for name in self.columns.keys() {
            if name.is_empty() || [ROW, rejects::REJECT_REASON, rejects::REJECT_EVIDENCE].contains(&name.as_str()) {
                return Err(ParamError::new(
                    format!("columns.{name}"),
                    format!("a column cannot have the name `{name}`"),
                ));
            }
        }
        if self.timeout_seconds == 0 {
            return Err(ParamError::new("timeout_seconds", "`timeout_seconds` must be at least 1"));
        }
        Ok(())
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let given = inputs.expect("rows")?;
        if given.schema.column_with_name(ROW).is_some() {
            return Err(ParamError::new("inputs", format!("the input has a column `{ROW}` of its own")));
        }
        let mut rows = match self.table {
            OutputTable::Same => given.clone(),
            OutputTable::Queries => TableType::of(&queries::TABLE, [queries::QUERY_ID]),
            OutputTable::Traces => TableType::of(&traces::TABLE, [queries::QUERY_ID, traces::TRACE_ID]),
        };
        for (name, kind) in &self.columns {
            let added = rows.with_column(&Field::new(name, kind.arrow(), true));
            rows = added.map_err(|error| ParamError { path: format!("columns.{name}"), ..error })?;
        }
        Ok(vec![if self.adds_rows { Output::counted(rows) } else { Output::same(rows) }])
    }

    fn steps(&self, _inputs: &Ports) -> Vec<Step> {
        vec![if self.whole { Step::gather("rows") } else { Step::map("rows") }]
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        self.refuse_secrets(env)?;
        let mut named: BTreeSet<&str> = self.files.iter().map(String::as_str).collect();
        for (index, argument) in self.run.iter().enumerate() {
            if argument.starts_with('-') || argument.contains('{') || (index == 0 && !argument.contains('/')) {
                continue;
            }
            let is_script =
                Path::new(argument).extension().is_some_and(|ending| SCRIPTS.iter().any(|known| ending == *known));
            if env.path(argument).is_file() || index == 0 || (index == 1 && is_script) {
                named.insert(argument);
            }
        }
        let external = |name: &str| {
            let digest = env.digest_of(&env.path(name))?.to_string();
            Ok(External { name: format!("file {name}"), digest, sliced: false })
        };
        named.into_iter().map(external).collect()
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let folder = std::path::absolute(task.folder()).map_err(StageError::io("open", task.folder()))?;
        let paths = Paths::below(&folder);
        let rows = self.write_input(task, &paths.input)?;
        if rows == 0 && !(self.whole && self.adds_rows) {
            return Ok(());
        }
        let params = Value::Object(self.params.clone()).to_string();
        std::fs::write(&paths.params, params).map_err(StageError::io("write", &paths.params))?;
        let call = Call {
            argv: self.argv(task.env(), &paths),
            folder: task.env().base.clone(),
            variables: self.variables(task.env())?,
            secrets: &self.env,
            timeout: std::time::Duration::from_secs(self.timeout_seconds),
            cancel: task.cancel(),
        };
        let printed = call.run(&paths)?;
        if !printed.is_empty() {
            task.events().emit(&Event::Printed { stage: task.stage().to_owned(), text: printed });
        }
        account::collect(self, task, &paths, rows)
    }
}

impl Command {
    fn validate_run(&self) -> Result<(), ParamError> {
        let Some(program) = self.run.first().filter(|program| !program.is_empty()) else {
            return Err(ParamError::new("run", "`run` names no program"));
        };
        if program.contains('{') {
            return Err(ParamError::new("run[0]", "the first word of `run` is the program itself"));
        }
        for (index, argument) in self.run.iter().enumerate() {
            let inner = argument.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let is_word =
                |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if let Some(word) = inner.filter(is_word)
                && !program::PLACES.contains(&argument.as_str())
            {
                let error = ParamError::new(format!("run[{index}]"), format!("there is no `{{{word}}}`"));
                return Err(error.hint("there are `{input}`, `{output}`, `{rejects}` and `{params}`"));
            }
        }
        let names = |place: &str| self.run.iter().any(|argument| argument.contains(place));
        if let Some(place) = ["{input}", "{output}"].into_iter().find(|place| !names(place)) {
            let error = ParamError::new("run", format!("`run` does not say where `{place}` goes"));
            return Err(error.hint("such as `[\"python3\", \"clean.py\", \"{input}\", \"{output}\"]`"));
        }
        if !self.params.is_empty() && !names("{params}") {
            let error = ParamError::new("params", "the program does not get `params`");
            return Err(error.hint("add the argument `{params}` to `run`: a JSON file"));
        }
        Ok(())
    }

    /// Keys of models stay with this program.
    fn refuse_secrets(&self, env: &Env) -> Result<(), StageError> {
        let secrets = env.services.get::<SecretNames>().unwrap_or_default();
        match self.env.iter().enumerate().find(|(_, name)| secrets.0.contains(*name)) {
            None => Ok(()),
            Some((index, name)) => {
                let message = format!("`{name}` holds the key of a model, which no program of a stage gets");
                Err(ParamError::new(format!("env[{index}]"), message).into())
            }
        }
    }

    /// Program and arguments with places filled in.
    fn argv(&self, env: &Env, paths: &Paths) -> Vec<String> {
        let mut argv: Vec<String> = self.run.iter().map(|argument| paths.fill_in(argument)).collect();
        if let Some(program) = argv.first_mut().filter(|program| program.contains('/')) {
            // a path is meant from the folder of `dag.toml`, which is not yet the folder of this process
            let path = std::path::absolute(env.path(program)).unwrap_or_else(|_| env.path(program));
            *program = path.to_string_lossy().into_owned();
        }
        argv
    }

    /// The environment of the program.
    fn variables(&self, env: &Env) -> Result<BTreeMap<String, String>, StageError> {
        self.refuse_secrets(env)?;
        let mut variables = BTreeMap::from([("PATH".to_owned(), USUAL_PATH.to_owned())]);
        for name in USUAL_VARIABLES {
            variables.extend((env.variables)(name).map(|value| (name.to_owned(), value)));
        }
        for (index, name) in self.env.iter().enumerate() {
            let value = (env.variables)(name).ok_or_else(|| {
                let message = format!("the environment variable `{name}` is not set");
                ParamError::new(format!("env[{index}]"), message)
            })?;
            variables.insert(name.clone(), value);
        }
        Ok(variables)
    }

    /// Writes the rows of the task with their positions; says how many.
    fn write_input(&self, task: &mut Task<'_>, path: &Path) -> Result<i64, StageError> {
        let Some(given) = task.port("rows").first() else {
            return Err(StageError::Internal("the port `rows` has no input".to_owned()));
        };
        let schema = with_rows(&given.schema);
        let mut writer = TableWriter::create(path, &schema)?;
        let mut next = 0_i64;
        let batches = if self.whole { task.port_batches("rows", None)? } else { task.batches()? };
        for batch in batches {
            let batch = batch?;
            let end = next + i64::try_from(batch.num_rows()).unwrap_or(i64::MAX);
            let positions: ArrayRef = Arc::new(Int64Array::from_iter_values(next..end));
            writer.write(&rows::with_columns(&batch, &schema, &[(ROW, positions)])?)?;
            next = end;
        }
        writer.finish()?;
        if self.whole {
            task.read(u64::try_from(next).unwrap_or(0));
        }
        Ok(next)
    }
}

/// The schema of the program's input.
fn with_rows(schema: &Schema) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ROW, DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests;
