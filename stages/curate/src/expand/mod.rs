//! Query expansion: a teacher writes new queries from a seed along dimensions (report section 2.1, query expansion).
//!
//! The report names four dimensions as examples; their descriptions are ours, and the list is open. A derived query keeps
//! its parent's id and the dimension, inherits source and licence, and has no label: the vote of several teachers gives it
//! one. A single call writes several queries, so that the teacher can make them differ; what comes is checked by rules
//! before it counts.

mod check;
mod write;

use arrow::array::RecordBatch;
use minijinja::value::Serde;
use pipeline_core::stage::Estimate;
use pipeline_core::{
    Env, Event, Example, External, Output, ParamError, Port, Ports, Stage, StageError, Step, TableType, Task,
};
use pipeline_models::{Message, Request, Structured};
use schemars::JsonSchema;
use schemas::queries;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::check::Checker;
use self::write::{Family, Offspring};
use crate::asking::{self, Asker, Aspect, BuiltIn, Described, Fate, Form, Found, Manner, Words};
use crate::calls;
use crate::template::Template;

/// Lets a teacher write new queries from each query, along dimensions.
///
/// For each query and dimension one call asks for `k` new queries. What comes is checked: a new query must not be empty, a
/// copy of the seed or of another new one (case, spaces and punctuation aside), in another script than the seed, speak of
/// the seed, or tell its answer; what fails is counted (`dropped_...`) and fewer than `k` are told. A seed from which no
/// usable query came falls out (`no_usable_query`, or the reason of the calls that failed) unless `keep_seeds` keeps it.
/// New queries have `parents`, `dimension`, the seed's domain, source, licence and system message, `knowledge_point` and
/// `expanded_by` in `extra`, and no label: give them one with `sample` and `vote`. They are open questions: options, tests
/// and constraints are not inherited. Near-duplicates among all queries are for `dedup`; whether a query is sound is for
/// `judge_queries`.
///
/// ```toml
/// [stages.expanded]
/// kind = "expand"
/// inputs = "seeds"
/// model = "teacher"
/// k = 2
/// dimensions = ["constraints", { name = "real_world", description = "Put the idea into a situation of daily life." }]
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expand {
    /// Name of a model in `[models]`.
    model: String,
    /// Along what queries are written: names of built-in dimensions (`concept_composition`, `solving_skeleton`,
    /// `constraints`, `evaluation_objective`), or your own as `{ name = "...", description = "..." }`. By default the four.
    #[serde(default)]
    dimensions: Vec<Aspect>,
    /// New queries for each query and dimension, 1 to 16. Default 1.
    #[serde(default = "one")]
    k: u32,
    /// Whether the queries themselves come out too, each before its new ones. Default false.
    #[serde(default)]
    keep_seeds: bool,
    /// Whether the teacher's own answer becomes the label. Default false: a single answer is no reliable label.
    #[serde(default)]
    keep_answers: bool,
    /// What the teacher is asked: a Jinja template that knows the columns of the query, `k`, `dimension` (with `name` and
    /// `description`) and `keep_answers`. It must ask for JSON of the form
    /// `{"queries": [{"knowledge_point": "...", "prompt": "..."}]}`.
    #[serde(default)]
    template: Option<String>,
    /// File with such a template, relative to `dag.toml`.
    #[serde(default)]
    template_file: Option<String>,
    /// Sampling temperature, 0 = greedy. Default 1.
    #[serde(default = "full")]
    temperature: f64,
    /// Share of the probability mass to sample from, above 0 and at most 1. Default 0.95.
    #[serde(default = "nucleus")]
    top_p: f64,
    /// Most tokens of an answer; one that is cut is asked for again with twice as many. Default 4096.
    #[serde(default = "max_tokens")]
    max_tokens: u32,
    /// Draws other queries when it is changed.
    #[serde(default)]
    salt: String,
    /// Most askings for one query and dimension whose answers cannot be used, 1 to 10. Default 3.
    #[serde(default = "three")]
    max_attempts: u32,
}

fn one() -> u32 {
    1
}

fn full() -> f64 {
    1.0
}

fn nucleus() -> f64 {
    0.95
}

fn max_tokens() -> u32 {
    4096
}

fn three() -> u32 {
    3
}

/// The report's dimensions.
const DIMENSIONS: &BuiltIn = &[
    (
        "concept_composition",
        "Combine the concept at the heart of the problem with another concept of the same field, so that solving the new \
         problem takes both, and neither is decoration.",
    ),
    (
        "solving_skeleton",
        "Keep the idea that makes the solution work, step for step, and pose it on other objects in another setting, where \
         it has to be recognised anew.",
    ),
    (
        "constraints",
        "Add, remove, tighten or loosen a condition so that the way to the solution changes, such as a bound, a special \
         case to be excluded, or a quantity that is no longer given.",
    ),
    (
        "evaluation_objective",
        "Keep the situation and ask for something else about it: the inverse question, an extreme, a count, the condition \
         under which something holds, or the general case.",
    ),
];

const WORDS: &str = include_str!("question.md.jinja");
/// Most new queries of one call.
const MOST: u32 = 16;
/// Share of the wanted queries below which a warning says how many came.
const FEW: f64 = 0.9;

impl Stage for Expand {
    const KIND: &'static str = "expand";
    const VERSION: u32 = 1;
    const PORTS: &'static [Port] = &[Port::rows(&["queries"], &[queries::QUERY_ID, queries::PROMPT])];
    const DRAWS: bool = true;
    const MODEL_PARAMS: &'static [&'static str] = &["model"];

    fn example() -> Example {
        let row = |id: &str, prompt: &str| json!({ "query_id": id, "domain": "math", "prompt": prompt, "label": "5" });
        let rows = vec![row("a", "What is 2 + 3?"), row("b", "What is 3 + 4?")];
        let params = json!({ "model": "teacher", "dimensions": ["constraints"] });
        Example::rows(params, "rows", &queries::TABLE, rows).gives(1, &["no_usable_query"])
    }

    fn validate(&self) -> Result<(), ParamError> {
        if !(1..=MOST).contains(&self.k) {
            return Err(ParamError::new("k", format!("`k` must lie between 1 and {MOST}; for more, add dimensions")));
        }
        self.dimensions()?;
        self.words().ensure()?;
        self.manner().ensure()
    }

    fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
        let rows = inputs.expect("rows")?;
        if let Some(template) = self.words().at_hand() {
            asking::ensure_columns(&template, rows, &["k", "dimension", "keep_answers"])?;
        }
        let inherited = [queries::DOMAIN, queries::SUBDOMAIN, queries::SOURCE, queries::LICENSE];
        let filled = rows.filled.iter().map(String::as_str);
        let filled = filled.filter(|name| self.keep_seeds || inherited.contains(name));
        let filled: Vec<&str> = filled.collect();
        let mut expanded = TableType { filled: std::collections::BTreeSet::new(), ..rows.clone() };
        expanded = expanded.fill(filled).fill([
            queries::QUERY_ID,
            queries::MESSAGES,
            queries::PROMPT,
            queries::PARENTS,
            queries::DIMENSION,
            queries::EXTRA,
        ]);
        if self.keep_answers {
            expanded = expanded.fill([queries::LABEL]);
        }
        Ok(vec![Output::counted(expanded)])
    }

    fn externals(&self, env: &Env, _inputs: &Ports) -> Result<Vec<External>, StageError> {
        asking::externals(env, &self.words())
    }

    fn is_deterministic(&self, _inputs: &Ports) -> bool {
        false
    }

    fn estimate(&self, rows: u64) -> Option<Estimate> {
        let dimensions = if self.dimensions.is_empty() { DIMENSIONS.len() } else { self.dimensions.len() };
        let calls = rows * dimensions as u64;
        let written = calls * u64::from(self.k) + if self.keep_seeds { rows } else { 0 };
        Some(Estimate { rows: Some(written), ..self.manner().estimate(calls) })
    }

    fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
        let at_work = AtWork {
            stage: self,
            dimensions: self.dimensions()?,
            template: self.words().template(task)?,
            asker: Asker::new(task, &self.model, self.form()?, self.manner())?,
        };
        at_work.asker.ask(task, |batch| {
            let questions = (0..batch.num_rows()).map(|row| at_work.questions(batch, row));
            Ok(questions.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        })?;
        let (mut read, mut missing, mut wanted, mut came) = (0, 0, 0, 0);
        for batch in task.batches()? {
            let batch = batch?;
            read += batch.num_rows() as u64;
            let fates: Vec<Fate<Family>> =
                (0..batch.num_rows()).map(|row| at_work.family(task, &batch, row)).collect::<Result<_, _>>()?;
            let (staying, families, left_out) = asking::settle(task, &batch, fates)?;
            missing += left_out;
            wanted += (batch.num_rows() as u64 - left_out) * u64::from(self.k) * at_work.dimensions.len() as u64;
            came += families.iter().map(|family| family.offspring.len() as u64).sum::<u64>();
            task.kept(families.len() as u64);
            write::write(task, &staying, &families, self.keep_seeds)?;
        }
        task.count("queries_wanted", wanted);
        task.count("queries_written", came);
        if (came as f64) < wanted as f64 * FEW {
            let message = format!("{came} of {wanted} new queries came; the counters `dropped_...` say what fell out");
            task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
        }
        calls::leave_out(task, missing, read, "queries lack an answer of the teacher")
    }
}

impl Expand {
    fn dimensions(&self) -> Result<Vec<Described>, ParamError> {
        asking::described("dimensions", &self.dimensions, DIMENSIONS)
    }

    fn words(&self) -> Words<'_> {
        Words { text: self.template.as_deref(), file: self.template_file.as_deref(), built_in: Some(WORDS) }
    }

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

    /// What an answer must be. What is sent is stricter than what is accepted: a list without end would never stop, but a
    /// teacher that gives one query too many is not asked again for it.
    fn form(&self) -> Result<Form, StageError> {
        let text = json!({ "type": "string" });
        let mut properties = json!({ "knowledge_point": text, "prompt": text });
        if self.keep_answers {
            properties["answer"] = text;
        }
        let names: Vec<String> = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let mut needed = vec!["prompt"];
        needed.extend(self.keep_answers.then_some("answer"));
        let schema = |required: Value, most: Option<u32>| {
            let mut schema = json!({
                "type": "object",
                "properties": { "queries": { "type": "array", "items": {
                    "type": "object", "properties": properties, "required": required,
                    "additionalProperties": most.is_none(),
                }, "minItems": 1 } },
                "required": ["queries"],
                "additionalProperties": most.is_none(),
            });
            if let Some(most) = most {
                schema["properties"]["queries"]["maxItems"] = json!(most);
            }
            schema
        };
        let structured = Structured::new(&schema(json!(needed), None));
        let structured = structured.map_err(|error| StageError::Internal(error.to_string()))?;
        Ok(Form::Json { structured: Box::new(structured), sent: schema(json!(names), Some(self.k)).to_string() })
    }
}

/// The stage with what its requests are made of.
struct AtWork<'a> {
    stage: &'a Expand,
    dimensions: Vec<Described>,
    template: Template,
    asker: Asker,
}

impl AtWork<'_> {
    /// What the teacher is asked about a row, dimension by dimension.
    fn questions(&self, batch: &RecordBatch, row: usize) -> Result<Vec<Request>, StageError> {
        let mut variables = asking::variables(batch, row, &self.template);
        variables.insert("k".to_owned(), json!(self.stage.k));
        variables.insert("keep_answers".to_owned(), json!(self.stage.keep_answers));
        let mut questions = Vec::with_capacity(self.dimensions.len());
        for dimension in &self.dimensions {
            variables.insert("dimension".to_owned(), json!(dimension));
            let text = self.template.render(Serde(&variables).into())?;
            questions.push(self.asker.question(vec![Message::new("user", text)]));
        }
        Ok(questions)
    }

    /// The new queries of a row.
    fn family(&self, task: &mut Task<'_>, batch: &RecordBatch, row: usize) -> Result<Fate<Family>, StageError> {
        let seed = pipeline_core::rows::texts(batch, queries::PROMPT)?;
        let mut checker = Checker::new(pipeline_core::rows::text_at(seed, row).unwrap_or_default());
        let (mut offspring, mut failure) = (Vec::new(), None);
        for (dimension, question) in self.dimensions.iter().zip(self.questions(batch, row)?) {
            let answer = match self.asker.found(task, &question)? {
                Found::Usable(answer) => answer,
                Found::Missing => return Ok(Fate::Missing),
                Found::Unusable(rejection) => {
                    failure = failure.or(Some(rejection));
                    continue;
                }
            };
            let given = answer["queries"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut usable = 0;
            for query in given {
                if usable == self.stage.k {
                    task.count("dropped_surplus", 1);
                    continue;
                }
                match checker.take(query) {
                    Ok(()) => {
                        usable += 1;
                        offspring.push(Offspring::new(query, &dimension.name, self.stage.keep_answers));
                    }
                    Err(reason) => task.count(&format!("dropped_{reason}"), 1),
                }
            }
        }
        if !offspring.is_empty() || self.stage.keep_seeds {
            task.count("seeds_without_new_queries", u64::from(offspring.is_empty()));
            return Ok(Fate::Kept(Family { offspring, teacher: self.asker.model() }));
        }
        Ok(Fate::Rejected(failure.unwrap_or_else(|| checker.rejection())))
    }
}

#[cfg(test)]
mod tests;
