//! The faults that a share of the requests meets.
//!
//! A *passing* fault is drawn from the seed, the request's bytes and how often they were asked: asking again can
//! succeed. A *lasting* fault is drawn without that number: the same request always meets it.

use std::fmt;
use std::str::FromStr;

use crate::delay::parse_share;
use crate::draw::{mix, share_of};

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Status 429 without a word on when to come back.
    RateLimited,
    /// Status 429 with `Retry-After` in seconds.
    RateLimitedSeconds,
    /// Status 429 with `Retry-After` as a date.
    RateLimitedDate,
    /// Status 500.
    Error500,
    /// Status 502 with a page of a proxy.
    Error502,
    /// Status 503.
    Error503,
    /// Status 503 with `Retry-After` in seconds.
    Error503Wait,
    /// Status 529, overloaded.
    Error529,
    /// The connection is reset before anything is sent.
    Reset,
    /// The connection is closed in the middle of the body.
    CutBody,
    /// The connection is reset in the middle of the body.
    ResetBody,
    /// Status 200, and JSON that ends in the middle.
    CutJson,
    /// Status 200, and an error object; in a stream after the first words.
    ErrorIn200,
    /// Status 200, and a page of HTML.
    Html,
    /// A good answer that is said to be `text/plain`.
    WrongType,
    /// Status 200, and an empty list of choices.
    NoChoices,
    /// No answer, until the client goes or the time for that is over.
    Hang,
    /// A good answer that comes in drops.
    Drip,
    /// A good answer without `usage`.
    UsageMissing,
    /// A good answer with impossible counts.
    UsageWrong,
    /// A good answer with counts such as `12.0`.
    UsageFloat,
    /// The answer stops half-way, `finish_reason` `length`.
    Length,
    /// An empty answer.
    Empty,
    /// Content `null`.
    NullContent,
    /// Status 200, `finish_reason` `content_filter`, no content.
    ContentFilter,
    /// Status 400, code `content_filter`.
    RefusedContent,
    /// Status 500, however often it is asked.
    Always500,
}

/// All faults with their names on the command line, in the order in which they are drawn; passing ones first.
const NAMES: [(Fault, &str); 27] = [
    (Fault::RateLimited, "rate_limited"),
    (Fault::RateLimitedSeconds, "rate_limited_seconds"),
    (Fault::RateLimitedDate, "rate_limited_date"),
    (Fault::Error500, "error_500"),
    (Fault::Error502, "error_502"),
    (Fault::Error503, "error_503"),
    (Fault::Error503Wait, "error_503_wait"),
    (Fault::Error529, "error_529"),
    (Fault::Reset, "reset"),
    (Fault::CutBody, "cut_body"),
    (Fault::ResetBody, "reset_body"),
    (Fault::CutJson, "cut_json"),
    (Fault::ErrorIn200, "error_in_200"),
    (Fault::Html, "html"),
    (Fault::WrongType, "wrong_type"),
    (Fault::NoChoices, "no_choices"),
    (Fault::Hang, "hang"),
    (Fault::Drip, "drip"),
    (Fault::UsageMissing, "usage_missing"),
    (Fault::UsageWrong, "usage_wrong"),
    (Fault::UsageFloat, "usage_float"),
    (Fault::Length, "length"),
    (Fault::Empty, "empty"),
    (Fault::NullContent, "null_content"),
    (Fault::ContentFilter, "content_filter"),
    (Fault::RefusedContent, "refused_content"),
    (Fault::Always500, "always_500"),
];

impl Fault {
    /// Every fault.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(fault, _)| fault)
    }

    /// Its name on the command line and in the counts.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(fault, _)| *fault == self).map_or("", |(_, name)| name)
    }

    /// Whether the same request always meets it.
    pub fn is_lasting(self) -> bool {
        matches!(
            self,
            Self::UsageMissing
                | Self::UsageWrong
                | Self::UsageFloat
                | Self::Length
                | Self::Empty
                | Self::NullContent
                | Self::ContentFilter
                | Self::RefusedContent
                | Self::Always500
        )
    }

    /// Whether a client that meets it has an answer in hands.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::WrongType | Self::Drip)
            || (self.is_lasting() && !matches!(self, Self::RefusedContent | Self::Always500))
    }

    /// This fault at a share of the requests, 0 to 1.
    pub fn at(self, share: f64) -> FaultShare {
        FaultShare { fault: self, share }
    }
}

/// A fault and the share of requests that meet it, written `NAME=SHARE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultShare {
    /// What goes wrong.
    pub fault: Fault,
    /// For which share of the requests, 0 to 1.
    pub share: f64,
}

impl FromStr for FaultShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, share) =
            text.split_once('=').ok_or_else(|| format!("`{text}` has no share: write `{text}=0.01`"))?;
        let found = NAMES.iter().find(|(_, known)| *known == name.trim());
        let Some((fault, _)) = found else {
            let known: Vec<&str> = NAMES.iter().map(|(_, known)| *known).collect();
            return Err(format!("`{name}` is no fault: there are {}", known.join(", ")));
        };
        Ok(fault.at(parse_share(share)?))
    }
}

impl fmt::Display for FaultShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.fault.name(), self.share)
    }
}

/// The shares of all faults, ready for drawing.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultTable {
    passing: Vec<FaultShare>,
    lasting: Vec<FaultShare>,
}

impl FaultTable {
    /// Every fault at `every`, but those of `named` at their own share. An error says what adds up to too much.
    pub(crate) fn new(every: f64, named: &[FaultShare]) -> Result<Self, String> {
        let mut table = Self::default();
        for fault in Fault::all() {
            let share = named.iter().rev().find(|named| named.fault == fault).map_or(every, |named| named.share);
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("the share {share} of fault `{}` is not between 0 and 1", fault.name()));
            }
            if share > 0.0 {
                let side = if fault.is_lasting() { &mut table.lasting } else { &mut table.passing };
                side.push(fault.at(share));
            }
        }
        for (side, word) in [(&table.passing, "passing"), (&table.lasting, "lasting")] {
            let sum: f64 = side.iter().map(|fault| fault.share).sum();
            if sum > 1.0 + 1e-9 {
                return Err(format!("the shares of the {word} faults add up to {sum}: give at most 1 in all"));
            }
        }
        Ok(table)
    }

    /// The passing fault of one asking, if any.
    pub(crate) fn passing(&self, seed: u64, hash: u64, attempt: u32) -> Option<Fault> {
        pick(&self.passing, || share_of(mix(mix(seed, hash), u64::from(attempt) + 1)))
    }

    /// The lasting fault of a request, if any.
    pub(crate) fn lasting(&self, seed: u64, hash: u64) -> Option<Fault> {
        pick(&self.lasting, || share_of(mix(mix(seed, 77), hash)))
    }
}

fn pick(shares: &[FaultShare], draw: impl FnOnce() -> f64) -> Option<Fault> {
    if shares.is_empty() {
        return None;
    }
    let mut left = draw();
    for candidate in shares {
        if left < candidate.share {
            return Some(candidate.fault);
        }
        left -= candidate.share;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_and_is_read_back() {
        for fault in Fault::all() {
            assert_eq!(fault.at(0.25).to_string().parse::<FaultShare>().unwrap(), fault.at(0.25));
        }
        assert!("rest=0.1".parse::<FaultShare>().unwrap_err().contains("reset"));
        assert!("reset".parse::<FaultShare>().unwrap_err().contains("reset=0.01"));
        assert!("reset=2".parse::<FaultShare>().is_err());
    }

    #[test]
    fn shares_come_out_as_given_and_only_passing_ones_pass() {
        let table = FaultTable::new(0.0, &[Fault::Reset.at(0.2), Fault::Html.at(0.1), Fault::Length.at(0.3)]).unwrap();
        let count = |wanted: Fault| (0..10_000).filter(|hash| table.passing(3, *hash, 0) == Some(wanted)).count();
        assert!((1800..2200).contains(&count(Fault::Reset)));
        assert!((850..1150).contains(&count(Fault::Html)));
        let hash = (0..1000).find(|hash| table.passing(3, *hash, 0).is_some()).unwrap();
        assert!((1..40).any(|attempt| table.passing(3, hash, attempt).is_none()));
        let lasting = (0..10_000).filter(|hash| table.lasting(3, *hash) == Some(Fault::Length)).count();
        assert!((2800..3200).contains(&lasting));
    }

    #[test]
    fn shares_above_one_are_refused() {
        assert!(FaultTable::new(0.1, &[]).unwrap_err().contains("add up"));
        assert!(FaultTable::new(0.05, &[Fault::Hang.at(0.0)]).is_ok());
        assert!(FaultTable::new(0.0, &[Fault::Hang.at(-0.5)]).is_err());
    }
}
