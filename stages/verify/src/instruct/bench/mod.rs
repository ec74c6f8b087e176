//! The 58 kinds of IFBench (allenai/IFBench, 2025), one file a group.
//!
//! The verdicts are those of the benchmark's checkers at their state db69a6f, also where these read a
//! prompt in a way of their own; each such reading stands in the kind's `summary`. Two things differ:
//! a parameter that the original would draw at random when it is absent is an error here, and a response
//! on which the original breaks off does not hold.

mod count;
mod csv;
mod custom;
mod emoji;
mod format;
mod layout;
mod letters;
mod ratio;
mod repeat;
mod sentence;
mod sentences;
mod syllables;
mod table;
mod text;
mod verbs;
mod words;

use super::{Check, InstructError, KindInfo, Parameter, Resource, Rule, Shape, parameters::Parameters, views::Views};

pub(super) use sentences::sentences;

/// The registries of the groups, in the order of the benchmark's ids.
pub(super) const COUNT: &[KindInfo] = count::KINDS;
/// Tasks of a single prompt.
pub(super) const CUSTOM: &[KindInfo] = custom::KINDS;
/// How the response looks.
pub(super) const FORMAT: &[KindInfo] = format::KINDS;
/// Shares.
pub(super) const RATIO: &[KindInfo] = ratio::KINDS;
/// What is to be repeated.
pub(super) const REPEAT: &[KindInfo] = repeat::KINDS;
/// Sentence by sentence.
pub(super) const SENTENCE: &[KindInfo] = sentence::KINDS;
/// Word by word.
pub(super) const WORDS: &[KindInfo] = words::KINDS;

const fn asked(name: &'static str, shape: Shape) -> Parameter {
    Parameter::required(name, shape)
}

/// A kind that asks with parameters.
const fn kind(
    id: &'static str,
    parameters: &'static [Parameter],
    uses: &'static [Resource],
    summary: &'static str,
    build: fn(&Parameters<'_>) -> Result<Rule, InstructError>,
) -> KindInfo {
    KindInfo { id, parameters, uses, summary, build }
}

/// The rule of a kind without parameters.
#[expect(clippy::unnecessary_wraps, reason = "kinds with parameters may refuse them")]
fn fixed(rule: fn(&Views<'_>) -> Check) -> Result<Rule, InstructError> {
    Ok(Box::new(rule))
}

/// The words of a list in the data folder: all but what follows `#` on a line.
fn list(data: &'static str) -> Vec<&'static str> {
    data.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect()
}
