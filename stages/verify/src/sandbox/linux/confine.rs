//! What a program gives up between fork and exec, in this order: resources, capabilities, files (landlock), system
//! calls (seccomp).

use super::calls::Filters;
use super::root::ROOM;
use super::system;
use super::wire::{Failure, Step};
use crate::sandbox::Limits;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// Threads that a run may have besides its processes, which the kernel counts as one.
pub const THREADS: u64 = 256;
/// Open files of a process.
const OPEN_FILES: u64 = 256;
/// Memory that `RLIMIT_DATA` leaves above the limit: stacks of threads count as data, 2 MiB each, used or not.
const ROOM_FOR_STACKS: u64 = 1 << 30;

/// Resource limits, which the kernel keeps by itself, as a second line behind the supervisor's watch.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    /// Limits of the run.
    pub limits: Limits,
    /// Processes and threads that the uid may have.
    pub tasks: u64,
    /// Whether no memory group counts memory.
    pub bound_data: bool,
}

impl Resources {
    /// Sets them, for good.
    pub fn set(&self) -> Result<(), Failure> {
        let seconds = self.limits.cpu.as_secs() + 2;
        // as much stack as memory: deep recursion is no error. Threads then get 2 MiB each.
        set(Resource::Stack, None)?;
        set(Resource::Cpu, Some(seconds))?;
        set(Resource::Fsize, Some(self.limits.disk_bytes))?;
        set(Resource::Core, Some(0))?;
        set(Resource::Nofile, Some(OPEN_FILES))?;
        set(Resource::Nproc, Some(self.tasks))?;
        set(Resource::Memlock, Some(64 * 1024))?;
        set(Resource::Msgqueue, Some(0))?;
        if self.bound_data {
            set(Resource::Data, Some(self.limits.memory_bytes.saturating_add(ROOM_FOR_STACKS)))?;
        }
        Ok(())
    }
}

fn set(resource: Resource, value: Option<u64>) -> Result<(), Failure> {
    // what the caller itself has been limited to cannot be raised
    let ceiling = rustix::process::getrlimit(resource).maximum;
    let value = match (value, ceiling) {
        (Some(value), Some(ceiling)) => Some(value.min(ceiling)),
        (None, ceiling) => ceiling,
        (value, None) => value,
    };
    rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })
        .step(format!("set the limit {resource:?}"))
}

/// Takes every capability away.
pub fn drop_capabilities() -> io::Result<()> {
    system::drop_bounding_set();
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

/// The newest rules that are used; older kernels keep as many as they know.
const RULES: ABI = ABI::V6;

/// Rules on files: read and execute everywhere in the run's root, write in its own folders and to devices. Besides,
/// no TCP, no abstract unix sockets and no signals to processes outside of the rules, init among them.
///
/// The mounts alone would do; this holds even if a mount were wrong.
pub fn fence() -> io::Result<RulesetCreated> {
    let own = AccessFs::from_all(RULES) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let folders = [("/", AccessFs::from_read(RULES)), ("/dev", AccessFs::ReadFile | AccessFs::WriteFile), (ROOM, own)];
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RULES))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(RULES)))
        .and_then(|rules| rules.scope(Scope::from_all(RULES)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    folders.into_iter().try_fold(rules, |rules, (folder, access)| {
        let folder = PathFd::new(folder).map_err(io::Error::other)?;
        rules.add_rule(PathBeneath::new(folder, access)).map_err(io::Error::other)
    })
}

/// Puts the calling process under the rules and the filters, for good.
pub fn shut_in(fence: Option<RulesetCreated>, filters: &Filters) -> Result<(), Failure> {
    if let Some(fence) = fence {
        let state = fence.restrict_self().map_err(io::Error::other).step("put up the landlock rules")?;
        if state.ruleset == RulesetStatus::NotEnforced {
            return Err(io::Error::other("the kernel does not enforce them")).step("put up the landlock rules");
        }
    }
    filters.apply().step("filter system calls")
}
