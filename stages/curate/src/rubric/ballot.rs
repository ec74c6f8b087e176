//! What judges say of a row, counted.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::Rubric;

/// A judge's answer, checked against the rubric's schema.
#[derive(Debug, Clone)]
pub struct Ballot {
    /// The judge.
    pub judge: String,
    /// `{ reason, criteria }`.
    pub answer: Value,
}

impl Ballot {
    fn rating(&self, criterion: &str) -> i64 {
        self.answer["criteria"][criterion].as_i64().unwrap_or_default()
    }

    fn reason(&self) -> &str {
        self.answer["reason"].as_str().unwrap_or_default()
    }

    fn ratings<'a>(&'a self, rubric: &'a Rubric) -> impl Iterator<Item = i64> + 'a {
        rubric.criteria.iter().map(|criterion| self.rating(&criterion.name))
    }

    fn mean(&self, rubric: &Rubric) -> f64 {
        self.ratings(rubric).sum::<i64>() as f64 / rubric.criteria.len().max(1) as f64
    }

    /// As it is stored: only what the rubric asked for.
    fn as_json(&self, rubric: &Rubric) -> Value {
        let ratings =
            rubric.criteria.iter().map(|criterion| (criterion.name.clone(), Value::from(self.rating(&criterion.name))));
        json!({ "judge": self.judge, "criteria": ratings.collect::<Value>(), "reason": self.reason() })
    }
}

/// What follows from the ballots of a row.
#[derive(Debug, Clone, Default)]
pub struct Count {
    /// Mean rating over criteria and judges.
    pub score: Option<f64>,
    /// The reason that counts most: of a judge that failed the row for its worst criterion, else of the strictest.
    pub reason: Option<String>,
    /// All ballots as JSON text.
    pub scores: Option<String>,
    /// Why the row fails.
    pub flaw: Option<String>,
    /// What led to that.
    pub evidence: Value,
    /// Judges with a usable answer.
    pub votes: u64,
    /// Judges on the side that decided.
    pub with_majority: u64,
}

impl Count {
    /// A row that fails without a judge.
    pub fn flawed(flaw: &str, evidence: Value) -> Self {
        Self { flaw: Some(flaw.to_owned()), evidence, ..Self::default() }
    }

    /// Counts ballots, of which there is at least one.
    pub fn new(rubric: &Rubric, ballots: &[Ballot], min_score: i64) -> Self {
        let fails = |ballot: &&Ballot| ballot.ratings(rubric).any(|rating| rating < min_score);
        let votes = ballots.len();
        let failing = ballots.iter().filter(fails).count();
        let passes = (votes - failing) * 2 > votes;
        let score = ballots.iter().map(|ballot| ballot.mean(rubric)).sum::<f64>() / votes.max(1) as f64;
        let worst = if passes { None } else { worst(rubric, ballots, min_score) };
        let strictest = ballots.iter().min_by(|one, two| {
            let by_worst = worst.map_or(Ordering::Equal, |name| one.rating(name).cmp(&two.rating(name)));
            by_worst.then(one.mean(rubric).total_cmp(&two.mean(rubric)))
        });
        let all: Vec<Value> = ballots.iter().map(|ballot| ballot.as_json(rubric)).collect();
        let all = Value::Array(all);
        let evidence = match worst {
            Some(name) => json!({ "criterion": name, "min_score": min_score, "judges": all }),
            None => Value::Null,
        };
        Self {
            score: Some(score),
            reason: strictest.map(|ballot| ballot.reason().to_owned()),
            scores: Some(all.to_string()),
            flaw: worst.map(|name| format!("fails_{name}")),
            evidence,
            votes: votes as u64,
            with_majority: (if passes { votes - failing } else { failing }) as u64,
        }
    }

    /// Share of the judges on the side that decided.
    pub fn agreement(&self) -> Option<f64> {
        (self.votes > 0).then(|| self.with_majority as f64 / self.votes as f64)
    }
}

/// The criterion that most judges failed; of several the one with the lowest ratings, of several the first.
fn worst<'a>(rubric: &'a Rubric, ballots: &[Ballot], min_score: i64) -> Option<&'a str> {
    let standing = |name: &str| {
        let ratings = || ballots.iter().map(|ballot| ballot.rating(name));
        (ratings().filter(|rating| *rating < min_score).count(), std::cmp::Reverse(ratings().sum::<i64>()))
    };
    let names = rubric.criteria.iter().map(|criterion| criterion.name.as_str());
    // of equals `max_by_key` takes the last, so the list is read backwards
    names.rev().max_by_key(|name| standing(name))
}
