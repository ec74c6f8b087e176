//! A scripted model server on loopback: its answer depends on the request alone, and it counts what it is asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// A server that lives as long as this value.
pub struct Server {
    address: String,
    asked: Arc<Mutex<BTreeMap<String, u64>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server that waits `delay` before each answer.
    pub fn start(delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (counts, stopped) = (Arc::clone(&asked), Arc::clone(&stop));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                let counts = Arc::clone(&counts);
                std::thread::spawn(move || serve(&connection, &counts, delay));
            }
        });
        Self { address, asked, stop }
    }

    /// `base_url` of the server.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Number of requests that reached the server.
    pub fn calls(&self) -> u64 {
        self.asked.lock().unwrap().values().sum()
    }

    /// Number of requests beyond the first of each.
    pub fn repeated(&self) -> u64 {
        self.asked.lock().unwrap().values().map(|count| count - 1).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

fn serve(connection: &TcpStream, counts: &Mutex<BTreeMap<String, u64>>, delay: Duration) {
    let mut reader = BufReader::new(connection);
    while let Some(body) = read_request(&mut reader) {
        *counts.lock().unwrap().entry(body.clone()).or_default() += 1;
        std::thread::sleep(delay);
        let reply = answer(&serde_json::from_str(&body).unwrap()).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", reply.len());
        let mut writer = connection;
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(reply.as_bytes())).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// Reads the two numbers of the question and adds them; every third seed is off by one.
fn answer(request: &Value) -> Value {
    let question = request["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    let numbers: Vec<u64> =
        question.split(|character: char| !character.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    let seed = request["seed"].as_u64().unwrap_or(0);
    let sum = numbers.iter().sum::<u64>() + u64::from(seed.is_multiple_of(3));
    // "at length" asks for an answer whose length differs from question to question and from sample to sample
    let sentences = if question.contains("at length") { (sum * 7919 + seed % 1_000_003) % 60 } else { 0 };
    let text = "One number is added to the other. ".repeat(usize::try_from(sentences).unwrap());
    let text = format!("{text}Adding the numbers gives {sum}. The answer is \\boxed{{{sum}}}.");
    json!({
        "id": "x", "object": "chat.completion", "model": request["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": question.len() / 4, "completion_tokens": text.len() / 4},
    })
}
