//! What a test may decide itself: rules from a file, and a closure.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::Answer;
use crate::draw::{mix, place_of};
use crate::fault::Fault;
use crate::http::Reply;
use crate::options::Options;
use crate::server::StartError;

/// Decides about one chat request. It runs on the server's thread: it must not block.
pub type Decide = dyn Fn(&Seen<'_>) -> Act + Send + Sync;

/// All that a server needs to know. `Script::default()` answers everything, at once and without faults.
#[derive(Clone, Default)]
pub struct Script {
    /// The switches.
    pub options: Options,
    /// Rules, asked after those of the file [`crate::Answers::rules`].
    pub rules: Vec<Rule>,
    /// Asked before everything else, but the key and the limit on concurrent requests.
    pub decide: Option<Arc<Decide>>,
}

impl fmt::Debug for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Script")
            .field("options", &self.options)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl From<Options> for Script {
    fn from(options: Options) -> Self {
        Self { options, ..Self::default() }
    }
}

impl Script {
    /// A script of a closure alone.
    pub fn of(decide: impl Fn(&Seen<'_>) -> Act + Send + Sync + 'static) -> Self {
        Self { decide: Some(Arc::new(decide)), ..Self::default() }
    }
}

/// A chat request as the closure sees it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// From 0, in order of arrival.
    pub number: u64,
    /// How often the same bytes came before.
    pub attempt: u32,
    /// Path of the request.
    pub path: &'a str,
    /// `authorization` as it was sent.
    pub authorization: Option<&'a str>,
    /// The request.
    pub body: &'a Value,
    /// Text of the last message.
    pub text: &'a str,
}

/// What is done about a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// What would be done without the closure.
    Usual,
    /// This answer, in the shape that was asked for (choices, stream, log-probabilities).
    Say(Answer),
    /// These bytes.
    Send(Reply),
    /// A fault: of the connection, of the status, or of the usual answer.
    Fail(Fault),
    /// The same later, beside the usual delay.
    After(Duration, Box<Act>),
}

impl Act {
    /// An answer of that text.
    pub fn say(text: impl Into<String>) -> Self {
        Self::Say(Answer::text(text))
    }

    /// An error object with a status.
    pub fn error(status: u16, message: &str) -> Self {
        Self::Send(Reply::error(status, "scripted", "scripted", message))
    }
}

/// One line of a file of rules; the first whose condition fits decides.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Fits where the last message contains this.
    pub contains: Option<String>,
    /// Fits where this pattern is found in the last message.
    pub regex: Option<String>,
    /// The answer.
    pub answer: Option<String>,
    /// Answers of which the seed of the request picks one.
    pub answers: Vec<String>,
    /// `finish_reason` of the answer.
    pub finish_reason: Option<String>,
    /// Chain of thought of the answer.
    pub reasoning_content: Option<String>,
    /// Status of an error, instead of an answer; `answer` is its message.
    pub status: Option<u16>,
}

/// Rules with their patterns compiled.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<(Rule, Option<Regex>)>);

/// What a rule says.
pub(crate) enum Ruling {
    Answer(Answer),
    Error(u16, String),
}

impl Rules {
    pub(crate) fn new(file: Option<&Path>, more: &[Rule]) -> Result<Self, StartError> {
        let mut rules = Vec::new();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| StartError::RulesUnread { path: path.to_owned(), source })?;
            for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let at = format!("{}:{}", path.display(), place + 1);
                let rule =
                    serde_json::from_str(line).map_err(|error| StartError::Rule(at.clone(), error.to_string()))?;
                rules.push(compiled(rule, &at)?);
            }
        }
        for (place, rule) in more.iter().enumerate() {
            rules.push(compiled(rule.clone(), &format!("rule {}", place + 1))?);
        }
        Ok(Self(rules))
    }

    /// The first rule that fits.
    pub(crate) fn find(&self, text: &str, number: u64) -> Option<Ruling> {
        let fits = |rule: &Rule, regex: &Option<Regex>| {
            rule.contains.as_ref().is_none_or(|part| text.contains(part))
                && regex.as_ref().is_none_or(|regex| regex.is_match(text))
        };
        let (rule, _) = self.0.iter().find(|(rule, regex)| fits(rule, regex))?;
        let picked = rule.answers.get(place_of(mix(number, 8), rule.answers.len()));
        let text = rule.answer.as_ref().or(picked).cloned();
        Some(match rule.status {
            Some(status) => Ruling::Error(status, text.unwrap_or_else(|| "refused by a rule".to_owned())),
            None => Ruling::Answer(Answer {
                text,
                reasoning: rule.reasoning_content.clone(),
                finish_reason: rule.finish_reason.clone(),
            }),
        })
    }
}

fn compiled(rule: Rule, at: &str) -> Result<(Rule, Option<Regex>), StartError> {
    let regex = rule.regex.as_deref().map(Regex::new).transpose();
    let regex = regex.map_err(|error| StartError::Rule(at.to_owned(), error.to_string()))?;
    Ok((rule, regex))
}
