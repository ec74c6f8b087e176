//! One supervisor, as the caller has it.

use super::group::Group;
use super::order::{self, Charge, Told};
use super::wire::{self, Decoder, Failure};
use super::{Artifact, supervisor};
use crate::sandbox::{Cgroups, Job, Launch, Layers, Limits, Outcome, Program, SandboxError, Settings};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a supervisor may take beyond the limits of a run before it counts as lost: a machine under load is slow,
/// not lost.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a supervisor may take to end after its socket was closed.
const FAREWELL: Duration = Duration::from_secs(5);
/// Outcome without the streams.
const OUTCOME_HEAD: u64 = 1024;

/// A running supervisor; ended on drop.
#[derive(Debug)]
pub struct Client {
    child: Child,
    control: Option<OwnedFd>,
    /// After the child, so that the group is empty when it is removed.
    group: Option<Group>,
}

/// Why a run gave no outcome.
pub enum Refusal {
    /// The job is at fault, or what it names; the supervisor is well.
    Final(SandboxError),
    /// The supervisor is lost or not to be trusted; another may do better.
    Lost(SandboxError),
}

impl Client {
    /// Starts a supervisor and waits until it has left the host.
    pub fn start(settings: &Settings) -> Result<(Self, Layers), SandboxError> {
        let program = match &settings.launch {
            Launch::Program(program) => program.as_path(),
            Launch::Itself if supervisor::would_serve() => Path::new("/proc/self/exe"),
            Launch::Itself => return Err(SandboxError::NotAsked),
        };
        let failed = |source: io::Error| SandboxError::Start { program: program.display().to_string(), source };
        let (here, there) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        let child = Command::new(program)
            .arg0(supervisor::NAME)
            .arg(supervisor::MARKER)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(there))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let group = match settings.cgroups {
            Cgroups::Auto => Group::make(),
            Cgroups::None => Err("not asked for".to_owned()),
        };
        // before the supervisor has started anything: it waits for what it is told below
        let group = group.and_then(|group| group.admit(child.id()).map(|()| group).map_err(|error| error.to_string()));
        let memory_layer = group.as_ref().map_or_else(
            |reason| format!("limits: watched by the supervisor every few milliseconds (no control group: {reason})"),
            Group::describe,
        );
        let client = Self { child, control: Some(here), group: group.ok() };
        let lost = |error: io::Error| SandboxError::Lost(error.to_string());
        client.charge(settings).map_err(lost)?;
        let (packet, _) = client.receive(PATIENCE).map_err(SandboxError::Lost)?;
        let mut layers = read_greeting(&packet).map_err(lost)??;
        layers.0.push(memory_layer);
        Ok((client, layers))
    }

    /// Tells the supervisor what it is to be.
    fn charge(&self, settings: &Settings) -> io::Result<()> {
        let files = self.group.as_ref().map(Group::files).unwrap_or_default();
        let (kinds, files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let group = self.group.as_ref().map(|group| (group.version(), &kinds[..]));
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        self.send(&Charge::encode(settings, group), &files)
    }

    /// Runs `job`, or the trial of every layer if there is none.
    pub fn run(&self, job: Option<&Job<'_>>, limits: &Limits) -> Result<Outcome, Refusal> {
        let lost = |error: io::Error| Refusal::Lost(SandboxError::Lost(error.to_string()));
        let bytes = order::encode_job(job, limits).map_err(|reason| Refusal::Final(SandboxError::Job(reason)))?;
        let order = wire::sealed("job", &bytes).map_err(lost)?;
        drop(bytes);
        let stdin = wire::sealed("stdin", job.map_or(&[], |job| job.stdin)).map_err(lost)?;
        let mut descriptors = vec![order.as_fd(), stdin.as_fd()];
        if let Some(Program::Artifact(artifact)) = job.map(|job| job.program) {
            descriptors.push(artifact.as_fd());
        }
        self.send(&[1], &descriptors).map_err(lost)?;
        let (packet, descriptors) = self
            .receive(limits.wall.saturating_add(PATIENCE))
            .map_err(|reason| Refusal::Lost(SandboxError::Lost(reason)))?;
        let mut input = Decoder(&packet);
        match input.number().map_err(lost)? {
            0 => read_outcome(descriptors, limits).map_err(lost),
            1 => {
                let Failure { step, reason, .. } = input.failure().map_err(lost)?;
                Err(Refusal::Lost(SandboxError::Run { step, reason }))
            }
            _ => {
                let reason = input.failure().map_err(lost)?.reason;
                let program = match job.map(|job| job.program) {
                    Some(Program::Path(path)) => path.display().to_string(),
                    _ => "the artifact".to_owned(),
                };
                Err(Refusal::Final(SandboxError::Program { program, reason }))
            }
        }
    }

    fn send(&self, packet: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        wire::send(control.as_fd(), packet, descriptors)
    }

    fn receive(&self, patience: Duration) -> Result<(Vec<u8>, Vec<OwnedFd>), String> {
        let control = self.control.as_ref().ok_or("its socket is closed")?;
        let until = Instant::now().checked_add(patience);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err("it gave no answer in time".to_owned());
            }
            // a minute at a time: longer spans need not fit what the kernel takes
            let left = left.unwrap_or(PATIENCE).min(PATIENCE);
            let left = Timespec::try_from(left).map_err(|error| error.to_string())?;
            match rustix::event::poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        wire::receive(control.as_fd()).map_err(|error| error.to_string())?.ok_or_else(|| "it ended".to_owned())
    }

    /// Whether it ended in time.
    fn has_ended(&mut self) -> bool {
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // the end of the socket ends the supervisor and its run, and with them their namespace
        self.control = None;
        if !self.has_ended() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn read_greeting(packet: &[u8]) -> io::Result<Result<Layers, SandboxError>> {
    let mut input = Decoder(packet);
    if input.number()? == 0 {
        return Ok(Ok(Layers(input.list(Decoder::text)?)));
    }
    let Failure { step, code, reason } = input.failure()?;
    Ok(Err(SandboxError::Unavailable { remedy: remedy(&step, code), step, reason }))
}

/// What to do when a step of leaving the host fails.
fn remedy(step: &str, code: i32) -> &'static str {
    match code {
        libc::EPERM | libc::EINVAL if step.contains("of root") => {
            "start as an ordinary user, or as root with the capabilities SETUID, SETGID and SYS_ADMIN"
        }
        libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EUSERS => {
            "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, \
             kernel.apparmor_restrict_unprivileged_userns=0); in a container allow them, mounts and an unmasked \
             /proc too (Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined)"
        }
        libc::ENOSYS => "use a kernel of version 5.12 or later",
        _ => "see what the kernel's log says of it",
    }
}

fn read_outcome(descriptors: Vec<OwnedFd>, limits: &Limits) -> io::Result<Outcome> {
    let mut descriptors = descriptors.into_iter();
    let file = descriptors.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    let most = limits.stdout_bytes.saturating_mul(2).saturating_add(limits.stderr_bytes).saturating_add(OUTCOME_HEAD);
    let Told { end, cpu, wall, peak_memory_bytes, streams } = Told::decode(&wire::content(file, most)?)?;
    let [stdout, stderr, report] = streams;
    let artifact = descriptors.next().map(Artifact::new);
    Ok(Outcome { end, cpu, wall, peak_memory_bytes, stdout, stderr, report, artifact })
}
