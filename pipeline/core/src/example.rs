//! Examples: parameters and rows that show what a kind does. Documentation and conformance tests use them.

use schemas::Table;
use serde_json::Value;

/// An example of a kind.
#[derive(Debug, Clone)]
pub struct Example {
    /// Parameters as `dag.toml` would give them.
    pub params: Value,
    /// Rows for each port; a port that takes several stages may come more than once.
    pub inputs: Vec<(&'static str, &'static Table, Vec<Value>)>,
    /// Users' files that the parameters name, for kinds that read files.
    pub files: Vec<(&'static str, &'static str)>,
    /// Rows that the main output must have.
    pub written: usize,
    /// Reasons of the rows that must fall out, in order.
    pub rejected: Vec<&'static str>,
}

impl Example {
    /// An example with rows for the first port.
    pub fn rows(params: Value, port: &'static str, table: &'static Table, rows: Vec<Value>) -> Self {
        Self { params, inputs: vec![(port, table, rows)], files: Vec::new(), written: 0, rejected: Vec::new() }
    }

    /// Adds rows for another port.
    #[must_use]
    pub fn with(mut self, port: &'static str, table: &'static Table, rows: Vec<Value>) -> Self {
        self.inputs.push((port, table, rows));
        self
    }

    /// Says what must come out.
    #[must_use]
    pub fn gives(mut self, written: usize, rejected: &[&'static str]) -> Self {
        self.written = written;
        self.rejected = rejected.to_vec();
        self
    }
}
