//! What the kinds share that ask a model for one answer of a set form: rounds of asking.
//!
//! First every row is asked. An answer that cannot be used is kept in the call store like any other, and its row is asked
//! again under the next `attempt`: with twice the tokens where the answer was cut, else with the schema and the complaint
//! written behind the question. What stays unusable after the last round is a rejected row with the reason, never a row
//! with a placeholder; what failed for passing reasons waits for the next run.
//!
//! Which round a row is in follows from the call store alone: each answer is read anew and the next request derived from
//! it. So nothing is remembered between passes, a killed run continues where it was, and a better reader of answers asks
//! nothing that had been answered usably. The words of complaints and of the second asking are part of requests: when
//! they change, rows that needed a second asking are asked it again.

mod aspect;
mod fate;
#[cfg(test)]
pub mod scripted;
mod variables;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use minijinja::context;
use pipeline_core::error::ensure_share;
use pipeline_core::stage::Estimate;
use pipeline_core::{Digest, Event, ParamError, Rejection, Seed, StageError, Task};
use pipeline_models::{Answer, Message, Model, Recorded, Request, Sampling, Structured};
use serde_json::{Value, json};

pub use aspect::{Aspect, BuiltIn, Described, described};
pub use fate::{Fate, settle};
pub use variables::{ensure_columns, variables};
pub use words::{Words, externals};

use crate::calls::{self, Used};
use crate::template::Template;

/// Characters of an unusable answer that a reject shows.
const SHOWN: usize = 200;
/// Most askings of one row that a user may ask for.
const MOST_ATTEMPTS: u32 = 10;

/// How a kind asks.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Kind that asks, for seeds.
    pub kind: &'static str,
    /// Sampling temperature, 0 = greedy.
    pub temperature: f64,
    /// Share of the probability mass to sample from.
    pub top_p: f64,
    /// Most tokens of a first answer.
    pub max_tokens: u32,
    /// Draws afresh where it differs.
    pub salt: String,
    /// Most askings of one row, from 1.
    pub max_attempts: u32,
}

impl Manner {
    /// What so many rows need. Each may be asked again until its attempts are used up, after a cut with twice the tokens.
    pub fn estimate(&self, rows: u64) -> Estimate {
        let most_calls = rows.saturating_mul(u64::from(self.max_attempts));
        let tokens = u64::from(self.max_tokens).saturating_mul((1 << self.max_attempts.min(MOST_ATTEMPTS)) - 1);
        Estimate { calls: rows, most_calls, max_tokens: rows.saturating_mul(tokens), rows: None }
    }

    /// Refuses figures that make no sense.
    ///
    /// # Errors
    /// At the parameter of the first one.
    pub fn ensure(&self) -> Result<(), ParamError> {
        if self.max_tokens == 0 {
            return Err(ParamError::new("max_tokens", "`max_tokens` must be at least 1"));
        }
        if !(1..=MOST_ATTEMPTS).contains(&self.max_attempts) {
            let message = format!("`max_attempts` must lie between 1 and {MOST_ATTEMPTS}");
            return Err(ParamError::new("max_attempts", message));
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(ParamError::new("temperature", "`temperature` must be a number from 0"));
        }
        ensure_share("top_p", self.top_p)?;
        if self.top_p == 0.0 {
            return Err(ParamError::new("top_p", "`top_p` must be above 0"));
        }
        Ok(())
    }
}

/// What an answer must be.
#[derive(Debug, Clone)]
pub enum Form {
    /// Any text that is not empty and not cut.
    Text,
    /// A JSON value.
    Json {
        /// What it is held against.
        structured: Box<Structured>,
        /// Schema that the server is sent; it may be narrower than what is accepted.
        sent: String,
    },
}

impl Form {
    /// A JSON value that follows the schema.
    pub fn json(structured: Structured) -> Self {
        let sent = structured.schema().to_owned();
        Self::Json { structured: Box::new(structured), sent }
    }

    fn schema(&self) -> Option<&str> {
        match self {
            Self::Text => None,
            Self::Json { sent, .. } => Some(sent),
        }
    }

    fn read(&self, answer: &Answer) -> Result<Value, Complaint> {
        let is_cut = answer.finish_reason.as_deref().is_some_and(schemas::traces::says_cut);
        let text = answer.answer_text.as_str();
        let read = match self {
            // a JSON value that is complete and fits is not spoilt by what was cut off behind it
            Self::Json { structured, .. } => structured.read(text).map_err(|error| error.to_string()),
            Self::Text if text.trim().is_empty() => Err("the answer is empty".to_owned()),
            Self::Text if is_cut => Err("the answer was cut".to_owned()),
            Self::Text => Ok(Value::String(text.to_owned())),
        };
        read.map_err(|why| Complaint { why, is_cut, beginning: text.chars().take(SHOWN).collect(), refusal: None })
    }
}

/// Why an answer cannot be used.
#[derive(Debug, Clone)]
struct Complaint {
    why: String,
    is_cut: bool,
    beginning: String,
    /// What the server said to the next asking.
    refusal: Option<String>,
}

/// What came of asking.
#[derive(Debug)]
pub enum Found {
    /// An answer of the form that was wanted: the JSON value, or the text.
    Usable(Value),
    /// None, for good.
    Unusable(Rejection),
    /// None yet, for a passing reason.
    Missing,
}

/// Where a row stands.
enum Standing {
    Usable(Value),
    Refused {
        code: String,
        message: String,
    },
    Unusable {
        complaint: Complaint,
        request: Request,
    },
    /// This request has no answer.
    Open(Request),
}

/// What the answers of a row cost.
#[derive(Debug, Default)]
struct Spent {
    used: Used,
    unusable: u64,
    /// Whether the first answer came whole and did not fit.
    is_misfit: bool,
}

/// A model, and how it is asked.
pub struct Asker {
    model: Arc<dyn Model>,
    form: Form,
    manner: Manner,
    again: Template,
    seed: u64,
}

impl Asker {
    /// An asker of the model of this name.
    ///
    /// # Errors
    /// When the model cannot be opened.
    pub fn new(task: &Task<'_>, model: &str, form: Form, manner: Manner) -> Result<Self, StageError> {
        let again = Template::new(words::AGAIN, "again")?;
        Ok(Self { model: calls::model(task, model)?, form, manner, again, seed: task.seed() })
    }

    /// Identity of the model.
    pub fn model(&self) -> String {
        self.model.id().to_string()
    }

    /// The first request of a row. Its seed follows from what is asked, so that equal questions have one answer.
    pub fn question(&self, messages: Vec<Message>) -> Request {
        let manner = &self.manner;
        let sampling = Sampling { top_p: manner.top_p, ..Sampling::full(manner.temperature, manner.max_tokens) };
        let request = Request {
            messages,
            sampling,
            sample: 0,
            salt: (!manner.salt.is_empty()).then(|| manner.salt.clone()),
            schema: self.form.schema().map(str::to_owned),
            attempt: 0,
        };
        self.seeded(request)
    }

    fn seeded(&self, mut request: Request) -> Request {
        if self.manner.temperature > 0.0 {
            let mut text = String::new();
            for message in &request.messages {
                text.push_str(&message.role);
                text.push('\u{1f}');
                text.push_str(&message.content);
                text.push('\u{1e}');
            }
            let id = Digest::of(text.as_bytes()).to_string();
            let seed = Seed::for_row(self.seed, self.manner.kind, &self.manner.salt, &id, u64::from(request.attempt));
            request.sampling.seed = Some(seed.small());
        }
        request
    }

    /// The asking after an unusable answer.
    fn again(&self, question: &Request, last: &Request, complaint: &Complaint) -> Result<Request, StageError> {
        let mut next = last.clone();
        next.attempt += 1;
        if complaint.is_cut {
            next.sampling.max_tokens = last.sampling.max_tokens.saturating_mul(2);
        } else if let Some(schema) = self.form.schema() {
            next.messages.clone_from(&question.messages);
            if let Some(message) = next.messages.iter_mut().rev().find(|message| message.role == "user") {
                let variables = context! { question => &message.content, schema, complaint => &complaint.why };
                message.content = self.again.render(variables)?;
            }
        }
        Ok(self.seeded(next))
    }

    /// Reads a row's answers, as far as there are any.
    fn standing(&self, question: &Request, spent: &mut Spent) -> Result<Standing, StageError> {
        let mut request = question.clone();
        let mut last: Option<Complaint> = None;
        loop {
            let recorded = self.model.answer(&request).map_err(|error| calls::model_error(&error))?;
            spent.used.add(&recorded);
            let answer = match recorded {
                Recorded::Answer(answer) => answer,
                Recorded::Missing => return Ok(Standing::Open(request)),
                Recorded::RowError { code, message } => {
                    return Ok(match last {
                        // more tokens than the model has room for: the earlier answer is what there is
                        Some(complaint) => {
                            let complaint = Complaint { refusal: Some(format!("{code}: {message}")), ..complaint };
                            Standing::Unusable { complaint, request }
                        }
                        None => Standing::Refused { code, message },
                    });
                }
            };
            let complaint = match self.form.read(&answer) {
                Ok(value) => return Ok(Standing::Usable(value)),
                Err(complaint) => complaint,
            };
            spent.unusable += 1;
            spent.is_misfit |= request.attempt == 0 && !complaint.is_cut;
            if request.attempt + 1 >= self.manner.max_attempts {
                return Ok(Standing::Unusable { complaint, request });
            }
            request = self.again(question, &request, &complaint)?;
            last = Some(complaint);
        }
    }

    /// All rounds: what is missing of the answers of a task's rows is asked for. `questions` gives the first requests of
    /// a batch.
    ///
    /// # Errors
    /// When a batch cannot be read, or the model gives up.
    pub fn ask(
        &self,
        task: &Task<'_>,
        mut questions: impl FnMut(&RecordBatch) -> Result<Vec<Request>, StageError>,
    ) -> Result<(), StageError> {
        calls::ensure(task, &mut questions, |requests, progress, cancel| {
            self.model.ensure(requests, progress, cancel)
        })?;
        for round in 1..self.manner.max_attempts {
            let (mut open, mut answered, mut misfits) = (0_u64, 0_u64, 0_u64);
            let follow_ups = |batch: &RecordBatch| {
                let mut follow_ups = Vec::new();
                for question in questions(batch)? {
                    let mut spent = Spent::default();
                    let standing = self.standing(&question, &mut spent)?;
                    answered += u64::from(spent.used.calls > 0);
                    misfits += u64::from(spent.is_misfit);
                    // an earlier run may have come further with this row than this round
                    if let Standing::Open(request) = standing
                        && request.attempt >= round
                    {
                        open += 1;
                        follow_ups.push(request);
                    }
                }
                Ok(follow_ups)
            };
            calls::ensure(task, follow_ups, |requests, progress, cancel| {
                self.model.ensure(requests, progress, cancel)
            })?;
            if round == 1 {
                self.tell_misfits(task, misfits, answered)?;
            }
            if open == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Says once a run that a server does not hold itself to the schema.
    fn tell_misfits(&self, task: &Task<'_>, misfits: u64, answered: u64) -> Result<(), StageError> {
        if misfits == 0 || self.form.schema().is_none() {
            return Ok(());
        }
        let told = task.shared(&format!("misfits {}", self.model.id()), |_| Ok(AtomicBool::new(false)))?;
        if !told.swap(true, Ordering::Relaxed) {
            let message = format!(
                "{misfits} of {answered} first answers of model `{}` do not follow the JSON schema that was sent, so its \
                 server does not enforce it; these rows are asked again with the schema in the prompt",
                self.model.id()
            );
            task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
        }
        Ok(())
    }

    /// What came of one question; counts what it cost.
    ///
    /// # Errors
    /// When the call store cannot be read.
    pub fn found(&self, task: &mut Task<'_>, question: &Request) -> Result<Found, StageError> {
        let mut spent = Spent::default();
        let standing = self.standing(question, &mut spent)?;
        spent.used.count(task);
        task.count("unusable_answers", spent.unusable);
        task.count("asked_again", spent.used.calls.saturating_sub(1));
        Ok(match standing {
            Standing::Usable(value) => Found::Usable(value),
            Standing::Open(_) => Found::Missing,
            Standing::Refused { code, message } => {
                Found::Unusable(Rejection::new(code, Some(json!({ "message": message }))))
            }
            Standing::Unusable { complaint, request } => {
                let mut evidence = json!({
                    "why": complaint.why, "model": self.model.id().to_string(), "attempts": spent.used.calls,
                    "answer": complaint.beginning,
                });
                if complaint.is_cut {
                    evidence["max_tokens"] = json!(request.sampling.max_tokens);
                }
                if let Some(refusal) = &complaint.refusal {
                    evidence["then"] = json!(refusal);
                }
                let reason = if complaint.is_cut { "truncated" } else { "answer_unusable" };
                Found::Unusable(Rejection::new(reason, Some(evidence)))
            }
        })
    }
}

#[cfg(test)]
mod tests;
