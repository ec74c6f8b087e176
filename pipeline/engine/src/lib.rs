//! From `dag.toml` to a graph, a plan and a run; knows no stage.

pub mod dagfile;
