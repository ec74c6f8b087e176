//! The vote on one query: classes of equal answers, their votes, and the winner.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What to do when several answers have most votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tie {
    /// The query falls out.
    #[default]
    Reject,
    /// The label that comes first in byte order wins.
    Smallest,
}

/// Leading answers that the evidence names.
const LEADING: usize = 5;

/// The traces of one query.
#[derive(Debug, Clone, Default)]
pub struct Ballot {
    first: u64,
    unanswered: u64,
    /// Final answers, and whether each is the label that its trace came with.
    answers: Vec<(String, bool)>,
    labels: BTreeSet<String>,
}

impl Ballot {
    /// No trace yet.
    pub fn new() -> Self {
        Self { first: u64::MAX, ..Self::default() }
    }

    /// Adds the trace at a position, with its final answer, the label it came with, and whether the two agree.
    pub fn add(&mut self, ordinal: u64, answer: Option<&str>, label: Option<&str>, agrees: bool) {
        self.first = self.first.min(ordinal);
        match answer {
            Some(answer) => self.answers.push((answer.trim().to_owned(), agrees)),
            None => self.unanswered += 1,
        }
        if let Some(label) = label
            && !self.labels.contains(label)
        {
            self.labels.insert(label.to_owned());
        }
    }
}

/// The result of a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Position of the query's first trace.
    pub first: u64,
    /// The label, `None` when no answer won.
    pub label: Option<String>,
    /// Votes for the label.
    pub votes: u64,
    /// Traces with a final answer.
    pub answered: u64,
    /// Traces without.
    pub unanswered: u64,
    /// Whether the traces came with different labels and one of them should have stayed.
    pub has_conflict: bool,
    /// The answers with most votes, as JSON: `[["420",5],["42",2]]`.
    pub leading: String,
    /// Whether several answers had most votes.
    pub is_tie: bool,
    /// Whether the winner agrees with the one label that was there.
    pub gold: Option<bool>,
}

impl Election {
    /// Share of the votes that the label got: votes for it / traces with a final answer; 0 without any.
    pub fn share(&self) -> f64 {
        if self.answered == 0 { 0.0 } else { self.votes as f64 / self.answered as f64 }
    }
}

/// A class of equal answers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Class {
    votes: u64,
    agreeing: u64,
    spelling: String,
}

/// Classes of equal answers, most votes first, then by spelling. A class is spelled as most of its members are; ties
/// go to the spelling that comes first in byte order.
fn classes(answers: &[(String, bool)]) -> Vec<Class> {
    let texts: Vec<&str> = answers.iter().map(|(text, _)| text.as_str()).collect();
    let mut members: BTreeMap<usize, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    for (class, (text, agrees)) in stage_verify::cluster(&texts).into_iter().zip(answers) {
        let (agreeing, spellings) = members.entry(class).or_default();
        *agreeing += u64::from(*agrees);
        *spellings.entry(text).or_default() += 1;
    }
    let mut classes: Vec<Class> = members
        .into_values()
        .map(|(agreeing, spellings)| {
            let votes = spellings.values().sum();
            let most = spellings.values().copied().max().unwrap_or(0);
            // the map is in byte order, so the first is the smallest
            let spelling = spellings.into_iter().find(|(_, count)| *count == most).map_or("", |(text, _)| text);
            Class { votes, agreeing, spelling: spelling.to_owned() }
        })
        .collect();
    classes.sort_by(|one, two| two.votes.cmp(&one.votes).then_with(|| one.spelling.cmp(&two.spelling)));
    classes
}

/// Counts the votes of a query. The order of its traces does not matter.
pub fn elect(ballot: &Ballot, tie: Tie, overwrite: bool) -> Election {
    let classes = classes(&ballot.answers);
    let leading: Vec<_> = classes.iter().take(LEADING).map(|class| json!([class.spelling, class.votes])).collect();
    let is_tie = matches!(&classes[..], [one, two, ..] if one.votes == two.votes);
    let winner = classes.into_iter().next().filter(|_| !is_tie || tie == Tie::Smallest);
    let mut election = Election {
        first: ballot.first,
        label: None,
        votes: 0,
        answered: ballot.answers.len() as u64,
        unanswered: ballot.unanswered,
        has_conflict: !overwrite && ballot.labels.len() > 1,
        leading: serde_json::Value::from(leading).to_string(),
        is_tie,
        gold: None,
    };
    if let (false, Some(gold)) = (overwrite, ballot.labels.first()) {
        let agreeing = ballot.answers.iter().filter(|(_, agrees)| *agrees).count() as u64;
        (election.label, election.votes, election.is_tie) = (Some(gold.clone()), agreeing, false);
        return election;
    }
    if let Some(winner) = winner {
        // members of a class agree with the label together; where a comparison was not decided, most of them speak
        let has_gold = ballot.labels.len() == 1;
        election.gold = has_gold.then_some(winner.agreeing * 2 > winner.votes);
        (election.label, election.votes) = (Some(winner.spelling), winner.votes);
    }
    election
}

/// What the stage reports of its votes.
pub fn counters(ballots: &[(String, Ballot)], elections: &[Election]) -> Vec<(&'static str, u64)> {
    let sum = |count: &dyn Fn(&Election) -> u64| elections.iter().map(count).sum::<u64>();
    let conflicts = ballots.iter().filter(|(_, ballot)| ballot.labels.len() > 1).count() as u64;
    let all = vec![
        ("votes", sum(&|election| election.answered)),
        ("traces_without_answer", sum(&|election| election.unanswered)),
        ("ties", sum(&|election| u64::from(election.is_tie))),
        ("ties_resolved", sum(&|election| u64::from(election.is_tie && election.label.is_some()))),
        ("gold_agrees", sum(&|election| u64::from(election.gold == Some(true)))),
        ("gold_differs", sum(&|election| u64::from(election.gold == Some(false)))),
        ("label_conflicts", conflicts),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}
