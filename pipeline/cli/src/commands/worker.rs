//! `pipeline worker`: works on the tasks of one version; what executors run on any machine that sees the folder.
//!
//! Exit codes of its own: 0 no work left, 64 configuration or plan (never retry), 65 bad input data, 70 a fault of the
//! program, 75 temporary (retry).

use std::path::{Component, Path, PathBuf};

use pipeline_core::StageError;
use pipeline_core::error::ModelFailure;
use pipeline_engine::Registry;
use pipeline_engine::records::Plan;
use pipeline_engine::store::read_json;

use crate::args::{Project, Worker};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::progress::Lines;
use crate::session::{Options, Session};

const CONFIGURATION: u8 = 64;
const BAD_DATA: u8 = 65;
const FAULT: u8 = 70;
const TEMPORARY: u8 = 75;

/// Runs the command.
pub fn worker(arguments: &Worker, registry: &Registry) -> Exit {
    match work(arguments, registry) {
        Ok(()) => Exit::Done,
        Err((code, message)) => {
            output::error(&message);
            Exit::Worker(code)
        }
    }
}

fn work(arguments: &Worker, registry: &Registry) -> Result<(), (u8, String)> {
    let configuration = |message: String| (CONFIGURATION, message);
    let stage_dir = std::fs::canonicalize(&arguments.stage_dir)
        .map_err(|error| configuration(format!("cannot open `{}`: {error}", arguments.stage_dir.display())))?;
    let plan = read_json::<Plan>(&stage_dir.join("plan.json")).map_err(|error| configuration(error.to_string()))?;
    let plan = plan.ok_or_else(|| configuration(format!("`{}` has no plan.json", arguments.stage_dir.display())))?;
    let out = stage_dir.ancestors().nth(2).map(Path::to_owned);
    let project = Project {
        dag: normal(&stage_dir.join(&plan.dag)),
        out: out.filter(|out| !out.as_os_str().is_empty()),
        calls: None,
        limit: None,
        shard_rows: None,
    };
    let options = Options {
        offline: arguments.offline,
        jobs: Some(arguments.jobs),
        unsafe_no_sandbox: arguments.unsafe_no_sandbox,
    };
    let session =
        Session::open(&project, registry, options).map_err(|failure: Failure| configuration(failure.message))?;
    session.listen_for_signals().map_err(|failure| (TEMPORARY, failure.message))?;
    let events = Lines::new(session.currency());
    session.runner(&events).work_on(&stage_dir, &plan).map_err(|error| (code(&error), error.to_string()))
}

fn code(error: &StageError) -> u8 {
    match error {
        StageError::Param(_) | StageError::Model { failure: ModelFailure::NotRecorded, .. } => CONFIGURATION,
        StageError::Input { .. } | StageError::Column { .. } | StageError::Alarm(_) | StageError::Damaged { .. } => {
            BAD_DATA
        }
        StageError::Internal(_) | StageError::Arrow(_) => FAULT,
        StageError::Model { .. } | StageError::Transient { .. } | StageError::Cancelled | StageError::Io { .. } => {
            TEMPORARY
        }
    }
}

/// The path without `x/..`, as a person would write it.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir && matches!(normal.components().next_back(), Some(Component::Normal(_))) {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}
