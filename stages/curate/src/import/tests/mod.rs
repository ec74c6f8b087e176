//! Imports run as the engine runs them: sources are planned, each task writes its files, the files are read back.

mod data;
mod formats;
mod laws;
mod mapping;
mod traces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use pipeline_core::event::NoEvents;
use pipeline_core::table_io::TableFile;
use pipeline_core::task::{Shared, TaskSetup};
use pipeline_core::{Env, Ports, Source, StageEntry, StageError, Step, Task, json_rows};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::Import;

type Row = Map<String, Value>;

/// What an import gave.
#[derive(Debug, Default)]
struct Imported {
    rows: Vec<Row>,
    rejects: Vec<Row>,
    read: u64,
    kept: Option<u64>,
    tasks: usize,
}

/// A folder with users' files.
struct Project {
    folder: TempDir,
    env: Env,
    max_errors: f64,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::new(folder.path());
        Self { folder, env, max_errors: 0.0 }
    }

    fn with(name: &str, content: impl AsRef<[u8]>) -> Self {
        let project = Self::new();
        project.write(name, content);
        project
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn tolerating(mut self, max_errors: f64) -> Self {
        self.max_errors = max_errors;
        self
    }

    fn sources(&self, params: &Value) -> Result<Vec<Source>, StageError> {
        let stage = (StageEntry::stage::<Import>().parse)(params)?;
        stage.sources(&self.env)
    }

    fn import(&self, params: &Value) -> Result<Imported, StageError> {
        let stage = (StageEntry::stage::<Import>().parse)(params)?;
        stage.externals(&self.env, &pipeline_core::Ports::default())?;
        let outputs = stage.outputs(&Ports::default())?;
        let step = Step::map("rows");
        let (shared, cancel, none, nothing) =
            (Shared::default(), AtomicBool::new(false), BTreeMap::new(), BTreeMap::new());
        let mut imported = Imported::default();
        for source in stage.sources(&self.env)? {
            let folder = tempfile::tempdir().unwrap();
            let setup = TaskSetup {
                stage: "seeds",
                id: "rows-0",
                step: &step,
                seed: 0,
                slices: &[],
                source: Some(&source),
                partition: None,
                partitions: 0,
                rows_port: None,
                inputs: &none,
                earlier: &nothing,
                outputs: &outputs,
                env: &self.env,
                shared: &shared,
                events: &NoEvents,
                cancel: &cancel,
                folder: folder.path(),
                state: folder.path(),
                max_errors: self.max_errors,
            };
            let mut task = Task::begin(setup)?;
            stage.run(&step, &mut task)?;
            let result = task.finish()?;
            imported.tasks += 1;
            imported.read += result.read;
            imported.kept = result.kept.map_or(imported.kept, |kept| Some(imported.kept.unwrap_or(0) + kept));
            imported.rows.extend(read(&result.outputs["main"].path));
            let rejects = result.rejects.map(|file| read(&file.path)).unwrap_or_default();
            let kept = result.kept.unwrap_or(result.outputs["main"].rows);
            assert_eq!(result.read, kept + rejects.len() as u64, "read = kept + rejected");
            imported.rejects.extend(rejects);
            for row in &imported.rows {
                for (column, value) in row {
                    let is_declared = outputs[0].rows.filled.contains(column);
                    assert!(is_declared || value.is_null(), "`{column}` is filled and not declared");
                }
            }
        }
        Ok(imported)
    }

    fn rows(&self, params: &Value) -> Vec<Row> {
        let imported = self.import(params).unwrap();
        assert_eq!(imported.rejects, Vec::<Row>::new());
        imported.rows
    }

    fn error(&self, params: &Value) -> String {
        self.import(params).unwrap_err().to_string()
    }
}

fn read(path: &Path) -> Vec<Row> {
    let table = TableFile::open(path).unwrap();
    table.read(0, table.rows(), None).unwrap().flat_map(|batch| json_rows::to_json(&batch.unwrap())).collect()
}

fn texts<'a>(rows: &'a [Row], column: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[column].as_str().unwrap_or("null")).collect()
}

fn extra(row: &Row) -> Value {
    row["extra"].as_str().map_or_else(|| json!({}), |text| serde_json::from_str(text).unwrap())
}

/// A line `{"q": "...", "a": ...}` for each number.
fn numbered(count: usize) -> String {
    let lines: Vec<String> = (0..count)
        .map(|index| format!("{{\"q\": \"problem {index}\", \"a\": {index}, \"n\": {index}.50}}\n"))
        .collect();
    lines.concat()
}

fn simple(file: &str) -> Value {
    json!({"files": [file], "columns": {"prompt": "q", "label": "a"}})
}

#[test]
fn the_example_gives_what_it_says() {
    let entry = StageEntry::stage::<Import>();
    let example = (entry.example)();
    let project = Project::new();
    for (name, content) in &example.files {
        project.write(name, content);
    }
    let imported = project.import(&example.params).unwrap();
    assert_eq!(imported.rows.len(), example.written);
    assert_eq!(texts(&imported.rejects, "reject_reason"), example.rejected);
    assert_eq!(texts(&imported.rows, "label"), ["12", "7"]);
    assert_eq!(extra(&imported.rows[0]), json!({"answer": "7 + 5 = 12\n#### 12", "level": 1}));
}
