//! One run, as its supervisor sees it.

use super::calls::Filters;
use super::confine::{Resources, THREADS};
use super::counters::{Counters, Start};
use super::init::{self, Message, Plan};
use super::order::{self, Order, Told};
use super::room::Room;
use super::system::{self, Cloned};
use super::watch::{self, Run};
use super::wire::{self, Failure, Step};
use super::{census, namespaces};
use crate::sandbox::End;
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
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
            standard: [stdin, &stdout.write, &stderr.write],
            report: report.as_ref().map(|report| &report.write),
            status: &status.write,
            resources: self.resources(order),
            filters: &self.filters,
        };
        let counted = self.begin_counters(order)?;
        let used_before = system::usage(true);
        let started = Instant::now();
        let (pid, pidfd) = self.start(&plan)?;
        // of the ends that are written to, only the run's copies stay open
        let streams = [Some(stdout.read()), Some(stderr.read()), report.map(Pipe::read)];
        let status = status.read();
        let run = Run { isolated: self.isolated, pidfd, started, room: &room, limits: order.limits, counted };
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
        let cpu = system::usage(true).cpu.saturating_sub(used_before.cpu).max(seen.cpu);
        let cpu = counted.and_then(|(counters, start)| counters.cpu_since(&start)).unwrap_or(cpu);
        let peak = counted.map_or(usage.peak_bytes, |(counters, start)| counters.memory_since(&start));
        if let Some((counters, _)) = counted {
            counters.lift();
        }
        let end = match Message::decode(&wire::drain(&status).step("read the run's status")?) {
            Some(Message::NotPrepared(failure)) => return Err(failure),
            Some(Message::NotExecuted(failure)) => return Ok(Answer::NotExecuted(failure)),
            Some(Message::Ended(status)) => end_of(status),
            // only the kernel or the supervisor can have killed init
            None => End::Signaled(libc::SIGKILL),
        };
        let end = run.verdict(end, &seen, cpu);
        let collected = order.collect.filter(|_| end == End::Exited(0));
        let artifact = collected.and_then(|path| room.take(path, order.limits.disk_bytes));
        let peak_memory_bytes = peak.max(seen.peak_bytes);
        Ok(Answer::Told(Told { end, cpu, wall, peak_memory_bytes, streams: seen.streams }, artifact))
    }

    fn begin_counters(&self, order: &Order<'_>) -> Result<Option<(&Counters, Start)>, Failure> {
        let Some(counters) = &self.counters else { return Ok(None) };
        let tasks = OWN_PROCESSES + u64::from(order.limits.processes) + THREADS;
        Ok(Some((counters, counters.begin(&order.limits, tasks)?)))
    }

    fn start(&self, plan: &Plan<'_>) -> Result<(Pid, OwnedFd), Failure> {
        // the supervisor's namespaces for the rest: there is no network in it to share, and calls for shared memory
        // and queues are denied; a further one for those would triple what a run costs on a busy machine
        let namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
        match system::clone_process(if self.isolated { namespaces } else { 0 }).step("start the run")? {
            Cloned::Child => init::serve(plan),
            Cloned::Parent { pid, pidfd } => Ok((pid, pidfd)),
        }
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

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// The end to read from; the other is closed.
    fn read(self) -> OwnedFd {
        self.read
    }
}

fn pipe() -> Result<Pipe, Failure> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
    // the supervisor must never wait on a pipe; the program's end stays as programs expect it
    rustix::io::ioctl_fionbio(&read, true).step("make a pipe")?;
    Ok(Pipe { read, write })
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
