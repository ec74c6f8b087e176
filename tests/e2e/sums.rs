//! A small project of sums, answered by a scripted server.

use std::fmt::Write as _;
use std::time::Duration;

use crate::support::Project;
use crate::support::server::Server;

/// The project's dag file; `URL` stands for the server.
pub const DAG: &str = r#"
[pipeline]
name = "sums"
seed = 5

[models.teacher]
engine = "openai"
base_url = "URL"
model = "adder"
max_in_flight = 4

[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", label = "answer" }

[stages.unique]
kind = "dedup"
inputs = "problems"
threshold = 0.8

[stages.paths]
kind = "sample"
inputs = "unique"
model = "teacher"
n = 3
max_tokens = 64
temperature = 0.7

[stages.fluent]
kind = "filter_repetition"
inputs = "paths"

[stages.verified]
kind = "verify"
inputs = "fluent"

[stages.hardness]
kind = "difficulty"
inputs = "verified"

[stages.graded]
kind = "attach"
inputs = { rows = "verified", other = "hardness" }
columns = ["pass_rate"]

[stages.chosen]
kind = "select"
inputs = "graded"
where = "verdict = 'correct' and pass_rate > 0.2"
"#;

/// Lines of `problems.jsonl` from number `first` on.
pub fn problems(first: u64, count: u64) -> String {
    let mut lines = String::new();
    for number in first..first + count {
        let (one, two) = (number * 7 + 3, number * 13 + 11);
        let question = format!("Number {number}: what is {one} plus {two}?");
        let sum = number + one + two;
        let line = serde_json::json!({ "question": question, "answer": sum.to_string() });
        let _ = writeln!(lines, "{line}");
    }
    lines
}

/// A project with this many problems, and its server.
pub fn project(count: u64, delay: Duration) -> (Project, Server) {
    let server = Server::start(delay);
    let project = Project::new(&DAG.replace("URL", &server.url()));
    project.write("problems.jsonl", problems(0, count));
    (project, server)
}
