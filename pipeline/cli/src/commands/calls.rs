//! `pipeline calls`: what the call store holds, by model and stage; recording, compaction and pruning.

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
    if arguments.compact {
        return compact(arguments, &store);
    }
    let summary = store.summary().map_err(|error| failed(&error))?;
    let (shape, damage) = (store.shape().map_err(|error| failed(&error))?, store.damage());
    if arguments.json {
        let calls = summary.iter().map(|part| {
            json!({
                "model": part.model.clone(), "stage": part.stage, "calls": part.calls, "bytes": part.bytes,
                "prompt_tokens": part.prompt_tokens, "completion_tokens": part.completion_tokens,
                "scores": part.scores, "row_errors": part.row_errors,
            })
        });
        output::json(&json!({
            "calls": calls.collect::<Vec<_>>(), "files": shape.closed + shape.in_use, "in_use": shape.in_use,
            "damaged": damage.damaged, "torn": damage.torn,
        }));
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
    if damage.damaged + damage.torn > 0 {
        output::note(format!(
            "{} damaged stretches are passed over, and {} files end within a record; the calls in them are asked again when they are needed",
            grouped(damage.damaged),
            grouped(damage.torn)
        ));
    }
    if shape.is_scattered() {
        let files = grouped(shape.closed);
        output::note(format!(
            "the calls lie in {files} files; `--compact` joins them, which makes opening them quicker"
        ));
    }
    Ok(Exit::Done)
}

fn compact(arguments: &Calls, store: &CallStore) -> Result<Exit, Failure> {
    let compacted = store.compact().map_err(|error| failed(&error))?;
    let left_alone = [
        (&compacted.in_use, "is being written to"),
        (&compacted.later, "holds records that a later version of this program wrote"),
    ];
    if arguments.json {
        let names =
            |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        output::json(&json!({
            "files": compacted.files, "files_left": compacted.files_left, "calls": compacted.calls,
            "doubles": compacted.doubles, "damaged": compacted.damaged, "bytes": compacted.bytes,
            "in_use": names(&compacted.in_use), "later": names(&compacted.later),
        }));
        return Ok(Exit::Done);
    }
    output::line(format!(
        "{} files became {} with {} calls; {} given back, {} doubles and {} damaged stretches left out",
        grouped(compacted.files),
        grouped(compacted.files_left),
        grouped(compacted.calls),
        bytes(compacted.bytes),
        grouped(compacted.doubles),
        grouped(compacted.damaged)
    ));
    for (paths, why) in left_alone {
        for path in paths {
            output::note(format!("`{}` {why} and was left alone", path.display()));
        }
    }
    Ok(Exit::Done)
}

/// The model that a person named, as the store knows it.
fn named(store: &CallStore, given: Option<&str>) -> Result<Option<String>, Failure> {
    given.map(|given| store.model_named(given)).transpose().map_err(|error| Failure::usage(error.to_string()))
}

fn record(arguments: &Calls, store: &CallStore, file: &Path) -> Result<Exit, Failure> {
    let model = named(store, arguments.model.as_deref())?;
    let model = model.as_deref();
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
    let model = named(store, arguments.prune_model.as_deref())?;
    let what = Prune { before_ms, model: model.as_deref(), keep: None, dry_run: !arguments.yes };
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
