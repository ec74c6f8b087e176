//! `pipeline calls`: what the call store holds, by model and stage; recording and pruning.

use std::path::Path;

use pipeline_engine::record::grouped;
use pipeline_models::{CallStore, ModelError, Prune};
use serde_json::json;

use crate::args::Calls;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::text::{bytes, now_ms};

fn failed(error: &ModelError) -> Failure {
    Failure::stage(error.to_string())
}

/// Runs the command.
pub fn calls(arguments: &Calls) -> Result<Exit, Failure> {
    if !arguments.folder.is_dir() {
        let message = format!(
            "there is no call store at `{}`; it is the folder `calls` in a project's folder of results, and comes into being with the first call (recorded answers make none)",
            arguments.folder.display()
        );
        return Err(Failure::usage(message));
    }
    let store = CallStore::open(&arguments.folder).map_err(|error| failed(&error))?;
    if arguments.prune_model.is_some() || arguments.prune_older.is_some() {
        return prune(arguments, &store);
    }
    if let Some(file) = &arguments.record {
        return record(arguments, &store, file);
    }
    let summary = store.summary().map_err(|error| failed(&error))?;
    if arguments.json {
        let calls = summary.iter().map(|part| {
            json!({
                "model": part.model.clone(), "stage": part.stage, "calls": part.calls, "bytes": part.bytes,
                "prompt_tokens": part.prompt_tokens, "completion_tokens": part.completion_tokens,
                "scores": part.scores, "row_errors": part.row_errors,
            })
        });
        output::json(&json!({ "calls": calls.collect::<Vec<_>>() }));
        return Ok(Exit::Done);
    }
    let rows = summary.iter().map(|part| {
        vec![
            part.model.clone(),
            part.stage.clone(),
            grouped(part.calls),
            grouped(part.scores),
            bytes(part.bytes),
            grouped(part.prompt_tokens),
            grouped(part.completion_tokens),
            String::new(),
        ]
    });
    output::line(output::table(
        &["model", "stage", "calls", "of them scores", "bytes", "prompt tokens", "answer tokens", ""],
        rows.collect(),
        2,
    ));
    Ok(Exit::Done)
}

fn record(arguments: &Calls, store: &CallStore, file: &Path) -> Result<Exit, Failure> {
    let model = arguments.model.as_deref();
    let written = store.write_recordings(model, file).map_err(|error| failed(&error))?;
    if written.calls == 0 {
        let whose = model.map_or_else(|| "call".to_owned(), |model| format!("call of model `{model}`"));
        let message = format!("the call store holds no {whose} to record; `{}` was not written", file.display());
        return Err(Failure::stage(message));
    }
    if arguments.json {
        output::json(
            &json!({ "recorded": written.calls, "unreadable": written.unreadable, "file": file.display().to_string() }),
        );
        return Ok(Exit::Done);
    }
    output::line(format!("{} calls written to `{}`", grouped(written.calls), file.display()));
    if written.unreadable > 0 {
        output::note(format!("{} calls whose answers cannot be read were left out", grouped(written.unreadable)));
    }
    Ok(Exit::Done)
}

fn prune(arguments: &Calls, store: &CallStore) -> Result<Exit, Failure> {
    const DAY_MS: u64 = 86_400_000;
    let before_ms = arguments.prune_older.map(|days| now_ms().saturating_sub(days.saturating_mul(DAY_MS)));
    let what = Prune { before_ms, model: arguments.prune_model.as_deref(), keep: None, dry_run: !arguments.yes };
    let pruned = store.prune(&what).map_err(|error| failed(&error))?;
    if arguments.json {
        let in_use: Vec<String> = pruned.in_use.iter().map(|path| path.display().to_string()).collect();
        output::json(&json!({
            "removed": arguments.yes, "calls": pruned.calls, "bytes": pruned.bytes, "kept": pruned.kept, "in_use": in_use,
        }));
        return Ok(Exit::Done);
    }
    let verb = if arguments.yes { "removed" } else { "would remove" };
    output::line(format!(
        "{verb} {} calls, {}; {} stay",
        grouped(pruned.calls),
        bytes(pruned.bytes),
        grouped(pruned.kept)
    ));
    for path in &pruned.in_use {
        output::note(format!("`{}` is being written to and was left alone", path.display()));
    }
    if !arguments.yes {
        output::note("say `--yes` to remove them");
    }
    Ok(Exit::Done)
}
