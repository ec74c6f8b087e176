//! Instruction constraints: what a prompt asks of the form of its answer, checked without a model.
//!
//! A constraint is an id (`length_constraints:number_words`) and its parameters (`kwargs`), as the data
//! sets IFEval and IFBench write them. It is parsed once, and everything about it is checked then: an
//! unknown kind, an unknown, missing, ill-typed or out-of-range parameter is an error, never a pass.
//! The verdicts are those of the original checkers (google-research `instruction_following_eval`, allenai
//! `IFBench`), except where these guess: a parameter they would draw at random is an error here, and a text
//! whose language cannot be told does not hold.
//!
//! A kind is one function that turns checked parameters into a `Rule`, and one line in the registry of
//! its data set. All rules of a response look at it through the same lazily computed `Views`.

mod bench;
mod characters;
mod error;
mod ifeval;
mod language;
mod loose;
mod parameters;
mod sentences;
mod tokens;
mod views;

pub use error::InstructError;
pub use parameters::{Parameter, Shape};

use crate::{Judgement, Verdict};
use loose::Readings;
use parameters::Parameters;
use serde_json::Value;
use std::{borrow::Cow, fmt};
use views::Views;

/// Raised when the same constraints and response would get another verdict.
pub const VERSION: u32 = 1;

/// What one constraint says of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Whether the response does what is asked.
    pub holds: bool,
    /// One readable line on what was found, as `412 words, at least 500 asked`.
    pub why: Cow<'static, str>,
}

impl Check {
    /// A check with what was found.
    pub fn new(holds: bool, why: impl Into<Cow<'static, str>>) -> Self {
        Self { holds, why: why.into() }
    }
}

/// How a response is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scoring {
    /// As it stands.
    Strict,
    /// A constraint holds when it holds for one of eight readings: the response as it stands, without its
    /// first line, without its last, without both, and each of the four without asterisks.
    Loose,
}

impl Scoring {
    /// The word that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Loose => "loose",
        }
    }
}

/// What a kind leans on besides the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// The English sentence model of Punkt (Kiss and Strunk 2006), as NLTK ships it.
    SentenceModel,
    /// Word tokens after the conventions of the Penn Treebank.
    TreebankTokens,
    /// Detection of the natural language of a text.
    LanguageDetection,
    /// A list of words, named.
    WordList(&'static str),
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SentenceModel => formatter.write_str("the English sentence model of Punkt"),
            Self::TreebankTokens => formatter.write_str("word tokens of the Penn Treebank"),
            Self::LanguageDetection => formatter.write_str("language detection"),
            Self::WordList(name) => write!(formatter, "a list: {name}"),
        }
    }
}

/// What a kind's function makes of its parameters: a check of one reading of a response.
pub(crate) type Rule = Box<dyn Fn(&Views<'_>) -> Check + Send + Sync>;

/// One kind of constraint.
pub struct KindInfo {
    /// `group:name`, as the data sets write it.
    pub id: &'static str,
    /// What it is asked with, in order.
    pub parameters: &'static [Parameter],
    /// What it leans on; empty when the text alone decides.
    pub uses: &'static [Resource],
    /// What it asks, in one line.
    pub summary: &'static str,
    /// Makes the rule from parameters whose names and shapes are already checked.
    pub(crate) build: fn(&Parameters<'_>) -> Result<Rule, InstructError>,
}

impl fmt::Debug for KindInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KindInfo")
            .field("id", &self.id)
            .field("parameters", &self.parameters)
            .field("uses", &self.uses)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// The registries of all data sets, in the order of [`kinds`].
const REGISTRIES: &[&[KindInfo]] = &[
    ifeval::KINDS,
    bench::COUNT,
    bench::CUSTOM,
    bench::FORMAT,
    bench::RATIO,
    bench::REPEAT,
    bench::SENTENCE,
    bench::WORDS,
];

/// All kinds, in the order of their data sets.
pub fn kinds() -> Vec<&'static KindInfo> {
    REGISTRIES.iter().copied().flatten().collect()
}

fn find(id: &str) -> Result<&'static KindInfo, InstructError> {
    let found = REGISTRIES.iter().copied().flatten().find(|kind| kind.id == id);
    found.ok_or_else(|| InstructError::UnknownKind {
        kind: id.to_owned(),
        hint: error::hint(id, REGISTRIES.iter().copied().flatten().map(|kind| kind.id)),
    })
}

/// A checked kind with its parameters.
pub struct Constraint {
    kind: &'static KindInfo,
    rule: Rule,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Constraint").field("id", &self.kind.id).finish_non_exhaustive()
    }
}

impl Constraint {
    /// Reads a constraint. `kwargs` is an object or null; fields that are null count as absent, so rows
    /// that carry one field for every parameter of their data set are fine.
    ///
    /// # Errors
    /// When the kind is not known, or a parameter is unknown, missing, of another type or out of range.
    ///
    /// ```
    /// use stage_verify::instruct::Constraint;
    /// let asked = serde_json::json!({"num_words": 3, "relation": "at least"});
    /// let constraint = Constraint::parse("length_constraints:number_words", &asked)?;
    /// assert!(constraint.check("one two three").holds);
    /// assert!(Constraint::parse("length_constraints:number_word", &asked).is_err());
    /// # Ok::<(), stage_verify::instruct::InstructError>(())
    /// ```
    pub fn parse(id: &str, kwargs: &Value) -> Result<Self, InstructError> {
        let kind = find(id)?;
        let parameters = Parameters::read(kind, kwargs)?;
        Ok(Self { kind, rule: (kind.build)(&parameters)? })
    }

    /// `group:name`.
    pub fn id(&self) -> &'static str {
        self.kind.id
    }

    /// The kind.
    pub fn kind(&self) -> &'static KindInfo {
        self.kind
    }

    /// Checks a response as it stands. What is forbidden is not in an empty response either: that an empty
    /// response is no answer is for [`verify`] and [`checks`] to say.
    pub fn check(&self, response: &str) -> Check {
        (self.rule)(&Views::new(response))
    }

    /// Checks what was asked of an answer. A blank reading never holds; in loose scoring one reading must
    /// hold, and when none does the line is that of the response as it stands.
    fn score(&self, readings: &Readings<'_>, scoring: Scoring) -> Check {
        if readings.plain().stripped().is_empty() {
            return Check::new(false, "the response is empty");
        }
        let plain = (self.rule)(readings.plain());
        if plain.holds || scoring == Scoring::Strict {
            return plain;
        }
        readings.altered().iter().map(&self.rule).find(|check| check.holds).unwrap_or(plain)
    }
}

/// What each constraint says of a response, in the order given; none holds for an empty one.
pub fn checks(constraints: &[Constraint], response: &str, scoring: Scoring) -> Vec<Check> {
    let readings = Readings::new(response);
    constraints.iter().map(|constraint| constraint.score(&readings, scoring)).collect()
}

/// Judges a response: `correct` when every constraint holds, else `incorrect` with the first that does not
/// (`constraint_failed: id: why`). An empty response is `no_answer`; a label without constraints asks
/// nothing and is `label_unparsable`.
///
/// The response is the answer alone: the caller takes reasoning off first.
pub fn verify(constraints: &[Constraint], response: &str, scoring: Scoring) -> Judgement {
    let tier = scoring.as_str();
    if constraints.is_empty() {
        return Judgement::new(Verdict::LabelUnparsable, "no_constraints", "");
    }
    let readings = Readings::new(response);
    if readings.plain().stripped().is_empty() {
        return Judgement::new(Verdict::NoAnswer, "empty_response", "");
    }
    for constraint in constraints {
        let check = constraint.score(&readings, scoring);
        if !check.holds {
            let reason = format!("constraint_failed: {}: {}", constraint.id(), check.why);
            return Judgement::new(Verdict::Incorrect, reason, tier);
        }
    }
    Judgement::new(Verdict::Correct, "constraints_hold", tier)
}
