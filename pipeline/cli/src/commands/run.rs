//! `pipeline run`: runs what is stale, then says what became of every stage.

use pipeline_core::event::NoEvents;
use pipeline_core::{Event, EventSink, Spent, StageError};
use pipeline_engine::project::problem;
use pipeline_engine::record::{JsonLines, Several, grouped};
use pipeline_engine::{Registry, Selection, Status};
use serde_json::{Value, json};

use super::figures;
use crate::args::{LogFormat, Run, Which};
use crate::estimate::Outlook;
use crate::exit::{Exit, Failure};
use crate::models;
use crate::output;
use crate::progress::{self, Lines, Terminal, Totals};
use crate::session::{Options, Session};
use crate::text;

/// Runs the command.
pub fn run(arguments: &Run, registry: &Registry) -> Result<Exit, Failure> {
    let options =
        Options { offline: arguments.offline, jobs: arguments.jobs, unsafe_no_sandbox: arguments.unsafe_no_sandbox };
    let session = Session::open(&arguments.project, registry, options)?;
    let selection = selection(&arguments.which);
    models::ensure_usable(&session, &selection)?;
    session.listen_for_signals()?;
    // the pool exists only once a process; a second attempt in one process keeps the first
    let _ = rayon::ThreadPoolBuilder::new().num_threads(session.jobs).build_global();
    session.store.create()?;
    let (record, path) = JsonLines::record(&session.out.join("runs"), &text::now())?;
    let log: Box<dyn EventSink> = match arguments.log_format {
        LogFormat::Json => Box::new(JsonLines::new(std::io::stderr(), true)),
        LogFormat::Text if output::is_watched() => Box::new(Terminal::new(session.currency())),
        LogFormat::Text => Box::new(Lines::new(session.currency())),
    };
    let totals = Totals::default();
    let events = Several(vec![&record, log.as_ref(), &totals]);
    warn_of_budget(&session, &selection, &events)?;
    let statuses = session.runner(&events).run(&selection)?;
    show_places(&session, &statuses);
    if arguments.json {
        output::json(&as_json(&session, &statuses, &totals.spent()));
    } else {
        summary(&session, &statuses);
        if !totals.spent().is_nothing() {
            output::line(format!("models   {}", progress::spent(&totals.spent(), session.currency().as_deref())));
        }
        output::line(format!("record   {}", path.display()));
    }
    Ok(exit(&statuses))
}

/// Says before a run that it will not come through with its budget, where that can be told.
fn warn_of_budget(session: &Session, selection: &Selection, events: &dyn EventSink) -> Result<(), Failure> {
    if session.offline || (session.limits.tokens.is_none() && session.limits.money.is_none()) {
        return Ok(());
    }
    let planned = session.runner(&NoEvents).plan(selection)?;
    if let Some(message) = Outlook::new(session, &planned)?.warning(&session.limits) {
        events.emit(&Event::Warning { stage: None, message });
    }
    Ok(())
}

/// A parameter that only showed as wrong when there was data is shown in its place like any other.
fn show_places(session: &Session, statuses: &[Status]) {
    for (node, status) in session.project.nodes.iter().zip(statuses) {
        if let Status::Failed(StageError::Param(error)) = status {
            output::note(problem(&node.def, error).render(&session.project.dag.sources));
        }
    }
}

/// Which stages the arguments name.
pub fn selection(which: &Which) -> Selection {
    Selection {
        stages: which.stages.iter().chain(&which.until).cloned().collect(),
        only: which.only.clone(),
        from: which.from.clone(),
        force: which.force.clone(),
        retry_errors: which.retry_errors,
    }
}

/// The code of the first failure.
fn exit(statuses: &[Status]) -> Exit {
    let failures = statuses.iter().filter_map(|status| match status {
        Status::Failed(error) => Some(error),
        _ => None,
    });
    let mut exits = failures.map(Exit::from);
    exits.next().unwrap_or(Exit::Done)
}

fn state(status: &Status) -> &'static str {
    match status {
        Status::Reused(_) => "reused",
        Status::Ran(_) => "ran",
        Status::Failed(StageError::Cancelled) => "interrupted",
        Status::Failed(_) => "failed",
        Status::Blocked => "blocked",
        Status::Skipped => "not asked",
    }
}

fn as_json(session: &Session, statuses: &[Status], spent: &Spent) -> Value {
    let stages = session.project.nodes.iter().zip(statuses).map(|(node, status)| {
        let error = match status {
            Status::Failed(error) => Some(error.to_string()),
            _ => None,
        };
        let success = status.success();
        json!({
            "stage": node.name, "kind": node.entry.kind, "state": state(status), "error": error,
            "counts": success.map(|success| &success.counts), "notes": success.map(|success| &success.notes),
            "digest": success.map(|success| success.digest), "fingerprint": success.map(|success| success.fingerprint),
        })
    });
    json!({ "spent": spent, "currency": session.currency(), "stages": stages.collect::<Vec<_>>() })
}

fn summary(session: &Session, statuses: &[Status]) {
    let rows = session.project.nodes.iter().zip(statuses).map(|(node, status)| {
        let mut row = vec![node.name.clone(), node.entry.kind.to_owned(), state(status).to_owned()];
        match status.success() {
            Some(success) => {
                let counts = &success.counts;
                row.extend([counts.read, counts.kept, counts.rejected_total(), counts.written].map(grouped));
                row.push(format!("{:.2}", success.seconds));
                let reasons = pipeline_engine::record::reasons(&counts.rejected);
                let mut why = reasons.trim().trim_matches(['(', ')']).to_owned();
                if counts.transient > 0 {
                    why += &format!(" + {} left out for passing reasons", grouped(counts.transient));
                }
                row.push(why.trim().to_owned());
            }
            None => row.extend(std::iter::repeat_n(String::new(), 6)),
        }
        row
    });
    let headings = ["stage", "kind", "state", "read", "kept", "rejected", "written", "work s", "rejected because of"];
    output::line(output::table(&headings, rows.collect(), 3));
    let figures = [figures::pass_rates(session, statuses), figures::learning_potential(session, statuses)];
    for figure in figures.into_iter().flatten() {
        output::line("");
        output::line(figure);
    }
    output::line("");
    output::line(format!("results  {}", session.store.links().display()));
}
