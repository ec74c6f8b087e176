//! Whether a piece of supervision can be used, asked of the code that will use it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stage_verify::code::Tests;
use stage_verify::instruct::Constraint;
use stage_verify::{Extraction, Verdict};

/// A piece of supervision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Supervision {
    /// A label that the domain's verifier can read.
    Label,
    /// At least two options, and no label that is none of them.
    Options,
    /// A worked solution.
    Rationale,
    /// Tests of a program that can be read, at least one.
    Tests,
    /// Constraints that can all be read, at least one.
    Constraints,
}

/// Words that stand where a label should, and are none.
const PLACEHOLDERS: [&str; 14] = [
    "proof",
    "see proof",
    "see solution",
    "see the solution",
    "see explanation",
    "qed",
    "n/a",
    "tbd",
    "nan",
    "null",
    "略",
    "证明略",
    "见解析",
    "证明见解析",
];

/// One query, as far as its supervision goes.
#[derive(Debug)]
pub struct Query<'a> {
    /// Domain, where there is one.
    pub domain: Option<&'a str>,
    /// Last user message.
    pub prompt: Option<&'a str>,
    /// Label as it stands.
    pub label: Option<&'a str>,
    /// Options, none for an open question.
    pub options: Vec<&'a str>,
    /// Tests, JSON text.
    pub tests: Option<&'a str>,
    /// Constraints: id, and parameters as JSON text.
    pub constraints: Vec<(&'a str, Option<&'a str>)>,
    /// The user's own columns, a JSON object.
    pub extra: Option<&'a str>,
}

/// Why a piece of supervision cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A `snake_case` word.
    pub reason: &'static str,
    /// What was found, in words.
    pub message: String,
}

impl Fault {
    fn because(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl Query<'_> {
    /// What the verifier of the domain says against the label.
    pub fn label_fault(&self) -> Option<Fault> {
        let label = self.label.map(str::trim).filter(|label| !label.is_empty());
        let Some(label) = label else { return Some(Fault::because("no_label", "there is no label")) };
        let bare = label.trim_matches(|letter: char| letter.is_whitespace() || ".。()（）*".contains(letter));
        if PLACEHOLDERS.iter().any(|word| bare.eq_ignore_ascii_case(word)) {
            return Some(Fault::because("no_label", format!("`{label}` stands where an answer should")));
        }
        // programs and instructions have no labels of a kind of their own; an answer that can be read is one
        let domain = if self.domain == Some("stem") { "stem" } else { "math" };
        let judgement = stage_verify::verify(domain, label, &self.options, "", Extraction::Strict);
        let is_unread = judgement.verdict == Verdict::LabelUnparsable;
        is_unread.then(|| Fault { reason: "label_unparsable", message: judgement.reason.into_owned() })
    }

    /// What is missing of a choice.
    pub fn options_fault(&self) -> Option<Fault> {
        if self.options.len() < 2 {
            return Some(Fault::because("no_options", format!("{} options", self.options.len())));
        }
        // a label that is none of the options says that one of the two is wrong
        self.label_fault().filter(|fault| fault.reason == "label_unparsable")
    }

    /// What is missing of a worked solution.
    pub fn rationale_fault(&self, keys: &[String], shortest: usize) -> Option<Fault> {
        let extra: Option<Value> = self.extra.and_then(|extra| serde_json::from_str(extra).ok());
        let characters = |value: &Value| match value {
            Value::String(text) => text.trim().chars().count(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).map(|text| text.trim().chars().count()).sum(),
            _ => 0,
        };
        let of_key = |key: &String| extra.as_ref().and_then(|extra| extra.get(key)).map_or(0, characters);
        let longest = keys.iter().map(of_key).max().unwrap_or(0);
        let message = format!("{longest} characters of {shortest} in {} of `extra`", keys.join(", "));
        if longest == 0 || longest < shortest { Some(Fault::because("no_rationale", message)) } else { None }
    }

    /// What is wrong with the tests.
    pub fn tests_fault(&self) -> Option<Fault> {
        let Some(tests) = self.tests.filter(|tests| !tests.trim().is_empty()) else {
            return Some(Fault::because("no_tests", "there are no tests"));
        };
        Tests::parse(tests).err().map(|error| Fault::because("tests_unreadable", error.to_string()))
    }

    /// What is wrong with the constraints.
    pub fn constraints_fault(&self) -> Option<Fault> {
        if self.constraints.is_empty() {
            return Some(Fault::because("no_constraints", "there are no constraints"));
        }
        self.constraints.iter().find_map(|(id, kwargs)| {
            let fault = match serde_json::from_str(kwargs.unwrap_or("{}")) {
                Ok(kwargs) => Constraint::parse(id, &kwargs).err()?.to_string(),
                Err(error) => format!("the parameters of `{id}` are no JSON: {error}"),
            };
            Some(Fault::because("constraint_unreadable", fault))
        })
    }
}
