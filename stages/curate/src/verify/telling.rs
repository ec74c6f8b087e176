//! What is stored, counted and told of the outcomes of a task.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use pipeline_core::{Event, Task};
use schemas::traces;
use stage_verify::{Judgement, Verdict};

use super::agreement;
use super::row::Outcome;

/// Share of unreadable labels, tests or constraints in a task from which on the run says so.
const MANY_FAULTS: f64 = 0.05;

/// The word of a verdict.
pub fn word(verdict: Option<Verdict>) -> &'static str {
    verdict.map_or("none", Verdict::as_str)
}

/// Counts verdicts; returns the rows that no verdict on the trace could be given for.
pub fn count_verdicts(task: &mut Task<'_>, outcomes: &[Outcome]) -> Faults {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut guessed, mut judged, mut unjudged) = (0, 0, 0);
    for outcome in outcomes {
        *counts.entry(word(agreement::verdict(outcome))).or_default() += 1;
        if let Outcome::Found(found) = outcome {
            guessed += u64::from(found.judgement.weak);
            judged += u64::from(found.judgement.tier == "judge");
            unjudged += u64::from(found.judgement.reason.starts_with("no_verifier"));
        }
    }
    for (verdict, rows) in &counts {
        task.count(&format!("verdict_{verdict}"), *rows);
    }
    for (name, rows) in [("answers_without_mark", guessed), ("asked_the_judge", judged)] {
        if rows > 0 {
            task.count(name, rows);
        }
    }
    Faults { unreadable: counts.get(Verdict::LabelUnparsable.as_str()).copied().unwrap_or(0), unjudged }
}

/// Rows that say something about the project rather than about their traces.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Label, tests or constraints cannot be read.
    unreadable: u64,
    /// No verifier judges their domain.
    unjudged: u64,
}

impl Faults {
    /// Adds those of another batch.
    pub fn add(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.unjudged += other.unjudged;
    }

    /// Many such rows are a fault of the project, which would otherwise show as a mere count.
    pub fn tell(self, task: &Task<'_>, read: u64) {
        let looking = "`pipeline show` tells each row's `verdict_reason` (with `--rejects` where `keep` drops it)";
        let told = [
            (self.unreadable, "have a label, tests or constraints that cannot be read (`label_unparsable`)"),
            (self.unjudged, "are of a domain without verifier (`no_verifier`); `verifiers` names one"),
        ];
        for (rows, what) in told.into_iter().filter(|(rows, _)| *rows as f64 > read as f64 * MANY_FAULTS) {
            let message = format!("{rows} of {read} rows {what}; {looking}");
            task.events().emit(&Event::Warning { stage: Some(task.stage().to_owned()), message });
        }
    }
}

/// The reason as it is stored: behind it the tier or the form of tests that decided.
fn reason(judgement: &Judgement) -> Cow<'_, str> {
    match (judgement.tier, judgement.reason.contains(':')) {
        ("" | "judge", _) => Cow::Borrowed(&judgement.reason),
        (tier, false) => Cow::Owned(format!("{}: {tier}", judgement.reason)),
        (tier, true) if tier.ends_with("in_process") => Cow::Owned(format!("{} ({tier})", judgement.reason)),
        (_, true) => Cow::Borrowed(&judgement.reason),
    }
}

/// The columns of outcomes.
pub fn columns(outcomes: &[Outcome]) -> [(&'static str, ArrayRef); 4] {
    let found = || {
        outcomes.iter().map(|outcome| match outcome {
            Outcome::Found(found) => Some(found),
            Outcome::None | Outcome::Failed(_) => None,
        })
    };
    let verdicts: StringViewArray = found().map(|found| found.map(|found| found.judgement.verdict.as_str())).collect();
    let reasons: StringViewArray = found().map(|found| found.map(|found| reason(&found.judgement))).collect();
    let verifiers: StringViewArray = found().map(|found| found?.verifier.as_deref()).collect();
    let answers: StringViewArray = found().map(|found| found?.judgement.answer.as_deref()).collect();
    [
        (traces::VERDICT, Arc::new(verdicts)),
        (traces::VERDICT_REASON, Arc::new(reasons)),
        (traces::VERIFIER, Arc::new(verifiers)),
        (traces::ANSWER, Arc::new(answers)),
    ]
}
