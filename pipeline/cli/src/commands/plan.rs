//! `pipeline plan` and `pipeline check`: what would run and why, and whether the graph is right.

use pipeline_core::event::NoEvents;
use pipeline_engine::Registry;
use pipeline_engine::decide::Outcome;
use pipeline_engine::record::grouped;
use pipeline_engine::run::Planned;
use pipeline_models::Engine;
use serde_json::json;

use super::run::selection;
use crate::args::{Check, Plan};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::session::{Options, Session};

/// What a run would do about a stage.
pub fn action(planned: &Planned) -> &'static str {
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
    let is_stale = planned.iter().any(|planned| action(planned) != "reuse");
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    let (mut calls, mut tokens, mut money, mut is_priced, mut is_unpriced) = (0, 0, 0.0, false, false);
    for planned in &planned {
        let node = &session.project.nodes[planned.stage];
        let will_run = action(planned) != "reuse";
        let estimate = planned.rows.filter(|_| will_run).and_then(|rows| node.stage.estimate(rows));
        if let Some(estimate) = estimate {
            calls += estimate.calls;
            tokens += estimate.max_tokens;
            let model = node.models.keys().next().and_then(|name| session.models.get(name));
            match model.map(|model| (&model.price, model.engine)) {
                Some((Some(price), _)) => {
                    money += price.cost(0, 0, estimate.max_tokens);
                    is_priced = true;
                }
                // weights in this process cost nothing, unless their price was named
                Some((None, Engine::Local)) => {}
                _ => is_unpriced = true,
            }
        }
        let cost = estimate.map(|estimate| match estimate.max_tokens {
            0 => format!("at most {} scores", grouped(estimate.calls)),
            tokens => format!("at most {} calls, {} tokens", grouped(estimate.calls), grouped(tokens)),
        });
        rows.push(vec![
            action(planned).to_owned(),
            node.name.clone(),
            node.entry.kind.to_owned(),
            [Some(planned.reason.clone()), cost].into_iter().flatten().collect::<Vec<_>>().join("; "),
        ]);
        documents.push(json!({
            "stage": node.name, "kind": node.entry.kind, "action": action(planned), "reason": planned.reason,
            "rows": planned.rows, "calls": estimate.map(|estimate| estimate.calls),
            "max_tokens": estimate.map(|estimate| estimate.max_tokens),
            "fingerprint": planned.decision.as_ref().map(|decision| decision.recipe.fingerprint()),
        }));
    }
    if arguments.json {
        output::json(&json!({ "stages": documents, "calls": calls, "max_tokens": tokens }));
    } else {
        output::line(output::table(&["", "stage", "kind", "reason"], rows, 3));
        if calls > 0 {
            let price =
                if is_priced && !is_unpriced { format!(", at most {money:.2} for answers") } else { String::new() };
            output::line(format!(
                "\nat most {} calls and {} tokens of answers{price}; recorded answers cost nothing",
                grouped(calls),
                grouped(tokens)
            ));
        }
    }
    Ok(if arguments.check && is_stale { Exit::Stale } else { Exit::Done })
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
