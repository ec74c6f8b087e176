//! Runs a trial: writes its inputs as files, cuts them, and runs every task of every step.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use arrow::datatypes::Schema;
use serde_json::Value;

use super::{Cut, Given, Outcome, Trial, filled_columns};
use crate::env::Env;
use crate::error::StageError;
use crate::event::NoEvents;
use crate::json_rows;
use crate::port::{Cardinality, MAIN, Output, Ports};
use crate::stage::{AnyStage, Source, Step, StepKind};
use crate::table_io::{TableFile, TableWriter, Written};
use crate::task::{InputFile, PortInput, Shared, Slice, Task, TaskResult, TaskSetup};

impl Trial<'_> {
    /// What flows into each port.
    pub(super) fn ports(&self) -> Ports {
        let mut ports = Ports::default();
        for given in &self.inputs {
            ports.0.entry(given.port.clone()).or_default().push(given.rows.clone());
        }
        ports
    }

    /// Runs all steps.
    ///
    /// # Errors
    /// Those of the kind: parameters, inputs or work that it refuses.
    ///
    /// # Panics
    /// When the kind is at fault: rows do not balance, columns are not those declared, tasks contradict each other's
    /// notes.
    pub fn run(&self, cut: &Cut) -> Result<Outcome, StageError> {
        let scratch = tempfile::tempdir().map_err(StageError::io("create", "a temporary folder"))?;
        let env = self.env(scratch.path(), cut)?;
        let stage = (self.entry.parse)(&self.params)?;
        let ports = self.ports();
        let mut inputs: BTreeMap<String, Vec<PortInput>> = BTreeMap::new();
        for (index, given) in self.inputs.iter().enumerate() {
            let folder = scratch.path().join(format!("input-{index}"));
            inputs.entry(given.port.clone()).or_default().push(write_input(&folder, given, cut)?);
        }
        let outputs = stage.outputs(&ports)?;
        stage.externals(&env, &ports)?;
        check_outputs(&outputs);
        let steps = stage.steps(&ports);
        let rows_port = self.entry.ports.first().map(|port| port.name);
        let pieces = match rows_port {
            Some(port) => slices(inputs.get(port).map_or(&[], Vec::as_slice), cut.slice_rows),
            None => stage
                .sources(&env)?
                .into_iter()
                .map(|source| Piece { slices: Vec::new(), source: Some(source) })
                .collect(),
        };
        let shared = Shared::default();
        let mut running = Running {
            trial: self,
            stage: stage.as_ref(),
            env: &env,
            inputs: &inputs,
            outputs: &outputs,
            shared: &shared,
            earlier: BTreeMap::new(),
            rows_port,
            cut,
            folder: scratch.path(),
        };
        let mut outcome = Outcome::default();
        for output in &outputs {
            outcome.outputs.insert(output.name.to_owned(), Vec::new());
        }
        for step in &steps {
            running.step(step, &pieces, &mut outcome)?;
        }
        check_balance(&outcome, &outputs);
        Ok(outcome)
    }

    fn env(&self, scratch: &Path, cut: &Cut) -> Result<Env, StageError> {
        let base = self.base.clone().unwrap_or_else(|| scratch.join("project"));
        fs::create_dir_all(&base).map_err(StageError::io("create", &base))?;
        for (name, content) in &self.files {
            let path = base.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(StageError::io("create", parent))?;
            }
            fs::write(&path, content).map_err(StageError::io("write", &path))?;
        }
        let mut env = Env::new(base);
        env.services = self.services.clone();
        env.shard_rows = cut.slice_rows;
        env.shard_bytes = cut.slice_bytes;
        Ok(env)
    }
}

/// Writes the rows of an input, in files of `cut.file_rows` rows.
fn write_input(folder: &Path, given: &Given, cut: &Cut) -> Result<PortInput, StageError> {
    fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
    let schema = &given.rows.schema;
    let whole = arrow::compute::concat_batches(schema, &given.batches)?;
    let (mut files, mut first) = (Vec::new(), 0);
    while first < whole.num_rows() || files.is_empty() {
        let rows = cut.file_rows.max(1).min(whole.num_rows() - first);
        let mut writer = TableWriter::create(&folder.join(format!("{first}.parquet")), schema)?;
        writer.write(&whole.slice(first, rows))?;
        files.push(input_file(writer.finish()?, Vec::new()));
        first += rows;
    }
    Ok(PortInput { schema: schema.clone(), files })
}

fn input_file(written: Written, partitions: Vec<u64>) -> InputFile {
    InputFile { path: written.path, rows: written.rows, digest: written.digest, partitions }
}

/// What one task reads.
#[derive(Debug, Clone, Default)]
struct Piece {
    slices: Vec<Slice>,
    source: Option<Source>,
}

fn slices(inputs: &[PortInput], slice_rows: u64) -> Vec<Piece> {
    let (mut pieces, mut ordinal) = (Vec::new(), 0);
    for (input, given) in inputs.iter().enumerate() {
        for (file, record) in given.files.iter().enumerate() {
            let mut first = 0;
            while first < record.rows {
                let rows = (record.rows - first).min(slice_rows.max(1));
                let slice = Slice { input, file, first, rows, ordinal };
                pieces.push(Piece { slices: vec![slice], source: None });
                first += rows;
                ordinal += rows;
            }
        }
    }
    pieces
}

struct Running<'a> {
    trial: &'a Trial<'a>,
    stage: &'a dyn AnyStage,
    env: &'a Env,
    inputs: &'a BTreeMap<String, Vec<PortInput>>,
    outputs: &'a [Output],
    shared: &'a Shared,
    earlier: BTreeMap<&'static str, PortInput>,
    rows_port: Option<&'static str>,
    cut: &'a Cut,
    folder: &'a Path,
}

impl Running<'_> {
    /// Runs the tasks of a step; a last step's rows go to the outcome, an earlier step's to later ones.
    fn step(&mut self, step: &Step, pieces: &[Piece], outcome: &mut Outcome) -> Result<(), StageError> {
        let empty = [Piece::default()];
        let tasks: Vec<(Option<u32>, &Piece)> = match step.kind {
            StepKind::Map | StepKind::Exchange if pieces.is_empty() => vec![(None, &empty[0])],
            StepKind::Map | StepKind::Exchange => pieces.iter().map(|piece| (None, piece)).collect(),
            StepKind::Reduce => (0..self.cut.partitions).map(|partition| (Some(partition), &empty[0])).collect(),
            StepKind::Gather => vec![(None, &empty[0])],
        };
        let mut results: BTreeMap<usize, TaskResult> = BTreeMap::new();
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        if self.cut.backwards {
            order.reverse();
        }
        for index in order {
            let (partition, piece) = tasks[index];
            results.insert(index, self.task(step, index, partition, piece)?);
        }
        for result in results.values() {
            self.add_findings(result, outcome);
        }
        if let Some(schema) = &step.schema {
            let files = results.into_values().filter_map(|mut result| {
                let written = result.outputs.remove(MAIN)?;
                Some(input_file(written, result.partitions))
            });
            let given = PortInput { schema: schema.clone(), files: files.collect() };
            self.earlier.insert(step.name, given);
            return Ok(());
        }
        for result in results.values() {
            self.add_rows(result, outcome)?;
        }
        Ok(())
    }

    fn task(&self, step: &Step, index: usize, partition: Option<u32>, piece: &Piece) -> Result<TaskResult, StageError> {
        let folder: PathBuf = self.folder.join(format!("step-{}-{index}", step.name));
        fs::create_dir_all(&folder).map_err(StageError::io("create", &folder))?;
        let id = format!("{index:05}");
        let (cancel, state) = (AtomicBool::new(false), self.folder.join("state"));
        let mut task = Task::begin(TaskSetup {
            stage: self.trial.entry.kind,
            id: &id,
            step,
            seed: self.trial.seed,
            slices: &piece.slices,
            source: piece.source.as_ref(),
            partition,
            partitions: self.cut.partitions,
            rows_port: self.rows_port,
            inputs: self.inputs,
            earlier: &self.earlier,
            outputs: self.outputs,
            env: self.env,
            shared: self.shared,
            events: &NoEvents,
            cancel: &cancel,
            folder: &folder,
            state: &state,
            max_errors: self.trial.max_errors,
        })?;
        self.stage.run(step, &mut task)?;
        task.finish()
    }

    fn add_findings(&self, result: &TaskResult, outcome: &mut Outcome) {
        for (name, amount) in &result.counters {
            *outcome.counters.entry(name.clone()).or_default() += amount;
        }
        for (name, value) in &result.notes {
            let before = outcome.notes.insert(name.clone(), value.clone());
            let kind = self.trial.entry.kind;
            assert!(before.is_none_or(|before| before == *value), "tasks of `{kind}` disagree on the note `{name}`");
        }
    }

    fn add_rows(&self, result: &TaskResult, outcome: &mut Outcome) -> Result<(), StageError> {
        for output in self.outputs {
            let Some(written) = result.outputs.get(output.name) else {
                continue;
            };
            let rows = outcome.outputs.entry(output.name.to_owned()).or_default();
            rows.extend(read_rows(written, &output.rows.schema, Some(output))?);
            outcome.digests.push(written.digest);
        }
        if let Some(written) = &result.rejects {
            let file = TableFile::open(&written.path)?;
            let schema = file.schema().clone();
            outcome.rejects.extend(read_rows(written, &schema, None)?);
            outcome.digests.push(written.digest);
        }
        outcome.read += result.read;
        outcome.transient += result.transient;
        let main = self.outputs.first();
        let one_to_one = main.is_some_and(|output| output.cardinality == Cardinality::OneToOne);
        let written = main.and_then(|output| result.outputs.get(output.name)).map_or(0, |file| file.rows);
        let kept = if one_to_one { written } else { result.kept.unwrap_or(0) };
        let rejected: u64 = result.rejected.values().sum();
        assert_eq!(
            result.read,
            kept + rejected + result.transient,
            "rows of a task of `{}` do not balance: {} read, {kept} kept, {rejected} rejected, {} transient",
            self.trial.entry.kind,
            result.read,
            result.transient,
        );
        outcome.kept += kept;
        for (reason, rows) in &result.rejected {
            *outcome.rejected.entry(reason.clone()).or_default() += rows;
        }
        Ok(())
    }
}

/// Reads a file back, and checks its columns against those declared.
fn read_rows(written: &Written, schema: &Schema, output: Option<&Output>) -> Result<Vec<Value>, StageError> {
    let file = TableFile::open(&written.path)?;
    let names = |schema: &Schema| {
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>()
    };
    assert_eq!(names(file.schema()), names(schema), "columns written are not those declared");
    let mut rows = Vec::new();
    for batch in file.read(0, file.rows(), None)? {
        let batch = batch?;
        if let Some(output) = output {
            for name in filled_columns(std::slice::from_ref(&batch)) {
                let name_is_declared = output.rows.filled.contains(&name);
                assert!(
                    name_is_declared,
                    "column `{name}` of output `{}` has values but is not declared as filled",
                    output.name
                );
            }
        }
        rows.extend(json_rows::to_json(&batch).into_iter().map(Value::Object));
    }
    Ok(rows)
}

fn check_outputs(outputs: &[Output]) {
    for output in outputs {
        for name in &output.rows.filled {
            let known = output.rows.schema.column_with_name(name).is_some();
            assert!(known, "output `{}` fills `{name}`, which is none of its columns", output.name);
        }
    }
}

fn check_balance(outcome: &Outcome, outputs: &[Output]) {
    let rejected: u64 = outcome.rejected.values().sum();
    assert_eq!(outcome.rejects.len() as u64, rejected, "rejected rows and their file differ in number");
    if outputs.first().is_some_and(|output| output.cardinality == Cardinality::OneToOne) {
        assert_eq!(outcome.read, outcome.kept + rejected + outcome.transient, "rows do not balance");
    }
}
