//! A provider with a batch API, on loopback: it works a batch off within a number of looks at it, and fails as told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use serde_json::{Value, json};

/// What becomes of one request of a batch.
pub enum Said {
    /// This text, with 10 tokens read and 20 written.
    Answer(String),
    /// The same, given twice.
    Twice(String),
    Refused(u16, String),
    /// In the file of errors, without a response.
    Error(&'static str),
    /// Not in any file.
    Nothing,
}

/// How a batch ends.
pub struct End {
    /// Looks at it before it is over.
    pub looks: u32,
    pub status: &'static str,
    /// Complaint about the batch as a whole.
    pub error: Option<(&'static str, &'static str)>,
}

impl End {
    pub fn of(status: &'static str) -> Self {
        Self { looks: 1, status, error: None }
    }
}

/// What goes wrong with one request to the provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Status(u16),
    /// The connection is cut: before anything was done, or after.
    CutBefore,
    CutAfter,
    /// No reply ever comes: before anything was done, or after.
    HangBefore,
    HangAfter,
    /// Half of the reply.
    Half,
}

/// Number of the batch from 0, the text asked: what becomes of it.
type Script = dyn Fn(usize, &str) -> Said + Send + Sync;
type Ends = dyn Fn(usize) -> End + Send + Sync;

pub struct Provider {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    ends: Box<Ends>,
    state: Mutex<State>,
    changed: Condvar,
    is_closed: AtomicBool,
}

#[derive(Default)]
pub struct State {
    pub files: BTreeMap<String, Vec<u8>>,
    pub batches: Vec<Batch>,
    /// Method and path of every request, in order.
    pub log: Vec<String>,
    /// Faults by what the method and path begin and end with, each used once.
    pub faults: VecDeque<(String, String, Fault)>,
    pub hanging: usize,
    pub authorization: Option<String>,
    made: usize,
}

pub struct Batch {
    pub id: String,
    pub input: String,
    pub body: Value,
    looks: u32,
    over: Option<Value>,
    /// Texts asked, in the order of the file.
    pub texts: Vec<String>,
    pub lines: Vec<Value>,
}

impl Provider {
    pub fn start(
        script: impl Fn(usize, &str) -> Said + Send + Sync + 'static,
        ends: impl Fn(usize) -> End + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            script: Box::new(script),
            ends: Box::new(ends),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_closed.load(Ordering::SeqCst) {
                    break;
                }
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || while shared.serve(&stream).is_some() {});
            }
        });
        Self { url, shared }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Lets the next request whose method and path begin and end so go wrong.
    pub fn fail(&self, begin: &str, end: &str, fault: Fault) {
        self.state().faults.push_back((begin.to_owned(), end.to_owned(), fault));
    }

    /// Waits until a request hangs.
    pub fn wait_for_hang(&self) {
        let state = self.state();
        let _hanging = self.shared.changed.wait_while(state, |state| state.hanging == 0).unwrap();
    }

    /// Waits until so many batches were made.
    pub fn wait_for_batches(&self, count: usize) {
        let state = self.state();
        let _made = self.shared.changed.wait_while(state, |state| state.batches.len() < count).unwrap();
    }

    /// How often each text was in a batch.
    pub fn asked(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::new();
        for text in self.state().batches.iter().flat_map(|batch| &batch.texts) {
            *asked.entry(text.clone()).or_default() += 1;
        }
        asked
    }

    pub fn count(&self, begin: &str) -> usize {
        self.state().log.iter().filter(|line| line.starts_with(begin)).count()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.state().hanging = 0;
        self.shared.changed.notify_all();
        let _ = TcpStream::connect(self.url.trim_start_matches("http://").trim_end_matches("/v1"));
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut length, mut kind, mut authorization) = (0, String::new(), None);
        loop {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "content-type" => value.clone_into(&mut kind),
                "authorization" => authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let path = target.split('?').next()?.trim_start_matches("/v1").to_owned();
        let call = format!("{method} {path}");
        let mut state = self.state.lock().unwrap();
        state.log.push(call.clone());
        state.authorization = authorization.or(state.authorization.take());
        let at = state.faults.iter().position(|(begin, end, _)| call.starts_with(begin) && call.ends_with(end));
        let fault = at.and_then(|at| state.faults.remove(at)).map(|(_, _, fault)| fault);
        match fault {
            Some(Fault::Status(status)) => {
                drop(state);
                let error = json!({"error": {"message": "told to fail", "code": null}}).to_string();
                return reply(stream, status, error.as_bytes(), error.len());
            }
            Some(Fault::CutBefore) => return cut(stream),
            Some(Fault::HangBefore) => return self.hang(state),
            _ => {}
        }
        let (status, answer) = self.act(&mut state, &call, &target, &kind, &body);
        self.changed.notify_all();
        match fault {
            Some(Fault::HangAfter) => self.hang(state),
            Some(Fault::CutAfter) => cut(stream),
            Some(Fault::Half) => {
                drop(state);
                reply(stream, status, &answer, answer.len() / 2);
                cut(stream)
            }
            _ => {
                drop(state);
                reply(stream, status, &answer, answer.len())
            }
        }
    }

    fn hang(&self, mut state: MutexGuard<'_, State>) -> Option<()> {
        state.hanging += 1;
        self.changed.notify_all();
        let closed = || self.is_closed.load(Ordering::SeqCst);
        let _state = self.changed.wait_while(state, |_| !closed()).unwrap();
        None
    }

    fn act(&self, state: &mut State, call: &str, target: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let parts: Vec<&str> = call.split(['/', ' ']).filter(|part| !part.is_empty()).collect();
        let reply = |value: Value| (200, value.to_string().into_bytes());
        match parts[..] {
            ["POST", "files"] => {
                let id = format!("file-{}", state.number());
                let content = form_file(kind, body);
                state.files.insert(id.clone(), content);
                reply(json!({"id": id, "object": "file"}))
            }
            ["POST", "batches"] => {
                let body: Value = serde_json::from_slice(body).unwrap();
                let input = body["input_file_id"].as_str().unwrap().to_owned();
                let lines = parse_lines(&state.files[&input]);
                let text = |line: &Value| line["body"]["messages"][0]["content"].as_str().unwrap().to_owned();
                let texts = lines.iter().map(text).collect();
                let id = format!("batch_{}", state.number());
                state.batches.push(Batch { id, input, body, looks: 0, over: None, texts, lines });
                reply(state.batches.last().unwrap().show("validating"))
            }
            ["GET", "batches"] => {
                // Pages of one, so that all of them are read.
                let after = target.split("after=").nth(1).map(|after| after.split('&').next().unwrap().to_owned());
                let newest: Vec<&Batch> = state.batches.iter().rev().collect();
                let from = after.map_or(0, |after| newest.iter().position(|batch| batch.id == after).unwrap() + 1);
                let data: Vec<Value> =
                    newest.iter().skip(from).take(1).map(|batch| batch.show("in_progress")).collect();
                reply(json!({"object": "list", "data": data, "has_more": from + 1 < newest.len()}))
            }
            ["GET", "batches", id] => match state.batches.iter().position(|batch| batch.id == id) {
                Some(number) => reply(self.look(state, number)),
                None => (404, json!({"error": {"message": "no such batch"}}).to_string().into_bytes()),
            },
            ["GET", "files", id, "content"] if state.files.contains_key(id) => (200, state.files[id].clone()),
            ["DELETE", "files", id] if state.files.remove(id).is_some() => reply(json!({"id": id, "deleted": true})),
            _ => (404, json!({"error": {"message": "not here"}}).to_string().into_bytes()),
        }
    }

    fn look(&self, state: &mut State, number: usize) -> Value {
        let batch = &mut state.batches[number];
        batch.looks += 1;
        let end = (self.ends)(number);
        if let Some(over) = &batch.over {
            return over.clone();
        }
        if batch.looks <= end.looks {
            return batch.show("in_progress");
        }
        let (mut output, mut errors) = (String::new(), String::new());
        let lines = batch.lines.clone();
        // Backwards: never the order of the input.
        for (line, text) in lines.iter().zip(&batch.texts).rev() {
            let answered = |text: &str| {
                let body = super::answer(text);
                format!(
                    r#"{{"id":"r","custom_id":{},"response":{{"status_code":200,"request_id":"x","body":{body}}},"error":null}}"#,
                    line["custom_id"]
                )
            };
            match (self.script)(number, text) {
                Said::Answer(text) => output.extend([&answered(&text), "\n"]),
                Said::Twice(text) => output.extend([&answered(&text), "\n", &answered("another"), "\n"]),
                Said::Refused(status, message) => {
                    let response = json!({"status_code": status, "body": {"error": {"message": message}}});
                    let line = json!({"custom_id": line["custom_id"], "response": response, "error": null});
                    errors.push_str(&format!("{line}\n"));
                }
                Said::Error(code) => {
                    let error = json!({"code": code, "message": "not executed"});
                    let line = json!({"custom_id": line["custom_id"], "response": null, "error": error});
                    errors.push_str(&format!("{line}\n"));
                }
                Said::Nothing => {}
            }
        }
        let mut over = batch.show(end.status);
        if let Some((code, message)) = end.error {
            over["errors"] = json!({"object": "list", "data": [{"code": code, "message": message, "line": 3}]});
        }
        for (field, content) in [("output_file_id", output), ("error_file_id", errors)] {
            if !content.is_empty() {
                let id = format!("file-{}", state.number());
                state.files.insert(id.clone(), content.into_bytes());
                over[field] = json!(id);
            }
        }
        state.batches[number].over = Some(over.clone());
        over
    }
}

impl State {
    fn number(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    /// Appends lines to the results of all batches, as soon as there are some.
    pub fn add_to_results(&mut self, text: &str) {
        let outputs: Vec<String> = self
            .batches
            .iter()
            .filter_map(|batch| batch.over.as_ref()?["output_file_id"].as_str().map(str::to_owned))
            .collect();
        for id in outputs {
            self.files.get_mut(&id).unwrap().extend_from_slice(text.as_bytes());
        }
    }
}

impl Batch {
    fn show(&self, status: &str) -> Value {
        json!({
            "id": self.id, "object": "batch", "status": status, "input_file_id": self.input, "errors": null,
            "output_file_id": null, "error_file_id": null, "metadata": self.body["metadata"],
            "request_counts": {"total": self.lines.len(), "completed": 0, "failed": 0}, "created_at": 4_000_000_000_u64
        })
    }
}

/// The content of the field `file` of a form.
fn form_file(kind: &str, body: &[u8]) -> Vec<u8> {
    let boundary = kind.split("boundary=").nth(1).unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let delimiter = format!("--{boundary}");
    assert!(text.contains("name=\"purpose\"\r\n\r\nbatch\r\n"), "{text}");
    let part = text.split(&delimiter).find(|part| part.contains("filename=")).unwrap();
    let (_, content) = part.split_once("\r\n\r\n").unwrap();
    content.strip_suffix("\r\n").unwrap().as_bytes().to_vec()
}

fn parse_lines(content: &[u8]) -> Vec<Value> {
    std::str::from_utf8(content).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn reply(mut stream: &TcpStream, status: u16, body: &[u8], sent: usize) -> Option<()> {
    let head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body[..sent]).ok()
}

fn cut(stream: &TcpStream) -> Option<()> {
    let _ = stream.shutdown(std::net::Shutdown::Both);
    None
}
