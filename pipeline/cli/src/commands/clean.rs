//! `pipeline clean`: removes versions that no link points to, after saying what and how much.

use std::io::{BufRead as _, IsTerminal as _};

use pipeline_engine::Registry;
use pipeline_engine::clean::{removable, remove};

use crate::args::Clean;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::session::{Options, Session};
use crate::text::bytes;

/// Runs the command.
pub fn clean(arguments: &Clean, registry: &Registry) -> Result<Exit, Failure> {
    let session = Session::open(&arguments.project, registry, Options::default())?;
    let found = removable(&session.store);
    if found.is_empty() {
        output::line("nothing to remove: every version is linked");
        return Ok(Exit::Done);
    }
    for version in &found {
        output::line(format!("{:>10}  {}", bytes(version.bytes), version.folder.display()));
    }
    let total: u64 = found.iter().map(|version| version.bytes).sum();
    output::line(format!("{:>10}  in {} versions that no link points to; model answers are kept", bytes(total), found.len()));
    if !arguments.yes {
        if !std::io::stdin().is_terminal() {
            output::note("nothing was removed; say `--yes` to remove them");
            return Ok(Exit::Done);
        }
        output::note("remove them? [y/N]");
        let mut answer = String::new();
        let _ = std::io::stdin().lock().read_line(&mut answer);
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            output::note("nothing was removed");
            return Ok(Exit::Done);
        }
    }
    for version in &found {
        remove(version)?;
    }
    output::line(format!("removed {}", bytes(total)));
    Ok(Exit::Done)
}
