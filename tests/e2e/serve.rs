//! `pipeline serve`: a real model behind the OpenAI protocol, asked by the official client, by the program's own engine,
//! and ended by signals.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::quickstart::python;
use crate::support::{Ended, Project, ended, model, program, repository};

pub const KEY: &str = "sk-of-the-test";
const NAME: &str = "smollm2-135m-instruct-q4_1";

/// A served model; ended with this value.
pub struct Serving {
    child: Child,
    errors: BufReader<ChildStderr>,
    line: String,
}

impl Serving {
    /// Serves a model on a free port and waits until it listens.
    pub fn start(model: &Path, arguments: &[&str]) -> Self {
        let mut child = program()
            .arg("serve")
            .arg(model)
            .args(["--port", "0", "--api-key-env", "SERVE_KEY", "--alias", "alias/of-it"])
            .args(arguments)
            .env("SERVE_KEY", KEY)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on ") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0, "it ended before it listened");
        }
        Self { child, errors, line }
    }

    /// `base_url` for clients.
    pub fn url(&self) -> &str {
        self.line.split_whitespace().find(|word| word.starts_with("http://")).unwrap()
    }

    /// Sends a signal; exit code, and what was printed after it listened.
    fn end(mut self, signal: &str) -> (i32, String) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_official_client_gets_what_the_protocol_promises() {
    let (Some(model), Some(python)) = (model(), python()) else { return };
    let serving = Serving::start(&model, &[]);
    assert!(serving.line.contains(&format!("model `{NAME}`")) && serving.line.contains("context 8192"));
    let script = repository().join("tests/python/check_serve.py");
    let mut check = Command::new(python);
    check.arg(script).arg(serving.url()).arg(NAME).env("SERVE_KEY", KEY);
    let checked = ended(check.output().unwrap()).ok();
    assert!(checked.out.contains("12 checks ok"), "{checked:?}");
    let (code, printed) = serving.end("-TERM");
    assert_eq!((code, printed.as_str()), (0, ""), "a request is no reason to print");
}

#[test]
fn a_dag_asks_a_served_model_like_any_other_server() {
    let Some(model) = model() else { return };
    let serving = Serving::start(&model, &["--slots", "4"]);
    let project = Project::new(&DAG.replace("URL", serving.url()));
    let problems: Vec<String> = (2..8)
        .map(|number| format!(r#"{{"question": "What is {number} + 3?", "answer": "{}"}}"#, number + 3))
        .collect();
    project.write("problems.jsonl", problems.join("\n"));
    let run = |project: &Project| -> Ended {
        let mut command = project.command("run", &["--json"]);
        ended(command.env("SERVE_KEY", KEY).output().unwrap())
    };
    run(&project).ok();
    let rows = project.rows("paths", &[]);
    assert_eq!(rows.len(), 18);
    for row in &rows {
        let ids = row["token_ids"].as_array().unwrap();
        assert_eq!(ids.len() as u64, row["completion_tokens"].as_u64().unwrap());
        assert_eq!(row["token_logprobs"].as_array().unwrap().len(), ids.len());
        assert!(matches!(row["finish_reason"].as_str(), Some("stop" | "length")), "{row}");
    }
    // one seed, one answer: another store gets the same texts from the same server
    let again = Project::new(&DAG.replace("URL", serving.url()));
    again.write("problems.jsonl", problems.join("\n"));
    run(&again).ok();
    assert_eq!(again.digests(), project.digests());
    assert_eq!(serving.end("-INT").0, 0);
}

const DAG: &str = r#"
[pipeline]
seed = 3

[models.served]
engine = "openai"
base_url = "URL"
model = "alias/of-it"
api_key_env = "SERVE_KEY"
max_in_flight = 8

[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", label = "answer" }

[stages.paths]
kind = "sample"
inputs = "problems"
model = "served"
n = 3
max_tokens = 16
logprobs = true
"#;

#[test]
fn what_cannot_be_served_is_said_before_anything_listens() {
    let call = |arguments: &[&str]| ended(program().arg("serve").args(arguments).output().unwrap());
    let none = call(&["no-such.gguf"]);
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.err.contains("no-such.gguf"), "{none:?}");
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.gguf");
    std::fs::write(&cut, b"GGUF\x03\0\0\0").unwrap();
    let cut = call(&[cut.to_str().unwrap()]);
    assert_eq!(cut.code, 2, "{cut:?}");
    assert!(cut.err.contains("cut.gguf"), "{cut:?}");
    let dag = folder.path().join("dag.toml");
    std::fs::write(&dag, "[models.far]\nengine = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n")
        .unwrap();
    let of_dag = |name: &str| call(&[&format!("{}{name}", dag.display())]);
    assert!(of_dag(":far").err.contains("`far` is no local model"), "{:?}", of_dag(":far"));
    assert!(of_dag(":near").err.contains("there are: far"), "{:?}", of_dag(":near"));
    assert!(of_dag("").err.contains("dag.toml:NAME"), "{:?}", of_dag(""));
    let keyless = call(&["no-such.gguf", "--api-key-env", "NO_SUCH_KEY_OF_OURS"]);
    assert_eq!(keyless.code, 2);
    assert!(keyless.err.contains("NO_SUCH_KEY_OF_OURS"), "{keyless:?}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let Some(model) = model() else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = ended(program().arg("serve").arg(model).args(["--port", &port]).output().unwrap());
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains(&port) && refused.err.contains("--port 0"), "{refused:?}");
}
