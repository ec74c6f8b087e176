//! The files of one run: a tmpfs that only this run sees, or without isolation a temporary folder.
//!
//! It is filled before the run starts and read after all its processes are dead, both through a descriptor, so that
//! there is no race with the program and no path of the program's making is followed.

use super::root;
use super::wire::{self, Failure, Step};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Most files of a run; each costs the kernel about 1 KiB besides its content.
const FILES: u32 = 16 * 1024;
/// Smallest tmpfs: 0 would mean no limit.
const LEAST_BYTES: u64 = 64 * 1024;

/// The files of one run.
pub struct Room {
    /// The top folder. In isolation a detached mount until the run's init attaches it.
    pub folder: OwnedFd,
    /// Where it lies for the run.
    pub path: PathBuf,
    is_temporary: bool,
}

impl Room {
    /// A tmpfs of at most `bytes`.
    pub fn private(bytes: u64) -> Result<Self, Failure> {
        let folder = root::tmpfs(bytes.max(LEAST_BYTES), FILES, "755").step("make a tmpfs for the run")?;
        let room = Self { folder, path: PathBuf::from(root::ROOM), is_temporary: false };
        room.make_folders()?;
        Ok(room)
    }

    /// A folder in `/tmp`, removed on drop.
    pub fn temporary() -> Result<Self, Failure> {
        for attempt in 0..1000_u32 {
            let path = PathBuf::from(format!("/tmp/pipeline-run-{}-{attempt}", std::process::id()));
            match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)) {
                Ok(()) => {
                    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let folder = rustix::fs::open(&path, flags, Mode::empty()).step("open the run's folder")?;
                    let room = Self { folder, path, is_temporary: true };
                    room.make_folders()?;
                    return Ok(room);
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).step("make a folder in `/tmp`"),
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists)).step("make a folder in `/tmp`")
    }

    fn make_folders(&self) -> Result<(), Failure> {
        for name in ["work", "tmp", "shm"] {
            rustix::fs::mkdirat(&self.folder, name, Mode::from_raw_mode(0o755)).step("make the run's folders")?;
        }
        Ok(())
    }

    /// The work folder as the run sees it.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Writes `files` into the work folder.
    pub fn fill(&self, files: &[(&Path, &[u8])]) -> Result<(), Failure> {
        for (path, content) in files {
            self.write(&Path::new("work").join(path), content).step(format!("write the file `{}`", path.display()))?;
        }
        Ok(())
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let parents: Vec<&Path> = path.ancestors().skip(1).filter(|parent| *parent != Path::new("")).collect();
        for parent in parents.into_iter().rev() {
            match rustix::fs::mkdirat(&self.folder, parent, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, path, flags, Mode::from_raw_mode(0o644))?;
        io::Write::write_all(&mut std::fs::File::from(file), content)
    }

    /// Gives everything to the uid and gid `owner`.
    pub fn give_to(&self, owner: u32) -> io::Result<()> {
        fn walk(folder: &Path, owner: u32) -> io::Result<()> {
            std::os::unix::fs::lchown(folder, Some(owner), Some(owner))?;
            if folder.symlink_metadata()?.is_dir() {
                for entry in std::fs::read_dir(folder)? {
                    walk(&entry?.path(), owner)?;
                }
            }
            Ok(())
        }
        walk(&self.path, owner)
    }

    /// Bytes that its files take.
    pub fn used_bytes(&self) -> u64 {
        if self.is_temporary {
            return 0;
        }
        rustix::fs::fstatfs(&self.folder).map_or(0, |state| {
            let blocks = state.f_blocks.saturating_sub(state.f_bfree);
            blocks.saturating_mul(u64::try_from(state.f_bsize).unwrap_or(0))
        })
    }

    /// The content of a regular file of the work folder, sealed; `None` if there is none.
    pub fn take(&self, path: &Path, most: u64) -> Option<OwnedFd> {
        let path = Path::new("work").join(path);
        // neither links nor the way up: the program chose what lies there; a fifo must not block
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&self.folder, &path, flags, Mode::empty(), how).ok()?;
        let state = rustix::fs::fstat(&file).ok()?;
        let is_regular = FileType::from_raw_mode(state.st_mode) == FileType::RegularFile;
        if !is_regular || u64::try_from(state.st_size).ok()? > most {
            return None;
        }
        wire::sealed("program", &wire::content(file.as_fd(), most).ok()?).ok()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.is_temporary {
            // what the program made unreadable may stay behind; it is the price of no isolation
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}
