//! What the reader of dag files promises.

use std::path::Path;

use super::{DagFile, LoadError, Reading, Texts, load, order, parse, read};

mod errors;
mod graph;
mod laws;
mod reading;

/// The example that every test may take as a file without mistakes.
const EXAMPLE: &str = r###"
[pipeline]
name = "math-small"
seed = 17

[models.teacher]
engine = "openai"
base_url = "http://${HOST:-127.0.0.1}:8080/v1"
price = { input = 0.27, output = 1.10, currency = "USD" }

[budget]
tokens = 5_000_000
money = 20.0

[run]
jobs = 2
shard_rows = 10_000

[stages.seeds]
kind = "import"
files = ["gsm8k/train.jsonl", "数学/题目.jsonl"]
columns = { prompt = "question", label = "answer" }
label_after = "##"

[stages.paths]
kind = "sample"
inputs = "seeds"
model = "teacher"
n = 8
temperature = 1.0
max_errors = 0.01

[stages.paths.matrix]
salt = ["a", "b"]

[stages.clean]
kind = "decontaminate"
inputs = { rows = "paths", eval = ["seeds", "seeds.rejects"] }
"###;

fn nothing(_: &str) -> Option<String> {
    None
}

fn parsed(text: &str) -> DagFile {
    parse("dag.toml", text, &nothing).unwrap_or_else(|error| panic!("{error}"))
}

/// The rendered mistakes of one text, those of the graph too.
fn mistakes(text: &str) -> String {
    match parse("dag.toml", text, &nothing) {
        Err(error) => error.render(),
        Ok(dag) => order(&dag.stages).map_or_else(|errors| errors.render(&dag.sources), |_| String::new()),
    }
}

fn reading<const N: usize>(files: [(&str, &str); N]) -> Reading {
    let path = files[0].0.to_owned();
    read(Path::new(&path), &Texts::from(files), &nothing)
}
