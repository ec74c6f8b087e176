//! From `dag.toml` to a graph, a plan and a run; knows no stage.
//!
//! Reading order: [`dagfile`] reads the file, [`project`] checks the graph, [`decide`] says what must run and why,
//! [`plan`] cuts a stage into tasks, [`work`] runs and commits them, [`run`] drives it all. [`store`] is where versions
//! lie, [`records`] what stands beside the data.

pub mod clean;
pub mod dagfile;
pub mod decide;
pub mod edges;
pub mod lease;
pub mod paths;
pub mod plan;
pub mod project;
pub mod record;
pub mod records;
pub mod run;
pub mod share;
pub mod store;
pub mod try_out;
pub mod work;

pub use project::{Node, Project, Registry};
pub use run::{Runner, Selection, Status};
pub use store::Store;
