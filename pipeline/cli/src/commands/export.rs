//! `pipeline export`: a stage's output as a dataset that trainers read, with a card.

use std::collections::BTreeMap;

use pipeline_engine::record::grouped;
use pipeline_engine::{Node, Registry};
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
    let version = session.store.current(&node.name);
    let version = version.ok_or_else(|| Failure::stage(format!("`{}` has no output yet; `pipeline run` makes it", node.name)))?;
    let success = version.success().map_err(Failure::stage)?;
    let success = success.ok_or_else(|| Failure::stage(format!("the output of `{}` is not complete", node.name)))?;
    let (Some(record), Some(declared)) = (success.main(), node.outputs.first()) else {
        return Err(Failure::stage(format!("`{}` has no table to export", node.name)));
    };
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
    let report = pipeline_hub::export(&request).map_err(|error| Failure::stage(error.to_string()))?;
    if arguments.json {
        output::json(&report);
        return Ok(Exit::Done);
    }
    output::line(format!("{} rows, {} -> {}", grouped(report.rows), bytes(report.bytes), report.to.display()));
    if report.unknown_license > 0 {
        output::note(format!("warning: the licence of {} rows is not known; name it in the import: `license = \"...\"`", grouped(report.unknown_license)));
    }
    Ok(Exit::Done)
}

/// What the card says: the stages that led to this one, and the models that they called.
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
    let led_here: Vec<&Node> = nodes.iter().zip(is_before).filter(|(_, is_before)| *is_before).map(|(node, _)| node).collect();
    let mut models: BTreeMap<String, ModelFact> = BTreeMap::new();
    for node in &led_here {
        for name in node.models.keys() {
            let terms = session.models.get(name).and_then(|config| config.output_terms.clone());
            let id = session.project.models.get(name).cloned().unwrap_or_default();
            let fact = models.entry(id.clone()).or_insert_with(|| ModelFact { id, stages: Vec::new(), output_terms: terms });
            fact.stages.push(node.name.clone());
        }
    }
    CardFacts {
        pipeline: session.project.name.clone(),
        program: format!("pipeline {}", env!("CARGO_PKG_VERSION")),
        recipe: led_here.iter().map(|node| format!("{} ({}): {}", node.name, node.entry.kind, node.def.params)).collect(),
        stages: led_here.iter().filter_map(|node| stage_fact(session, node)).collect(),
        models: models.into_values().collect(),
    }
}

fn stage_fact(session: &Session, node: &Node) -> Option<StageFact> {
    let success = session.store.current(&node.name)?.success().ok().flatten()?;
    Some(StageFact {
        name: node.name.clone(),
        kind: node.entry.kind.to_owned(),
        read: success.counts.read,
        kept: success.counts.kept,
        rows: success.counts.written,
        rejected: success.counts.rejected,
        transient: success.counts.transient,
    })
}
