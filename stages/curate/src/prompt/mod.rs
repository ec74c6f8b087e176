//! A model asked about each row with a template of the user's, and its answer as columns.
//!
//! The one kind without a purpose of its own: what the report does with a model and no kind here covers (translating,
//! tagging, rating) is written as a template and a JSON schema. Its rounds of asking are those of [`crate::asking`].

mod columns;

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use minijinja::value::Serde;
use pipeline_core::stage::Estimate;
use pipeline_core::{Env, Example, External, Output, ParamError, Port, Ports, Stage, StageError, Step, Task, rows};
use pipeline_models::{Message, Request};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::columns::Columns;
use crate::asking::{self, Asker, Fate, Form, Found, Manner, Words};
use crate::calls;
use crate::template::Template;

/// Asks a model about each row with a template of your own, and puts its answer into columns.
///
/// The template is Jinja and knows every column of the row (`extra` as an object: `{{ extra.level }}`). With a `schema` the
/// model answers in JSON and each property of the schema becomes a column: text, integer, number and true/false as they
/// are, lists and objects as JSON text. Without one the whole answer becomes the text column `answer`. An answer that is
/// cut is asked for again with twice the tokens, one that does not follow the schema with the schema and the complaint in
/// the prompt; a row that never gets a usable answer falls out (`truncated`, `answer_unusable`, or the server's own
/// reason). Numbers as text are taken as numbers (`"4"`), a number out of range never is.
///
/// ```toml
/// [stages.topics]
/// kind = "prompt"
/// inputs = "seeds"
/// model = "teacher"
/// template = "Name the topic of this problem, and how hard it is from 1 to 5.\n\n{{ prompt }}"
/// columns = { level = "teacher_level" }
///
/// [stages.topics.schema]
/// type = "object"
/// required = ["topic", "level"]
/// properties = { topic = { type = "string" }, level = { type = "integer", minimum = 1, maximum = 5 } }
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Name of a model in `[models]`.
    model: String,
    /// What the model is asked: a Jinja template that knows the columns of the row.
    #[serde(default)]
    template: Option<String>,
    /// File with such a template, relative to `dag.toml`.
    #[serde(default)]
    template_file: Option<String>,
    /// System prompt.
    #[serde(default)]
    system: Option<String>,
    /// JSON schema of the answer, as a table or as JSON text: an object whose properties become columns. Supported are
    /// `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, bounds, `pattern`, `anyOf`,
    /// `oneOf`, `allOf` and `$ref` within the schema.
    #[serde(default)]
    schema: Option<Value>,
    /// Names of columns where they shall differ from those of the properties: `{ property = "column" }`; without a schema
    /// `{ answer = "column" }`. A column that some stage has filled is never overwritten.
    #[serde(default)]
    columns: BTreeMap<String, String>,
    /// Sampling temperature, 0 (default) = greedy.
    #[serde(default)]
    temperature: f64,
    /// Share of the probability mass to sample from, above 0 and at most 1. Default 1.
    #[serde(default = "full")]
    top_p: f64,
    /// Most tokens of an answer; one that is cut is asked for again with twice as many. Default 1024.
    #[serde(default = "max_tokens")]
    max_tokens: u32,
    /// Draws other answers when it is changed.
    #[serde(default)]
    salt: String,
    /// Most askings of one row whose answers cannot be used, 1 to 10. Default 3.
    #[serde(default = "three")]
    max_attempts: u32,
}

fn full() -> f64 {
    1.0
}

fn max_tokens() -> u32 {
    1024
}

fn three() -> u32 {
    3
}

impl Stage for Prompt {
    const KIND: &'static str = "prompt";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&[], &[])];
    const DRAWS: bool = true;
    const MODEL_PARAMS: &'static [&'static str] = &["model"];

    fn example() -> Example {
        let row = |id: &str, prompt: &str| json!({ "query_id": id, "prompt": prompt });
        let rows = vec![row("a", "What is 2 + 2?"), row("b", "2 加 2 等于多少？")];
        let params = json!({
            "model": "teacher", "template": "Name the topic of this problem:\n\n{{ prompt }}",
            "schema": {
                "type": "object", "required": ["topic"], "additionalProperties": false,
                "properties": { "topic": { "type": "string" } },
            },
        });
        Example::rows(params, "rows", &queries::TABLE, rows).gives(2, &[])
    }

    fn validate(&self) -> Result<(), ParamError> {
        self.manner().ensure()?;
        self.words().ensure()?;
        Columns::new(self.schema.as_ref(), &self.columns).map(drop)
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
        if let Some(template) = self.words().at_hand() {
            asking::ensure_columns(&template, rows, &[])?;
        }
        let columns = Columns::new(self.schema.as_ref(), &self.columns)?;
        Ok(vec![Output::same(columns.added_to(rows)?)])
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        asking::externals(env, &self.words())
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        Some(self.manner().estimate(rows))
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let columns = Columns::new(self.schema.as_ref(), &self.columns)?;
        let template = self.words().template(task)?;
        let form = columns.structured().map_or(Form::Text, |structured| Form::json(structured.clone()));
        let asker = Asker::new(task, &self.model, form, self.manner())?;
        asker.ask(task, |batch| {
            (0..batch.num_rows()).map(|row| self.question(&asker, &template, batch, row)).collect()
        })?;
        let schema = task.schema()?;
        let (mut read, mut missing) = (0, 0);
        for batch in task.batches()? {
            let batch = batch?;
            read += batch.num_rows() as u64;
            let mut fates = Vec::with_capacity(batch.num_rows());
            for row in 0..batch.num_rows() {
                let question = self.question(&asker, &template, &batch, row)?;
                fates.push(match asker.found(task, &question)? {
                    Found::Usable(answer) => Fate::Kept(answer),
                    Found::Unusable(rejection) => Fate::Rejected(rejection),
                    Found::Missing => Fate::Missing,
                });
            }
            let (staying, answers, left_out) = asking::settle(task, &batch, fates)?;
            missing += left_out;
            let filled = columns.filled(&answers)?;
            let filled: Vec<_> = filled.iter().map(|(name, array)| (name.as_str(), array.clone())).collect();
            task.write(&rows::with_columns(&staying, &schema, &filled)?)?;
        }
        calls::leave_out(task, missing, read, "rows have no answer")
    }
}

impl Prompt {
    fn manner(&self) -> Manner {
        Manner {
            kind: Self::KIND,
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.max_tokens,
            salt: self.salt.clone(),
            max_attempts: self.max_attempts,
        }
    }

    fn words(&self) -> Words<'_> {
        Words { text: self.template.as_deref(), file: self.template_file.as_deref(), built_in: None }
    }

    /// What the model is asked about a row.
    fn question(
        &self,
        asker: &Asker,
        template: &Template,
        batch: &RecordBatch,
        row: usize,
    ) -> Result<Request, StageError> {
        let variables = asking::variables(batch, row, template);
        let text = template.render(Serde(variables).into())?;
        let system = self.system.iter().map(|system| Message::new("system", system.as_str()));
        Ok(asker.question(system.chain([Message::new("user", text)]).collect()))
    }
}

#[cfg(test)]
mod tests;
