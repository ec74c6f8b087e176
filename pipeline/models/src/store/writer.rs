//! The one file that this process appends to, for one model.
//!
//! A marker `<file>.open` stands beside the file while its process lives, and the process holds a lock on the file where
//! the file system has locks, so that nobody prunes or compacts it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::EXTENSION;

const SYNC_EVERY: Duration = Duration::from_secs(5);
const SYNC_BYTES: u64 = 64 << 20;
/// A file of another machine that nothing was appended to for so long was left by a process that was killed.
const STALE: Duration = Duration::from_hours(24);
/// Idle time after which a writer makes sure that its file is still there: others may have taken it for left.
const IDLE: Duration = Duration::from_hours(1);
const MARKER: &str = "open";

static BEGUN: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) path: PathBuf,
    /// The number of the file in the index, once something was appended.
    pub(super) number: Option<u32>,
    file: File,
    length: u64,
    unsynced: u64,
    synced: Instant,
    used: Instant,
    usable: bool,
}

impl Writer {
    /// Begins a file that nobody else writes to: its name holds time, host, process and a counter.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            fs::create_dir_all(folder)?;
            let path = folder.join(format!("{}.{EXTENSION}", unique_name()));
            // The marker comes first: a file without one counts as closed.
            let begun = File::create_new(marker(&path))
                .and_then(|_| OpenOptions::new().create_new(true).append(true).open(&path));
            match begun {
                // somebody else's name, or a folder that another process found empty and removed
                Err(error)
                    if tries < 100
                        && matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    // A file system without locks leaves it at the marker.
                    let _ = file.try_lock();
                    let now = Instant::now();
                    return Ok(Self {
                        path,
                        number: None,
                        file,
                        length: 0,
                        unsynced: 0,
                        synced: now,
                        used: now,
                        usable: true,
                    });
                }
            }
        }
    }

    /// Whether the file ends with a whole record.
    pub(super) fn is_usable(&self) -> bool {
        self.usable
    }

    /// Whether the file can be appended to and still has its name.
    pub(super) fn is_there(&mut self) -> bool {
        if self.used.elapsed() >= IDLE {
            self.usable &= self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
        }
        self.used = Instant::now();
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
    if !marker(path).exists() {
        return false;
    }
    let is_locked = File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
    if is_locked {
        return true;
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    is_alive(&name).unwrap_or_else(|| !is_older(&marker(path), STALE) || !is_older(path, STALE))
}

/// Whether a draft was left by a process that is no more; `name` is the part that its process gave.
pub(super) fn is_left(draft: &Path, name: &str) -> bool {
    is_alive(name).map_or_else(|| is_older(draft, STALE), |is_alive| !is_alive)
}

/// Whether a file was last changed before `age`; one that cannot be looked at was not.
fn is_older(path: &Path, age: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    let passed = changed.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    passed.is_some_and(|passed| passed >= age)
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

/// A name that no other process gives: time, host, process and a counter.
pub(super) fn unique_name() -> String {
    let count = BEGUN.fetch_add(1, Ordering::Relaxed);
    format!("{:013}-{}-{}-{count}", now_ms(), host(), std::process::id())
}

/// Letters and digits of this machine's name.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}

/// Whether the process that gave a name is alive; `None` if it is one of another machine.
fn is_alive(name: &str) -> Option<bool> {
    let mut parts = name.split('-').skip(1);
    if parts.next()? != host() {
        return None;
    }
    let process = rustix::process::Pid::from_raw(parts.next()?.parse().ok()?)?;
    // "Not permitted" means that it lives and is somebody else's.
    Some(rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}
