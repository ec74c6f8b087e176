//! Runs one untrusted program at a time, isolated and under limits. Linux only; no other program is needed.
//!
//! A [`Sandbox`] keeps a pool of *supervisors*: small processes, started anew from an executable (never forked from
//! the caller, whose memory holds secrets), with an empty environment and no descriptor but a socket to the caller.
//! Each serves one run at a time:
//!
//! ```text
//! caller ─ socket ─ supervisor, outer ─ supervisor, inner ───────── init ────────────────── program
//!                   an unprivileged     pid 1 of its own user,      pid 1 of the run: own   no capabilities,
//!                   uid; only waits     pid, mount, net, ipc, uts   pid and mount           landlock, seccomp,
//!                                       and cgroup namespaces       namespace, own tmpfs    resource limits
//! ```
//!
//! A run ends with its init: the kernel then kills whatever the program left behind.
//!
//! What a program can reach: `/usr`, `/bin`, `/sbin`, `/lib*` and the folders of [`Settings::roots`], read-only; a
//! private tmpfs with its work folder, `/tmp` and `/dev/shm`; five harmless devices; an `/etc` of a few made-up
//! files; the processes of its own run. No network, no unix socket of the host, no process, environment, or file of
//! the host, no kernel setting.
//!
//! What this does not protect against: faults of the kernel itself (system calls that ordinary programs need stay
//! allowed); side channels by caches, timing and load; reading what lies in `/usr` and the given roots. Clocks run
//! on, so a program can tell the time. With [`Isolation::Off`] nothing is protected: the limits hold for programs
//! that mean no harm. Without a memory cgroup ([`Sandbox::layers`] tells), memory is watched every few milliseconds
//! and not stopped at once, and kernel memory such as pipe buffers is not counted.
//!
//! Kernel: 5.12 or later with unprivileged user namespaces. Report section 2.2.1 (code rewards).

mod error;
mod types;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use error::SandboxError;
pub use types::{Cgroups, End, Isolation, Job, Launch, Layers, Limits, Outcome, Program, Settings};

#[cfg(target_os = "linux")]
pub use linux::{Artifact, Sandbox, supervise_if_asked};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Artifact, Sandbox, supervise_if_asked};
