//! Leases: advice that a task is being worked on, so that processes do not work twice. What decides is the commit of
//! the manifest; a lease that is stolen too early costs work, never correctness.
//!
//! The age of a lease is the difference between the times of two files on the same file system, so clocks of hosts do
//! not matter. A holder on this host that is gone is noticed at once.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pipeline_core::StageError;
use serde::{Deserialize, Serialize};

/// Time after which an untouched lease may be stolen.
pub const TTL: Duration = Duration::from_secs(30);

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    attempt: String,
    host: String,
    pid: u32,
    started: String,
}

/// A lease that this process holds; dropped, it is given back.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
}

/// What came of asking for a lease.
#[derive(Debug)]
pub enum Asked {
    /// It is ours.
    Granted(Lease),
    /// Another process works on the task.
    Taken,
}

impl Lease {
    /// Asks for the lease at `path`.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn ask(path: &Path, attempt: &str, ttl: Duration) -> Result<Asked, StageError> {
        for _ in 0..2 {
            match fs::File::create_new(path) {
                Ok(mut file) => {
                    let holder = serde_json::to_vec(&Holder::this(attempt)).unwrap_or_default();
                    file.write_all(&holder).map_err(StageError::io("write", path))?;
                    return Ok(Asked::Granted(Self { path: path.to_owned() }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if !is_stale(path, ttl) {
                        return Ok(Asked::Taken);
                    }
                    let aside = path.with_extension(format!("stale-{}", unique()));
                    if fs::rename(path, &aside).is_ok() {
                        let _ = fs::remove_file(&aside);
                    }
                }
                Err(error) => return Err(StageError::io("write", path)(error)),
            }
        }
        Ok(Asked::Taken)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Tells other processes that a lease's holder is alive.
pub fn touch(path: &Path) {
    if let Ok(file) = fs::File::options().write(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Holder {
    fn this(attempt: &str) -> Self {
        let pid = std::process::id();
        Self { attempt: attempt.to_owned(), host: host(), pid, started: started(pid).unwrap_or_default() }
    }

    fn is_gone(&self) -> bool {
        self.host == host() && started(self.pid).as_deref() != Some(self.started.as_str())
    }
}

fn is_stale(path: &Path, ttl: Duration) -> bool {
    let Ok(bytes) = fs::read(path) else { return true };
    if let Ok(holder) = serde_json::from_slice::<Holder>(&bytes)
        && holder.is_gone()
    {
        return true;
    }
    let probe = path.with_extension(format!("probe-{}", unique()));
    let age = fs::File::create_new(&probe).and_then(|file| {
        let now = file.metadata()?.modified()?;
        let then = fs::metadata(path)?.modified()?;
        Ok(now.duration_since(then).unwrap_or_default())
    });
    let _ = fs::remove_file(&probe);
    age.is_ok_and(|age| age > ttl)
}

/// This boot of this host, and its space of process numbers.
fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default();
    format!("{} {space}", boot.trim())
}

/// When a process started, in the kernel's ticks; `None` when there is no such process.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let state = *fields.first()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.get(19).map(|ticks| (*ticks).to_owned())
}

/// A text that no other call of any process gives.
pub fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{time:x}-{count:x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_once_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000");
        let Asked::Granted(lease) = Lease::ask(&path, "a", TTL).unwrap() else { panic!("not granted") };
        assert!(matches!(Lease::ask(&path, "b", TTL).unwrap(), Asked::Taken));
        drop(lease);
        assert!(matches!(Lease::ask(&path, "b", TTL).unwrap(), Asked::Granted(_)));
    }

    #[test]
    fn the_lease_of_a_process_that_is_gone_is_stolen_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000");
        let mut holder = Holder::this("gone");
        holder.started = "1".to_owned();
        fs::write(&path, serde_json::to_vec(&holder).unwrap()).unwrap();
        assert!(matches!(Lease::ask(&path, "b", TTL).unwrap(), Asked::Granted(_)));
    }

    #[test]
    fn the_lease_of_another_host_waits_for_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000");
        let mut holder = Holder::this("far");
        holder.host = "elsewhere".to_owned();
        fs::write(&path, serde_json::to_vec(&holder).unwrap()).unwrap();
        assert!(matches!(Lease::ask(&path, "b", TTL).unwrap(), Asked::Taken));
        let old = SystemTime::now() - Duration::from_mins(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        assert!(matches!(Lease::ask(&path, "b", TTL).unwrap(), Asked::Granted(_)));
    }
}
