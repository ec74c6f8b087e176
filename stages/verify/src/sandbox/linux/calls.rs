//! The system calls that programs are denied (seccomp).
//!
//! A list of what is denied, not of what is allowed: judged programs are compilers, interpreters and whatever they
//! load, and an incomplete list of allowed calls would turn right programs into failures. Denied is what reaches the
//! kernel's less tested parts, other processes, the network, or memory that no limit counts. Programs in use live
//! without these calls.
//!
//! Four filters, since one has a single answer: unknown architecture and x32 (killed), "no such call" (`ENOSYS`,
//! where C libraries fall back to another call), "no such address family" (sockets), and "not permitted".

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;

/// Programs for the kernel, made once a supervisor.
#[derive(Debug)]
pub struct Filters(Vec<BpfProgram>);

/// Answered by `ENOSYS`.
///
/// `clone3` because a filter cannot look into its arguments: C libraries then use `clone`. Memory files because no
/// limit counts them without a memory group. `io_uring` because it does what it likes past every filter.
const ABSENT: [libc::c_long; 6] = [
    libc::SYS_clone3,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Answered by `EAFNOSUPPORT`: even a socket without network could be given an address of this machine. `socketpair`
/// stays, see below.
const SOCKETS: [libc::c_long; 6] =
    [libc::SYS_socket, libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

/// Answered by `EPERM`.
const DENIED: [libc::c_long; 73] = [
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // mounts and roots
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // namespaces
    libc::SYS_unshare,
    libc::SYS_setns,
    // parts of the kernel with a history
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    libc::SYS_remap_file_pages,
    // memory that a pipe holds and no process counts
    libc::SYS_vmsplice,
    // files by handle, past the root
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // the machine
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // System V and POSIX queues: memory that outlives processes
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    OPEN_TREE_ATTR,
];

/// Of one number everywhere, and not in all versions of `libc`.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Calls that only x86-64 has: ports, segments, and old ways of doing the above.
#[cfg(target_arch = "x86_64")]
const OF_ARCHITECTURE: [libc::c_long; 6] =
    [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs];
#[cfg(not(target_arch = "x86_64"))]
const OF_ARCHITECTURE: [libc::c_long; 0] = [];

/// Flags of `clone` that make namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Execution domains of `personality`: the usual one, one without random addresses, and the question which it is.
const PERSONALITIES: [u64; 3] = [0, 0x0004_0000, 0xffff_ffff];

impl Filters {
    /// Makes the filters.
    pub fn new() -> io::Result<Self> {
        let mut absent: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        absent.extend(ABSENT.map(|call| (call, Vec::new())));
        let mut sockets: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        sockets.extend(SOCKETS.map(|call| (call, Vec::new())));
        // a pair of connected sockets is but a pipe both ways; of families that no one needs it is more
        sockets.insert(libc::SYS_socketpair, vec![rule(&[(0, SeccompCmpOp::Ne, as_u64(libc::AF_UNIX))])?]);
        let mut denied: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        denied.extend(DENIED.into_iter().chain(OF_ARCHITECTURE).map(|call| (call, Vec::new())));
        let with_namespace = |flag: libc::c_int| rule(&[(0, SeccompCmpOp::MaskedEq(as_u64(flag)), as_u64(flag))]);
        denied.insert(libc::SYS_clone, NAMESPACES.into_iter().map(with_namespace).collect::<io::Result<_>>()?);
        // typing into a terminal that someone else reads
        let typing = [libc::TIOCSTI, TIOCLINUX];
        let by_request = |request: libc::Ioctl| rule(&[(1, SeccompCmpOp::Eq, request)]);
        denied.insert(libc::SYS_ioctl, typing.into_iter().map(by_request).collect::<io::Result<_>>()?);
        // the limits of others, of the run's init for one
        denied.insert(libc::SYS_prlimit64, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
        let unusual = PERSONALITIES.map(|domain| (0, SeccompCmpOp::Ne, domain));
        denied.insert(libc::SYS_personality, vec![rule(&unusual)?]);
        Ok(Self(vec![
            foreign_calls(),
            program(absent, libc::ENOSYS)?,
            program(sockets, libc::EAFNOSUPPORT)?,
            program(denied, libc::EPERM)?,
        ]))
    }

    /// Puts the calling process and all its future children under the filters, for good.
    pub fn apply(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
    }
}

const TIOCLINUX: libc::Ioctl = 0x541C;

fn as_u64(number: libc::c_int) -> u64 {
    u64::from(number.unsigned_abs())
}

/// Holds when all of (number of the argument, comparison, value) do. The kernel reads the lower half of these
/// arguments alone.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> io::Result<SeccompRule> {
    let conditions = conditions
        .iter()
        .map(|(argument, operator, value)| {
            SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
        })
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, error: libc::c_int) -> io::Result<BpfProgram> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let answer = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// Kills who calls by the x32 numbers of x86-64: they lead to the same calls past a list of ordinary numbers. (The
/// other filters kill who calls by the numbers of another architecture.)
fn foreign_calls() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const NUMBER_OF_CALL: u32 = 0;
    const FIRST_X32: u32 = 0x4000_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_WORD, 0, 0, NUMBER_OF_CALL),
        step(JUMP_IF_AT_LEAST, 0, 1, FIRST_X32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
