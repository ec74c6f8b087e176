//! New queries become rows, each behind the seed it came from.

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use pipeline_core::rows::{self, Messages, text_at};
use pipeline_core::{StageError, Task, json_rows};
use schemas::ids::{MessageRef, query_id};
use schemas::queries;
use serde_json::{Map, Value, json};

/// The new queries of one seed.
#[derive(Debug)]
pub struct Family {
    pub offspring: Vec<Offspring>,
    /// Model that wrote them.
    pub teacher: String,
}

/// A new query.
#[derive(Debug)]
pub struct Offspring {
    prompt: String,
    knowledge_point: Option<String>,
    answer: Option<String>,
    dimension: String,
}

impl Offspring {
    /// A query as the teacher gave it.
    pub fn new(query: &Value, dimension: &str, keep_answers: bool) -> Self {
        let text = |name: &str| {
            let text = query[name].as_str().map(str::trim).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        Self {
            prompt: text("prompt").unwrap_or_default(),
            knowledge_point: text("knowledge_point"),
            answer: text("answer").filter(|_| keep_answers),
            dimension: dimension.to_owned(),
        }
    }
}

/// Columns that a new query has from its seed.
const INHERITED: [&str; 4] = [queries::DOMAIN, queries::SUBDOMAIN, queries::SOURCE, queries::LICENSE];

/// Writes the families of a batch of seeds, in order.
pub fn write(
    task: &mut Task<'_>,
    seeds: &RecordBatch,
    families: &[Family],
    keep_seeds: bool,
) -> Result<(), StageError> {
    let schema = task.schema()?;
    let messages = Messages::new(seeds, queries::MESSAGES)?;
    let (mut made, mut order) = (Vec::new(), Vec::new());
    for (row, family) in families.iter().enumerate() {
        if keep_seeds {
            order.push((0, row));
        }
        for offspring in &family.offspring {
            order.push((1, made.len()));
            made.push(made_of(offspring, seeds, row, &messages.at(row), &family.teacher)?);
        }
    }
    let made = json_rows::from_json(&schema, &made)?;
    let seeds = rows::with_columns(seeds, &schema, &[])?;
    task.write(&interleave_record_batch(&[&seeds, &made], &order)?)
}

fn made_of(
    offspring: &Offspring,
    seeds: &RecordBatch,
    row: usize,
    messages: &[MessageRef<'_>],
    teacher: &str,
) -> Result<Value, StageError> {
    let parent = text_at(rows::texts(seeds, queries::QUERY_ID)?, row);
    let domain = text_at(rows::texts(seeds, queries::DOMAIN)?, row);
    // the student is told the same before a new query as before its seed
    let mut conversation: Vec<MessageRef<'_>> =
        messages.iter().take_while(|message| message.role == "system").copied().collect();
    conversation.push(MessageRef { role: "user", content: &offspring.prompt, tool_calls: None });
    let id = query_id(domain, conversation.iter().copied(), None);
    let turns: Vec<Value> =
        conversation.iter().map(|turn| json!({ "role": turn.role, "content": turn.content })).collect();
    let mut extra = Map::new();
    if let Some(point) = &offspring.knowledge_point {
        extra.insert("knowledge_point".to_owned(), json!(point));
    }
    extra.insert("expanded_by".to_owned(), json!(teacher));
    let mut made = json!({
        queries::QUERY_ID: id, queries::MESSAGES: turns, queries::PROMPT: offspring.prompt,
        queries::LABEL: offspring.answer, queries::PARENTS: [parent], queries::DIMENSION: offspring.dimension,
        queries::EXTRA: Value::Object(extra).to_string(),
    });
    for name in INHERITED {
        made[name] = text_at(rows::texts(seeds, name)?, row).into();
    }
    Ok(made)
}
