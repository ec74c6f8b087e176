//! Requests that keep failing with an error of the server while others are answered.
//!
//! Some servers answer 500 to a request that they will never manage (text they cannot encode, say). One run cannot tell
//! that from a passing failure, so after it the request is open and the run can be repeated. A line is written for each
//! such failure, and when a request failed the same way in several runs, each time with others answered meanwhile, it is
//! given up: stored as a row error, so that the data set can be finished. The lines stand beside the files of calls, as
//! `<model>/failing.jsonl`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::key::CallKey;

/// Runs in which a request has to fail before it is given up.
pub(super) const RUNS: usize = 3;

/// The failures of one model.
#[derive(Debug)]
pub(super) struct Failing {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Failures by request, read when one is first needed.
    known: Option<BTreeMap<String, Vec<String>>>,
    /// Requests whose failure in this run was counted.
    counted: BTreeSet<CallKey>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: String,
    failure: String,
    time_ms: u64,
}

impl Failing {
    /// Failures kept in this folder, which need not exist.
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join("failing.jsonl"), state: Mutex::default() }
    }

    /// A request failed for good in this run: the number of runs in which it failed this way.
    pub(super) fn count(&self, key: CallKey, failure: &str, time_ms: u64) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = state.counted.insert(key);
        let failures = state.known.get_or_insert_with(|| self.read()).entry(key.to_string()).or_default();
        if is_first {
            failures.push(failure.to_owned());
            self.write(&Line { key: key.to_string(), failure: failure.to_owned(), time_ms });
        }
        failures.iter().filter(|known| *known == failure).count()
    }

    fn read(&self) -> BTreeMap<String, Vec<String>> {
        let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
        // Without the file, or with a line that was cut, requests merely stay open for another run.
        for line in fs::read_to_string(&self.path).unwrap_or_default().lines() {
            if let Ok(line) = serde_json::from_str::<Line>(line) {
                failures.entry(line.key).or_default().push(line.failure);
            }
        }
        failures
    }

    fn write(&self, line: &Line) {
        let Ok(mut text) = serde_json::to_string(line) else { return };
        text.push('\n');
        if let Some(folder) = self.path.parent() {
            let _ = fs::create_dir_all(folder);
        }
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(&self.path) {
            let _ = file.write_all(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_once_a_run_and_by_their_kind() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Failing::new(&folder.path().join("m"));
        let (key, other) = (CallKey([1; 32]), CallKey([2; 32]));
        let run = open();
        assert_eq!([run.count(key, "500", 1), run.count(key, "500", 2)], [1, 1]);
        assert_eq!(open().count(key, "502", 3), 1);
        assert_eq!(open().count(key, "500", 4), 2);
        assert_eq!((open().count(key, "500", 5), open().count(other, "500", 6)), (3, 1));
        fs::write(folder.path().join("m/failing.jsonl"), "{\"key\":").unwrap();
        assert_eq!(open().count(key, "500", 7), 1, "a cut line is no failure");
    }
}
