//! Speed of the client against a scripted server: requests through [`pipeline_models::Model::ensure`] into a call
//! store, answers parsed and stored, as a stage does it. Prints one JSON object; `make bench-client` puts it beside the
//! counts of the server and a client in Python.
//!
//! ```text
//! client_bench URL REQUESTS IN_FLIGHT WARM_UP
//! ```
//!
//! CPU seconds are those of this process, user and system, from `/proc/self/stat` (100 ticks a second on Linux); the
//! peak of resident memory is `VmHWM`.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pipeline_models::{
    Budget, BudgetConfig, CallStore, Message, ModelConfig, OpenOptions, Request, Sampling, Timing, open,
};

/// Stages make and drop many texts of all sizes at once on several threads; the allocator of the system is slower at it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TICKS_A_SECOND: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, requests, in_flight, warm_up] = arguments.as_slice() else {
        return Err("give URL REQUESTS IN_FLIGHT WARM_UP".into());
    };
    let (requests, warm_up): (u64, u64) = (requests.parse()?, warm_up.parse()?);
    let config: ModelConfig = toml::from_str(&format!(
        "engine = \"openai\"\nbase_url = \"{url}\"\nmodel = \"scripted\"\nmax_in_flight = {in_flight}\n"
    ))?;
    let folder = tempfile::tempdir()?;
    let calls = Arc::new(CallStore::open(folder.path().join("calls"))?);
    let options = OpenOptions {
        offline: false,
        budget: Arc::new(Budget::new(BudgetConfig::default())),
        environment: &|_| None,
        timing: Timing::default(),
        weights: None,
    };
    let model = open(&config, "teacher", folder.path(), Arc::clone(&calls), &options)?;
    let cancel = AtomicBool::new(false);
    // the connections are there before the clock starts
    model.ensure(&mut (0..warm_up).map(|number| request(u64::MAX - number)), &(), &cancel)?;
    let (begin, cpu) = (Instant::now(), cpu_seconds()?);
    let ensured = model.ensure(&mut (0..requests).map(request), &(), &cancel)?;
    calls.sync()?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let line = serde_json::json!({
        "requests": requests, "asked": ensured.asked, "transient": ensured.transient.len(),
        "row_errors": ensured.row_errors, "stored": calls.len() as u64 - warm_up, "seconds": seconds, "cpu_seconds": cpu,
        "requests_a_second": requests as f64 / seconds, "cpu_ms_a_request": cpu * 1000.0 / requests as f64,
        "peak_rss_mib": peak_mib()?,
    });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// A query of ordinary length with a system prompt, one sample.
fn request(number: u64) -> Request {
    let question = format!(
        "A shop sells pens in boxes. There are {number} pens on the shelf and {} pens more come in the afternoon. \
         How many pens are there in the evening? {number} + {}",
        number % 1000,
        number % 1000
    );
    let messages = vec![
        Message::new("system", "Solve the problem step by step and put the final answer into \\boxed{}."),
        Message::new("user", question),
    ];
    Request::new(messages, Sampling { seed: Some(number), ..Sampling::full(0.8, 512) }, 0)
}

fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks =
        |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).ok_or("no times of the process");
    Ok((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
}

fn peak_mib() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no peak of memory")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("no peak of memory")?.parse()?;
    Ok(kib / 1024.0)
}
