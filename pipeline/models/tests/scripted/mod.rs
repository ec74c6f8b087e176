//! A model server that follows a script, on loopback: what a real one does when things go wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// One request as the server saw it.
pub struct Seen {
    /// From 0, in order of arrival.
    pub number: usize,
    pub path: String,
    pub authorization: Option<String>,
    pub body: serde_json::Value,
}

impl Seen {
    pub fn last_text(&self) -> String {
        let messages = self.body["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    }
}

pub enum Reply {
    Status(u16, Vec<(&'static str, String)>, String),
    /// Half of the body, then the connection is closed.
    Cut(String),
    /// Nothing, until the server goes.
    Hang,
}

impl Reply {
    pub fn answer(text: &str) -> Self {
        Self::Status(200, vec![], answer(text, 10, 20))
    }

    pub fn error(status: u16, message: &str) -> Self {
        let body = serde_json::json!({"error": {"message": message, "type": "x", "code": status}});
        Self::Status(status, vec![], body.to_string())
    }
}

pub fn answer(text: &str, prompt_tokens: u64, completion_tokens: u64) -> String {
    serde_json::json!({
        "id": "chatcmpl-1", "model": "m", "something_new": {"a": [1]},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, "annotations": null}}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    })
    .to_string()
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

pub struct Server {
    pub url: String,
    state: Arc<State>,
}

struct State {
    script: Box<Script>,
    seen: AtomicUsize,
    in_flight: AtomicUsize,
    peak: AtomicUsize,
    closed: Mutex<bool>,
    closing: Condvar,
    is_closed: AtomicBool,
}

impl Server {
    pub fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let state = Arc::new(State {
            script: Box::new(script),
            seen: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            closed: Mutex::new(false),
            closing: Condvar::new(),
            is_closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_closed.load(Ordering::SeqCst) {
                    break;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { url, state }
    }

    /// Requests that arrived so far.
    pub fn seen(&self) -> usize {
        self.state.seen.load(Ordering::SeqCst)
    }

    /// Most requests that were in flight at one time.
    pub fn peak(&self) -> usize {
        self.state.peak.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        *self.state.closed.lock().unwrap() = true;
        self.state.closing.notify_all();
        let _ = TcpStream::connect(self.url.trim_start_matches("http://").trim_end_matches("/v1"));
    }
}

impl State {
    /// Serves one connection until it is closed.
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(seen) = self.read(&mut reader) {
            let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(in_flight, Ordering::SeqCst);
            let reply = (self.script)(&seen);
            // Before the reply is written: the client may send the next one as soon as it has read this.
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            if !self.reply(stream, reply) {
                break;
            }
        }
    }

    fn read(&self, reader: &mut BufReader<TcpStream>) -> Option<Seen> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let path = line.split_whitespace().nth(1)?.to_owned();
        let (mut length, mut authorization) = (0, None);
        loop {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        Some(Seen { number, path, authorization, body: serde_json::from_slice(&body).unwrap() })
    }

    fn reply(&self, mut stream: &TcpStream, reply: Reply) -> bool {
        match reply {
            Reply::Status(status, headers, body) => {
                let mut text = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n", body.len());
                for (name, value) in headers {
                    text.extend([name, ": ", &value, "\r\n"]);
                }
                text.push_str("\r\n");
                text.push_str(&body);
                stream.write_all(text.as_bytes()).is_ok()
            }
            Reply::Cut(body) => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(&body.as_bytes()[..body.len() / 2]);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                false
            }
            Reply::Hang => {
                let closed = self.closed.lock().unwrap();
                let _closed = self.closing.wait_while(closed, |closed| !*closed).unwrap();
                false
            }
        }
    }
}
