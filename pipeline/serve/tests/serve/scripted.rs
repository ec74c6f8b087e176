//! A scripted engine whose tokens are bytes, and a server over it on a free port.
//!
//! The last line of a prompt says what happens: `say TEXT` writes it, `tick` writes without end, `wait` holds its slot
//! until the gate opens and `hold` until nobody wants it, `refuse`, `fail` and `die` end badly; anything else is answered with prompt, seed and sampling.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use pipeline_serve::{Ended, Engine, ServeError, ServeOptions, Server};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use stage_candle::decode::{Draw, Drawn, End, Job, Piece};
use stage_tokens::Turn;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// No test waits longer for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const CONTEXT: usize = 4096;
const END_TOKEN: u32 = 256;

/// What tests look at.
#[derive(Default)]
pub struct Watch {
    pub running: AtomicUsize,
    pub most_running: AtomicUsize,
    pub given_up: AtomicUsize,
    pub never_begun: AtomicUsize,
    pub ended: AtomicUsize,
    gate: (Mutex<bool>, Condvar),
}

impl Watch {
    pub fn open_gate(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    /// Waits until something is so.
    pub async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let wait = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("it never came");
    }
}

pub struct Scripted {
    jobs: mpsc::Sender<Job>,
    bytes: Vec<Vec<u8>>,
}

impl Scripted {
    pub fn start(slots: usize, watch: &Arc<Watch>) -> Self {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..slots {
            let (waiting, watch) = (Arc::clone(&waiting), Arc::clone(watch));
            std::thread::spawn(move || {
                loop {
                    let next = waiting.lock().unwrap().recv();
                    let Ok(job) = next else { return };
                    work(job, &watch);
                }
            });
        }
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]).chain([Vec::new()]).collect();
        Self { jobs, bytes }
    }
}

impl Engine for Scripted {
    fn context(&self) -> usize {
        CONTEXT
    }

    fn vocabulary(&self) -> usize {
        257
    }

    fn fingerprint(&self) -> &'static str {
        "scripted_f32"
    }

    fn chat(&self, turns: &[Turn<'_>]) -> Result<Vec<u32>, ServeError> {
        let mut text = String::new();
        for turn in turns {
            if turn.content == "no such turn" {
                return Err(ServeError::Prompt("the template refuses this turn".to_owned()));
            }
            text += &format!("{}{}:{}\n", turn.role, turn.tool_calls.unwrap_or_default(), turn.content);
        }
        Ok(self.encode(text.trim_end_matches('\n')))
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn bytes_of(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], Vec::as_slice)
    }

    fn submit(&self, job: Job) {
        self.jobs.send(job).unwrap();
    }
}

fn work(mut job: Job, watch: &Watch) {
    if !job.listener.is_wanted() {
        watch.never_begun.fetch_add(1, Ordering::SeqCst);
        job.listener.end(End::GivenUp);
        return;
    }
    let running = watch.running.fetch_add(1, Ordering::SeqCst) + 1;
    watch.most_running.fetch_max(running, Ordering::SeqCst);
    let prompt: Vec<u8> = job.prompt.iter().filter_map(|id| u8::try_from(*id).ok()).collect();
    let prompt = String::from_utf8_lossy(&prompt).into_owned();
    let order = prompt.lines().last().unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned();
    let end = match order.split_once(' ').unwrap_or((&order, "")) {
        ("die", _) => {
            watch.running.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        ("refuse", _) => End::Refused { code: "cache_exceeded".to_owned(), message: "9 pages of 8".to_owned() },
        ("fail", _) => End::Failed { message: "no memory".to_owned() },
        ("tick", _) => write(&mut job, std::iter::repeat_n("tick ", usize::MAX).flat_map(str::chars)),
        ("hold", _) => hold(&mut job),
        ("wait", _) => {
            let gate = watch.gate.0.lock().unwrap();
            drop(watch.gate.1.wait_while(gate, |is_open| !*is_open).unwrap());
            write(&mut job, "waited".chars())
        }
        ("say", text) => write(&mut job, text.chars()),
        _ => {
            let Draw { temperature, top_p, top_k, min_p, seed, .. } = job.draw;
            let text = format!("{prompt}|seed {seed} t {temperature} p {top_p} k {top_k} m {min_p}");
            write(&mut job, text.chars())
        }
    };
    if end == End::GivenUp {
        watch.given_up.fetch_add(1, Ordering::SeqCst);
    }
    watch.running.fetch_sub(1, Ordering::SeqCst);
    job.listener.end(end);
    watch.ended.fetch_add(1, Ordering::SeqCst);
}

/// Writes a little and then holds its slot for as long as somebody wants more.
fn hold(job: &mut Job) -> End {
    let token = drawn(u32::from(b'.'), &job.draw);
    job.listener.piece(&Piece { text: ".", tokens: &[token] });
    while job.listener.is_wanted() {
        std::thread::sleep(Duration::from_millis(1));
    }
    End::GivenUp
}

/// One piece a character, as many tokens as it has bytes; then the end token.
fn write(job: &mut Job, text: impl Iterator<Item = char>) -> End {
    let text: Box<dyn Iterator<Item = char>> = if job.draw.stop.is_empty() {
        Box::new(text)
    } else {
        let whole: String = text.take(CONTEXT).collect();
        let first = job.draw.stop.iter().filter_map(|stop| whole.find(stop.as_str())).min();
        Box::new(whole[..first.unwrap_or(whole.len())].to_owned().chars().collect::<Vec<_>>().into_iter())
    };
    let mut written = 0;
    for character in text {
        let mut buffer = [0; 4];
        let text = character.encode_utf8(&mut buffer);
        let tokens: Vec<Drawn> = text.bytes().map(|byte| drawn(u32::from(byte), &job.draw)).collect();
        written += tokens.len();
        if written > job.draw.max_tokens as usize {
            return End::Cut;
        }
        if !job.listener.is_wanted() || !job.listener.piece(&Piece { text, tokens: &tokens }) {
            return End::GivenUp;
        }
    }
    if written == job.draw.max_tokens as usize {
        return End::Cut;
    }
    let token = drawn(END_TOKEN, &job.draw);
    if job.listener.piece(&Piece { text: "", tokens: &[token] }) { End::Complete } else { End::GivenUp }
}

fn drawn(id: u32, draw: &Draw) -> Drawn {
    let Some(top) = draw.top_logprobs else { return Drawn { id, logprob: None, top: Vec::new() } };
    let top = (0..u32::from(top)).map(|rank| ((id + rank) % 257, if rank == 3 { f32::NEG_INFINITY } else { -0.5 }));
    Drawn { id, logprob: Some(-0.5), top: top.collect() }
}

/// A running server.
pub struct Running {
    pub address: SocketAddr,
    pub watch: Arc<Watch>,
    pub client: Client,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<Ended, ServeError>>,
}

/// A server over a scripted engine with so many slots.
pub fn serve(slots: usize, change: impl FnOnce(&mut ServeOptions)) -> Running {
    let watch = Arc::new(Watch::default());
    let engine = Arc::new(Scripted::start(slots, &watch));
    let mut options = ServeOptions::new("small");
    options.aliases = vec!["org/small".to_owned()];
    change(&mut options);
    let server = Server::bind(options).unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(server.run_until(engine, async move {
        let _ = stopped.await;
    }));
    let client = Client::builder().no_proxy().tls_certs_only([]).timeout(PATIENCE).build().unwrap();
    Running { address, watch, client, stop: Some(stop), server }
}

impl Running {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn send(&self, path: &str, body: &Value) -> Response {
        self.client.post(self.url(path)).json(body).send().await.unwrap()
    }

    pub async fn raw(&self, path: &str, body: impl Into<reqwest::Body>) -> (StatusCode, Value) {
        let sent = self.client.post(self.url(path)).body(body).send().await.unwrap();
        let status = sent.status();
        (status, sent.json().await.unwrap())
    }

    /// The answer to a request that must be taken.
    #[track_caller]
    pub fn ok(&self, path: &str, body: &Value) -> impl Future<Output = Value> {
        let sending = self.send(path, body);
        async move {
            let response = sending.await;
            let status = response.status();
            let body: Value = response.json().await.unwrap();
            assert_eq!(status, StatusCode::OK, "{body}");
            body
        }
    }

    /// Status and error object of a request that must be refused.
    pub async fn refused(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.send(path, body).await;
        let status = response.status();
        let body: Value = response.json().await.unwrap();
        assert!(status.is_client_error() || status.is_server_error(), "{body}");
        (status.as_u16(), body["error"].clone())
    }

    /// The events of a stream; the last is the text after `data: ` where it is no JSON.
    pub async fn events(&self, path: &str, body: &Value) -> (Vec<Value>, String) {
        let response = self.send(path, body).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        parse_events(&response.text().await.unwrap())
    }

    /// Asks the server to end and waits for it.
    pub async fn end(mut self) -> Ended {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, self.server).await.unwrap().unwrap().unwrap()
    }
}

pub fn parse_events(text: &str) -> (Vec<Value>, String) {
    let mut events = Vec::new();
    let mut rest = String::new();
    for event in text.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':')) {
        let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {event}"));
        match serde_json::from_str(data) {
            Ok(value) => events.push(value),
            Err(_) => data.clone_into(&mut rest),
        }
    }
    (events, rest)
}
