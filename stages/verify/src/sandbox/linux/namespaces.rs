//! How a supervisor leaves the host: it drops all rights, then enters namespaces of its own.
//!
//! The order matters. If root made the user namespace, uid 0 outside would stand behind the uid inside, and a
//! program could write whatever of the kernel root may, such as `/proc/sys/kernel/core_pattern`. So rights are
//! dropped first, to a uid that owns nothing.

use super::order::Charge;
use super::root::Views;
use super::system::{self, Cloned};
use super::wire::{Failure, Step};
use rustix::process::{DumpableBehavior, Gid, Signal, Uid};
use std::fs;

/// The uid and gid of nobody, which own nothing.
pub const NOBODY: u32 = 65534;
/// What uid and gid are inside. Not 0, so that no program takes itself for root.
const INSIDE: u32 = 1000;

/// Leaves the host. Returns in a new process, pid 1 of its own namespace; the old one waits for its end and follows.
pub fn enter(charge: &Charge) -> Result<Vec<String>, Failure> {
    let mut layers = Vec::new();
    let started_by_root = rustix::process::geteuid().is_root();
    // may fail without CAP_SYS_ADMIN (root of a container); they are then opened like anyone's
    let opened = if started_by_root { Views::open(&charge.roots).ok() } else { None };
    if started_by_root {
        become_nobody()?;
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 || gid == 0 && started_by_root {
        return Err(Failure { step: "drop the rights of root".into(), code: 0, reason: "they are still there".into() });
    }
    system::unshare(
        libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP,
    )
    .step("enter new namespaces")?;
    fs::write("/proc/self/setgroups", "deny").step("forbid changes of groups")?;
    fs::write("/proc/self/uid_map", format!("{INSIDE} {uid} 1")).step("map the uid")?;
    fs::write("/proc/self/gid_map", format!("{INSIDE} {gid} 1")).step("map the gid")?;
    layers.push(format!("user: uid {uid} outside, {INSIDE} inside, no capabilities, no new privileges"));
    layers.push("namespaces: user, mount, pid, net (no interface), ipc, uts, cgroup".to_owned());
    // besides the filter of system calls, which forbids them too
    if fs::write("/proc/sys/user/max_user_namespaces", "0").is_ok() {
        layers.push("nested user namespaces: none allowed".to_owned());
    }
    let views = opened.map_or_else(|| Views::open(&charge.roots), Ok)?;
    // from here on no other process of the same uid may look into this one
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide the supervisor")?;
    match system::clone_process(0).step("start pid 1 of the new namespace")? {
        Cloned::Child => {}
        Cloned::Parent { pid, .. } => {
            // the socket stays with the child alone, so that its end shows at once
            let ended = system::close_others(&[]).and_then(|()| system::wait_for(pid));
            system::exit_now(i32::from(ended.is_err()));
        }
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("tie pid 1 to its parent")?;
    rustix::system::sethostname(b"sandbox").step("set the host name")?;
    views.become_root()?;
    layers
        .push("files: `/usr`, libraries and given roots read-only; private tmpfs; `/proc` of the run alone".to_owned());
    Ok(layers)
}

/// Gives up the rights of root for good.
pub fn become_nobody() -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[]).step("drop the groups of root")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("drop the gid of root")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("drop the uid of root")?;
    // the change of uid made the process's own files in /proc root's, and the uid map is one of them; nothing in this
    // process is secret
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).step("own the process's files in `/proc`")
}
