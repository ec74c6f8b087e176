//! Calls to the kernel for which no safe wrapper exists: the only `unsafe` code of the sandbox.
//!
//! Each function wraps one system call with checked arguments and gives its error as [`io::Error`].

use rustix::process::Pid;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What a process is after [`clone_process`].
pub enum Cloned {
    /// The new process.
    Child,
    /// The old one, with the number and a descriptor of the new one.
    Parent {
        /// Number of the child in the caller's process namespace.
        pid: Pid,
        /// Stands for the child even when its number is used again.
        pidfd: OwnedFd,
    },
}

/// Processor time and memory that ended processes used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Greatest resident set of any one process, in bytes.
    pub peak_bytes: u64,
}

/// Gives the caller as a new process too, in new namespaces where `namespaces` (`CLONE_NEW*`) asks for it.
///
/// The child has copies of all memory, as after `fork`. The supervisor has a single thread, so that the child may
/// go on with ordinary code.
#[expect(unsafe_code, reason = "no safe wrapper of clone exists")]
pub fn clone_process(namespaces: libc::c_int) -> io::Result<Cloned> {
    let flags = namespaces | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: libc::c_int = -1;
    // SAFETY: a zero stack makes the kernel copy the caller's, as fork does; `pidfd` outlives the call; the last two
    // arguments are unused, so that their order, which differs between architectures, is of no matter.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0_usize, &raw mut pidfd, 0_usize, 0_usize) };
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        Some(pid) if pid.as_raw_nonzero().get() > 0 => {
            // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent { pid, pidfd })
        }
        None if pid == 0 => Ok(Cloned::Child),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process at once, without handlers or buffers: what a cloned child must do.
#[expect(unsafe_code, reason = "no safe wrapper of _exit exists")]
pub fn exit_now(status: i32) -> ! {
    // SAFETY: takes no pointers and does not return.
    unsafe { libc::_exit(status) }
}

/// Moves the process into new namespaces (`CLONE_NEW*`).
#[expect(unsafe_code, reason = "the safe wrapper of unshare is deprecated because of flags that are not used here")]
pub fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers; flags that would share or split memory or descriptors are never passed.
    check(unsafe { libc::unshare(namespaces) }.into())
}

/// Closes every descriptor but those in `keep`.
#[expect(unsafe_code, reason = "closing descriptors that others own is unsafe by nature")]
pub fn close_others(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut first = 0_u32;
    for end in keep.into_iter().map(Some).chain([None]) {
        let last = match end {
            Some(0) => None,
            Some(fd) => Some(fd - 1),
            None => Some(u32::MAX),
        };
        if let Some(last) = last.filter(|last| *last >= first) {
            // SAFETY: the processes that call this own no descriptor outside `keep` that they use or drop later: one
            // has just been started by exec, the others end by exec or `exit_now`.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
        first = end.map_or(u32::MAX, |fd| fd + 1);
    }
    Ok(())
}

/// Makes descriptor number `target` a copy of `source`, which stays open over exec.
#[expect(unsafe_code, reason = "the number of the new descriptor is chosen, so that nothing can own it")]
pub fn duplicate_onto(source: RawFd, target: RawFd) -> io::Result<()> {
    // SAFETY: called before exec in a process that owns nothing at `target`.
    check(unsafe { libc::dup2(source, target) }.into())
}

/// Sets attributes (`MOUNT_ATTR_*`) of a mount and, if `recursive`, of all mounts below it, and makes them private.
#[expect(unsafe_code, reason = "no safe wrapper of mount_setattr exists")]
pub fn set_mount_attributes(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> io::Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty string with its nul, and `change` is as long as the size says.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Waits for the end of child `pid`: its wait status, and what it and the processes that it waited for used.
#[expect(unsafe_code, reason = "no safe wrapper of wait4 exists")]
pub fn wait_for(pid: Pid) -> io::Result<(i32, Usage)> {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live values of the right types.
        let ended = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, &raw mut usage) };
        match check(ended.into()) {
            Ok(()) => return Ok((status, usage_of(&usage))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for any child to end; `None` when there is none.
#[expect(unsafe_code, reason = "the wrapper of waitpid hides the raw status")]
pub fn wait_for_any() -> io::Result<Option<(Pid, i32)>> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live value of the right type.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        match Pid::from_raw(ended).filter(|_| ended > 0) {
            Some(pid) => return Ok(Some((pid, status))),
            None => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                error => return Err(error),
            },
        }
    }
}

/// What all ended children, and the processes that they waited for, used; or, if not `of_children`, the caller
/// itself.
#[expect(unsafe_code, reason = "no safe wrapper of getrusage exists")]
pub fn usage(of_children: bool) -> Usage {
    let whom = if of_children { libc::RUSAGE_CHILDREN } else { libc::RUSAGE_SELF };
    // SAFETY: rusage is plain numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live value of the right type.
    unsafe { libc::getrusage(whom, &raw mut usage) };
    usage_of(&usage)
}

fn usage_of(usage: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let kibibytes = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Usage { cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_bytes: kibibytes * 1024 }
}

/// Sets every signal to what it does by default and unblocks all: Rust ignores `SIGPIPE`, and exec would hand that
/// on.
#[expect(unsafe_code, reason = "no safe wrapper of these exists")]
pub fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: no handler is installed; numbers that cannot be set give an error, which is of no matter.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set is made empty before it is used; both pointers are to live values or null.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Takes every capability out of the bounding set, so that no exec can ever give one back.
#[expect(unsafe_code, reason = "the wrapper takes capabilities by name, and newer kernels have more")]
pub fn drop_bounding_set() {
    for capability in 0..64 {
        // SAFETY: takes numbers alone. Numbers that the kernel does not know give an error, which is of no matter.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// The version of landlock that the kernel has; `None` without it.
#[expect(unsafe_code, reason = "the landlock crate keeps the version to itself")]
pub fn landlock_version() -> Option<u32> {
    const ASK_VERSION: u32 = 1;
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with this flag the kernel reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, ASK_VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Kills every process of the caller's namespace but the caller, its pid 1.
#[expect(unsafe_code, reason = "no safe wrapper of kill takes -1")]
pub fn kill_all_others() {
    if std::process::id() == 1 {
        // SAFETY: takes no pointers. Outside of a namespace of its own the caller is not pid 1.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}

/// Takes note of children that have ended, so that the kernel forgets them.
#[expect(unsafe_code, reason = "the same call as `wait_for_any`, without waiting")]
pub fn reap_ended() {
    // SAFETY: a null status is allowed.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// Executes the program at `path`, or what `file` holds when `path` is empty. Returns only if that fails.
#[expect(unsafe_code, reason = "no safe wrapper of execveat exists")]
pub fn execute(file: RawFd, path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with null and point to texts that outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file,
            path.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 },
        );
    }
    io::Error::last_os_error()
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
