//! From inputs to tasks. A plan follows from the inputs and `shard_rows` alone, never from the number of workers, and
//! is written once: whoever works on a version follows the plan that is there.

use std::collections::BTreeMap;

use pipeline_core::task::{PortInput, Slice};
use pipeline_core::{Digest, Env, Fingerprint, Source, StageError, StepKind};

use crate::project::Node;
use crate::records::{FORMAT, Plan, StepPlan, TaskPlan};

/// Rows for which an exchange has one partition.
const PARTITION_ROWS: u64 = 1 << 18;
/// Most partitions of an exchange.
const MAX_PARTITIONS: u64 = 4096;

/// Cuts a stage's work into tasks.
///
/// # Errors
/// When a user's file cannot be read.
pub fn make(
    node: &Node,
    fingerprint: Fingerprint,
    inputs: &BTreeMap<String, Vec<PortInput>>,
    env: &Env,
    dag: String,
) -> Result<Plan, StageError> {
    let given = node.rows_port().and_then(|port| inputs.get(port)).map_or(&[][..], Vec::as_slice);
    let rows: u64 = given.iter().map(PortInput::rows).sum();
    let partitions = u32::try_from(rows.div_ceil(PARTITION_ROWS).clamp(1, MAX_PARTITIONS)).unwrap_or(1);
    let pieces: Vec<Piece> = if node.rows_port().is_some() {
        slices(given, env.shard_rows).into_iter().map(|slice| piece_of_slice(slice, given)).collect()
    } else {
        node.stage.sources(env)?.into_iter().map(piece_of_source).collect()
    };
    let last = node.steps.len().saturating_sub(1);
    let steps = node.steps.iter().enumerate().map(|(index, step)| {
        let prefix = if index == last { String::new() } else { format!("{}-", step.name) };
        StepPlan {
            name: step.name.to_owned(),
            kind: step.kind.into(),
            tasks: tasks(step.kind, &prefix, &pieces, partitions),
        }
    });
    Ok(Plan {
        format: FORMAT,
        stage: node.name.clone(),
        kind: node.entry.kind.to_owned(),
        version: node.entry.version,
        fingerprint,
        dag,
        partitions,
        steps: steps.collect(),
    })
}

/// What one map task reads.
#[derive(Debug, Clone, Default)]
struct Piece {
    key: Option<Digest>,
    slices: Vec<Slice>,
    source: Option<Source>,
}

fn tasks(kind: StepKind, prefix: &str, pieces: &[Piece], partitions: u32) -> Vec<TaskPlan> {
    let empty = [Piece::default()];
    match kind {
        StepKind::Map | StepKind::Exchange => {
            // a stage without rows still leaves an empty table
            let pieces = if pieces.is_empty() { &empty[..] } else { pieces };
            let tasks = pieces.iter().enumerate().map(|(index, piece)| TaskPlan {
                id: format!("{prefix}{index:05}"),
                input_key: piece.key.unwrap_or_else(|| Digest::of(b"no rows")),
                slices: piece.slices.clone(),
                source: piece.source.clone(),
                partition: None,
            });
            tasks.collect()
        }
        StepKind::Reduce => (0..partitions).map(|partition| whole(prefix, partition, Some(partition))).collect(),
        StepKind::Gather => vec![whole(prefix, 0, None)],
    }
}

fn whole(prefix: &str, index: u32, partition: Option<u32>) -> TaskPlan {
    TaskPlan {
        id: format!("{prefix}{index:05}"),
        input_key: Digest::of(format!("partition {index}").as_bytes()),
        slices: Vec::new(),
        source: None,
        partition,
    }
}

/// Cuts the files of a port into slices of at most one and a half times `shard_rows` rows. A slice never spans two
/// files, so rows appended to an input leave the slices before them as they were.
pub fn slices(inputs: &[PortInput], shard_rows: u64) -> Vec<Slice> {
    let shard_rows = shard_rows.max(1);
    let (mut slices, mut ordinal) = (Vec::new(), 0);
    for (input, given) in inputs.iter().enumerate() {
        for (file, record) in given.files.iter().enumerate() {
            let mut first = 0;
            while first < record.rows {
                let left = record.rows - first;
                let rows = if left <= shard_rows + shard_rows / 2 { left } else { shard_rows };
                slices.push(Slice { input, file, first, rows, ordinal });
                first += rows;
                ordinal += rows;
            }
        }
    }
    slices
}

fn piece_of_slice(slice: Slice, given: &[PortInput]) -> Piece {
    let mut hasher = blake3::Hasher::new();
    if let Some(file) = given.get(slice.input).and_then(|input| input.files.get(slice.file)) {
        hasher.update(file.digest.bytes());
    }
    hasher.update(&slice.first.to_le_bytes()).update(&slice.rows.to_le_bytes());
    Piece { key: Some(Digest::finish(&hasher)), slices: vec![slice], source: None }
}

fn piece_of_source(source: Source) -> Piece {
    let mut hasher = blake3::Hasher::new();
    hasher.update(source.name.as_bytes()).update(source.digest.bytes());
    Piece { key: Some(Digest::finish(&hasher)), slices: Vec::new(), source: Some(source) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use pipeline_core::task::InputFile;
    use proptest::prelude::*;

    use super::*;

    fn port(rows: &[u64]) -> PortInput {
        let file = |rows: &u64| InputFile {
            path: PathBuf::new(),
            rows: *rows,
            digest: Digest::of(&rows.to_le_bytes()),
            partitions: Vec::new(),
        };
        PortInput { schema: Arc::new(Schema::empty()), files: rows.iter().map(file).collect() }
    }

    proptest! {
        #[test]
        fn slices_cover_every_row_once_and_in_order(files in prop::collection::vec(0_u64..500, 0..6), size in 1_u64..100) {
            let slices = slices(&[port(&files)], size);
            let mut ordinal = 0;
            for slice in &slices {
                prop_assert_eq!(slice.ordinal, ordinal);
                prop_assert!(slice.rows > 0 && slice.rows <= size + size / 2);
                ordinal += slice.rows;
            }
            prop_assert_eq!(ordinal, files.iter().sum::<u64>());
        }

        #[test]
        fn appended_files_leave_earlier_slices_alone(files in prop::collection::vec(1_u64..500, 1..6), size in 1_u64..100) {
            let before = slices(&[port(&files)], size);
            let mut longer = files;
            longer.push(7);
            let after = slices(&[port(&longer)], size);
            prop_assert_eq!(&after[..before.len()], &before[..]);
        }
    }
}
