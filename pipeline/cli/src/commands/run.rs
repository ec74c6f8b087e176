//! `pipeline run`: runs what is stale, then says what became of every stage.

use pipeline_core::rows;
use pipeline_core::table_io::TableFile;
use pipeline_core::{EventSink, StageError};
use pipeline_engine::project::problem;
use pipeline_engine::record::{JsonLines, Several, grouped};
use pipeline_engine::{Registry, Selection, Status};
use serde_json::{Value, json};

use crate::args::{LogFormat, Run, Which};
use crate::exit::{Exit, Failure};
use crate::models;
use crate::output;
use crate::progress::{Lines, Terminal};
use crate::session::{Options, Session};
use crate::text;

/// Runs the command.
pub fn run(arguments: &Run, registry: &Registry) -> Result<Exit, Failure> {
    let options = Options { offline: arguments.offline, jobs: arguments.jobs };
    let session = Session::open(&arguments.project, registry, options)?;
    let selection = selection(&arguments.which);
    models::ensure_weights(&session, &selection)?;
    session.listen_for_signals()?;
    // the pool exists only once a process; a second attempt in one process keeps the first
    let _ = rayon::ThreadPoolBuilder::new().num_threads(session.jobs).build_global();
    session.store.create()?;
    let (record, path) = JsonLines::record(&session.out.join("runs"), &text::now())?;
    let log: Box<dyn EventSink> = match arguments.log_format {
        LogFormat::Json => Box::new(JsonLines::new(std::io::stderr(), true)),
        LogFormat::Text if output::is_watched() => Box::new(Terminal::new()),
        LogFormat::Text => Box::new(Lines::default()),
    };
    let events = Several(vec![&record, log.as_ref()]);
    let statuses = session.runner(&events).run(&selection)?;
    show_places(&session, &statuses);
    if arguments.json {
        output::json(&as_json(&session, &statuses));
    } else {
        summary(&session, &statuses);
        output::line(format!("record   {}", path.display()));
    }
    Ok(exit(&statuses))
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

fn as_json(session: &Session, statuses: &[Status]) -> Value {
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
    json!({ "stages": stages.collect::<Vec<_>>() })
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
    if let Some(histogram) = pass_rates(session, statuses) {
        output::line("");
        output::line(histogram);
    }
    output::line("");
    output::line(format!("results  {}", session.store.links().display()));
}

/// Histogram of the pass rates that the last stage of kind `difficulty` found.
fn pass_rates(session: &Session, statuses: &[Status]) -> Option<String> {
    let measured = session
        .project
        .nodes
        .iter()
        .zip(statuses)
        .rfind(|(node, status)| node.entry.kind == "difficulty" && status.success().is_some())?;
    let version = session.store.current(&measured.0.name)?;
    let mut bins = [0_u64; 12];
    for file in &measured.1.success()?.main()?.files {
        let table = TableFile::open(&version.folder.join(&file.file)).ok()?;
        for batch in table.read(0, file.rows, Some(&["pass_rate"])).ok()? {
            let batch = batch.ok()?;
            for rate in rows::floats(&batch, "pass_rate").ok()?.iter().flatten() {
                bins[bin(rate)] += 1;
            }
        }
    }
    let labels = [
        "0", "0-0.1", "0.1-0.2", "0.2-0.3", "0.3-0.4", "0.4-0.5", "0.5-0.6", "0.6-0.7", "0.7-0.8", "0.8-0.9", "0.9-1",
        "1",
    ];
    let most = bins.iter().copied().max().unwrap_or(0).max(1);
    let mut text = format!("pass rates of `{}` (queries)", measured.0.name);
    for (label, count) in labels.iter().zip(bins) {
        let width = usize::try_from((count * 40).div_ceil(most)).unwrap_or(0);
        text += &format!("\n  {label:>7}  {:<40} {}", "#".repeat(width), grouped(count));
    }
    Some(text)
}

/// Exactly 0 and exactly 1 have bins of their own, since such queries teach nothing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate from 0 to 1 times ten")]
fn bin(rate: f64) -> usize {
    if rate <= 0.0 {
        0
    } else if rate >= 1.0 {
        11
    } else {
        1 + ((rate * 10.0) as usize).min(9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_zero_and_one_stand_apart() {
        assert_eq!([bin(0.0), bin(0.05), bin(0.1), bin(0.999), bin(1.0)], [0, 1, 2, 10, 11]);
    }
}
