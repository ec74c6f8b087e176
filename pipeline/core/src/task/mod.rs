//! One task: a slice of a stage's work, read batch by batch and written to files that the engine commits.

mod batches;
mod setup;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, StringViewBuilder};
use arrow::datatypes::{Field, Schema, SchemaRef};
use schemas::rejects;
use serde_json::Value;

use crate::env::Env;
use crate::error::StageError;
use crate::event::{Event, EventSink};
use crate::port::MAIN;
use crate::rows;
use crate::stage::Source;
use crate::table_io::TableWriter;

pub use batches::Batches;
use batches::Piece;
pub use setup::{InputFile, KeptFile, PortInput, Rejection, Shared, Slice, TaskResult, TaskSetup};

/// Sent rows that are put together at once.
const SENT_ROWS: usize = 1 << 16;

/// A task while it runs.
pub struct Task<'a> {
    setup: TaskSetup<'a>,
    writers: BTreeMap<String, TableWriter>,
    rejects: Option<TableWriter>,
    rejects_schema: Option<SchemaRef>,
    sent: Vec<(Vec<u32>, RecordBatch)>,
    read: u64,
    kept: Option<u64>,
    rejected: BTreeMap<String, u64>,
    transient: u64,
    counters: BTreeMap<String, u64>,
    notes: BTreeMap<String, Value>,
    kept_files: Vec<KeptFile>,
}

impl std::fmt::Debug for Task<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Task({} {})", self.setup.stage, self.setup.id)
    }
}

impl<'a> Task<'a> {
    /// Begins a task: creates the file of the main output, so that an empty task leaves an empty table.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn begin(setup: TaskSetup<'a>) -> Result<Self, StageError> {
        let mut writers = BTreeMap::new();
        let schemas: Vec<(&str, &SchemaRef)> = match &setup.step.schema {
            Some(schema) => vec![(MAIN, schema)],
            None => setup.outputs.iter().map(|output| (output.name, &output.rows.schema)).collect(),
        };
        let create = if setup.step.schema.is_some() { TableWriter::create_passing } else { TableWriter::create };
        for (name, schema) in schemas {
            let path = setup.folder.join(format!("{name}.parquet"));
            writers.insert(name.to_owned(), create(&path, schema)?);
        }
        let inputs = setup.rows_port.and_then(|port| setup.inputs.get(port)).and_then(|inputs| all_columns(inputs));
        let from = inputs.or_else(|| setup.outputs.first().map(|output| Arc::clone(&output.rows.schema)));
        let rejects_schema = from.filter(|_| setup.step.schema.is_none()).map(|schema| rejects::schema(&schema));
        Ok(Self {
            setup,
            writers,
            rejects: None,
            rejects_schema,
            sent: Vec::new(),
            read: 0,
            kept: None,
            rejected: BTreeMap::new(),
            transient: 0,
            counters: BTreeMap::new(),
            notes: BTreeMap::new(),
            kept_files: Vec::new(),
        })
    }

    /// The world around the stage.
    pub fn env(&self) -> &'a Env {
        self.setup.env
    }

    /// Seed of `dag.toml`.
    pub fn seed(&self) -> u64 {
        self.setup.seed
    }

    /// Name of the stage.
    pub fn stage(&self) -> &'a str {
        self.setup.stage
    }

    /// Share of rows that may fail for passing reasons, 0 to 1.
    pub fn max_errors(&self) -> f64 {
        self.setup.max_errors
    }

    /// The piece of a user's file that this task reads.
    ///
    /// # Errors
    /// When the kind has ports and so reads no file.
    pub fn source(&self) -> Result<&'a Source, StageError> {
        self.setup.source.ok_or_else(|| StageError::Internal("the task has no source file".to_owned()))
    }

    /// Folder for files of this task that are not committed yet; all that lies there goes when the task ends.
    pub fn folder(&self) -> &'a std::path::Path {
        self.setup.folder
    }

    /// Folder for what a later attempt at this stage may go on from. It outlives errors and kills, belongs to no output,
    /// and goes when the stage is done. It may not be there yet.
    pub fn state(&self) -> &'a std::path::Path {
        self.setup.state
    }

    /// Leaves a file beside the tables, to be committed with them under `name`, a path below the version's folder such as
    /// `checkpoints/step-200/model.safetensors`. The file itself stays where it is until then, and must not change.
    ///
    /// # Errors
    /// When the name leaves the folder or takes a place of the store's own, or the file cannot be read.
    pub fn keep_file(&mut self, name: &str, path: &std::path::Path) -> Result<(), StageError> {
        const OWN: [&str; 8] = ["data", "rejects", "manifest", "lease", "tmp", "attempts", "steps", "state"];
        let parts: Vec<&str> = name.split('/').collect();
        let is_plain = parts.iter().all(|part| !part.is_empty() && !part.starts_with('.'));
        if parts.len() < 2 || !is_plain || OWN.contains(&parts[0]) {
            return Err(StageError::Internal(format!("`{name}` is no place for a file beside the tables")));
        }
        let bytes = std::fs::metadata(path).map_err(StageError::io("read", path))?.len();
        let digest = self.setup.env.digests.digest(path)?;
        self.kept_files.push(KeptFile { name: name.to_owned(), path: path.to_owned(), bytes, digest });
        Ok(())
    }

    /// Set when the run is interrupted; long work looks at it.
    pub fn cancel(&self) -> &'a AtomicBool {
        self.setup.cancel
    }

    /// Where events go, for work that reports by itself.
    pub fn events(&self) -> &'a dyn EventSink {
        self.setup.events
    }

    /// Ends the task when the run is interrupted.
    ///
    /// # Errors
    /// [`StageError::Cancelled`].
    pub fn check_cancelled(&self) -> Result<(), StageError> {
        if self.setup.cancel.load(Ordering::Relaxed) { Err(StageError::Cancelled) } else { Ok(()) }
    }

    /// Schema of the main output, or of what this step hands on.
    ///
    /// # Errors
    /// When the kind declares no output.
    pub fn schema(&self) -> Result<SchemaRef, StageError> {
        if let Some(schema) = &self.setup.step.schema {
            return Ok(Arc::clone(schema));
        }
        let main = self.setup.outputs.first().map(|output| Arc::clone(&output.rows.schema));
        main.ok_or_else(|| StageError::Internal("the kind declares no output".to_owned()))
    }

    /// The declared outputs; the first is the main one.
    pub fn outputs(&self) -> &'a [crate::port::Output] {
        self.setup.outputs
    }

    /// The rows of this task's slices, in order. Rows count as read when the last step reads them.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn batches(&mut self) -> Result<Batches<'a>, StageError> {
        self.count_slices();
        self.slices(None)
    }

    /// The rows of this task's slices for a first look; they do not count as read.
    ///
    /// # Errors
    /// When a file is damaged.
    pub fn look_ahead(&self) -> Result<Batches<'a>, StageError> {
        let mut batches = self.slices(None)?;
        batches.reports = false;
        Ok(batches)
    }

    /// Like [`Task::batches`], with only some columns; columns that an input lacks come as typed nulls only if it is
    /// another input of the same port that has them, so name just what every input has.
    ///
    /// # Errors
    /// When a file is damaged or lacks a column.
    pub fn batches_of(&mut self, columns: &[&str]) -> Result<Batches<'a>, StageError> {
        self.count_slices();
        self.slices(Some(columns))
    }

    fn count_slices(&mut self) {
        if self.setup.step.schema.is_none() {
            self.read += self.setup.slices.iter().map(|slice| slice.rows).sum::<u64>();
        }
    }

    fn slices(&self, columns: Option<&[&str]>) -> Result<Batches<'a>, StageError> {
        let port = self.setup.rows_port.unwrap_or_default();
        let inputs = self.inputs(port)?;
        let mut pieces = Vec::with_capacity(self.setup.slices.len());
        for slice in self.setup.slices {
            let file = inputs.get(slice.input).and_then(|input| input.files.get(slice.file));
            let file = file.ok_or_else(|| StageError::Internal(format!("no file for slice {slice:?}")))?;
            pieces.push(Piece {
                file,
                first: slice.first,
                rows: slice.rows,
                ordinal: slice.ordinal,
                input: slice.input,
            });
        }
        Ok(self.reading(pieces, columns, true))
    }

    fn reading(&self, pieces: Vec<Piece<'a>>, columns: Option<&[&str]>, reports: bool) -> Batches<'a> {
        Batches {
            pieces: pieces.into_iter(),
            columns: columns.map(|columns| columns.iter().map(|name| (*name).to_owned()).collect()),
            setup: self.setup,
            reports: reports && self.setup.step.schema.is_none(),
            current: None,
            ordinal: 0,
            input: 0,
        }
    }

    fn inputs(&self, port: &str) -> Result<&'a [PortInput], StageError> {
        let inputs = self.setup.inputs.get(port).map(Vec::as_slice);
        inputs.ok_or_else(|| StageError::Internal(format!("port `{port}` has no input")))
    }

    /// What each stage gives to a port; empty when the port was left out.
    pub fn port(&self, port: &str) -> &'a [PortInput] {
        self.setup.inputs.get(port).map_or(&[], Vec::as_slice)
    }

    /// All rows that a port brings, whole, in plan order; only the named columns if any are named. Ordinals count over
    /// the whole port; [`Batches::input`] says which stage a batch came from.
    ///
    /// # Errors
    /// When a file is damaged or lacks a column.
    pub fn port_batches(&self, port: &str, columns: Option<&[&str]>) -> Result<Batches<'a>, StageError> {
        let (mut pieces, mut ordinal) = (Vec::new(), 0);
        for (input, given) in self.port(port).iter().enumerate() {
            for file in &given.files {
                pieces.push(Piece { file, first: 0, rows: file.rows, ordinal, input });
                ordinal += file.rows;
            }
        }
        Ok(self.reading(pieces, columns, false))
    }

    /// All rows that an earlier step handed on, in task order.
    ///
    /// # Errors
    /// When there is no such step before this one.
    pub fn earlier(&self, step: &str) -> Result<Batches<'a>, StageError> {
        let given = self.handed_on(step)?;
        let pieces = given.files.iter().map(|file| Piece { file, first: 0, rows: file.rows, ordinal: 0, input: 0 });
        Ok(self.reading(pieces.collect(), None, false))
    }

    /// The rows of this task's partition that an exchange sent, in task order.
    ///
    /// # Errors
    /// When there is no such step before this one, or this is no `Reduce`.
    pub fn partition(&self, step: &str) -> Result<Batches<'a>, StageError> {
        let given = self.handed_on(step)?;
        let wanted = self.setup.partition.ok_or_else(|| StageError::Internal("the step is no reduce".to_owned()))?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let pieces = given.files.iter().map(|file| {
            let first = file.partitions.iter().take(wanted).sum();
            let rows = file.partitions.get(wanted).copied().unwrap_or(0);
            Piece { file, first, rows, ordinal: 0, input: 0 }
        });
        Ok(self.reading(pieces.filter(|piece| piece.rows > 0).collect(), None, false))
    }

    fn handed_on(&self, step: &str) -> Result<&'a PortInput, StageError> {
        let given = self.setup.earlier.get(step);
        given.ok_or_else(|| StageError::Internal(format!("step `{step}` handed nothing on")))
    }

    /// A structure that all tasks of the stage in this process share; the first that asks builds it.
    ///
    /// # Errors
    /// When building fails; the next task then tries again.
    pub fn shared<T: Any + Send + Sync>(
        &self,
        name: &str,
        build: impl FnOnce(&Self) -> Result<T, StageError>,
    ) -> Result<Arc<T>, StageError> {
        let slot = {
            let mut slots = self.setup.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(name.to_owned()).or_default())
        };
        let mut value = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = value.as_ref() {
            let present = Arc::clone(present).downcast::<T>();
            return present.map_err(|_| StageError::Internal(format!("shared `{name}` has two types")));
        }
        let built = Arc::new(build(self)?);
        *value = Some(Arc::clone(&built) as Arc<dyn Any + Send + Sync>);
        Ok(built)
    }

    /// Number of partitions that [`Task::send`] takes.
    pub fn partitions(&self) -> u32 {
        self.setup.partitions
    }

    /// Writes rows to the main output, or hands them on from an earlier step.
    ///
    /// # Errors
    /// When the columns are not those declared, or the disk refuses.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StageError> {
        let main = if self.setup.step.schema.is_some() {
            MAIN
        } else {
            self.setup.outputs.first().map_or(MAIN, |output| output.name)
        };
        self.write_to(main, batch)
    }

    /// Writes rows to a named output.
    ///
    /// # Errors
    /// When there is no such output, the columns are not those declared, or the disk refuses.
    pub fn write_to(&mut self, output: &str, batch: &RecordBatch) -> Result<(), StageError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let writer = self.writers.get_mut(output);
        writer.ok_or_else(|| StageError::Internal(format!("output `{output}` is not declared")))?.write(batch)
    }

    /// Writes rejected rows with their reasons, one for each row of the batch.
    ///
    /// # Errors
    /// When the numbers differ or the disk refuses.
    pub fn reject(&mut self, batch: &RecordBatch, rejections: &[Rejection]) -> Result<(), StageError> {
        if batch.num_rows() != rejections.len() {
            let message = format!("{} rows with {} reasons", batch.num_rows(), rejections.len());
            return Err(StageError::Internal(message));
        }
        if rejections.is_empty() {
            return Ok(());
        }
        let schema = self.rejects_schema.clone();
        let schema = schema.ok_or_else(|| StageError::Internal("only the last step rejects rows".to_owned()))?;
        let (mut reasons, mut evidence) = (StringViewBuilder::new(), StringViewBuilder::new());
        for rejection in rejections {
            reasons.append_value(&rejection.reason);
            evidence.append_option(rejection.evidence.as_ref().map(Value::to_string));
            *self.rejected.entry(rejection.reason.clone().into_owned()).or_default() += 1;
        }
        let added: [(&str, ArrayRef); 2] = [
            (rejects::REJECT_REASON, Arc::new(reasons.finish())),
            (rejects::REJECT_EVIDENCE, Arc::new(evidence.finish())),
        ];
        let rows = rows::with_columns(batch, &schema, &added)?;
        if self.rejects.is_none() {
            self.rejects = Some(TableWriter::create(&self.setup.folder.join("rejects.parquet"), &schema)?);
        }
        match &mut self.rejects {
            Some(writer) => writer.write(&rows),
            None => Ok(()),
        }
    }

    /// Sends rows to partitions, one number for each row. Rows wait in memory until the task ends, so send ids and
    /// numbers, not texts.
    ///
    /// # Errors
    /// When the numbers of rows differ.
    pub fn send(&mut self, partitions: Vec<u32>, batch: RecordBatch) -> Result<(), StageError> {
        if partitions.len() != batch.num_rows() {
            return Err(StageError::Internal("one partition for each row is needed".to_owned()));
        }
        self.sent.push((partitions, batch));
        Ok(())
    }

    /// Counts rows read, for kinds that read users' files.
    pub fn read(&mut self, rows: u64) {
        self.read += rows;
        let stage = self.setup.stage.to_owned();
        self.setup.events.emit(&Event::Progress { stage, rows });
    }

    /// Counts rows read that live on in the output, for kinds that multiply or merge rows.
    pub fn kept(&mut self, rows: u64) {
        *self.kept.get_or_insert(0) += rows;
    }

    /// Counts rows left out for passing reasons.
    pub fn transient(&mut self, rows: u64) {
        self.transient += rows;
    }

    /// Adds to a sum that the stage reports.
    pub fn count(&mut self, name: &str, amount: u64) {
        *self.counters.entry(name.to_owned()).or_default() += amount;
    }

    /// Reports a finding: edges, cluster sizes, evidence totals. Only a task that is alone in its step should do so,
    /// or all tasks must find the same.
    pub fn note(&mut self, name: &str, value: Value) {
        self.notes.insert(name.to_owned(), value);
    }

    /// Ends the task: files are complete and on disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<TaskResult, StageError> {
        let partitions = self.write_sent()?;
        let mut outputs = BTreeMap::new();
        for (name, writer) in self.writers {
            outputs.insert(name, writer.finish()?);
        }
        let rejects = self.rejects.map(TableWriter::finish).transpose()?;
        Ok(TaskResult {
            outputs,
            kept_files: self.kept_files,
            rejects,
            partitions,
            read: self.read,
            kept: self.kept,
            rejected: self.rejected,
            transient: self.transient,
            counters: self.counters,
            notes: self.notes,
        })
    }

    /// Writes what was sent, sorted by partition, each in row groups of its own.
    fn write_sent(&mut self) -> Result<Vec<u64>, StageError> {
        let sent = std::mem::take(&mut self.sent);
        if self.setup.step.kind != crate::StepKind::Exchange {
            return if sent.is_empty() {
                Ok(Vec::new())
            } else {
                Err(StageError::Internal("only an exchange sends rows".to_owned()))
            };
        }
        let count = usize::try_from(self.setup.partitions).unwrap_or(1).max(1);
        let mut members: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
        for (batch, (partitions, _)) in sent.iter().enumerate() {
            for (row, partition) in partitions.iter().enumerate() {
                let index = usize::try_from(*partition).unwrap_or(usize::MAX);
                let list = members.get_mut(index);
                list.ok_or_else(|| StageError::Internal(format!("no partition {partition}")))?.push((batch, row));
            }
        }
        let writer = self.writers.get_mut(MAIN);
        let writer = writer.ok_or_else(|| StageError::Internal("an exchange needs a schema".to_owned()))?;
        let batches: Vec<&RecordBatch> = sent.iter().map(|(_, batch)| batch).collect();
        let mut sizes = Vec::with_capacity(count);
        for rows in members {
            sizes.push(rows.len() as u64);
            for piece in rows.chunks(SENT_ROWS) {
                writer.write(&arrow::compute::interleave_record_batch(&batches, piece)?)?;
            }
            if !rows.is_empty() {
                writer.end_row_group()?;
            }
        }
        Ok(sizes)
    }
}

/// The columns of all inputs of a port: those of the first, then what the others add.
fn all_columns(inputs: &[PortInput]) -> Option<SchemaRef> {
    let (first, others) = inputs.split_first()?;
    let mut fields: Vec<Arc<Field>> = first.schema.fields().iter().cloned().collect();
    for field in others.iter().flat_map(|other| other.schema.fields()) {
        if !fields.iter().any(|present| present.name() == field.name()) {
            fields.push(Arc::clone(field));
        }
    }
    Some(Arc::new(Schema::new(fields)))
}
