//! Speed of the service with the sample model: tokens for each CPU-second, in one thread.
//!
//! Run with `cargo bench -p stage-candle --bench decode`, after `sh datasets/quickstart/fetch_model.sh`. CPU-seconds are those of
//! all threads of this process, so that a busy machine changes little.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a program for people, which fails by panicking and finds the model where the script puts it"
)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use stage_candle::LocalModel;
use stage_candle::decode::{
    Draw, End, Job, Listener, Piece, ScoreJob, ScoreListener, Service, ServiceOptions, Vocabulary,
};
use stage_tokens::Turn;

const ANSWER: u32 = 128;

/// The model's tokens, of which none ends an answer.
struct Endless(Arc<LocalModel>);

impl Vocabulary for Endless {
    fn bytes_of(&self, id: u32) -> &[u8] {
        self.0.tokenizer().bytes_of(id)
    }

    fn ends_at(&self, _: u32) -> bool {
        false
    }
}

struct Ear(usize, Sender<usize>);

impl Listener for Ear {
    fn piece(&mut self, piece: &Piece<'_>) -> bool {
        self.0 += piece.tokens.len();
        true
    }

    fn end(&mut self, end: End) {
        assert_eq!(end, End::Cut);
        self.1.send(self.0).expect("the bench listens");
    }
}

impl ScoreListener for Ear {
    fn end(self: Box<Self>, outcome: Result<Vec<f32>, End>) {
        self.1.send(outcome.expect("the text can be scored").len()).expect("the bench listens");
    }
}

/// Nanoseconds that the threads of this process have been on a core.
fn cpu_seconds() -> f64 {
    let threads =
        fs::read_dir("/proc/self/task").expect("Linux").map(|thread| thread.unwrap().path().join("schedstat"));
    let nanoseconds = |path| fs::read_to_string(path).ok()?.split_whitespace().next()?.parse::<f64>().ok();
    threads.filter_map(nanoseconds).sum::<f64>() * 1e-9
}

fn main() {
    let cache = std::env::var("XDG_CACHE_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cache")));
    let path = PathBuf::from(cache.unwrap_or_default()).join("pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if !path.is_file() {
        println!("skipped: {} is absent; `sh datasets/quickstart/fetch_model.sh` fetches it", path.display());
        return;
    }
    let model = Arc::new(LocalModel::open(&path).unwrap());
    let prompt = |number: usize| {
        let text = format!("Tell me a long story about {number} dogs and a cat.");
        model.prompt(&[Turn { role: "user", content: &text, tool_calls: None }]).unwrap()
    };
    for (batch, temperature) in [(1, 1.0), (8, 0.0), (8, 1.0), (16, 1.0)] {
        let vocabulary: Arc<dyn Vocabulary> = Arc::new(Endless(Arc::clone(&model)));
        let options = ServiceOptions { threads: 1, slots: batch, cache_bytes: Some(1 << 30), context: None };
        let service = Service::over(model.net(), &vocabulary, &options).unwrap();
        let run = |max_tokens: u32| {
            let (to, heard) = channel();
            let before = cpu_seconds();
            for number in 0..batch {
                let draw = Draw { temperature, max_tokens, seed: number as u64, ..Draw::default() };
                service.submit(Job { prompt: prompt(number), draw, listener: Box::new(Ear(0, to.clone())) });
            }
            drop(to);
            (heard.iter().sum::<usize>(), cpu_seconds() - before)
        };
        // The first pass computes the prompts; the second one finds them in the cache.
        run(1);
        let (tokens, seconds) = run(ANSWER);
        println!(
            "decode, batch {batch:2}, temperature {temperature}: {:6.1} tokens per CPU-second",
            tokens as f64 / seconds
        );
    }
    let service = Service::start(&model, &ServiceOptions::default()).unwrap();
    let text = "A train leaves the station at noon with forty people on board. ".repeat(20);
    let (to, heard) = channel();
    let before = cpu_seconds();
    for number in 0..16 {
        let mut ids = prompt(number);
        let from = ids.len();
        ids.extend(model.tokenizer().encode(&text));
        service.submit_score(ScoreJob { ids, from, listener: Box::new(Ear(0, to.clone())) });
    }
    drop(to);
    let tokens: usize = heard.iter().sum();
    println!(
        "score, texts of {} tokens: {:6.1} tokens per CPU-second",
        tokens / 16,
        tokens as f64 / (cpu_seconds() - before)
    );
}
