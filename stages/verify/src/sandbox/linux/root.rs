//! The file tree that programs see: a small read-only tmpfs with read-only views of a few host folders in it.
//!
//! Nothing of the host is there unless it is named here. Views are *detached mounts*: descriptors of mounts that
//! hang nowhere. Where the caller is root they are opened before it drops its rights, since a toolchain may lie
//! where only root comes.

use super::system;
use super::wire::{Failure, Step};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Folders of the system. On most systems all but `/usr` are links into it, and stay so inside.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Links from `/usr` lead through this folder, `c++` among them; it holds nothing but links.
const ALTERNATIVES: &str = "/etc/alternatives";
/// Devices that hold no state of the host. `/dev/tty` and terminals are left out on purpose.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Where the run's own tmpfs is mounted.
pub const ROOM: &str = "/box";
/// Folders that a root may not be or lie in: their place inside is taken.
const TAKEN: [&str; 4] = ["/proc", "/dev", "/tmp", ROOM];
/// Folders that may not be shown whole, since they hold what is private to the host.
const PRIVATE: [&str; 9] = ["/", "/etc", "/home", "/root", "/var", "/run", "/sys", "/boot", "/mnt"];

/// Why a folder cannot be shown to programs; `None` if it can.
pub fn objection(root: &Path) -> Option<&'static str> {
    let resolved = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let is_one_of = |list: &[&str]| list.iter().any(|entry| resolved == Path::new(entry));
    match () {
        () if !root.is_absolute() => Some("is not absolute"),
        () if !resolved.is_dir() => Some("is not a folder"),
        () if is_one_of(&PRIVATE) => Some("holds private files of the host; name the toolchain's own folder"),
        () if TAKEN.iter().any(|taken| resolved.starts_with(taken) || root.starts_with(taken)) => {
            Some("lies where programs have their own files; move the toolchain elsewhere")
        }
        () => None,
    }
}

struct View {
    at: PathBuf,
    mount: OwnedFd,
    is_folder: bool,
}

/// Views of the host, not yet attached anywhere.
pub struct Views {
    folders: Vec<View>,
    links: Vec<(PathBuf, PathBuf)>,
    library_cache: Option<Vec<u8>>,
}

impl Views {
    /// Opens views of the system's folders, the devices and `roots`.
    pub fn open(roots: &[PathBuf]) -> Result<Self, Failure> {
        let mut found = Self { folders: Vec::new(), links: Vec::new(), library_cache: None };
        for path in SYSTEM.iter().map(Path::new) {
            match fs::read_link(path) {
                Ok(target) => found.links.push((path.to_path_buf(), target)),
                Err(_) if path.is_dir() => found.add(path, true)?,
                Err(_) => {}
            }
        }
        if Path::new(ALTERNATIVES).is_dir() {
            found.add(Path::new(ALTERNATIVES), true)?;
        }
        for device in DEVICES {
            found.add(Path::new(device), false)?;
        }
        let mut roots = roots.to_vec();
        // a folder comes before those in it, which its view shows already
        roots.sort();
        for root in roots {
            let resolved = root.canonicalize().step(format!("find the root `{}`", root.display()))?;
            if !found.shows(&resolved) {
                found.add(&resolved, true)?;
            }
            if root != resolved && !found.shows(&root) {
                found.links.push((root, resolved));
            }
        }
        found.library_cache = fs::read("/etc/ld.so.cache").ok();
        Ok(found)
    }

    fn shows(&self, path: &Path) -> bool {
        self.folders.iter().any(|view| path.starts_with(&view.at))
    }

    fn add(&mut self, path: &Path, is_folder: bool) -> Result<(), Failure> {
        // with everything mounted below it: the kernel lets the unprivileged copy nothing less
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let mount = rustix::mount::open_tree(CWD, path, flags).step(format!("open a view of `{}`", path.display()))?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            // devices are what the views of single files are for
            | if is_folder { MountAttrFlags::MOUNT_ATTR_NODEV } else { MountAttrFlags::MOUNT_ATTR_NOEXEC };
        system::set_mount_attributes(mount.as_fd(), attributes.bits().into(), true)
            .step(format!("make the view of `{}` read-only", path.display()))?;
        self.folders.push(View { at: path.to_path_buf(), mount, is_folder });
        Ok(())
    }

    /// Makes the tree of these views the process's root and forgets the host's.
    ///
    /// To be called by pid 1 of the new process namespace, whose processes `/proc` will show.
    pub fn become_root(self) -> Result<(), Failure> {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .step("cut the mounts off from the host's")?;
        let root = tmpfs(1 << 20, 1024, "755").step("make a tmpfs for the root")?;
        // any folder would do as its place for now; this one exists, and its view has been opened
        attach(&root, Path::new("/usr")).step("mount the root")?;
        rustix::process::chdir("/usr").step("enter the root")?;
        for view in &self.folders {
            let at = inside(&view.at);
            let place = format!("make a place for `{}`", view.at.display());
            if view.is_folder {
                fs::create_dir_all(at).step(place)?;
            } else {
                at.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(at, "")).step(place)?;
            }
            attach(&view.mount, at).step(format!("attach the view of `{}`", view.at.display()))?;
        }
        self.write_small_files().step("write the small files of the root")?;
        let process_files = proc().step("make a view of the processes")?;
        attach(&process_files, Path::new("proc")).step("mount `/proc`")?;
        // the old root comes to lie upon the new one, and is then taken off
        rustix::process::pivot_root(".", ".").step("change the root")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).step("take the host's tree off")?;
        rustix::process::chdir("/").step("enter the new root")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step("open the new root")?;
        system::set_mount_attributes(root.as_fd(), attributes.bits().into(), false).step("make the root read-only")
    }

    fn write_small_files(&self) -> io::Result<()> {
        for (at, target) in &self.links {
            let at = inside(at);
            at.parent().map_or(Ok(()), fs::create_dir_all)?;
            symlink(target, at)?;
        }
        for folder in ["proc", inside(Path::new(ROOM)).to_str().unwrap_or("box"), "etc"] {
            fs::create_dir_all(folder)?;
        }
        symlink("box/tmp", "tmp")?;
        symlink("/box/shm", "dev/shm")?;
        for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
            symlink(Path::new("/proc/self").join(target), Path::new("dev").join(name))?;
        }
        fs::write("etc/passwd", "program:x:1000:1000::/box/work:/bin/sh\n")?;
        fs::write("etc/group", "program:x:1000:\n")?;
        fs::write("etc/nsswitch.conf", "passwd: files\ngroup: files\n")?;
        if let Some(cache) = &self.library_cache {
            fs::write("etc/ld.so.cache", cache)?;
        }
        Ok(())
    }
}

fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Attaches a detached mount.
pub fn attach(mount: &OwnedFd, at: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// A detached tmpfs of at most `bytes` and `files`, whose top folder has the octal `mode`.
pub fn tmpfs(bytes: u64, files: u32, mode: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", bytes.to_string())?;
    rustix::mount::fsconfig_set_string(&context, "nr_inodes", files.to_string())?;
    rustix::mount::fsconfig_set_string(&context, "mode", mode)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A detached view of the processes of the caller's namespace.
fn proc() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    mount_proc(&context)
}

/// The same for programs: processes alone, without kernel settings, and of these only the ones that the reader may
/// trace.
///
/// What is not there need not be masked: `sys`, `sysrq-trigger`, `kcore`, `keys` and the rest are all missing.
pub fn program_proc() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "subset", "pid")?;
    rustix::mount::fsconfig_set_string(&context, "hidepid", "ptraceable")?;
    rustix::mount::fsconfig_create(&context)?;
    mount_proc(&context)
}

fn mount_proc(context: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
