//! `pipeline clean`: removes versions that no link points to, after saying what and how much.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use pipeline_core::StageError;
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
    let orphans = orphans(&session);
    for link in &orphans {
        output::line(format!("link of a stage that is not in the dag file any more: {}", link.display()));
        if arguments.yes {
            std::fs::remove_file(link).map_err(StageError::io("remove", link))?;
        }
    }
    if !orphans.is_empty() && !arguments.yes {
        output::note("with `--yes` these links go first, and then what only they pointed to");
    }
    let found = removable(&session.store);
    if found.is_empty() {
        output::line("nothing to remove: every version is linked");
        return Ok(Exit::Done);
    }
    for version in &found {
        output::line(format!("{:>10}  {}", bytes(version.bytes), version.folder.display()));
    }
    let total: u64 = found.iter().map(|version| version.bytes).sum();
    output::line(format!(
        "{:>10}  in {} versions that no link points to; model answers are kept",
        bytes(total),
        found.len()
    ));
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

/// Links to versions under names that are no stages of the dag file.
fn orphans(session: &Session) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(session.store.links()) else { return Vec::new() };
    let mut orphans: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| session.project.find(name).is_none()))
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| session.store.current(name).is_some()))
        .map(|entry| entry.path())
        .collect();
    orphans.sort();
    orphans
}
