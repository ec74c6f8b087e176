//! `pipeline plan` and `pipeline check`: what would run and why, and whether the graph is right.

use pipeline_core::event::NoEvents;
use pipeline_engine::Registry;
use pipeline_engine::decide::Outcome;
use pipeline_engine::record::grouped;
use pipeline_engine::run::Planned;
use serde_json::{Value, json};

use super::run::selection;
use crate::args::{Check, Plan};
use crate::estimate::{Basis, Outlook};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::session::{Options, Session};

/// What a run would do about a stage.
pub fn action(planned: &Planned) -> &'static str {
    if planned.alarm.is_some() {
        return "fail";
    }
    match planned.decision.as_ref().map(|decision| &decision.outcome) {
        Some(Outcome::Reuse { .. }) => "reuse",
        Some(Outcome::Run { .. }) => "run",
        None => "may run",
    }
}

/// `pipeline plan`
pub fn plan(arguments: &Plan, registry: &Registry) -> Result<Exit, Failure> {
    let session = Session::open(&arguments.project, registry, Options::default())?;
    let planned = session.runner(&NoEvents).plan(&selection(&arguments.which))?;
    let outlook = Outlook::new(&session, &planned)?;
    let is_stale = planned.iter().any(|planned| action(planned) != "reuse");
    let warning = outlook.warning(&session.limits);
    if arguments.json {
        output::json(&document(&session, &planned, &outlook, warning.as_deref()));
    } else {
        output::line(table(&session, &planned, &outlook));
        totals(&outlook);
        if let Some(warning) = warning {
            output::line(format!("warning: {warning}"));
        }
    }
    Ok(if arguments.check && is_stale { Exit::Stale } else { Exit::Done })
}

fn table(session: &Session, planned: &[Planned], outlook: &Outlook) -> String {
    let row = |planned: &Planned| {
        let node = &session.project.nodes[planned.stage];
        let cost = outlook.stages.get(&planned.stage).map(|stage| match &stage.basis {
            Basis::MaxTokens if node.entry.scores => format!("at most {} scores", grouped(stage.need.calls)),
            Basis::MaxTokens => format!("at most {} (from `max_tokens`)", stage.need),
            basis => format!("about {} ({basis})", stage.need),
        });
        let reason = [Some(planned.reason.clone()), cost].into_iter().flatten().collect::<Vec<_>>().join("; ");
        vec![action(planned).to_owned(), node.name.clone(), node.entry.kind.to_owned(), reason]
    };
    output::table(&["", "stage", "kind", "reason"], planned.iter().map(row).collect(), 3)
}

/// The sum over all stages, and how to know more.
fn totals(outlook: &Outlook) {
    if outlook.total.calls > 0 {
        let how = if outlook.is_bound() { "at most" } else { "about" };
        output::line(format!(
            "\n{how} {}; answers in the call store cost nothing, and are not taken off here",
            outlook.total
        ));
    }
    if outlook.is_bound() || !outlook.unknown.is_empty() {
        let of = if outlook.unknown.is_empty() {
            String::new()
        } else {
            format!("nothing is known yet of {}; ", outlook.unknown.join(", "))
        };
        output::line(format!("{of}a try-out (`pipeline run DAG --limit 20`) gives better figures"));
    }
}

fn document(session: &Session, planned: &[Planned], outlook: &Outlook, warning: Option<&str>) -> Value {
    let stage = |planned: &Planned| {
        let node = &session.project.nodes[planned.stage];
        let need = outlook.stages.get(&planned.stage);
        let bound = need.and_then(|need| node.stage.estimate(need.rows));
        let estimate = need.map(|stage| {
            let mut document = stage.need.document();
            document["basis"] = json!(stage.basis.word());
            document["rows"] = json!(stage.rows);
            document
        });
        json!({
            "stage": node.name, "kind": node.entry.kind, "action": action(planned), "reason": planned.reason,
            "rows": planned.rows, "calls": bound.map(|bound| bound.most_calls),
            "max_tokens": bound.map(|bound| bound.max_tokens), "estimate": estimate,
            "fingerprint": planned.decision.as_ref().map(|decision| decision.recipe.fingerprint()),
        })
    };
    let stages: Vec<Value> = planned.iter().map(stage).collect();
    let sum = |key: &str| stages.iter().filter_map(|stage| stage[key].as_u64()).sum::<u64>();
    json!({
        "calls": sum("calls"), "max_tokens": sum("max_tokens"), "estimate": outlook.total.document(),
        "is_upper_bound": outlook.is_bound(), "unknown": outlook.unknown, "warning": warning, "stages": stages,
    })
}

/// `pipeline check`
pub fn check(arguments: &Check, registry: &Registry) -> Result<Exit, Failure> {
    let session = Session::open(&arguments.project, registry, Options::default())?;
    let mut problems = Vec::new();
    for node in &session.project.nodes {
        if let Err(error) = node.stage.externals(&session.env, &node.ports) {
            problems.push(format!("error: stage `{}`: {error}", node.name));
        }
    }
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n")));
    }
    output::line(format!("{}: {} stages, no mistakes", session.dag.display(), session.project.nodes.len()));
    Ok(Exit::Done)
}
