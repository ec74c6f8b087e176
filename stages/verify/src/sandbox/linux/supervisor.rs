//! A supervisor's life: it is told what to be, leaves the host, says so, and serves runs until the caller is gone.

use super::calls::Filters;
use super::counters::Counters;
use super::order::Charge;
use super::run::{Answer, Server};
use super::wire::{self, Encoder, Failure, Step};
use super::{init, namespaces, system};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The argument that makes a program a supervisor.
pub const MARKER: &str = "--serve-as-sandbox-supervisor";
/// The first argument, for those who list processes.
pub const NAME: &str = "sandbox-supervisor";

static ASKED: AtomicBool = AtomicBool::new(false);

/// Serves as supervisor and never returns if the process was started as one; otherwise does nothing.
///
/// Must be the first line of `main` of every program that uses [`Launch::Itself`](crate::sandbox::Launch::Itself): a
/// supervisor must have a single thread.
pub fn supervise_if_asked() {
    ASKED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os();
    if arguments.next().as_deref() == Some(OsStr::new(NAME)) && arguments.next().as_deref() == Some(OsStr::new(MARKER))
    {
        // a message on standard error would reach nobody: failures go over the socket, where there is one
        system::exit_now(i32::from(serve().is_none()));
    }
}

/// Whether this program would serve as supervisor if it were started as one.
pub fn would_serve() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// `None` if there is no caller that could be told what is wrong.
fn serve() -> Option<()> {
    let control = take_control()?;
    let (packet, descriptors) = wire::receive(control.as_fd()).ok()??;
    let charge = Charge::decode(&packet).ok()?;
    let mut out = Encoder::default();
    match settle(&charge, descriptors) {
        Ok((server, layers)) => {
            out.number(0).number(layers.len() as u64);
            for layer in &layers {
                out.bytes(layer.as_bytes());
            }
            wire::send(control.as_fd(), &out.0, &[]).ok()?;
            answer_all(&server, &control)
        }
        Err(failure) => {
            out.number(1).failure(&failure);
            wire::send(control.as_fd(), &out.0, &[]).ok()
        }
    }
}

/// The socket came as standard input. It moves out of the way, and nothing else that was open stays so.
fn take_control() -> Option<OwnedFd> {
    system::close_others(&[0, 1, 2]).ok()?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), init::REPORT + 1).ok()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    for target in 0..init::REPORT {
        system::duplicate_onto(null.as_raw_fd(), target).ok()?;
    }
    // it is the first free number, and stays open, so that no descriptor of a run is ever the one that the report
    // will have
    let is_kept = null.into_raw_fd() == init::REPORT;
    is_kept.then_some(control)
}

/// Leaves the host if it is to, and makes ready what all runs share.
fn settle(charge: &Charge, files: Vec<OwnedFd>) -> Result<(Server, Vec<String>), Failure> {
    // an interrupt at the terminal is for the caller, who may want to finish its runs
    rustix::process::setsid().step("start a session")?;
    let mut layers;
    let landlock = system::landlock_version();
    let as_nobody = !charge.isolated && rustix::process::geteuid().is_root();
    if charge.isolated {
        layers = namespaces::enter(charge)?;
        layers.push(
            landlock.map_or("landlock: none in this kernel".to_owned(), |version| format!("landlock: ABI {version}")),
        );
        layers
            .push("seccomp: sockets, mounts, tracing, namespaces, bpf, keys, io_uring and the like denied".to_owned());
    } else {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step("adopt orphans")?;
        layers = vec!["none: programs can read and change what their user can; limits only".to_owned()];
        if as_nobody {
            layers.push(format!("user: uid {}, since the caller is root", namespaces::NOBODY));
        }
    }
    let filters = Filters::new().step("make the filters of system calls")?;
    let counters = charge.group.as_ref();
    let counters = counters.map(|(version, kinds)| Counters::new(*version, kinds.iter().copied().zip(files).collect()));
    Ok((Server { isolated: charge.isolated, landlock: landlock.is_some(), as_nobody, filters, counters }, layers))
}

/// Serves until the caller closes the socket or the machinery fails.
fn answer_all(server: &Server, control: &OwnedFd) -> Option<()> {
    while let Some((_, descriptors)) = wire::receive(control.as_fd()).ok()? {
        let mut out = Encoder::default();
        let mut attached = Vec::new();
        match server.serve(control, descriptors) {
            Answer::Told(told, artifact) => match wire::sealed("outcome", &told.encode()) {
                Ok(file) => {
                    out.number(0);
                    attached.extend(std::iter::once(file).chain(artifact));
                }
                Err(error) => {
                    let failure = Failure { step: "write the outcome".into(), code: 0, reason: error.to_string() };
                    out.number(1).failure(&failure);
                }
            },
            Answer::Failed(failure) => {
                out.number(1).failure(&failure);
            }
            Answer::NotExecuted(failure) => {
                out.number(2).failure(&failure);
            }
            Answer::CallerGone => return Some(()),
        }
        let attached: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        wire::send(control.as_fd(), &out.0, &attached).ok()?;
    }
    Some(())
}
