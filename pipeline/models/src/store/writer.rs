//! The one file that this process appends to, for one model.
//!
//! A marker `<file>.open` stands beside the file while its process lives, so that nobody prunes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::EXTENSION;

const SYNC_EVERY: Duration = Duration::from_secs(5);
const SYNC_BYTES: u64 = 64 << 20;
/// A marker older than this is left over from a process on another machine that was killed.
const STALE: Duration = Duration::from_hours(24);
const MARKER: &str = "open";

static BEGUN: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    path: PathBuf,
    length: u64,
    unsynced: u64,
    synced: Instant,
    usable: bool,
}

impl Writer {
    /// Begins a file that nobody else writes to: its name holds time, host, process and a counter.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        loop {
            let count = BEGUN.fetch_add(1, Ordering::Relaxed);
            let name = format!("{:013}-{}-{}-{count}.{EXTENSION}", now_ms(), host(), std::process::id());
            let path = folder.join(name);
            match OpenOptions::new().create_new(true).append(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    File::create(marker(&path))?;
                    return Ok(Self { file, path, length: 0, unsynced: 0, synced: Instant::now(), usable: true });
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file ends with a whole record.
    pub(super) fn is_usable(&self) -> bool {
        self.usable
    }

    /// Appends a record and gives its offset. A record that did not go in whole is cut off again.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        if let Err(error) = self.file.write_all(bytes) {
            self.usable = self.file.set_len(self.length).is_ok();
            return Err(error);
        }
        let offset = self.length;
        self.length += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_BYTES || self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(offset)
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced > 0 {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        self.synced = Instant::now();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // At close nobody is left to tell; an unsynchronised end is at worst asked again.
        let _ = self.sync();
        let _ = fs::remove_file(marker(&self.path));
    }
}

/// Whether some living process may still append to this file.
pub(super) fn is_in_use(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(marker(path)) else {
        return false;
    };
    if let Some(process) = process_on_this_host(path) {
        return is_alive(process);
    }
    let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_none_or(|age| age < STALE)
}

/// Removes the marker of a file that is not in use.
pub(super) fn remove_marker(path: &Path) {
    // It may not be there; a marker that stays behind is stale a day later.
    let _ = fs::remove_file(marker(path));
}

/// Milliseconds since 1970 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn marker(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(MARKER);
    PathBuf::from(name)
}

fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}

fn process_on_this_host(path: &Path) -> Option<i32> {
    let name = path.file_stem()?.to_str()?;
    let mut parts = name.split('-').skip(1);
    let same_host = parts.next()? == host();
    same_host.then(|| parts.next()?.parse().ok()).flatten()
}

fn is_alive(process: i32) -> bool {
    let Some(process) = rustix::process::Pid::from_raw(process) else {
        return false;
    };
    // "Not permitted" means that it lives and is somebody else's.
    rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
}
