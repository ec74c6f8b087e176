//! Our numbers against those that llama.cpp recorded with the sample model: log-probabilities of its own tokens.
//!
//! llama.cpp multiplies Q4_1 weights with activations rounded to 8 bits in blocks; here the weights are the same and the
//! activations are f32. What differs is that rounding, so the differences are small and have no tail.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use pipeline_core::json_rows;
use pipeline_core::table_io::TableFile;
use serde_json::Value;
use stage_candle::LocalModel;
use stage_candle::decode::{End, ScoreJob, ScoreListener, Service, ServiceOptions};
use stage_tokens::Turn;

use crate::support::shared;

#[test]
fn log_probs_agree_with_llama_cpp_on_every_twelfth_answer() {
    agree_on_every(12);
}

/// All rows: `cargo test -p pipeline-cli --test e2e agreement -- --ignored --nocapture`, some minutes.
#[test]
#[ignore = "some minutes of CPU"]
fn log_probs_agree_with_llama_cpp_on_all_answers() {
    agree_on_every(1);
}

struct Ear(usize, Sender<(usize, Vec<f32>)>);

impl ScoreListener for Ear {
    fn end(self: Box<Self>, outcome: Result<Vec<f32>, End>) {
        let _ = self.1.send((self.0, outcome.unwrap()));
    }
}

fn model() -> Option<Arc<LocalModel>> {
    let cache = std::env::var("XDG_CACHE_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cache")));
    let path = PathBuf::from(cache.unwrap()).join("pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if !path.is_file() {
        println!("skipped: {} is absent; `sh datasets/quickstart/fetch_model.sh` fetches it", path.display());
        return None;
    }
    Some(Arc::new(LocalModel::open(&path).unwrap()))
}

fn agree_on_every(nth: usize) {
    let (Some(shared), Some(model)) = (shared(), model()) else { return };
    let file = TableFile::open(&shared.join("data/smollm2-rollouts/rollouts.parquet")).unwrap();
    let rows = file.read(0, file.rows(), None).unwrap();
    let rows = rows.flat_map(|batch| json_rows::to_json(&batch.unwrap())).step_by(nth);
    let service = Service::start(&model, &ServiceOptions { threads: 2, ..ServiceOptions::default() }).unwrap();
    let (to, scored) = channel();
    let mut recorded: Vec<Vec<f64>> = Vec::new();
    for row in rows {
        let list = |column: &str| row[column].as_array().unwrap().iter();
        let answer: Vec<u32> = list("token_ids").map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect();
        // The server lost three tokens of one answer in its report.
        if String::from_utf8_lossy(&model.tokenizer().decode(&answer)) != row["completion"].as_str().unwrap() {
            continue;
        }
        let mut ids = prompt(&model, &row["messages"]);
        let from = ids.len();
        ids.extend(answer);
        service.submit_score(ScoreJob { ids, from, listener: Box::new(Ear(recorded.len(), to.clone())) });
        recorded.push(list("token_logprobs").map(|number| number.as_f64().unwrap()).collect());
    }
    drop(to);
    let mut differences = Vec::new();
    for (index, ours) in scored {
        assert_eq!(ours.len(), recorded[index].len());
        differences.extend(ours.iter().zip(&recorded[index]).map(|(our, their)| (f64::from(*our) - their).abs()));
    }
    differences.sort_unstable_by(f64::total_cmp);
    let percentile = |percent: usize| differences[(differences.len() - 1) * percent / 100];
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    println!(
        "{} tokens of {} answers: mean |d| {mean:.5}, half below {:.5}, 90 % below {:.5}, 99 % below {:.5}, all below {:.5}",
        differences.len(),
        recorded.len(),
        percentile(50),
        percentile(90),
        percentile(99),
        percentile(100)
    );
    assert!(recorded.len() * nth > 1000 && mean < 0.02);
}

fn prompt(model: &LocalModel, messages: &Value) -> Vec<u32> {
    let turns = messages.as_array().unwrap().iter().map(|message| Turn {
        role: message["role"].as_str().unwrap(),
        content: message["content"].as_str().unwrap(),
        tool_calls: None,
    });
    model.prompt(&turns.collect::<Vec<_>>()).unwrap()
}
