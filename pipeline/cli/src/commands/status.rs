//! `pipeline status`: the state of each stage, from the files alone.

use std::path::Path;
use std::time::Duration;

use pipeline_core::event::NoEvents;
use pipeline_engine::decide::Outcome;
use pipeline_engine::record::grouped;
use pipeline_engine::records::{Plan, Success};
use pipeline_engine::run::Planned;
use pipeline_engine::store::{manifests, read_json};
use pipeline_engine::{Registry, Selection};
use serde_json::json;

use crate::args::Status;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::session::{Options, Session};

/// Runs the command.
pub fn status(arguments: &Status, registry: &Registry) -> Result<Exit, Failure> {
    let session = Session::open(&arguments.project, registry, Options::default())?;
    let planned = session.runner(&NoEvents).plan(&Selection::default())?;
    let (mut rows, mut documents) = (Vec::new(), Vec::new());
    for planned in &planned {
        let node = &session.project.nodes[planned.stage];
        let (state, reason) = state(planned);
        let success = shown(&session, &node.name, planned);
        let counts = success.as_ref().map(|success| &success.counts);
        let mut row = vec![node.name.clone(), node.entry.kind.to_owned(), state.to_owned()];
        match counts {
            Some(counts) => row.extend([counts.read, counts.kept, counts.rejected_total()].map(grouped)),
            None => row.extend(std::iter::repeat_n(String::new(), 3)),
        }
        row.push(reason.clone());
        rows.push(row);
        documents.push(json!({
            "stage": node.name, "kind": node.entry.kind, "state": state, "reason": reason, "counts": counts,
        }));
    }
    if arguments.json {
        output::json(&json!({ "stages": documents }));
    } else {
        output::line(output::table(&["stage", "kind", "state", "read", "kept", "rejected", "why"], rows, 3));
    }
    Ok(Exit::Done)
}

/// The output that a reader of the stage sees: that of this recipe, or an older one.
fn shown(session: &Session, stage: &str, planned: &Planned) -> Option<Success> {
    if let Some(Outcome::Reuse { success, .. }) = planned.decision.as_ref().map(|decision| &decision.outcome) {
        return Some(success.as_ref().clone());
    }
    session.store.current(stage)?.success().ok().flatten()
}

fn state(planned: &Planned) -> (&'static str, String) {
    let Some(decision) = &planned.decision else { return ("waiting", planned.reason.clone()) };
    if let Some(alarm) = &planned.alarm {
        return ("failed", alarm.clone());
    }
    if matches!(decision.outcome, Outcome::Reuse { .. }) {
        return ("fresh", planned.reason.clone());
    }
    let folder = &decision.version.folder;
    let Some(plan) = read_json::<Plan>(&folder.join("plan.json")).ok().flatten() else {
        return ("stale", planned.reason.clone());
    };
    let tasks: usize = plan.steps.iter().map(|step| step.tasks.len()).sum();
    let progress = format!("{} of {tasks} tasks committed", manifests(folder).len());
    if is_worked_on(folder) {
        return ("running", progress);
    }
    match last_error(folder) {
        Some(error) => ("failed", format!("{progress}; {error}")),
        None => ("stale", format!("{}; {progress}", planned.reason)),
    }
}

/// Whether some process holds a fresh lease.
fn is_worked_on(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder.join("lease")) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        modified.is_ok_and(|time| time.elapsed().unwrap_or(Duration::ZERO) < pipeline_engine::lease::TTL)
    })
}

/// The last error that an attempt left.
fn last_error(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder.join("attempts")).ok()?;
    let files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let newest = files.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())?;
    let text = std::fs::read_to_string(newest).ok()?;
    let last: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    (last["outcome"] == "error").then(|| last["message"].as_str().unwrap_or_default().to_owned())
}
