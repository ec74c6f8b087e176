//! How fast a stage of many calls is rebuilt from the call store once its output is gone.
//!
//! ```text
//! cargo run --release -p stage-curate --example rebuild -- [CALLS] [JOBS] [CHARACTERS]
//! ```
//! A made-up `sample` stage with eight answers a query is put into a call store first, in this process and without a
//! server; then a second process opens the store and runs the stage's tasks with nothing but the store. Both passes over
//! the rows and the writing of the output are in its figure. CHARACTERS is the mean length of an answer.

#![expect(clippy::print_stdout, reason = "the program's purpose is to print figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pipeline_core::event::NoEvents;
use pipeline_core::table_io::{TableFile, TableWriter};
use pipeline_core::task::{InputFile, PortInput, Shared, Slice, TaskSetup};
use pipeline_core::{AnyStage, Env, Output, Port, Ports, Services, StageEntry, Step, TableType, Task, json_rows};
use pipeline_models::{
    Budget, BudgetConfig, CallKey, CallStore, Ensured, Model, ModelConfig, ModelError, ModelId, ModelSet, OpenOptions,
    Progress, Recorded, Reply, Request, StoredCall, Timing, open,
};
use schemas::queries;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SAMPLES: usize = 8;
/// Rows of a task, as the engine cuts them.
const SLICE: u64 = pipeline_core::env::SHARD_ROWS;
/// Rows made at a time.
const MADE: usize = 8192;

fn main() -> Outcome<()> {
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [word, folder, jobs] = given.as_slice()
        && word == "again"
    {
        return again(Path::new(folder), jobs.parse()?);
    }
    let number = |at: usize, otherwise: usize| given.get(at).map_or(Ok(otherwise), |text| text.parse());
    let (calls, jobs, characters) = (number(0, 1_000_000)?, number(1, 2)?, number(2, 400)?);
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path();
    write_queries(folder, calls.div_ceil(SAMPLES))?;
    let store = Arc::new(CallStore::open(folder.join("calls"))?);
    let filler = Filler { id: ModelId::named("teacher", None), store: Arc::clone(&store), characters };
    let filler: Arc<dyn Model> = Arc::new(filler);
    let (begun, used) = (Instant::now(), cpu_seconds());
    run(folder, "first", jobs, ModelSet::new(move |_| Ok(Arc::clone(&filler))))?;
    store.sync()?;
    report("stored", store.len(), begun.elapsed().as_secs_f64(), cpu_seconds() - used);
    drop(store);
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(["again", &folder.display().to_string(), &jobs.to_string()])
        .status()?;
    if status.success() { Ok(()) } else { Err("the second process failed".into()) }
}

/// What a later run finds: the store on disk and no output.
fn again(folder: &Path, jobs: usize) -> Outcome<()> {
    let (begun, used) = (Instant::now(), cpu_seconds());
    let store = Arc::new(CallStore::open(folder.join("calls"))?);
    report("indexed", store.len(), begun.elapsed().as_secs_f64(), cpu_seconds() - used);
    let opened = peak_mebibytes();
    let calls = store.len();
    let replay = replay(folder, store)?;
    let (begun, used) = (Instant::now(), cpu_seconds());
    let traces = run(folder, "second", jobs, ModelSet::new(move |_| Ok(Arc::clone(&replay))))?;
    report("rebuilt", traces, begun.elapsed().as_secs_f64(), cpu_seconds() - used);
    println!("peak memory: {opened} MiB with the index of {calls} calls, {} MiB after the rebuild", peak_mebibytes());
    let store = CallStore::open(folder.join("calls"))?;
    let (begun, used) = (Instant::now(), cpu_seconds());
    let summary = store.summary()?;
    let listed: u64 = summary.iter().map(|group| group.calls).sum();
    report("listed", usize::try_from(listed)?, begun.elapsed().as_secs_f64(), cpu_seconds() - used);
    let bytes: u64 = summary.iter().map(|group| group.bytes).sum();
    println!("{} bytes a call in the store, peak memory {} MiB", bytes / listed.max(1), peak_mebibytes());
    if traces == calls { Ok(()) } else { Err(format!("{traces} traces of {calls} calls").into()) }
}

fn report(what: &str, count: usize, wall: f64, cpu: f64) {
    let count = count as f64;
    println!("{what}: {count:.0} answers, {:.0} a second, {:.2} µs CPU each", count / wall, cpu / count * 1e6);
}

fn replay(folder: &Path, store: Arc<CallStore>) -> Outcome<Arc<dyn Model>> {
    let config: ModelConfig =
        serde_json::from_value(json!({"engine": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "teacher"}))?;
    let options = OpenOptions {
        offline: true,
        budget: Arc::new(Budget::new(BudgetConfig::default())),
        environment: &|_| None,
        timing: Timing::default(),
        weights: None,
    };
    Ok(open(&config, "teacher", folder, store, &options)?)
}

/// Runs all tasks of the stage, `jobs` at a time, and gives the number of traces written.
fn run(folder: &Path, name: &str, jobs: usize, models: ModelSet) -> Outcome<usize> {
    let entry = stage_curate::STAGES.iter().find(|entry| entry.kind == "sample").ok_or("no kind `sample`")?;
    let stage = (entry.parse)(&json!({"model": "teacher", "n": SAMPLES, "max_tokens": 1024, "system": SYSTEM}))?;
    let mut env = Env::new(folder);
    let mut services = Services::default();
    services.insert(Arc::new(models));
    env.services = services;
    let (input, ports) = input(folder, entry)?;
    let rows = input.rows();
    let plan = Plan {
        stage: stage.as_ref(),
        step: stage.steps(&ports).pop().ok_or("no step")?,
        inputs: [("rows".to_owned(), vec![input])].into(),
        outputs: stage.outputs(&ports)?,
        env,
        out: folder.join(name),
    };
    let (next, written) = (AtomicU64::new(0), AtomicUsize::new(0));
    let failure = Mutex::new(None);
    let work = || -> Outcome<()> {
        loop {
            let first = next.fetch_add(SLICE, Ordering::Relaxed);
            if first >= rows {
                return Ok(());
            }
            written.fetch_add(plan.task(first, SLICE.min(rows - first))?, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                if let Err(error) = work() {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => Ok(written.into_inner()),
    }
}

/// What all tasks of a run share.
struct Plan<'a> {
    stage: &'a dyn AnyStage,
    step: Step,
    inputs: BTreeMap<String, Vec<PortInput>>,
    outputs: Vec<Output>,
    env: Env,
    out: PathBuf,
}

impl Plan<'_> {
    /// Runs the task of some rows, and gives the number of traces that it wrote.
    fn task(&self, first: u64, rows: u64) -> Outcome<usize> {
        let slices = [Slice { input: 0, file: 0, first, rows, ordinal: first }];
        let id = format!("{first:08}");
        let folder = self.out.join(&id);
        fs::create_dir_all(&folder)?;
        let (earlier, shared, cancel) = (BTreeMap::new(), Shared::default(), AtomicBool::new(false));
        let mut task = Task::begin(TaskSetup {
            stage: "sample",
            id: &id,
            step: &self.step,
            seed: 17,
            slices: &slices,
            source: None,
            partition: None,
            partitions: 1,
            rows_port: Some("rows"),
            inputs: &self.inputs,
            earlier: &earlier,
            outputs: &self.outputs,
            env: &self.env,
            shared: &shared,
            events: &NoEvents,
            cancel: &cancel,
            folder: &folder,
            state: &folder,
            // the first run only fills the store
            max_errors: 1.0,
        })?;
        self.stage.run(&self.step, &mut task)?;
        let traces: u64 = task.finish()?.outputs.values().map(|file| file.rows).sum();
        Ok(usize::try_from(traces)?)
    }
}

fn input(folder: &Path, entry: &StageEntry) -> Outcome<(PortInput, Ports)> {
    let path = folder.join("queries.parquet");
    let rows = TableFile::open(&path)?.rows();
    let digest = pipeline_core::Digest::of_file(&path)?;
    let table = TableType::of(&queries::TABLE, [queries::QUERY_ID, queries::PROMPT, queries::MESSAGES, queries::LABEL]);
    let given =
        PortInput { schema: table.schema.clone(), files: vec![InputFile { path, rows, digest, partitions: vec![] }] };
    let port: &Port = entry.ports.first().ok_or("no port")?;
    let mut ports = Ports::default();
    ports.0.insert(port.name.to_owned(), vec![table]);
    Ok((given, ports))
}

const SYSTEM: &str = "You are a careful mathematician. Reason step by step and put the final answer into \\boxed{}.";

fn write_queries(folder: &Path, rows: usize) -> Outcome<()> {
    let mut writer = TableWriter::create(&folder.join("queries.parquet"), &queries::TABLE.schema())?;
    let made: Vec<usize> = (0..rows).collect();
    for part in made.chunks(MADE) {
        let rows: Vec<Value> = part.iter().map(|number| query(*number)).collect();
        writer.write(&json_rows::from_json(&queries::TABLE.schema(), &rows)?)?;
    }
    writer.finish()?;
    Ok(())
}

fn query(number: usize) -> Value {
    let mut draw = Draw(number as u64);
    let (first, second, third) = (draw.next(900), draw.next(90) + 2, draw.next(9) + 2);
    let prompt = format!(
        "A {} sells {first} {} a day for {second} days and then {third} times as many for a week. How many {} are sold \
         in all, and how many are left of {}?",
        draw.word(),
        draw.word(),
        draw.word(),
        first * second * third + 7 * first,
    );
    json!({
        "query_id": format!("{number:024x}"), "prompt": prompt, "label": (first * second).to_string(),
        "messages": [{"role": "user", "content": prompt}],
    })
}

/// Puts a made-up answer to every request into the store, and gives none back.
struct Filler {
    id: ModelId,
    store: Arc<CallStore>,
    characters: usize,
}

impl Model for Filler {
    fn id(&self) -> &ModelId {
        &self.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        progress: &dyn Progress,
        _cancel: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        for request in requests {
            let key = CallKey::of(&self.id, &request);
            let call = StoredCall {
                model: self.id.clone(),
                reply: Reply::Answer(body(&key, self.characters)),
                request: request.into(),
                stage: progress.stage().to_owned(),
                host: "http://127.0.0.1:8000".to_owned(),
                time_ms: 1_700_000_000_000,
                latency_ms: 900,
            };
            self.store.append(&key, &call)?;
        }
        Ok(Ensured::default())
    }

    fn answer(&self, _request: &Request) -> Result<Recorded, ModelError> {
        Ok(Recorded::Missing)
    }
}

/// The body of a reply as servers write it, with words and numbers in place of thought.
fn body(key: &CallKey, characters: usize) -> String {
    let mut draw = Draw(u64::from_le_bytes(key.0[..8].try_into().unwrap_or_default()));
    let wanted = characters / 2 + draw.next(characters.max(1));
    let mut text = String::new();
    while text.len() < wanted {
        let (one, two) = (draw.next(900), draw.next(90));
        let _ = match draw.next(5) {
            0 => write!(text, "\n\nStep {two}: ${one} \\times {two} = {}$.", one * two),
            1 => write!(text, " so {} + {two} gives {}.", one, one + two),
            _ => write!(text, " the {} {} {}", draw.word(), draw.word(), draw.word()),
        };
    }
    let _ = write!(text, "\n\nThe answer is \\boxed{{{}}}.", draw.next(100_000));
    let id = blake3::Hash::from_bytes(key.0).to_hex();
    json!({
        "id": format!("chatcmpl-{}", &id[..24]), "object": "chat.completion", "created": 1_700_000_000, "model": "teacher",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null, "tool_calls": []},
            "logprobs": null, "finish_reason": "stop", "stop_reason": null}],
        "usage": {"prompt_tokens": 71, "completion_tokens": text.len() / 4, "total_tokens": 71 + text.len() / 4,
            "prompt_tokens_details": {"cached_tokens": 64}},
    })
    .to_string()
}

/// Numbers that look drawn and are the same every time.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % below.max(1)
    }

    fn word(&mut self) -> &'static str {
        const WORDS: [&str; 48] = [
            "shop",
            "baker",
            "apples",
            "total",
            "number",
            "of",
            "we",
            "have",
            "each",
            "day",
            "first",
            "second",
            "then",
            "therefore",
            "since",
            "value",
            "equation",
            "both",
            "sides",
            "divide",
            "multiply",
            "by",
            "remaining",
            "sold",
            "week",
            "price",
            "cost",
            "and",
            "which",
            "is",
            "equal",
            "to",
            "sum",
            "because",
            "compute",
            "check",
            "again",
            "boxes",
            "train",
            "speed",
            "distance",
            "hours",
            "minutes",
            "half",
            "twice",
            "square",
            "root",
            "angle",
        ];
        WORDS[self.next(WORDS.len())]
    }
}

/// Seconds of processor time of this process; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// The most memory that this process has held; 0 where the system does not tell.
fn peak_mebibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}
