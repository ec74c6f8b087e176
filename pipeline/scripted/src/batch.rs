//! The batch API: files go up, batches work through them, files come back.
//!
//! A batch is answered in full when it is created; what a poll shows depends on the time since. Requests are worked
//! through in an order that is not that of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::chat::{Chat, created};
use crate::draw::{hash_of, mix, share_of};
use crate::http::{Body, Reply, Request};
use crate::multipart;
use crate::service::{Service, bare};

/// Files and batches.
#[derive(Default)]
pub(crate) struct Desk {
    drawers: Mutex<Drawers>,
}

#[derive(Default)]
struct Drawers {
    files: BTreeMap<String, File>,
    batches: BTreeMap<String, Batch>,
    made: u64,
}

struct File {
    name: String,
    purpose: String,
    bytes: Vec<u8>,
    /// Hashes of the requests whose answers it holds, until it is fetched.
    answers: Vec<u64>,
    created: u64,
}

struct Batch {
    input: String,
    endpoint: String,
    metadata: Value,
    created: u64,
    begin: Instant,
    delay: Duration,
    /// In the order of working.
    lines: Vec<Worked>,
    fate: Fate,
    /// When it was cancelled, and how many lines were done then.
    cancelled: Option<(Instant, usize)>,
    output: Option<String>,
    errors: Option<String>,
}

enum Fate {
    Completed,
    /// With that many lines done.
    Expired(usize),
    Failed(String),
}

struct Worked {
    custom_id: String,
    hash: u64,
    is_answer: bool,
    line: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    custom_id: String,
    url: Option<String>,
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Deserialize)]
struct Wish {
    input_file_id: String,
    endpoint: String,
    completion_window: Option<String>,
    #[serde(default)]
    metadata: Value,
}

impl Desk {
    /// The reply to a request about files or batches; `None` where it is about neither.
    pub(crate) fn route(&self, service: &Service, request: &Request, path: &str) -> Option<Reply> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let mut drawers = self.drawers.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |what: &str| {
            service.error(request, 404, "invalid_request_error", "not_found", &format!("there is no such {what}"))
        };
        let bad = |message: &str| service.error(request, 400, "invalid_request_error", "invalid_request", message);
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["files"]) => Some(drawers.upload(service, request).unwrap_or_else(|message| bad(&message))),
            ("GET", ["files"]) => {
                let files: Vec<Value> = drawers.files.iter().map(|(id, file)| file.object(id)).collect();
                Some(ok(&json!({"object": "list", "data": files, "has_more": false})))
            }
            ("GET", ["files", id]) => {
                Some(drawers.files.get(*id).map_or_else(|| missing("file"), |file| ok(&file.object(id))))
            }
            ("DELETE", ["files", id]) => Some(match drawers.files.remove(*id) {
                Some(_) => ok(&json!({"id": id, "object": "file", "deleted": true})),
                None => missing("file"),
            }),
            ("GET", ["files", id, "content"]) => Some(match drawers.files.get_mut(*id) {
                Some(file) => {
                    service.counts.batch_answers(&std::mem::take(&mut file.answers));
                    let mut reply = Reply::json(200, file.bytes.clone());
                    reply.content_type = "application/octet-stream".into();
                    reply
                }
                None => missing("file"),
            }),
            ("POST", ["batches"]) => Some(drawers.create(service, request).unwrap_or_else(|message| bad(&message))),
            ("GET", ["batches"]) => {
                let ids: Vec<String> = drawers.batches.keys().cloned().collect();
                let now = Instant::now();
                let all: Vec<Value> = ids.iter().filter_map(|id| drawers.look(id, now)).collect();
                Some(ok(&json!({"object": "list", "data": all, "has_more": false})))
            }
            ("GET", ["batches", id]) => {
                Some(drawers.look(id, Instant::now()).map_or_else(|| missing("batch"), |batch| ok(&batch)))
            }
            ("POST", ["batches", id, "cancel"]) => {
                Some(drawers.cancel(id, Instant::now()).map_or_else(|| missing("batch"), |batch| ok(&batch)))
            }
            _ => None,
        }
    }
}

impl Drawers {
    fn new_id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{:06}", self.made)
    }

    fn upload(&mut self, service: &Service, request: &Request) -> Result<Reply, String> {
        let mut parts = multipart::parts(&request.content_type, &request.body)?;
        let mut take = |name: &str| {
            let place = parts.iter().position(|part| part.name == name);
            place.map(|place| parts.swap_remove(place)).ok_or(format!("the form has no part `{name}`"))
        };
        let (purpose, file) = (take("purpose")?, take("file")?);
        let purpose = String::from_utf8_lossy(&purpose.bytes).trim().to_owned();
        if purpose != "batch" {
            return Err(format!("`purpose` is `{purpose}`, and only `batch` is served"));
        }
        let id = self.new_id("file-");
        let file = File {
            name: file.file_name.unwrap_or_else(|| "batch.jsonl".to_owned()),
            purpose,
            bytes: file.bytes,
            answers: Vec::new(),
            created: created(),
        };
        service.counts.file();
        let object = file.object(&id);
        self.files.insert(id, file);
        Ok(ok(&object))
    }

    fn create(&mut self, service: &Service, request: &Request) -> Result<Reply, String> {
        let wish: Wish = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
        if bare(&wish.endpoint) != "/chat/completions" {
            return Err(format!("`endpoint` is `{}`, and only `/v1/chat/completions` is served", wish.endpoint));
        }
        if wish.completion_window.as_deref() != Some("24h") {
            return Err("`completion_window` must be `24h`".to_owned());
        }
        let file = self.files.get(&wish.input_file_id);
        let file = file.ok_or_else(|| format!("there is no file `{}`", wish.input_file_id))?;
        let options = &service.options.batches;
        let number = mix(service.options.seed, service.counts.stats().batches + 1000);
        let worked = work(service, request, &file.bytes, number);
        let (lines, fate) = match worked {
            Err(message) => (Vec::new(), Fate::Failed(message)),
            Ok(lines) if share_of(mix(number, 1)) < options.batch_failed_share => {
                (lines, Fate::Failed("the batch could not be looked through".to_owned()))
            }
            Ok(lines) if share_of(mix(number, 2)) < options.batch_expired_share => {
                let unanswered = part_of(lines.len(), options.batch_unanswered_share.unwrap_or(0.5)).max(1);
                let done = lines.len().saturating_sub(unanswered);
                (lines, Fate::Expired(done))
            }
            Ok(lines) => (lines, Fate::Completed),
        };
        let id = self.new_id("batch_");
        service.counts.batch();
        let batch = Batch {
            input: wish.input_file_id,
            endpoint: wish.endpoint,
            metadata: wish.metadata,
            created: created(),
            begin: Instant::now(),
            delay: options.batch_delay,
            lines,
            fate,
            cancelled: None,
            output: None,
            errors: None,
        };
        // it is shown as it was created, even where it is done at once
        let object = batch.object(&id, "validating", 0);
        self.batches.insert(id, batch);
        Ok(ok(&object))
    }

    /// The batch as it is now; files of one that ended are put out.
    fn look(&mut self, id: &str, now: Instant) -> Option<Value> {
        let mut batch = self.batches.remove(id)?;
        let (status, done) = batch.state(now);
        let has_ended = matches!(status, "completed" | "expired" | "cancelled");
        if has_ended && batch.output.is_none() && batch.errors.is_none() {
            let (output, errors) = batch.files(status, done);
            batch.output = output.map(|file| self.keep(file));
            batch.errors = errors.map(|file| self.keep(file));
        }
        let object = batch.object(id, status, done);
        self.batches.insert(id.to_owned(), batch);
        Some(object)
    }

    fn cancel(&mut self, id: &str, now: Instant) -> Option<Value> {
        let batch = self.batches.get_mut(id)?;
        let (status, done) = batch.state(now);
        if matches!(status, "validating" | "in_progress" | "finalizing") {
            batch.cancelled = Some((now, done));
        }
        self.look(id, now)
    }

    fn keep(&mut self, file: File) -> String {
        let id = self.new_id("file-");
        self.files.insert(id.clone(), file);
        id
    }
}

impl File {
    fn object(&self, id: &str) -> Value {
        json!({
            "id": id, "object": "file", "bytes": self.bytes.len(), "created_at": self.created,
            "filename": self.name, "purpose": self.purpose, "status": "processed",
        })
    }

    fn of_lines(name: &str, lines: &[String], answers: Vec<u64>) -> Option<Self> {
        if lines.is_empty() {
            return None;
        }
        let bytes = lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect();
        Some(Self { name: name.to_owned(), purpose: "batch_output".to_owned(), bytes, answers, created: created() })
    }
}

impl Batch {
    /// Status and lines that are done.
    fn state(&self, now: Instant) -> (&'static str, usize) {
        if let Some((time, done)) = self.cancelled {
            let is_over = now.duration_since(time) >= self.delay / 10;
            return (if is_over { "cancelled" } else { "cancelling" }, done);
        }
        let elapsed = now.duration_since(self.begin);
        let share = if self.delay.is_zero() { 1.0 } else { elapsed.as_secs_f64() / self.delay.as_secs_f64() };
        let last = match &self.fate {
            Fate::Failed(_) => 0,
            Fate::Expired(done) => *done,
            Fate::Completed => self.lines.len(),
        };
        match (&self.fate, share) {
            (_, share) if share < 0.1 => ("validating", 0),
            (Fate::Failed(_), _) => ("failed", 0),
            (_, share) if share < 0.9 => ("in_progress", part_of(last, share)),
            (_, share) if share < 1.0 => ("finalizing", last),
            (Fate::Expired(_), _) => ("expired", last),
            (Fate::Completed, _) => ("completed", last),
        }
    }

    /// The files of answers and of errors.
    fn files(&self, status: &str, done: usize) -> (Option<File>, Option<File>) {
        let (finished, rest) = self.lines.split_at(done.min(self.lines.len()));
        let answers: Vec<&Worked> = finished.iter().filter(|line| line.is_answer).collect();
        let output: Vec<String> = answers.iter().map(|line| line.line.clone()).collect();
        let mut errors: Vec<String> =
            finished.iter().filter(|line| !line.is_answer).map(|line| line.line.clone()).collect();
        if status == "expired" {
            errors.extend(rest.iter().map(|line| {
                let message = "this request could not be answered within the window";
                error_line(&line.custom_id, line.hash, "batch_expired", message)
            }));
        }
        let hashes = answers.iter().map(|line| line.hash).collect();
        (File::of_lines("output.jsonl", &output, hashes), File::of_lines("errors.jsonl", &errors, Vec::new()))
    }

    fn object(&self, id: &str, status: &str, done: usize) -> Value {
        let failed = self.lines.iter().take(done).filter(|line| !line.is_answer).count();
        let errors = match (&self.fate, status) {
            (Fate::Failed(message), "failed") => {
                json!({"object": "list", "data": [{"code": "invalid_input", "message": message, "line": null, "param": null}]})
            }
            _ => Value::Null,
        };
        json!({
            "id": id, "object": "batch", "endpoint": self.endpoint, "errors": errors, "input_file_id": self.input,
            "completion_window": "24h", "status": status, "output_file_id": self.output, "error_file_id": self.errors,
            "created_at": self.created, "expires_at": self.created + 86_400, "metadata": self.metadata,
            "request_counts": {"total": self.lines.len(), "completed": done - failed, "failed": failed},
        })
    }
}

/// All lines of a file answered, in the order of working; an error says which line makes the batch fail.
fn work(service: &Service, request: &Request, bytes: &[u8], number: u64) -> Result<Vec<Worked>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the file is no UTF-8".to_owned())?;
    let mut known = BTreeSet::new();
    let mut worked = Vec::new();
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line<'_> = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", place + 1))?;
        if !known.insert(line.custom_id.clone()) {
            return Err(format!("line {}: `custom_id` `{}` was used before", place + 1, line.custom_id));
        }
        if line.url.as_deref().map(bare) != Some("/chat/completions") {
            return Err(format!("line {}: `url` must be the endpoint of the batch", place + 1));
        }
        worked.push(work_line(service, request, &line, number));
    }
    if worked.is_empty() {
        return Err("the file holds no request".to_owned());
    }
    if service.options.batches.batch_most_requests.is_some_and(|most| worked.len() > most) {
        return Err(format!("{} requests are more than a batch may hold", worked.len()));
    }
    worked.sort_by_key(|line| mix(number, mix(line.hash, hash_of(&line.custom_id, &[]))));
    Ok(worked)
}

fn work_line(service: &Service, request: &Request, line: &Line<'_>, number: u64) -> Worked {
    let body = line.body.get().as_bytes();
    let hash = hash_of("/chat/completions", body);
    let custom_id = line.custom_id.clone();
    let draw = mix(mix(number, 3), mix(hash, hash_of(&custom_id, &[])));
    if share_of(draw) < service.options.batches.batch_error_share {
        let line = error_line(&custom_id, hash, "server_error", "the request failed");
        return Worked { custom_id, hash, is_answer: false, line };
    }
    let reply = match Chat::parse(body) {
        Err(message) => service.error(request, 400, "invalid_request_error", "invalid_request", &message),
        Ok(mut chat) => {
            chat.is_stream = false;
            match service.told(request, &chat, hash, service.lasting(hash), None) {
                Ok(told) => told.reply(&chat),
                Err(reply) => reply,
            }
        }
    };
    let body = match &reply.body {
        Body::Whole(body) => String::from_utf8_lossy(body).into_owned(),
        Body::Events(_) => "null".to_owned(),
    };
    let id = json!(custom_id);
    let line = format!(
        r#"{{"id":"batch_req_{hash:016x}","custom_id":{id},"response":{{"status_code":{},"request_id":"req_{hash:016x}","body":{body}}},"error":null}}"#,
        reply.status
    );
    Worked { custom_id, hash, is_answer: reply.status == 200, line }
}

fn error_line(custom_id: &str, hash: u64, code: &str, message: &str) -> String {
    json!({
        "id": format!("batch_req_{hash:016x}"), "custom_id": custom_id, "response": null,
        "error": {"code": code, "message": message},
    })
    .to_string()
}

fn ok(value: &Value) -> Reply {
    Reply::json(200, value.to_string())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is no larger than it")]
fn part_of(count: usize, share: f64) -> usize {
    (count as f64 * share.clamp(0.0, 1.0)) as usize
}
