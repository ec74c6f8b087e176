//! One run, as its supervisor sees it.

use super::calls::Filters;
use super::confine::{Resources, THREADS};
use super::counters::Counters;
use super::init::{self, Message, Plan};
use super::order::{self, Order, Told};
use super::room::Room;
use super::system::{self, Cloned};
use super::watch::{self, Run};
use super::wire::{self, Failure, Step};
use super::{census, namespaces};
use crate::sandbox::End;
use rustix::pipe::PipeFlags;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Longest job that is accepted, a bound on what a damaged message could ask for.
const LONGEST_JOB: u64 = 4 << 30;
/// Processes of the supervisor itself that its uid's limit counts: two supervisors and init.
const OWN_PROCESSES: u64 = 3;

/// What serves runs.
pub struct Server {
    /// Whether runs are isolated.
    pub isolated: bool,
    /// Whether the kernel knows landlock.
    pub landlock: bool,
    /// Whether programs run as nobody without isolation.
    pub as_nobody: bool,
    /// System calls denied to programs.
    pub filters: Filters,
    /// The supervisor's control group.
    pub counters: Option<Counters>,
}

/// What the caller is told.
pub enum Answer {
    /// The run's outcome and what was taken out.
    Told(Told, Option<OwnedFd>),
    /// The machinery failed.
    Failed(Failure),
    /// The program could not be executed.
    NotExecuted(Failure),
    /// Nothing: nobody listens.
    CallerGone,
}

impl Server {
    /// Serves the job that came as descriptors: the job, standard input and perhaps an executable.
    pub fn serve(&self, control: &OwnedFd, descriptors: Vec<OwnedFd>) -> Answer {
        let mut descriptors = descriptors.into_iter();
        let (Some(job), Some(stdin)) = (descriptors.next(), descriptors.next()) else {
            return Answer::CallerGone;
        };
        let served = wire::content(job.as_fd(), LONGEST_JOB).step("read the job").and_then(|bytes| {
            let order = order::decode_job(&bytes).step("read the job")?;
            self.run(control, &order, &stdin, descriptors.next().as_ref())
        });
        served.unwrap_or_else(Answer::Failed)
    }

    fn run(
        &self,
        control: &OwnedFd,
        order: &Order<'_>,
        stdin: &OwnedFd,
        artifact: Option<&OwnedFd>,
    ) -> Result<Answer, Failure> {
        let room = self.room(order)?;
        let environment = environment(order, &room).step("make the environment")?;
        let [stdout, stderr, status] = [pipe()?, pipe()?, pipe()?];
        let report = order.report.then(pipe).transpose()?;
        let plan = Plan {
            isolated: self.isolated,
            landlock: self.landlock,
            as_nobody: self.as_nobody,
            room: &room,
            target: &order.target,
            artifact,
            arguments: &order.arguments,
            environment: &environment,
            standard: [stdin, &stdout.1, &stderr.1],
            report: report.as_ref().map(|(_, end)| end),
            status: &status.1,
            resources: self.resources(order),
            filters: &self.filters,
        };
        let tasks = OWN_PROCESSES + u64::from(order.limits.processes) + THREADS;
        let counters = self.counters.as_ref();
        let counted = counters.map(|counters| Ok((counters, counters.begin(&order.limits, tasks)?))).transpose()?;
        let used_before = system::usage(true);
        let started = Instant::now();
        let namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        let (pid, pidfd) =
            match system::clone_process(if self.isolated { namespaces } else { 0 }).step("start the run")? {
                Cloned::Child => init::serve(&plan),
                Cloned::Parent { pid, pidfd } => (pid, pidfd),
            };
        drop((stdout.1, stderr.1, status.1));
        let run = Run { isolated: self.isolated, pidfd, started, room: &room, limits: order.limits, counted };
        let streams = [Some(stdout.0), Some(stderr.0), report.map(|(end, _)| end)];
        let seen = watch::watch(&run, control, streams);
        run.kill_all();
        let (_, usage) = system::wait_for(pid).step("wait for the run")?;
        system::reap_ended();
        let wall = started.elapsed();
        let seen = seen?;
        if seen.caller_gone {
            return Ok(Answer::CallerGone);
        }
        // what is killed with its namespace is not in the kernel's sum
        let waited_for = system::usage(true).cpu.saturating_sub(used_before.cpu).max(seen.cpu);
        let cpu = counted.and_then(|(counters, start)| counters.cpu_since(&start)).unwrap_or(waited_for);
        let told = wire::drain(&status.0).step("read the run's status")?;
        let end = match Message::decode(&told) {
            Some(Message::NotPrepared(failure)) => return Err(failure),
            Some(Message::NotExecuted(failure)) => return Ok(Answer::NotExecuted(failure)),
            // the process that tried every layer has told nothing but its end
            Some(Message::Ended(status)) => end_of(status),
            // only the kernel or the supervisor can have killed init
            None => End::Signaled(libc::SIGKILL),
        };
        let is_short = counted.is_some_and(|(counters, start)| counters.has_killed_since(&start));
        let end = match seen.reached {
            Some(limit) => limit,
            None if is_short => End::MemoryLimit,
            // between two looks, or by the limit that the kernel keeps
            None if cpu >= order.limits.cpu => End::CpuLimit,
            None => end,
        };
        let collected = order.collect.filter(|_| end == End::Exited(0));
        let artifact = collected.and_then(|path| room.take(path, order.limits.disk_bytes));
        let peak_memory_bytes = match counted {
            Some((counters, start)) => counters.memory_since(&start).max(seen.peak_bytes),
            None => usage.peak_bytes.max(seen.peak_bytes),
        };
        Ok(Answer::Told(Told { end, cpu, wall, peak_memory_bytes, streams: seen.streams }, artifact))
    }

    fn room(&self, order: &Order<'_>) -> Result<Room, Failure> {
        let room = if self.isolated { Room::private(order.limits.disk_bytes)? } else { Room::temporary()? };
        room.fill(&order.files)?;
        if self.as_nobody {
            let nobody = namespaces::NOBODY;
            room.give_to(nobody).step("give the run's files to the program")?;
        }
        Ok(room)
    }

    fn resources(&self, order: &Order<'_>) -> Resources {
        let limits = order.limits;
        // the uid of an isolated run is used by nothing else; otherwise the limit counts all that the user runs
        let others = if self.isolated {
            OWN_PROCESSES
        } else if self.as_nobody {
            census::tasks_of(namespaces::NOBODY)
        } else {
            census::tasks_of(rustix::process::geteuid().as_raw())
        };
        Resources { limits, tasks: others + u64::from(limits.processes) + THREADS, bound_data: self.counters.is_none() }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
    // the supervisor must never wait on a pipe; the program's end stays as programs expect it
    rustix::io::ioctl_fionbio(&read, true).step("make a pipe")?;
    Ok((read, write))
}

fn environment(order: &Order<'_>, room: &Room) -> io::Result<Vec<CString>> {
    let work = room.work();
    let temporary = room.path.join("tmp");
    let mut variables: BTreeMap<&str, String> = BTreeMap::from([
        ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME", work.display().to_string()),
        ("TMPDIR", temporary.display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
    ]);
    variables.extend(order.environment.iter().map(|(name, value)| (name.as_str(), value.clone())));
    variables.into_iter().map(|(name, value)| Ok(CString::new(format!("{name}={value}"))?)).collect()
}

fn end_of(wait_status: i32) -> End {
    if libc::WIFSIGNALED(wait_status) {
        End::Signaled(libc::WTERMSIG(wait_status))
    } else {
        End::Exited(libc::WEXITSTATUS(wait_status))
    }
}
