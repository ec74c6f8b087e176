//! `pipeline try`: a few rows through one stage. Nothing is committed; model answers are kept.

use pipeline_core::json_rows::to_json;
use pipeline_core::table_io::TableFile;
use pipeline_engine::Registry;
use pipeline_engine::record::reasons;

use super::show::readable;
use crate::args::Try;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::progress::Lines;
use crate::session::{Options, Session};

/// Runs the command.
pub fn try_out(arguments: &Try, registry: &Registry) -> Result<Exit, Failure> {
    let options = Options { offline: arguments.offline, jobs: Some(1), unsafe_no_sandbox: arguments.unsafe_no_sandbox };
    let session = Session::open(&arguments.project, registry, options)?;
    let index = session.stage(&arguments.stage)?;
    session.listen_for_signals()?;
    session.store.create()?;
    let events = Lines::default();
    let tried = session.runner(&events).try_out(index, arguments.rows)?;
    let files = tried.success.outputs.values().flat_map(|output| &output.files).chain(&tried.success.rejects);
    let mut number = 0;
    for file in files {
        let table = TableFile::open(&tried.folder().join(&file.file))?;
        for batch in table.read(0, file.rows, None)? {
            for row in to_json(&batch?) {
                number += 1;
                output::line(readable(number, &row));
                if let Some(asked) = row.get("request_messages").filter(|asked| !asked.is_null()) {
                    output::line(format!("  request_messages: {asked}"));
                }
            }
        }
    }
    let counts = &tried.success.counts;
    output::note(format!(
        "{} read, {} kept, {} rejected{}; nothing was committed",
        counts.read,
        counts.kept,
        counts.rejected_total(),
        reasons(&counts.rejected)
    ));
    Ok(Exit::Done)
}
