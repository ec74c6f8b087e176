//! Runs a kind in a temporary folder, as the engine would: slices of the first port, one task after the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pipeline_core::event::NoEvents;
use pipeline_core::json_rows::{from_json, to_json};
use pipeline_core::table_io::{TableFile, TableWriter, Written};
use pipeline_core::task::{InputFile, PortInput, Shared, Slice, TaskSetup};
use pipeline_core::{AnyStage, Env, ParamError, Ports, StageEntry, StageError, Step, StepKind, TableType, Task};
use serde_json::{Map, Value};

/// Rows of one stage that a port gets.
#[derive(Clone)]
pub struct Given {
    pub port: &'static str,
    pub rows: TableType,
    pub values: Vec<Value>,
}

/// Rows of a table; the columns that have a value somewhere count as filled.
pub fn given(port: &'static str, table: &'static schemas::Table, values: Vec<Value>) -> Given {
    let filled: Vec<&str> = table
        .columns()
        .map(|column| column.name)
        .filter(|name| values.iter().any(|row| row.get(*name).is_some_and(|value| !value.is_null())))
        .collect();
    Given { port, rows: TableType::of(table, filled), values }
}

/// How the work is cut.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Rows of a task.
    pub shard: usize,
    /// Rows of an input file.
    pub file: usize,
}

pub const WHOLE: Cut = Cut { shard: 1000, file: 1000 };

/// What came out.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub rows: Vec<Map<String, Value>>,
    pub rejects: Vec<Map<String, Value>>,
    pub counters: BTreeMap<String, u64>,
    pub notes: BTreeMap<String, Value>,
    pub read: u64,
}

impl Outcome {
    pub fn column(&self, name: &str) -> Vec<Value> {
        self.rows.iter().map(|row| row[name].clone()).collect()
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        self.rows.iter().map(|row| row[name].as_str().unwrap_or("-").to_owned()).collect()
    }

    pub fn reasons(&self) -> Vec<String> {
        self.rejects.iter().map(|row| row["reject_reason"].as_str().unwrap().to_owned()).collect()
    }

    pub fn evidence(&self, row: usize) -> Value {
        serde_json::from_str(self.rejects[row]["reject_evidence"].as_str().unwrap()).unwrap()
    }
}

pub fn parse(entry: &StageEntry, params: &Value) -> Result<Box<dyn AnyStage>, ParamError> {
    (entry.parse)(params)
}

pub fn ports(inputs: &[Given]) -> Ports {
    let mut ports = Ports::default();
    for input in inputs {
        ports.0.entry(input.port.to_owned()).or_default().push(input.rows.clone());
    }
    ports
}

/// What checking says about parameters and inputs.
pub fn check(entry: &StageEntry, params: &Value, inputs: &[Given]) -> Result<(), ParamError> {
    parse(entry, params)?.outputs(&ports(inputs)).map(|_| ())
}

/// Runs a kind; panics when the parameters are refused.
pub fn run(entry: &StageEntry, params: &Value, inputs: &[Given], cut: Cut) -> Result<Outcome, StageError> {
    let stage = parse(entry, params).unwrap();
    let types = ports(inputs);
    let outputs = stage.outputs(&types).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut files: BTreeMap<String, Vec<PortInput>> = BTreeMap::new();
    for (index, input) in inputs.iter().enumerate() {
        let files = files.entry(input.port.to_owned()).or_default();
        files.push(write_input(input, &folder.path().join(format!("input-{index}")), cut.file));
    }
    let port = entry.ports[0].name;
    let slices = slices(&files[port], cut.shard as u64);
    let env = Env::new(folder.path());
    let shared = Shared::default();
    let cancel = AtomicBool::new(false);
    let mut earlier: BTreeMap<&'static str, PortInput> = BTreeMap::new();
    let mut outcome = Outcome::default();
    for step in stage.steps(&types) {
        let tasks: Vec<&[Slice]> = match step.kind {
            StepKind::Map => slices.chunks(1).collect(),
            StepKind::Gather => vec![&[]],
            _ => panic!("no kind here exchanges rows"),
        };
        let mut handed = Vec::new();
        for (index, slices) in tasks.into_iter().enumerate() {
            let folder = folder.path().join(format!("{}-{index}", step.name));
            std::fs::create_dir(&folder).unwrap();
            let mut task = Task::begin(TaskSetup {
                stage: "stage",
                id: "task",
                step: &step,
                seed: 17,
                slices,
                source: None,
                partition: None,
                partitions: 1,
                rows_port: Some(port),
                inputs: &files,
                earlier: &earlier,
                outputs: &outputs,
                env: &env,
                shared: &shared,
                events: &NoEvents,
                cancel: &cancel,
                folder: &folder,
                state: &folder,
                max_errors: 0.0,
            })?;
            stage.run(&step, &mut task)?;
            let result = task.finish()?;
            outcome.notes.extend(result.notes.clone());
            let main = &result.outputs["main"];
            if step.schema.is_some() {
                handed.push(input_file(main));
                continue;
            }
            outcome.rows.extend(read(&main.path));
            outcome.rejects.extend(result.rejects.iter().flat_map(|rejects| read(&rejects.path)));
            outcome.read += result.read;
            for (name, count) in result.counters {
                *outcome.counters.entry(name).or_default() += count;
            }
            assert_declared(&main.path, &outputs[0].rows);
        }
        hand_on(&mut earlier, &step, handed);
    }
    assert_eq!(outcome.read, (outcome.rows.len() + outcome.rejects.len()) as u64, "read = kept + rejected");
    Ok(outcome)
}

fn hand_on(earlier: &mut BTreeMap<&'static str, PortInput>, step: &Step, files: Vec<InputFile>) {
    if let Some(schema) = &step.schema {
        earlier.insert(step.name, PortInput { schema: Arc::clone(schema), files });
    }
}

fn assert_declared(path: &Path, rows: &TableType) {
    let file = TableFile::open(path).unwrap();
    assert_eq!(file.schema(), &rows.schema, "declared columns = written columns");
}

fn read(path: &Path) -> Vec<Map<String, Value>> {
    let file = TableFile::open(path).unwrap();
    file.read(0, file.rows(), None).unwrap().flat_map(|batch| to_json(&batch.unwrap())).collect()
}

fn input_file(written: &Written) -> InputFile {
    InputFile { path: written.path.clone(), rows: written.rows, digest: written.digest, partitions: Vec::new() }
}

fn write_input(input: &Given, folder: &Path, rows: usize) -> PortInput {
    std::fs::create_dir(folder).unwrap();
    let files = input
        .values
        .chunks(rows)
        .enumerate()
        .map(|(index, values)| {
            let mut writer = TableWriter::create(&folder.join(format!("{index}.parquet")), &input.rows.schema).unwrap();
            writer.write(&from_json(&input.rows.schema, values).unwrap()).unwrap();
            input_file(&writer.finish().unwrap())
        })
        .collect();
    PortInput { schema: Arc::clone(&input.rows.schema), files }
}

fn slices(inputs: &[PortInput], shard: u64) -> Vec<Slice> {
    let (mut slices, mut ordinal) = (Vec::new(), 0);
    for (input, given) in inputs.iter().enumerate() {
        for (file, found) in given.files.iter().enumerate() {
            let mut first = 0;
            while first < found.rows {
                let rows = shard.min(found.rows - first);
                slices.push(Slice { input, file, first, rows, ordinal });
                first += rows;
                ordinal += rows;
            }
        }
    }
    slices
}

/// Runs a kind's example whole and cut small: both give what it says, and the same.
pub fn example(entry: &StageEntry) {
    let example = (entry.example)();
    let inputs: Vec<Given> =
        example.inputs.iter().map(|(port, table, rows)| given(port, table, rows.clone())).collect();
    let whole = run(entry, &example.params, &inputs, WHOLE).unwrap();
    assert_eq!(whole.rows.len(), example.written);
    assert_eq!(whole.reasons(), example.rejected);
    assert_eq!(run(entry, &example.params, &inputs, Cut { shard: 1, file: 1 }).unwrap(), whole);
    let full = parse(entry, &example.params).unwrap().params();
    assert_eq!(parse(entry, &full).unwrap().params(), full, "parameters survive being written and read");
}
