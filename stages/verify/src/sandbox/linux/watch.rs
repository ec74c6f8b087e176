//! Watches one run: takes what it writes, looks after its limits, and ends it when it reaches one or when the caller
//! is gone.

use super::census;
use super::counters::{Counters, Start};
use super::room::Room;
use super::wire::{Failure, Step};
use crate::sandbox::{End, Limits};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time between two looks at what the run uses.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes taken from a pipe at a time: as many as it holds.
const CHUNK: usize = 64 * 1024;

/// A run that has started.
pub struct Run<'a> {
    /// Whether its end is the end of all its processes.
    pub isolated: bool,
    /// Its first process.
    pub pidfd: OwnedFd,
    /// When it started.
    pub started: Instant,
    /// Its files.
    pub room: &'a Room,
    /// Its limits.
    pub limits: Limits,
    /// What counts for it, and from where.
    pub counted: Option<(&'a Counters, Start)>,
}

/// What was seen of a run.
#[derive(Debug, Default)]
pub struct Seen {
    /// The limit at which it was ended.
    pub reached: Option<End>,
    /// Processor time when last looked at.
    pub cpu: Duration,
    /// Greatest memory seen.
    pub peak_bytes: u64,
    /// Standard output, standard error, report.
    pub streams: [Vec<u8>; 3],
    /// Whether the caller closed the socket.
    pub caller_gone: bool,
}

/// Watches until the first process of the run has ended; `streams` are standard output, standard error and report.
pub fn watch(run: &Run<'_>, control: &OwnedFd, mut streams: [Option<OwnedFd>; 3]) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let mut chunk = vec![0; CHUNK];
    let mut next_look = run.started + LOOK;
    loop {
        let ready = wait(run, control, &streams, next_look).step("wait for the run")?;
        for (index, stream) in streams.iter_mut().enumerate() {
            if ready.streams[index] {
                take(run, &mut seen, index, stream, &mut chunk);
            }
        }
        if ready.ended {
            break;
        }
        if ready.caller_gone {
            seen.caller_gone = true;
            run.kill();
            return Ok(seen);
        }
        if Instant::now() >= next_look {
            if let Some(limit) = run.look(&mut seen) {
                seen.reached.get_or_insert(limit);
            }
            next_look = Instant::now() + LOOK;
        }
        if seen.reached.is_some() {
            run.kill();
        }
    }
    // without isolation processes may be left, and write on and on
    run.kill_all();
    for (index, stream) in streams.iter_mut().enumerate() {
        while take(run, &mut seen, index, stream, &mut chunk) {}
    }
    Ok(seen)
}

/// What a run uses at one moment. Processes may be given as 0 while they are few.
struct Used {
    cpu: Duration,
    memory_bytes: u64,
    processes: u64,
}

struct Ready {
    streams: [bool; 3],
    ended: bool,
    caller_gone: bool,
}

fn wait(run: &Run<'_>, control: &OwnedFd, streams: &[Option<OwnedFd>; 3], until: Instant) -> io::Result<Ready> {
    let mut polled = vec![PollFd::new(&run.pidfd, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
    polled.extend(streams.iter().flatten().map(|stream| PollFd::new(stream, PollFlags::IN)));
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
    match rustix::event::poll(&mut polled, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
    let (ended, caller_gone) = (ready.next() == Some(true), ready.next() == Some(true));
    let streams = streams.each_ref().map(|stream| stream.is_some() && ready.next() == Some(true));
    Ok(Ready { streams, ended, caller_gone })
}

/// Takes one chunk of a stream; whether there may be more.
fn take(run: &Run<'_>, seen: &mut Seen, index: usize, stream: &mut Option<OwnedFd>, chunk: &mut [u8]) -> bool {
    let Some(pipe) = stream.as_ref() else { return false };
    let taken = match rustix::io::read(pipe, &mut *chunk) {
        Ok(taken) => taken,
        Err(rustix::io::Errno::INTR) => return true,
        Err(rustix::io::Errno::AGAIN) => return false,
        Err(_) => 0,
    };
    if taken == 0 {
        *stream = None;
        return false;
    }
    let most = if index == 1 { run.limits.stderr_bytes } else { run.limits.stdout_bytes };
    let kept = &mut seen.streams[index];
    let room = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(kept.len());
    kept.extend_from_slice(&chunk[..taken.min(room)]);
    if taken > room && index != 1 {
        seen.reached.get_or_insert(End::OutputLimit);
        // the rest is of no use, and a program that floods must not keep the supervisor from its watch
        return false;
    }
    true
}

impl Run<'_> {
    /// The limit that the run has reached, if any.
    fn look(&self, seen: &mut Seen) -> Option<End> {
        let used = self.used();
        seen.cpu = seen.cpu.max(used.cpu);
        seen.peak_bytes = seen.peak_bytes.max(used.memory_bytes);
        match () {
            // with a group it is the kernel that ends what takes too much, and its count is of more than the program
            () if self.counted.is_none() && used.memory_bytes > self.limits.memory_bytes => Some(End::MemoryLimit),
            () if used.cpu >= self.limits.cpu => Some(End::CpuLimit),
            () if self.started.elapsed() >= self.limits.wall => Some(End::WallLimit),
            // the kernel would refuse further ones only with the room for threads used up, and hundreds of busy
            // processes hold up everyone else
            () if used.processes > u64::from(self.limits.processes) => Some(End::Signaled(libc::SIGKILL)),
            () => None,
        }
    }

    /// What the run uses, as exactly as is needed.
    fn used(&self) -> Used {
        let processes = || census::descendants(rustix::process::getpid().as_raw_nonzero().get());
        // init is none of the program's
        let count = |processes: &[i32]| (processes.len() as u64).saturating_sub(1);
        if let Some((counters, start)) = &self.counted {
            let memory_bytes = counters.memory_since(start);
            let are_few = counters.tasks().is_some_and(|tasks| tasks <= u64::from(self.limits.processes));
            if let Some(cpu) = counters.cpu_since(start).filter(|_| are_few) {
                return Used { cpu, memory_bytes, processes: 0 };
            }
            let processes = processes();
            let cpu = counters.cpu_since(start).unwrap_or_else(|| census::use_of(&processes).cpu);
            return Used { cpu, memory_bytes, processes: count(&processes) };
        }
        let processes = processes();
        let used = census::use_of(&processes);
        let files = self.room.used_bytes();
        let mut memory_bytes = used.anonymous_bytes + used.shared_bytes.max(files);
        if memory_bytes > self.limits.memory_bytes {
            // pages that forks share have been counted for each
            let (anonymous, shared) = census::exact_memory(&processes);
            memory_bytes = anonymous + shared.max(files);
        }
        Used { cpu: used.cpu, memory_bytes, processes: count(&processes) }
    }

    /// How the run ended: `end` is how its program did, unless that was a limit's doing.
    pub fn verdict(&self, end: End, seen: &Seen, cpu: Duration) -> End {
        let is_short = self.counted.is_some_and(|(counters, start)| counters.has_killed_since(&start));
        match seen.reached {
            Some(limit) => limit,
            None if is_short => End::MemoryLimit,
            // between two looks, or by the limit that the kernel keeps
            None if cpu >= self.limits.cpu => End::CpuLimit,
            None => end,
        }
    }

    /// Ends the first process, and in isolation thereby all.
    fn kill(&self) {
        // it may be gone already
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if !self.isolated {
            self.kill_all();
        }
    }

    /// Ends whatever is left of the run.
    ///
    /// In isolation the kernel does so when init ends. Without, orphans become the supervisor's children and are
    /// hunted until none is left; a fork bomb can win this race for a while, therefore the second look.
    pub fn kill_all(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if self.isolated {
            return;
        }
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            let left: Vec<Pid> = census::living_descendants(own).into_iter().filter_map(Pid::from_raw).collect();
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
