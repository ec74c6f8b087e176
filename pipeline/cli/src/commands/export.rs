//! `pipeline export`: a stage's output as a dataset that trainers read, with a card.

use std::collections::BTreeMap;
use std::path::Path;

use pipeline_core::event::NoEvents;
use pipeline_engine::record::grouped;
use pipeline_engine::records::Success;
use pipeline_engine::{Node, Registry, Selection};
use pipeline_hub::{CardFacts, DEFAULT_SHARD_BYTES, ExportRequest, Format, ModelFact, StageFact};

use crate::args::{Export, ExportFormat};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::session::{Options, Session};
use crate::text::bytes;

/// Runs the command.
pub fn export(arguments: &Export, registry: &Registry) -> Result<Exit, Failure> {
    let session = Session::open(&arguments.project, registry, Options::default())?;
    let index = session.stage(&arguments.stage)?;
    let node = &session.project.nodes[index];
    let (version, success) = session.output_of(&node.name)?;
    let (Some(record), Some(declared)) = (success.main(), node.outputs.first()) else {
        return Err(Failure::stage(format!("`{}` has no table to export", node.name)));
    };
    if [&session.out, &session.store.root().to_owned()].iter().any(|inner| is_inside(&arguments.to, inner)) {
        return Err(Failure::usage(format!(
            "`{}` lies in the project's folder of results; export elsewhere",
            arguments.to.display()
        )));
    }
    let request = ExportRequest {
        stage: node.name.clone(),
        table: declared.rows.name().to_owned(),
        files: version.port_input(record, &declared.rows.schema).files,
        to: arguments.to.clone(),
        format: match arguments.format {
            ExportFormat::Messages => Format::Messages,
            ExportFormat::PromptCompletion => Format::PromptCompletion,
            ExportFormat::Parquet => Format::Parquet,
        },
        columns: None,
        shard_bytes: DEFAULT_SHARD_BYTES,
        card: facts(&session, index),
    };
    warn_if_stale(&session, node);
    let report = pipeline_hub::export(&request).map_err(|error| Failure::stage(error.to_string()))?;
    if arguments.json {
        output::json(&report);
        return Ok(Exit::Done);
    }
    output::line(format!("{} rows, {} -> {}", grouped(report.rows), bytes(report.bytes), report.to.display()));
    if report.unknown_license > 0 {
        output::note(format!(
            "warning: the licence of {} rows is not known; name it in the import: `license = \"...\"`",
            grouped(report.unknown_license)
        ));
    }
    Ok(Exit::Done)
}

fn is_inside(path: &Path, folder: &Path) -> bool {
    let absolute = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_default();
    absolute(path).starts_with(absolute(folder))
}

/// Warns when the dag file has moved on since the output was made: the card then tells of the output, not of the file.
fn warn_if_stale(session: &Session, node: &Node) {
    let planned = session.runner(&NoEvents).plan(&Selection::default());
    let Ok(planned) = planned else { return };
    let own = planned.iter().find(|planned| session.project.nodes[planned.stage].name == node.name);
    if let Some(planned) = own.filter(|planned| super::plan::action(planned) != "reuse") {
        output::note(format!(
            "warning: `{}` is stale ({}); what is exported is the output of its last run",
            node.name, planned.reason
        ));
    }
}

/// What the card says: the stages that led to this one, as they ran, and the models that they called.
fn facts(session: &Session, index: usize) -> CardFacts {
    let nodes = &session.project.nodes;
    let mut is_before = vec![false; nodes.len()];
    is_before[index] = true;
    for stage in (0..=index).rev() {
        if is_before[stage] {
            for before in nodes[stage].upstream() {
                is_before[before] = true;
            }
        }
    }
    let mut facts = CardFacts {
        pipeline: session.project.name.clone(),
        program: format!("pipeline {}", env!("CARGO_PKG_VERSION")),
        ..CardFacts::default()
    };
    let mut models: BTreeMap<String, ModelFact> = BTreeMap::new();
    for node in nodes.iter().zip(is_before).filter(|(_, is_before)| *is_before).map(|(node, _)| node) {
        let Some(version) = session.store.current(&node.name) else { continue };
        let (Some(recipe), Ok(Some(success))) = (version.recipe(), version.success()) else { continue };
        let seed = recipe.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
        facts.recipe.push(format!("{} ({} v{}{seed}): {}", node.name, recipe.kind, recipe.version, recipe.params));
        for id in recipe.models.values().flat_map(|ids| ids.split(", ")) {
            let terms =
                session.models.values().find(|config| config.identity().is_some_and(|own| own.to_string() == id));
            let terms = terms.and_then(|config| config.output_terms.clone());
            let fact = ModelFact { id: id.to_owned(), stages: Vec::new(), output_terms: terms };
            models.entry(id.to_owned()).or_insert(fact).stages.push(node.name.clone());
        }
        facts.stages.push(stage_fact(node, &success));
    }
    facts.models = models.into_values().collect();
    facts
}

fn stage_fact(node: &Node, success: &Success) -> StageFact {
    StageFact {
        name: node.name.clone(),
        kind: success.kind.clone(),
        read: success.counts.read,
        kept: success.counts.kept,
        rows: success.counts.written,
        rejected: success.counts.rejected.clone(),
        transient: success.counts.transient,
    }
}
