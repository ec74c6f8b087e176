//! The first process of a run: makes the run's own view of files and processes, starts the program, tells how it
//! ended.
//!
//! In isolation it is pid 1 of the run's namespace, so that its end is the end of all. The program cannot reach it:
//! it may not be traced or dumped, does not show in `/proc`, and the kernel spares pid 1 the signals of its own
//! namespace.

use super::calls::Filters;
use super::confine::{self, Resources};
use super::order::Target;
use super::room::Room;
use super::system::{self, Cloned};
use super::wire::{Decoder, Encoder, Failure, Step};
use super::{namespaces, root};
use landlock::RulesetCreated;
use rustix::process::{DumpableBehavior, Signal};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Descriptor of the report in the program, and never of anything else in supervisor and init.
pub const REPORT: RawFd = 3;

/// What init needs, made ready before it starts.
pub struct Plan<'a> {
    /// Whether the run is isolated.
    pub isolated: bool,
    /// Whether the kernel knows landlock.
    pub landlock: bool,
    /// Whether the program is to run as nobody (root without isolation).
    pub as_nobody: bool,
    /// The run's files.
    pub room: &'a Room,
    /// What is executed.
    pub target: &'a Target,
    /// An executable in memory.
    pub artifact: Option<&'a OwnedFd>,
    /// Arguments.
    pub arguments: &'a [CString],
    /// Environment as `NAME=value`.
    pub environment: &'a [CString],
    /// Standard input, output, error.
    pub standard: [&'a OwnedFd; 3],
    /// Report pipe.
    pub report: Option<&'a OwnedFd>,
    /// Where init tells what happened.
    pub status: &'a OwnedFd,
    /// Resource limits.
    pub resources: Resources,
    /// System calls.
    pub filters: &'a Filters,
}

/// What init told.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// The run could not be prepared.
    NotPrepared(Failure),
    /// The program could not be executed.
    NotExecuted(Failure),
    /// The program ended with this wait status.
    Ended(i32),
}

impl Message {
    /// Reads the message of a run; `None` if init was killed before it told anything.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Decoder(bytes);
        match input.number().ok()? {
            0 => Some(Self::NotPrepared(input.failure().ok()?)),
            1 => Some(Self::NotExecuted(input.failure().ok()?)),
            _ => i32::try_from(input.number().ok()?).ok().map(Self::Ended),
        }
    }

    fn tell(&self, status: &OwnedFd) {
        let mut out = Encoder::default();
        match self {
            Self::NotPrepared(failure) => out.number(0).failure(failure),
            Self::NotExecuted(failure) => out.number(1).failure(failure),
            Self::Ended(status) => out.number(2).number(u64::from(status.unsigned_abs())),
        };
        // short enough for a pipe to take at once; if the supervisor is gone, so is this process
        let _ = rustix::io::write(status, &out.0);
    }
}

/// Serves a run. For a process just cloned by the supervisor; never returns.
pub fn serve(plan: &Plan<'_>) -> ! {
    if let Err(failure) = prepare(plan) {
        Message::NotPrepared(failure).tell(plan.status);
    }
    system::exit_now(0)
}

fn prepare(plan: &Plan<'_>) -> Result<(), Failure> {
    close_all_but(plan, &[plan.room.folder.as_raw_fd()])?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("tie the run to its supervisor")?;
    let fence = if plan.isolated { Some(take_own_view(plan)?) } else { None };
    if !plan.isolated {
        offer_to_killer()?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step("adopt orphans")?;
    }
    let program = match system::clone_process(0).step("start the program's process")? {
        Cloned::Child => become_program(plan, fence.flatten()),
        Cloned::Parent { pid, .. } => {
            drop(fence);
            pid
        }
    };
    // of the pipes only the program's copies may stay open
    system::close_others(&[plan.status.as_raw_fd()]).step("close descriptors")?;
    while let Some((ended, status)) = system::wait_for_any().step("wait for the program")? {
        if ended == program {
            Message::Ended(status).tell(plan.status);
            if plan.isolated {
                end_all_others();
            }
            break;
        }
    }
    Ok(())
}

/// Ends what the program left behind. The kernel would do so as well, but forget how much processor time it had used.
fn end_all_others() {
    loop {
        system::kill_all_others();
        if !matches!(system::wait_for_any(), Ok(Some(_))) {
            return;
        }
    }
}

fn close_all_but(plan: &Plan<'_>, others: &[RawFd]) -> Result<(), Failure> {
    let mut keep: Vec<RawFd> = plan.standard.iter().map(|fd| fd.as_raw_fd()).collect();
    // with what keeps the report's number taken, so that no other descriptor gets it
    keep.extend([0, 1, 2, REPORT, plan.status.as_raw_fd()]);
    keep.extend(plan.report.iter().chain(&plan.artifact).map(|fd| fd.as_raw_fd()));
    keep.extend(others);
    system::close_others(&keep).step("close descriptors")
}

fn take_own_view(plan: &Plan<'_>) -> Result<Option<RulesetCreated>, Failure> {
    root::attach(&plan.room.folder, Path::new(root::ROOM)).step("mount the run's files")?;
    let processes = root::program_proc().step("make the run's view of processes")?;
    root::attach(&processes, Path::new("/proc")).step("mount the run's `/proc`")?;
    // hidden from the program, except for the moment in which it writes to its own file, which otherwise root owns
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).step("show init")?;
    offer_to_killer()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide init from the program")?;
    if !plan.landlock {
        return Ok(None);
    }
    confine::fence().step("make the landlock rules").map(Some)
}

/// When memory is short, the kernel is to end the program and nothing else.
fn offer_to_killer() -> Result<(), Failure> {
    fs::write("/proc/self/oom_score_adj", "1000").step("offer the run to the out-of-memory killer")
}

fn become_program(plan: &Plan<'_>, fence: Option<RulesetCreated>) -> ! {
    let message = match confine_and_execute(plan, fence) {
        Ok(None) => system::exit_now(0),
        Ok(Some(error)) => Message::NotExecuted(Failure {
            step: "execute the program".into(),
            code: error.raw_os_error().unwrap_or(0),
            reason: error.to_string(),
        }),
        Err(failure) => Message::NotPrepared(failure),
    };
    message.tell(plan.status);
    system::exit_now(127)
}

/// Returns the error of exec, or nothing if nothing was to be executed.
fn confine_and_execute(plan: &Plan<'_>, fence: Option<RulesetCreated>) -> Result<Option<io::Error>, Failure> {
    rustix::process::setsid().step("start a session")?;
    rustix::process::chdir(plan.room.work()).step("enter the work folder")?;
    for (source, target) in plan.standard.iter().zip(0..) {
        system::duplicate_onto(source.as_raw_fd(), target).step("connect standard streams")?;
    }
    if let Some(report) = plan.report {
        system::duplicate_onto(report.as_raw_fd(), REPORT).step("connect the report")?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    plan.resources.set()?;
    system::reset_signals();
    if plan.as_nobody {
        namespaces::become_nobody()?;
    }
    rustix::thread::set_no_new_privs(true).step("forbid new privileges")?;
    if plan.isolated {
        confine::drop_capabilities().step("drop capabilities")?;
        confine::shut_in(fence, plan.filters)?;
    }
    let (file, path) = match (plan.target, plan.artifact) {
        (Target::Path(path), _) => (libc::AT_FDCWD, path.as_c_str()),
        (Target::Artifact, Some(artifact)) => (artifact.as_raw_fd(), c""),
        _ => return Ok(None),
    };
    Ok(Some(system::execute(file, path, plan.arguments, plan.environment)))
}
